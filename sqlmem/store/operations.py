"""The last calls of each user, step by step: what undo() reverses. Ids and states, never text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlmem.db import Database

Step = tuple[Any, ...]
"""What one step did to one memory, its rowid second:

("begin", rowid)                          a version was stored
("end", rowid, at, reason, by)            a version ended
("trash", rowid, until)                   a version was put into the trash
("seen", rowid)                           a statement was made again
("grade", rowid, feedback, outcome, at)   a grade was given
("accept", rowid, created_at, kind, scope)  a proposal, which was stored as this, took its place
("resolve", conflict, status)             a conflict was closed, which stood so before
"""

State = Literal["done", "undone", "final"]

# So many of a user's calls can be undone, one after the other.
KEPT = 100

_ADD = """
insert into operation (call, user, verb, at, state, steps)
values (coalesce(:call, (select coalesce(max(id), 0) + 1 from operation)), :user, :verb, :at, :state, :steps) returning id, call
"""
_LAST = """
select id, call, verb, steps from operation
 where user = :user and state = :state
   and call = (select call from operation where user = :user and state = :state order by id {order} limit 1)
 order by id
"""
_STATE = "update operation set state = :state where call = :call and user = :user"
_NEWEST = "select state, verb from operation where user = :user order by id desc limit 1"
_DROP = """
delete from operation
 where user = :user and id <= (select id from operation where user = :user order by id desc limit 1 offset :kept)
"""
_UNDONE = "select steps from operation where user = :user and state = 'undone'"
_FORGET_UNDONE = "delete from operation where user = :user and state = 'undone'"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb: its steps in order, of all its transactions."""

    number: int
    verb: str
    steps: tuple[Step, ...]


def add(db: Database, user: str, verb: str, at: int, steps: Sequence[Step], *, call: int | None, final: bool) -> int:
    """Note what a transaction did for `user`; returns the number of its call. Calls before the last KEPT are dropped."""
    state: State = "final" if final else "done"
    encoded = json.dumps([] if final else steps, separators=(",", ":"))
    row = db.row(_ADD, {"call": call, "user": user, "verb": verb, "at": at, "state": state, "steps": encoded})
    assert row is not None
    db.execute(_DROP, {"user": user, "kept": KEPT})
    number: int = row[1]
    return number


def take_undone(db: Database, user: str) -> list[list[Step]]:
    """The steps of the calls that the user undid, which from now on cannot be done again."""
    found = [json.loads(row[0]) for row in db.rows(_UNDONE, {"user": user})]
    if found:
        db.execute(_FORGET_UNDONE, {"user": user})
    return found
