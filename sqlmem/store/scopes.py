"""Scopes: one for each user, one for each session of a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlmem.db import Database
from sqlmem.errors import InvalidArgument
from sqlmem.records import ContradictionMode, Kind, SessionStatus

_FIND = "select id, session from scope where user = :user and coalesce(session, '') in ('', :session)"
_ADD = "insert into scope (user, session, created_at) values (:user, :session, :now) returning id"
_BASE = """
select b.id from scope s join scope b on b.user = s.user and coalesce(b.session, '') = '' where s.id = :id
"""
_SHARE = "select (select count(*) from scope where user = :user) * 1.0 / count(*) from scope"
_NAMED = "select user, session from scope where id = :id"
_USER = "select user from scope where id = :id"
_NEXT_TURN = "select next_turn from scope where id = :id"
_OPEN = "(status is null or status = 'pending')"
_TAKE_TURN = f"update scope set next_turn = next_turn + 1 where id = :id and {_OPEN} returning next_turn - 1"
_RAISE_TURN = f"update scope set next_turn = max(next_turn, :turn + 1) where id = :id and {_OPEN} returning next_turn"
_STATUS = "select status from scope where id = :id"
_CREATE = "update scope set status = 'pending', metadata = :metadata, idle_ms = :idle_ms where id = :id"
_DESCRIBE = "update scope set metadata = :metadata where id = :id"
_LEASE = """
update scope set status = 'processing', lease_until = :until
 where id = :id and (status in ('pending', 'failed') or status = 'processing' and lease_until <= :now) returning id
"""
_PROCESSED = "update scope set status = 'processed', lease_until = null, processed_at = :now where id = :id"
_FAILED = "update scope set status = 'failed', lease_until = null where id = :id and status = 'processing'"
_DUE = """
select s.user, s.session from scope s
 where (s.status = 'pending' or s.status = 'processing' and s.lease_until <= :now) and (:user is null or s.user = :user)
   and s.idle_ms <= :now - max(
        s.created_at, coalesce((select max(created_at) from memory where scope = s.id and kind = 'turn'), 0))
 order by s.id
"""

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
    """The number for the next turn, which from now on is taken. Raises InvalidArgument if the session takes no more."""
    row = db.row(_TAKE_TURN, {"id": scope_id})
    if row is None:
        raise _closed(db, scope_id)
    return int(row[0])


def raise_turn(db: Database, scope_id: int, turn: int) -> None:
    """Note that `turn` is taken, so that it is never given again. Raises InvalidArgument if the session takes no more."""
    if db.row(_RAISE_TURN, {"id": scope_id, "turn": turn}) is None:
        raise _closed(db, scope_id)


def _closed(db: Database, scope_id: int) -> InvalidArgument:
    user, session = named(db, scope_id)
    return InvalidArgument(
        f"the session {session!r} of user {user!r} is {status(db, scope_id)}, and takes no more turns; nothing was written"
    )


def status(db: Database, scope_id: int) -> SessionStatus | None:
    """Where a session stands that was created as one; None for others."""
    held: SessionStatus | None = db.value(_STATUS, {"id": scope_id})
    return held


def create(db: Database, scope_id: int, *, metadata: str, idle_ms: int) -> None:
    """Make a session of a scope, which is due to be processed so long after its last turn."""
    db.execute(_CREATE, {"id": scope_id, "metadata": metadata, "idle_ms": idle_ms})


def describe(db: Database, scope_id: int, metadata: str) -> None:
    """Replace a session's metadata."""
    db.execute(_DESCRIBE, {"id": scope_id, "metadata": metadata})


def lease(db: Database, scope_id: int, now: int, until: int) -> bool:
    """Begin to process a session; False if somebody else does, or it is processed."""
    return db.row(_LEASE, {"id": scope_id, "now": now, "until": until}) is not None


def processed(db: Database, scope_id: int, now: int) -> None:
    """Note that a session was processed."""
    db.execute(_PROCESSED, {"id": scope_id, "now": now})


def failed(db: Database, scope_id: int) -> None:
    """Note that processing a session failed."""
    db.execute(_FAILED, {"id": scope_id})


def due(db: Database, user: str | None, now: int) -> list[tuple[str, str]]:
    """User and session of those that wait to be processed."""
    return [(row[0], row[1]) for row in db.rows(_DUE, {"user": user, "now": now})]


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
