"""What a model answered that could not be used, by session."""

from __future__ import annotations

from typing import NamedTuple

from sqlmem.db import Database

_ADD = """
insert or replace into extraction_failure (scope, error, answer, failed_at) values (:scope, :error, :answer, :at)
"""
_DROP = "delete from extraction_failure where scope = :scope"
_LIST = """
select s.user, s.session, f.error, f.answer, f.failed_at from extraction_failure f join scope s on s.id = f.scope
 where :user is null or s.user = :user order by f.failed_at, f.scope
"""


class Failure(NamedTuple):
    """A session that could not be read; `at` in milliseconds."""

    user: str
    session: str | None
    error: str
    answer: str
    at: int


def add(db: Database, scope: int, error: str, answer: str, at: int) -> None:
    """Keep the last answer of a session that could not be used."""
    db.execute(_ADD, {"scope": scope, "error": error, "answer": answer, "at": at})


def drop(db: Database, scope: int) -> None:
    """The session was read."""
    db.execute(_DROP, {"scope": scope})


def every(db: Database, user: str | None) -> list[Failure]:
    """The failures of one user or all, the oldest first."""
    return [Failure(*row) for row in db.rows(_LIST, {"user": user})]
