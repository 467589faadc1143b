"""Grades that memories were given."""

from __future__ import annotations

from sqlmem.db import Database
from sqlmem.records import Outcome

_ADD = "insert into feedback (id, memory, outcome, at) values (:id, :memory, :outcome, :at) returning id"
_REMOVE = "delete from feedback where id = :id"


def add(db: Database, memory: int, outcome: Outcome, at: int, *, id_: int | None = None) -> int:
    """Add a grade, given at that many milliseconds; returns its id, which is never given again."""
    row = db.row(_ADD, {"id": id_, "memory": memory, "outcome": outcome, "at": at})
    assert row is not None
    return int(row[0])


def remove(db: Database, id_: int) -> None:
    """Take a grade back."""
    db.execute(_REMOVE, {"id": id_})
