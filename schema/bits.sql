-- Derived from {table}: the sign bits of (unit vector - centre), for nearest-neighbour search over large scopes.
create virtual table {table}_bits using vec0(
    id integer primary key,
    live integer partition key,
    bit bit[{bits}],
    chunk_size = 64
);
