"""The last calls of each user, step by step: what undo() reverses. Ids and states, never text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sqlmem.db import Database

Step = tuple[Any, ...]
"""What one step did, to a memory by its rowid, or to those from a first to a last one:

("begin", first, last)                            versions were stored
("ask", rowid, conflict)                          a proposal was stored, which waits in a conflict
("end", rowid, at, reason, by)                    a version ended
("trash", first, last, until)                     versions were put into the trash
("seen", rowid)                                   a statement was made again
("grade", rowid, feedback, outcome, at)           a grade was given
("accept", rowid, before, after, categories)      a proposal, which stood there before, took its place and got categories
("resolve", conflict, resolution, results, at)    a conflict was closed
("extracted", scope, before, after)               a session's turns were read on from one number to another

A place is (kind, scope, chain, version, created_at).
"""

State = Literal["done", "undone", "final"]

# So many of a user's calls can be undone, one after the other.
KEPT = 100

_ADD = """
insert into operation (call, user, verb, at, state, steps)
values (coalesce(:call, (select coalesce(max(id), 0) + 1 from operation)), :user, :verb, :at, :state, :steps) returning id, call
"""
_NEWEST = "select call, verb, at, state from operation where user = :user and state <> 'undone' order by id desc limit 1"
_FIRST_UNDONE = "select call, verb, at, state from operation where user = :user and state = 'undone' order by id limit 1"
_STEPS = "select steps from operation where user = :user and call = :call order by id"
_STATE = "update operation set state = :state where call = :call and user = :user"
_DROP = """
delete from operation
 where user = :user and call <= (
    select call from operation where user = :user group by call order by max(id) desc limit 1 offset :kept)
"""
_UNDONE = "select steps from operation where user = :user and state = 'undone'"
_DROP_ALL = "delete from operation where user = :user"
_FORGET_UNDONE = "delete from operation where user = :user and state = 'undone'"


class Call(NamedTuple):
    """One call of a verb, of all its transactions. `at` is when it ended, in milliseconds."""

    number: int
    verb: str
    at: int
    state: State


def add(db: Database, user: str, verb: str, at: int, steps: Sequence[Step], *, call: int | None, final: bool) -> int:
    """Note what a transaction did for `user`; returns the number of its call. Calls before the last KEPT are dropped."""
    state: State = "final" if final else "done"
    encoded = json.dumps([] if final else steps, separators=(",", ":"))
    row = db.row(_ADD, {"call": call, "user": user, "verb": verb, "at": at, "state": state, "steps": encoded})
    assert row is not None
    db.execute(_DROP, {"user": user, "kept": KEPT})
    number: int = row[1]
    return number


def memories(step: Step) -> range:
    """The rowids of the memories that a step changed."""
    match step:
        case ("begin" | "trash", first, last, *_):
            return range(first, last + 1)
        case ("resolve" | "extracted", *_):
            return range(0)
        case _:
            return range(step[1], step[1] + 1)


def extended(last: Step | None, step: Step) -> Step | None:
    """The two steps as one, if the second one goes on with what the first one did."""
    if last is None or step[0] not in ("begin", "trash") or last[0] != step[0] or last[3:] != step[3:]:
        return None
    return (last[0], last[1], *step[2:]) if last[2] + 1 == step[1] else None


def drop(db: Database, user: str) -> None:
    """Forget all of a user's calls."""
    db.execute(_DROP_ALL, {"user": user})


def newest(db: Database, user: str) -> Call | None:
    """The user's last call that was not undone."""
    row = db.row(_NEWEST, {"user": user})
    return None if row is None else Call(*row)


def first_undone(db: Database, user: str) -> Call | None:
    """The call that the user undid last."""
    row = db.row(_FIRST_UNDONE, {"user": user})
    return None if row is None else Call(*row)


def steps(db: Database, user: str, call: Call) -> list[Step]:
    """What a call did to this user's memories, in order."""
    rows = db.rows(_STEPS, {"user": user, "call": call.number})
    return [tuple(step) for row in rows for step in json.loads(row[0])]


def mark(db: Database, user: str, call: Call, state: State) -> None:
    """Note that a call was undone, or done again."""
    db.execute(_STATE, {"user": user, "call": call.number, "state": state})


def take_undone(db: Database, user: str) -> list[Step]:
    """The steps of the calls that the user undid, which from now on cannot be done again."""
    rows = db.rows(_UNDONE, {"user": user})
    if rows:
        db.execute(_FORGET_UNDONE, {"user": user})
    return [tuple(step) for row in rows for step in json.loads(row[0])]
