"""Rows of the table `memory`, and the `Memory` records that callers see."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlmem import arguments
from sqlmem.clock import from_ms
from sqlmem.db import Database
from sqlmem.errors import NotFound
from sqlmem.records import EndReason, Held, Kind, Memory, State


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A version to store. Times are milliseconds. `chain` None starts a chain."""

    id: str
    scope: int
    kind: Kind
    role: str
    turn: int | None
    text: str
    at: int
    created_at: int
    expires_at: int | None
    metadata: str
    valid_from: int | None = None
    valid_to: int | None = None
    held: Held | None = None
    checked: int = 0
    chain: int | None = None
    version: int = 1


class Stored(NamedTuple):
    """A version as it lies in the file."""

    rowid: int
    id: str
    scope: int
    kind: Kind
    role: str
    turn: int | None
    text: str
    at: int
    created_at: int
    expires_at: int | None
    chain: int
    version: int
    ended_at: int | None
    end_reason: EndReason | None
    ended_by: int | None
    held: Held | None
    seen: int
    metadata: str
    valid_from: int | None
    valid_to: int | None
    end_note: str | None


COLUMNS = (
    "rowid, id, scope, kind, role, turn, text, at, created_at, expires_at, chain, version, "
    "ended_at, end_reason, ended_by, held, seen, metadata, valid_from, valid_to, end_note"
)
OF_M = ", ".join(f"m.{name.strip()}" for name in COLUMNS.split(","))
"""The same columns, of `memory m`."""

_LAST_TURNS = f"""
select {COLUMNS} from memory
 where scope = :scope and kind = 'turn' and ended_at is null and held is null and (expires_at is null or expires_at > :now)
 order by turn desc limit :count
"""
_LAST_TURNS_THEN = f"""
select {COLUMNS} from memory
 where scope = :scope and kind = 'turn' and created_at <= :as_of and (ended_at is null or ended_at > :as_of) and held is null
   and (expires_at is null or expires_at > :now)
 order by turn desc limit :count
"""
_BY_ID = f"select {COLUMNS} from memory where id = :id"
_BY_ROWIDS = f"select {COLUMNS} from memory where rowid in (select value from json_each(:rowids))"
_HEAD = f"select {COLUMNS} from memory where chain = :chain and ended_at is null and held is null"
_CHAIN = f"""
select {COLUMNS} from memory
 where chain in (select value from json_each(:chains)) and held is not 'trash' order by chain, version
"""
_ADD = """
insert into memory (rowid, id, scope, kind, role, turn, text, at, created_at, expires_at, valid_from, valid_to,
                    chain, version, held, checked, digest, metadata)
values (:rowid, :id, :scope, :kind, :role, :turn, :text, :at, :created_at, :expires_at, :valid_from, :valid_to,
        coalesce(:chain, :rowid), :version, :held, :checked, :digest, :metadata)
"""
_LAST_ROWID = "select coalesce((select seq from sqlite_sequence where name = 'memory'), 0)"
_REPEATED = f"""
select {COLUMNS} from memory
 where scope = :scope and digest = :digest and ended_at is null and held is null and text = :text
   and (expires_at is null or expires_at > :now)
 order by rowid limit 1
"""
_KEYED = f"""
select {COLUMNS} from memory
 where rowid = (select memory from memory_key where user = :user and key = :key) and held is not 'trash'
"""
_ADD_KEY = "insert or replace into memory_key (user, key, memory) values (:user, :key, :memory)"
_TRASHED = "select until from trash where memory = :rowid"
_SEE = "update memory set seen = seen + :times where rowid = :rowid"
_FORGOTTEN = "select 1 from tombstone where id = :id"
_CATEGORIES = """
select mc.memory, c.name from memory_category mc join category c on c.id = mc.category
 where mc.memory in (select value from json_each(:rowids)) order by c.name
"""
# A source that is younger than the memory came when its statement was made again: not before it was stored, or forgotten.
_SOURCES = """
select l.src, coalesce(m.id, t.id) from link l left join memory m on m.rowid = l.dst left join tombstone t on t.rowid = l.dst
 where l.rel in ('consolidated_from', 'extracted_from', 'merged_from') and l.src in (select value from json_each(:rowids))
   and (:as_of is null or l.dst < l.src or coalesce(m.created_at, t.forgotten_at) <= :as_of)
 order by l.dst
"""
_DERIVED = """
select l.dst, m.id from link l join memory m on m.rowid = l.src
 where l.rel in ('consolidated_from', 'extracted_from', 'merged_from') and l.dst in (select value from json_each(:rowids))
   and m.held is not 'trash' and (:as_of is null or m.created_at <= :as_of)
 order by m.rowid
"""
_NEXT_VERSION = """
select max(version) + 1 from (
    select version from memory where chain = :chain union all select version from tombstone where chain = :chain)
"""
_CHAINS = """
select chain from memory where rowid in (select value from json_each(:rowids))
union
select chain from tombstone where rowid in (select value from json_each(:rowids))
"""
_WAITING = """
case when :as_of is null then c.status <> 'resolved'
     else c.created_at <= :as_of and (c.resolved_at is null or c.resolved_at > :as_of) end
"""
_CONFLICTS = f"""
select cm.memory, c.name from conflict_memory cm join conflict c on c.id = cm.conflict
 where cm.memory in (select value from json_each(:rowids)) and {_WAITING}
union
select c.memory, c.name from conflict c where c.memory in (select value from json_each(:rowids)) and {_WAITING}
"""
_LENGTHS = """
select chain, max(version) from (
    select chain, version from memory where chain in (select value from json_each(:chains)) and held is not 'trash'
       and (:as_of is null or created_at <= :as_of)
    union all
    select chain, version from tombstone where chain in (select value from json_each(:chains))
       and (:as_of is null or forgotten_at <= :as_of)
) group by chain
"""
_SUCCESSORS = """
select rowid, id from memory where rowid in (select value from json_each(:rowids))
union all
select rowid, id from tombstone where rowid in (select value from json_each(:rowids))
"""
_SCOPES = "select id, user, session from scope where id in (select value from json_each(:ids))"


