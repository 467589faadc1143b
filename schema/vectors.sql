-- One pair of tables per model; {table} is model.table_name and {dim} model.dim.
-- code: int8[dim], the vector divided by its largest absolute component and multiplied by 127 (cosine needs no scale).
create table {table} (
    id   integer primary key references memory (rowid) on delete cascade,
    code blob check (length(code) = {dim})  -- null: the text has no vector (nothing in it that the model knows)
) strict;
