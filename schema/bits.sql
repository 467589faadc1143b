-- Derived from {table}, for nearest-neighbour search over large scopes: (unit vector - centre) in two bits a component.
--   bit   its sign
--   fine  whether it is large: above 0.9816 * sqrt((1 - |centre|^2) / dim)
create virtual table {table}_bits using vec0(
    id integer primary key,
    live integer partition key,
    bit bit[{bits}],
    fine bit[{bits}],
    chunk_size = {chunk}
);