def array(values: Iterable[object]) -> str:
    """`values` as one bound parameter for `json_each`."""
    return json.dumps(list(values), ensure_ascii=False)


def digest(text: str) -> int:
    """A 64-bit digest of `text`, as SQLite's signed integer."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def add(db: Database, new: NewMemory) -> int:
    """Store a version and return its rowid. The indexes are the caller's to update, in the same transaction."""
    rowid = next_rowid(db)
    stated = None if new.kind == "turn" else digest(new.text)
    # Not asdict(): its deep copies would cost as much as SQLite.
    row = {name: getattr(new, name) for name in NewMemory.__slots__}
    db.execute(_ADD, {**row, "rowid": rowid, "digest": stated})
    return rowid


def next_rowid(db: Database) -> int:
    """The rowid that the next `add()` of this transaction will use."""
    return count_ever(db) + 1


def count_ever(db: Database) -> int:
    """How many versions were ever stored; at once, however many that is."""
    number: int = db.value(_LAST_ROWID)
    return number


def by_id(db: Database, id_: str) -> Stored | None:
    """The version with this id, whatever its state."""
    row = db.row(_BY_ID, {"id": id_})
    return None if row is None else Stored(*row)


def required(db: Database, id_: object) -> Stored:
    """The version with this id. Raises NotFound, which says whether it was ever there, or lies in the trash."""
    checked = arguments.string("id", id_)
    stored = by_id(db, checked)
    if stored is None:
        gone = "was forgotten" if was_forgotten(db, checked) else "is not in this store"
        raise NotFound(f"the memory {checked!r} {gone}")
    if stored.held == "trash":
        until = from_ms(db.value(_TRASHED, {"rowid": stored.rowid}))
        raise NotFound(
            f"the memory {checked!r} was forgotten or undone, and lies in the trash until {until:%Y-%m-%d %H:%M} UTC"
        )
    return stored


def by_rowids(db: Database, rowids: Iterable[int]) -> dict[int, Stored]:
    """The versions with these rowids, by rowid."""
    return {row[0]: Stored(*row) for row in db.rows(_BY_ROWIDS, {"rowids": array(rowids)})}


def head(db: Database, chain: int) -> Stored | None:
    """The chain's newest version if it has not ended. It may have expired."""
    row = db.row(_HEAD, {"chain": chain})
    return None if row is None else Stored(*row)


def last_turns(db: Database, scope: int, now: int, count: int | None, *, as_of: int | None = None) -> list[Stored]:
    """The live turns of exactly this scope, or those that were live then, newest first: all, or the last `count`."""
    bound = {"scope": scope, "now": now, "count": -1 if count is None else count}
    if as_of is None:
        return [Stored(*row) for row in db.rows(_LAST_TURNS, bound)]
    return [Stored(*row) for row in db.rows(_LAST_TURNS_THEN, {**bound, "as_of": as_of})]


def chain(db: Database, number: int) -> list[Stored]:
    """The versions of a chain that are still held, oldest first."""
    return [Stored(*row) for row in db.rows(_CHAIN, {"chains": array([number])})]


def repeated(db: Database, scope: int, text: str, now: int) -> Stored | None:
    """The live statement of this scope with exactly this text."""
    row = db.row(_REPEATED, {"scope": scope, "digest": digest(text), "text": text, "now": now})
    return None if row is None else Stored(*row)


def next_version(db: Database, chain: int) -> int:
    """The number of the chain's next version: above every one that it ever had."""
    number: int = db.value(_NEXT_VERSION, {"chain": chain})
    return number


def chains_of(db: Database, rowids: Iterable[int]) -> list[int]:
    """The chains of versions, forgotten ones too."""
    return [row[0] for row in db.rows(_CHAINS, {"rowids": array(rowids)})]


