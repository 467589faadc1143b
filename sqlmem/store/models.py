"""The models whose vectors a file holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlmem.db import Database
from sqlmem.schema import sql
from sqlmem.store.memories import array

Input = Literal["own", "context"]
"""What of a memory is embedded: its own text, or the turn before it and its own text."""


@dataclass(frozen=True, slots=True)
class Model:
    """A row of the table `model`: one vector for each memory. `centre` is float32[dim] as bytes."""

    id: int
    name: str
    fingerprint: str
    input: Input
    dim: int
    centre: bytes | None
    table: str
    serving: int
    indexed_to: int | None


_ALL = "select id, name, fingerprint, input, dim, centre, table_name, serving, indexed_to from model order by id"
_ADD = """
insert into model (name, fingerprint, input, dim, centre, table_name, serving, created_at)
values (:name, :fingerprint, :input, :dim, :centre, :table, 0, :now)
"""
_ALL_PENDING = "insert into pending (model, memory) select :model, rowid from memory"
_SERVE = "update model set serving = 1 where id in (select value from json_each(:ids))"
_DROP = "delete from model where id = ?"


def every(db: Database) -> list[Model]:
    """The file's models in the order they came, those that are still being filled included."""
    return [Model(*row) for row in db.rows(_ALL)]


def held(db: Database) -> list[Model]:
    """The models that serve searches, in the order they came."""
    return [model for model in every(db) if model.serving]


def add(
    db: Database,
    *,
    name: str,
    fingerprint: str,
    input: Input,
    dim: int,
    centre: bytes | None,
    now: int,
) -> Model:
    """Enter a model that does not serve yet, and create its table; memories that are there already wait for its vectors."""
    taken = {model.table for model in every(db)}
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:48] or "model"
    base = f"vector_{words}" if input == "own" else f"vector_{words}_{input}"
    # What ends in _bits and the like is the index of another table.
    table = base = base.replace("_bits", "_bit")
    number = 2
    while table in taken:
        table, number = f"{base}_{number}", number + 1
    row = {"name": name, "fingerprint": fingerprint, "input": input, "dim": dim, "centre": centre, "table": table}
    db.execute(_ADD, {**row, "now": now})
    db.script(sql("vectors.sql").format(table=table, dim=dim))
    model = next(model for model in every(db) if model.table == table)
    db.execute(_ALL_PENDING, {"model": model.id})
    return model


def serve(db: Database, ids: Iterable[int]) -> None:
    """Let searches use these models."""
    db.execute(_SERVE, {"ids": array(ids)})


def drop(db: Database, model: Model) -> None:
    """Take a model out of the file with all its vectors; its bit index must be gone already."""
    db.execute(f"drop table {model.table}")
    db.execute(_DROP, (model.id,))
