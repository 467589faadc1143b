"""The one place that ends versions, forgets them, and starts those that follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlmem.db import Database
from sqlmem.records import EndReason
from sqlmem.search import filters
from sqlmem.search.filters import Filter
from sqlmem.store import keyword_index, memories, vector_index
from sqlmem.store.memories import NewMemory, Stored, array
from sqlmem.store.vector_index import Codes

_END = "update memory set ended_at = :at, end_reason = :reason, ended_by = :by where rowid = :rowid and ended_at is null"
_LINK = "insert into link (src, dst, rel) values (:src, :dst, 'supersedes')"
_CATEGORISE = """
insert into memory_category (memory, category)
select :memory, id from category where name in (select value from json_each(:names))
"""
_COPY_CATEGORIES = (
    "insert into memory_category (memory, category) select :new, category from memory_category where memory = :old"
)
_TOMBSTONES = """
insert into tombstone (rowid, id, chain, version, forgotten_at)
select rowid, id, chain, version, :now from memory where rowid in (select value from json_each(:rowids))
"""
_DELETE = "delete from memory where rowid in (select value from json_each(:rowids))"
_EXPIRED = "select rowid from memory where expires_at <= :now"
_PURGE_BATCH = 1_000


def begin(db: Database, new: NewMemory, *, categories: Sequence[str] = ()) -> int:
    """Store the first version of a chain and return its rowid; the search indexes are the caller's to bring after it."""
    rowid = memories.add(db, new)
    if categories:
        db.execute(_CATEGORISE, {"memory": rowid, "names": array(categories)})
    return rowid


def replace(
    db: Database,
    old: Stored,
    new: NewMemory,
    codes: Codes,
    *,
    reason: EndReason,
    categories: Sequence[str] | None = None,
) -> int:
    """End `old` and store `new` as the next version of its chain, at the same moment. Returns the new rowid.

    Categories are the old version's unless given. The search indexes follow.
    """
    with keyword_index.following(db, [old.rowid]) as affected:
        rowid = memories.next_rowid(db)
        _end(db, old.rowid, at=new.created_at, reason=reason, by=rowid)
        memories.add(db, new)
        affected.add(rowid)
        db.execute(_LINK, {"src": rowid, "dst": old.rowid})
        if categories is None:
            db.execute(_COPY_CATEGORIES, {"new": rowid, "old": old.rowid})
        else:
            db.execute(_CATEGORISE, {"memory": rowid, "names": array(categories)})
    vector_index.add(db, {rowid: codes})
    return rowid


def forget(db: Database, rowids: Iterable[int], now: int) -> int:
    """Delete versions for good: rows, index entries, vectors, feedback and links. A tombstone without text stays of each.

    Returns how many were deleted; unknown rowids count as nothing.
    """
    chosen = sorted(set(rowids))
    count = 0
    # In batches, so that what is held in memory does not grow with the number of rows; still one transaction.
    for start in range(0, len(chosen), _PURGE_BATCH):
        batch = chosen[start : start + _PURGE_BATCH]
        bound = {"rowids": array(batch), "now": now}
        with keyword_index.following(db, batch):
            vector_index.remove(db, batch)
            db.execute(_TOMBSTONES, bound)
            count += db.execute(_DELETE, bound)
    return count


def expired(db: Database, now: int) -> list[int]:
    """The versions whose time has passed at `now`, whatever else became of them."""
    return [row[0] for row in db.rows(_EXPIRED, {"now": now})]


def selected(db: Database, chosen: Filter, *, ids: Sequence[str] | None, older_than: int | None, superseded: bool) -> list[int]:
    """The versions that forget()'s arguments name, in every state: a text that is to go must go from the past as well.

    `older_than` is a moment in milliseconds. An id names its memory whatever its user.
    """
    bound: dict[str, Any] = {}
    parts = ["m.proposed = 0", *_scope(chosen, bound, everywhere=ids is not None)]
    if ids is not None:
        bound["ids"] = array(ids)
        parts.append("m.id in (select value from json_each(:ids))")
    if chosen.kinds is not None:
        bound["kinds"] = array(chosen.kinds)
        parts.append("m.kind in (select value from json_each(:kinds))")
    if older_than is not None:
        bound["older_than"] = older_than
        parts.append("m.at < :older_than")
    if superseded:
        parts.append("m.ended_by is not null")
    parts.extend(filters.metadata_sql(chosen.where, bound))
    return [row[0] for row in db.rows(f"select m.rowid from memory m where {' and '.join(parts)}", bound)]


def _scope(chosen: Filter, bound: dict[str, Any], *, everywhere: bool) -> list[str]:
    if chosen.session is not None:
        bound.update(user=chosen.user, session=chosen.session)
        return ["m.scope in (select id from scope where user = :user and session = :session)"]
    if everywhere:
        return []
    bound["user"] = chosen.user
    return ["m.scope in (select id from scope where user = :user)"]


def _end(db: Database, rowid: int, *, at: int, reason: EndReason, by: int | None) -> None:
    db.execute(_END, {"rowid": rowid, "at": at, "reason": reason, "by": by})
    vector_index.end(db, rowid)