def keyed(db: Database, user: str, key: str) -> Stored | None:
    """The version that was stored under the user's `key`."""
    row = db.row(_KEYED, {"user": user, "key": key})
    return None if row is None else Stored(*row)


def add_key(db: Database, user: str, key: str, rowid: int) -> None:
    """Let `key` name this memory."""
    db.execute(_ADD_KEY, {"user": user, "key": key, "memory": rowid})


def see(db: Database, rowid: int, times: int) -> None:
    """Count a statement as made so many times more."""
    db.execute(_SEE, {"rowid": rowid, "times": times})


def was_forgotten(db: Database, id_: str) -> bool:
    """Whether a memory with this id was once here."""
    return db.value(_FORGOTTEN, {"id": id_}) is not None


def state(stored: Stored, now: int) -> State:
    """The state of a version at `now`; expiry is computed, never stored."""
    if stored.held is not None:
        return stored.held
    if stored.ended_at is not None:
        return "ended" if stored.ended_by is None else "superseded"
    return "expired" if stored.expires_at is not None and stored.expires_at <= now else "live"


def records(
    db: Database,
    stored: Sequence[Stored],
    now: int,
    *,
    previous: bool = False,
    as_of: int | None = None,
    scoring: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[Memory]:
    """The records of `stored`, in its order: what callers see. `previous` adds the earlier versions of each.

    With `as_of`, `stored` are heads of that moment, and shown as they were then; what has no history is as it is now.
    """
    if as_of is not None:
        stored = [_at_that_time(item, as_of) for item in stored]
    rowids = array(item.rowid for item in stored)
    categories = _grouped(db, _CATEGORIES, rowids)
    sources, derived = _grouped(db, _SOURCES, rowids, as_of=as_of), _grouped(db, _DERIVED, rowids, as_of=as_of)
    lengths: dict[int, int] = dict(db.rows(_LENGTHS, {"chains": array({item.chain for item in stored}), "as_of": as_of}))
    successors: dict[int, str] = dict(
        db.rows(_SUCCESSORS, {"rowids": array({item.ended_by for item in stored if item.ended_by is not None})})
    )
    waiting = _grouped(db, _CONFLICTS, rowids, as_of=as_of)
    scopes = {row[0]: row[1:] for row in db.rows(_SCOPES, {"ids": array({item.scope for item in stored})})}
    earlier = _earlier(db, stored, now, as_of) if previous else {}
    return [
        Memory(
            id=item.id,
            text=item.text,
            kind=item.kind,
            role=item.role,
            user=scopes[item.scope][0],
            session=scopes[item.scope][1],
            turn=item.turn,
            timestamp=from_ms(item.at),
            created_at=from_ms(item.created_at),
            expires_at=None if item.expires_at is None else from_ms(item.expires_at),
            valid_from=None if item.valid_from is None else from_ms(item.valid_from),
            valid_to=None if item.valid_to is None else from_ms(item.valid_to),
            state=state(item, now),
            version_number=item.version,
            total_versions=lengths.get(item.chain, item.version),
            expired_at=None if item.ended_at is None else from_ms(item.ended_at),
            expiration_reason=item.end_reason,
            expiration_note=item.end_note,
            replaced_by=None if item.ended_by is None else successors.get(item.ended_by),
            seen=item.seen,
            metadata=json.loads(item.metadata),
            categories=categories.get(item.rowid, ()),
            sources=sources.get(item.rowid, ()),
            derived=derived.get(item.rowid, ()),
            conflicts=waiting.get(item.rowid, ()),
            previous_versions=tuple(memory for memory in earlier.get(item.chain, ()) if memory.version_number < item.version),
            score=scoring[item.rowid]["score"] if scoring else None,
            scoring=scoring[item.rowid] if scoring else None,
        )
        for item in stored
    ]


def _at_that_time(item: Stored, as_of: int) -> Stored:
    if item.ended_at is None or item.ended_at <= as_of:
        return item
    return item._replace(ended_at=None, end_reason=None, ended_by=None, end_note=None)


def _grouped(db: Database, sql: str, rowids: str, **bound: int | None) -> dict[int, tuple[str, ...]]:
    groups: dict[int, tuple[str, ...]] = {}
    for rowid, value in db.rows(sql, {"rowids": rowids, **bound}):
        groups[rowid] = (*groups.get(rowid, ()), value)
    return groups


def _earlier(db: Database, stored: Sequence[Stored], now: int, as_of: int | None) -> dict[int, list[Memory]]:
    chains = array({item.chain for item in stored if item.version > 1})
    versions = [Stored(*row) for row in db.rows(_CHAIN, {"chains": chains})]
    by_chain: dict[int, list[Memory]] = {}
    for version, memory in zip(versions, records(db, versions, now, as_of=as_of) if versions else [], strict=True):
        by_chain.setdefault(version.chain, []).append(memory)
    return by_chain
