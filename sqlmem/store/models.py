"""The models whose vectors a file holds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlmem.db import Database
from sqlmem.schema import sql


@dataclass(frozen=True, slots=True)
class Model:
    """A row of the table `model`. `centre` is float32[dim] as bytes."""

    id: int
    name: str
    fingerprint: str
    dim: int
    centre: bytes | None
    table: str
    bits: str


_ALL = "select id, name, fingerprint, dim, centre, table_name, bits from model order by id"
_ADD = """
insert into model (name, fingerprint, dim, centre, table_name, bits, created_at)
values (:name, :fingerprint, :dim, :centre, :table, 'none', :now)
"""
_ALL_PENDING = "insert into pending (model, memory) select :model, rowid from memory"


def held(db: Database) -> list[Model]:
    """The file's models, in the order they came."""
    return [Model(*row) for row in db.rows(_ALL)]


def add(db: Database, *, name: str, fingerprint: str, dim: int, centre: bytes | None, now: int) -> Model:
    """Enter a model and create its vector table; memories that are already there wait for its vectors."""
    taken = {model.table for model in held(db)}
    table = base = "vector_" + (re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:48] or "model")
    while table in taken:
        table = f"{base}_{len(taken)}"
    db.execute(_ADD, {"name": name, "fingerprint": fingerprint, "dim": dim, "centre": centre, "table": table, "now": now})
    db.script(sql("vectors.sql").format(table=table, dim=dim))
    model = held(db)[-1]
    db.execute(_ALL_PENDING, {"model": model.id})
    return model
