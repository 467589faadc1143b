"""Judges and resolvers that tests steer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlmem


class Judge:
    """Answers as told, and notes what it was shown. By default it contradicts what is about the same first word."""

    def __init__(self, answer: Callable[[str, list[str]], Any] | None = None) -> None:
        self.shown: list[tuple[str, list[str]]] = []
        self._answer = answer or same_subject

    def __call__(self, new: str, known: list[str]) -> Any:
        self.shown.append((new, known))
        return self._answer(new, known)


def same_subject(new: str, known: list[str]) -> list[bool]:
    """Two texts that begin with the same word contradict each other."""
    return [old.split()[0] == new.split()[0] for old in known]


def with_reason(new: str, known: list[str]) -> list[sqlmem.Verdict]:
    """The same, with the reason."""
    return [
        sqlmem.Verdict(contradicts=contradicts, reason=f"{new}, not {old}" if contradicts else None)
        for old, contradicts in zip(known, same_subject(new, known), strict=True)
    ]


def with_question(new: str, known: list[str]) -> list[sqlmem.Verdict]:
    """The same, with a question."""
    return [
        sqlmem.Verdict(contradicts=contradicts, question=f"{old} or {new}?", options=("the first", "the second", "neither"))
        for old, contradicts in zip(known, same_subject(new, known), strict=True)
    ]


def resolver(conflict: sqlmem.Conflict, answers: Mapping[str, str]) -> Sequence[str]:
    """Makes one text of the answers."""
    return [f"{conflict.proposed.text if conflict.proposed else '?'}: {', '.join(answers.values())}"]


def rows(store: sqlmem.MemoryStore) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables that callers' data stands in."""
    db = store._engine.db
    tables = "scope memory link feedback memory_category tombstone operation conflict conflict_memory conflict_result trash"
    return {table: [tuple(row) for row in db.rows(f"select * from {table} order by 1, 2")] for table in tables.split()}
