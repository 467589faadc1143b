"""Scopes: one for each user, one for each session of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlmem.db import Database
from sqlmem.records import ContradictionMode, Kind

_FIND = "select id, session from scope where user = :user and coalesce(session, '') in ('', :session)"
_ADD = "insert into scope (user, session, created_at) values (:user, :session, :now) returning id"
_BASE = """
select b.id from scope s join scope b on b.user = s.user and coalesce(b.session, '') = '' where s.id = :id
"""
_SHARE = "select (select count(*) from scope where user = :user) * 1.0 / count(*) from scope"
_NAMED = "select user, session from scope where id = :id"
_USER = "select user from scope where id = :id"
_NEXT_TURN = "select next_turn from scope where id = :id"
_TAKE_TURN = "update scope set next_turn = next_turn + 1 where id = :id returning next_turn - 1"
_RAISE_TURN = "update scope set next_turn = max(next_turn, :turn + 1) where id = :id"

_EXTRACTED = "select extracted_to from scope where id = :id"
_SET_EXTRACTED = "update scope set extracted_to = :turn where id = :id"
_SUMMARY = "select summary from scope where id = :id"
_SET_SUMMARY = "update scope set summary = :chain where id = :id"
_MODE = "select on_contradiction from scope where user = :user and session is null"
_SET_MODE = "update scope set on_contradiction = :mode where user = :user and session is null"


def word(letter: Literal["u", "s", "w", "p"], id_: int) -> str:
    """A word of the keyword index's scope column, spelt as no text is, so that a question's words cannot mean it."""
    return f"scopex{letter}{id_}x"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a memory belongs. `base` is the user's own scope, and `id` itself for a memory without a session."""

    id: int
    base: int

    def words(self, kind: Kind) -> str:
        """The words that mark a memory of this scope in the keyword index (see schema/fts.sql).

        Always three, so that none is held for longer than another by its words.
        """
        wide = kind != "turn" and self.id == self.base
        return f"{word('u', self.base)} {word('s', self.id)} {word('w' if wide else 'p', self.base)}"


def find(db: Database, user: str, session: str | None) -> Scope | None:
    """The scope of (user, session), or None if nothing was ever stored there."""
    ids = {name: id_ for id_, name in db.rows(_FIND, {"user": user, "session": session or ""})}
    if None not in ids or session not in ids:
        return None
    return Scope(ids[session], ids[None])


def ensure(db: Database, user: str, session: str | None, now: int) -> Scope:
    """The scope of (user, session), created where it is missing, its user's with it."""
    found = find(db, user, session)
    if found is not None:
        return found
    for name in dict.fromkeys((None, session)):
        if name is None and find(db, user, None):
            continue
        db.rows(_ADD, {"user": user, "session": name, "now": now})
    created = find(db, user, session)
    assert created is not None
    return created


def of_memory(db: Database, scope_id: int) -> Scope:
    """The scope with the id `scope_id`, as a stored memory names it."""
    return Scope(scope_id, db.value(_BASE, {"id": scope_id}))


def named(db: Database, scope_id: int) -> tuple[str, str | None]:
    """User and session of the scope."""
    row = db.row(_NAMED, {"id": scope_id})
    assert row is not None
    return row[0], row[1]


def user_of(db: Database, scope_id: int) -> str:
    """Whose the scope is."""
    user: str = db.value(_USER, {"id": scope_id})
    return user


def next_turn(db: Database, scope_id: int) -> int:
    """The number for the next turn: above every number that was ever given here, forgotten turns included."""
    number: int = db.value(_NEXT_TURN, {"id": scope_id})
    return number


def take_turn(db: Database, scope_id: int) -> int:
    """The number for the next turn, which from now on is taken."""
    number: int = db.value(_TAKE_TURN, {"id": scope_id})
    return number


def raise_turn(db: Database, scope_id: int, turn: int) -> None:
    """Note that `turn` is taken, so that it is never given again."""
    db.execute(_RAISE_TURN, {"id": scope_id, "turn": turn})


def extracted_to(db: Database, scope_id: int) -> int:
    """The last turn that memories were made of, -1 before the first."""
    turn: int = db.value(_EXTRACTED, {"id": scope_id})
    return turn


def set_extracted_to(db: Database, scope_id: int, turn: int) -> None:
    """Note that memories were made of the turns up to this."""
    db.execute(_SET_EXTRACTED, {"id": scope_id, "turn": turn})


def summary(db: Database, scope_id: int) -> int | None:
    """The chain of the session's summary."""
    chain: int | None = db.value(_SUMMARY, {"id": scope_id})
    return chain


def set_summary(db: Database, scope_id: int, chain: int) -> None:
    """Note which chain the session's summary is."""
    db.execute(_SET_SUMMARY, {"id": scope_id, "chain": chain})


def contradiction_mode(db: Database, user: str) -> ContradictionMode | None:
    """What the user chose for facts that contradict what is known; None for the store's rule."""
    mode: ContradictionMode | None = db.value(_MODE, {"user": user})
    return mode


def set_contradiction_mode(db: Database, user: str, mode: ContradictionMode | None, now: int) -> None:
    """Keep the user's choice."""
    ensure(db, user, None, now)
    db.execute(_SET_MODE, {"user": user, "mode": mode})


def share(db: Database, user: str) -> float:
    """Which part of all scopes is this user's, 0..1."""
    part: float = db.value(_SHARE, {"user": user})
    return part
