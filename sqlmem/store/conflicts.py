"""Conflicts: proposals that wait, what they contradict, and what is to be asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlmem import pages
from sqlmem.db import Database
from sqlmem.records import ConflictStatus, Question
from sqlmem.store.memories import array

_COLUMNS = "id, name, user, memory, status, error, resolution, created_at, resolved_at"
_ADD = """
insert into conflict (name, user, memory, status, created_at) values (:name, :user, :memory, 'pending', :now) returning id
"""
_ADD_MEMBER = "insert or ignore into conflict_memory (conflict, memory, reason) values (?, ?, ?)"
_ADD_QUESTION = "insert into conflict_question (conflict, number, question, options) values (?, ?, ?, ?)"
_ADD_RESULT = "insert or ignore into conflict_result (conflict, memory) values (?, ?)"
_BY_NAME = f"select {_COLUMNS} from conflict where name = :name"
_LIST = f"""
select {_COLUMNS} from conflict
 where (:user is null or user = :user) and status in (select value from json_each(:statuses))
   and (:before is null or id < :before)
 order by id desc limit :limit
"""
_MEMBERS = "select memory, reason from conflict_memory where conflict = :id order by memory"
_RESULTS = """
select coalesce(m.id, t.id) from conflict_result r
  left join memory m on m.rowid = r.memory left join tombstone t on t.rowid = r.memory
 where r.conflict = :id order by r.memory
"""
_QUESTIONS = "select question, options, answer from conflict_question where conflict = :id order by number"
_ANSWER = "update conflict_question set answer = :answer where conflict = :id and question = :question"
_CLOSE = """
update conflict set status = 'resolved', error = null, resolution = :resolution, resolved_at = :now where id = :id
"""
_REOPEN = "update conflict set status = 'pending', resolution = null, resolved_at = null where id = :id"
_NO_RESULTS = "delete from conflict_result where conflict = :id"
_FAIL = "update conflict set status = 'failed', error = :error where id = :id and status <> 'resolved'"
_DROP_MEMBERS = "delete from conflict_memory where conflict = :id"
_DROP_QUESTIONS = "delete from conflict_question where conflict = :id"


class Row(NamedTuple):
    """A conflict as it lies in the file. Times are milliseconds, `memory` is the proposal's rowid."""

    id: int
    name: str
    user: str
    memory: int
    status: ConflictStatus
    error: str | None
    resolution: str | None
    created_at: int
    resolved_at: int | None


def add(
    db: Database,
    *,
    name: str,
    user: str,
    memory: int,
    members: Iterable[tuple[int, str | None]],
    questions: Sequence[Question],
    now: int,
) -> int:
    """Open a conflict between a proposal and the memories that it contradicts, each with the reason."""
    row = db.row(_ADD, {"name": name, "user": user, "memory": memory, "now": now})
    assert row is not None
    db.execute_many(_ADD_MEMBER, [(row[0], rowid, reason) for rowid, reason in members])
    db.execute_many(
        _ADD_QUESTION,
        [(row[0], number, one.question, json.dumps(one.options, ensure_ascii=False)) for number, one in enumerate(questions)],
    )
    return int(row[0])


def by_name(db: Database, name: str) -> Row | None:
    """The conflict with this name."""
    row = db.row(_BY_NAME, {"name": name})
    return None if row is None else Row(*row)


def page(
    db: Database, user: str | None, statuses: Sequence[str], *, limit: object, cursor: object, longest: int
) -> tuple[list[Row], str | None]:
    """Conflicts, the newest first, and the cursor for those after them. Raises InvalidArgument."""
    found, following = pages.read(db, _LIST, {"user": user, "statuses": array(statuses)}, limit, cursor, longest)
    return [Row(*row) for row in found], following


def members(db: Database, id_: int) -> list[tuple[int, str | None]]:
    """What a conflict's proposal contradicts, with the reasons."""
    return [(row[0], row[1]) for row in db.rows(_MEMBERS, {"id": id_})]


def replace_members(db: Database, id_: int, rowids: Iterable[int]) -> None:
    """Let a conflict be about other versions; what was said and asked of the ones before goes."""
    db.execute(_DROP_MEMBERS, {"id": id_})
    db.execute(_DROP_QUESTIONS, {"id": id_})
    db.execute_many(_ADD_MEMBER, [(id_, rowid, None) for rowid in rowids])


def questions(db: Database, id_: int) -> list[Question]:
    """A conflict's own questions; none if the ready ones serve. While it waits, an answer is one that was undone."""
    rows = db.rows(_QUESTIONS, {"id": id_})
    return [Question(question=row[0], options=tuple(json.loads(row[1])), answer=row[2]) for row in rows]


def results(db: Database, id_: int) -> tuple[str, ...]:
    """The ids of what resolving a conflict stored or let live, forgotten ones too."""
    return tuple(row[0] for row in db.rows(_RESULTS, {"id": id_}))


def close(
    db: Database, id_: int, resolution: str, results: Iterable[int], answers: Iterable[tuple[str, str]], now: int
) -> None:
    """Note how a conflict was resolved."""
    db.execute(_CLOSE, {"id": id_, "resolution": resolution, "now": now})
    db.execute_many(_ADD_RESULT, [(id_, rowid) for rowid in results])
    db.execute_many(_ANSWER, [{"id": id_, "question": question, "answer": answer} for question, answer in answers])


def withdraw(db: Database, id_: int, now: int) -> None:
    """Close a conflict because its proposal was undone."""
    db.execute(_CLOSE, {"id": id_, "resolution": "undone", "now": now})


def reopen(db: Database, id_: int) -> None:
    """Let a conflict wait again, as if it never had been closed. Its answers stay where they are, for closing it again."""
    db.execute(_REOPEN, {"id": id_})
    db.execute(_NO_RESULTS, {"id": id_})


def fail(db: Database, id_: int, error: str) -> None:
    """Note that an attempt to resolve a conflict failed."""
    db.execute(_FAIL, {"id": id_, "error": error})
