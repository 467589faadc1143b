"""What a change of state writes: versions that end and live again, are held back and let in, or are erased.

The callers bring the search indexes after what happens here, except for erase().
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmem.db import Database
from sqlmem.records import EndReason, Held, Kind
from sqlmem.store import keyword_index, vector_index
from sqlmem.store.memories import array

_END = """
update memory set ended_at = :at, end_reason = :reason, ended_by = :by, end_note = :note
 where rowid = :rowid and ended_at is null
"""
_LINK = "insert or ignore into link (src, dst, rel) values (:by, :rowid, 'supersedes')"
_KEEP_NOTE = """
insert or replace into undone_note (memory, note, ended_by, until)
select rowid, end_note, ended_by, :until from memory where rowid = :rowid and end_note is not null
"""
_KEPT_NOTE = "select note from undone_note where memory = :rowid"
_DROP_NOTES = "delete from undone_note where memory in (select value from json_each(:rowids))"
_UNLINK = """
delete from link where dst = :rowid and rel = 'supersedes' and src = (select ended_by from memory where rowid = :rowid)
"""
_REVIVE = "update memory set ended_at = null, end_reason = null, ended_by = null, end_note = null where rowid = :rowid"
_HOLD = "update memory set held = 'trash' where rowid in (select value from json_each(:rowids))"
_KEEP_UNTIL = """
insert or replace into trash (memory, until)
select rowid, :until from memory where rowid in (select value from json_each(:rowids))
"""
_RELEASE = "update memory set held = :held where rowid in (select value from json_each(:rowids)) and held = 'trash'"
_OUT_OF_TRASH = "delete from trash where memory in (select value from json_each(:rowids))"
_PROPOSE = "update memory set held = 'proposed' where rowid = :rowid"
_MOVE = """
update memory set kind = :kind, scope = :scope, chain = :chain, version = :version, created_at = :at
 where rowid = :rowid and held = 'proposed'
"""
_LET_IN = "update memory set held = null where rowid = :rowid and held = 'proposed'"
_COPY_CATEGORIES = """
insert or ignore into memory_category (memory, category)
select :new, category from memory_category where memory in (select value from json_each(:olds)) returning category
"""
_TAKE_CATEGORIES = """
delete from memory_category where memory = :rowid and category in (select value from json_each(:categories))
"""
_GIVE_CATEGORIES = """
insert or ignore into memory_category (memory, category)
select :rowid, id from category where id in (select value from json_each(:categories))
"""
_TOMBSTONES = """
insert into tombstone (rowid, id, chain, version, forgotten_at)
select rowid, id, chain, version, :now from memory
 where rowid in (select value from json_each(:rowids)) and held is not 'proposed'
"""
# What was written about a text may quote it.
_SCRUB = (
    "update memory set end_note = null where ended_by in (select value from json_each(:rowids)) and end_note is not null",
    "delete from undone_note where ended_by in (select value from json_each(:rowids))",
    """
    update conflict_memory set reason = null
     where memory in (select value from json_each(:rowids))
        or conflict in (select id from conflict where memory in (select value from json_each(:rowids)))
    """,
    """
    delete from conflict_question where conflict in (
        select id from conflict where memory in (select value from json_each(:rowids))
        union select conflict from conflict_memory where memory in (select value from json_each(:rowids)))
    """,
    """
    update conflict set status = case when status = 'resolved' then 'resolved' else 'pending' end, error = null
     where memory in (select value from json_each(:rowids))
        or id in (select conflict from conflict_memory where memory in (select value from json_each(:rowids)))
    """,
    """
    update conflict set status = 'resolved', resolution = 'forgotten', resolved_at = :now
     where status <> 'resolved' and memory in (select value from json_each(:rowids))
    """,
)
# A version that never was leaves no trace: a conflict about it is about the version before, or never was either.
_NEVER_WAS = (
    "delete from conflict where memory in (select value from json_each(:rowids))",
    """
    update or ignore conflict_memory set memory = (
        select max(kept.rowid) from memory gone join memory kept on kept.chain = gone.chain
         where gone.rowid = conflict_memory.memory and kept.rowid not in (select value from json_each(:rowids)))
     where memory in (select value from json_each(:rowids))
    """,
    "delete from conflict_memory where memory in (select value from json_each(:rowids))",
)
_DELETE = "delete from memory where rowid in (select value from json_each(:rowids))"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a version stands: its kind and scope, its number in a chain, and since when."""

    kind: Kind
    scope: int
    chain: int
    version: int
    at: int


def end(db: Database, rowid: int, *, at: int, reason: EndReason, by: int | None, note: str | None) -> None:
    """End a live version; `by` is the rowid of its successor, to be linked once it is there."""
    db.execute(_END, {"rowid": rowid, "at": at, "reason": reason, "by": by, "note": note})


def link(db: Database, rowid: int, by: int) -> None:
    """Link an ended version to its successor."""
    db.execute(_LINK, {"rowid": rowid, "by": by})


def revive(db: Database, rowid: int, until: int) -> None:
    """Let an ended version live again, as if it never had ended; why it had is kept aside until then."""
    db.execute(_KEEP_NOTE, {"rowid": rowid, "until": until})
    db.execute(_UNLINK, {"rowid": rowid})
    db.execute(_REVIVE, {"rowid": rowid})


def kept_note(db: Database, rowid: int) -> str | None:
    """Why a version that was revived had ended."""
    note: str | None = db.value(_KEPT_NOTE, {"rowid": rowid})
    return note


def drop_notes(db: Database, rowids: Iterable[int]) -> None:
    """Forget why versions that were revived had ended."""
    db.execute(_DROP_NOTES, {"rowids": array(rowids)})


def hold(db: Database, rowids: Iterable[int], until: int) -> None:
    """Put versions into the trash."""
    bound = {"rowids": array(rowids), "until": until}
    db.execute(_HOLD, bound)
    db.execute(_KEEP_UNTIL, bound)


def release(db: Database, rowids: Iterable[int], held: Held | None = None) -> None:
    """Take versions out of the trash, as what they were."""
    bound = {"rowids": array(rowids), "held": held}
    db.execute(_RELEASE, bound)
    db.execute(_OUT_OF_TRASH, bound)


def accept(db: Database, rowid: int, place: Place) -> None:
    """Let a proposal take its place."""
    _move(db, rowid, place)
    db.execute(_LET_IN, {"rowid": rowid})


def propose(db: Database, rowid: int, place: Place) -> None:
    """Make a proposal again of one that was accepted."""
    db.execute(_PROPOSE, {"rowid": rowid})
    _move(db, rowid, place)


def copy_categories(db: Database, new: int, olds: Iterable[int]) -> list[int]:
    """Give a memory those of others; returns the ids of the categories that it had not."""
    return [row[0] for row in db.rows(_COPY_CATEGORIES, {"new": new, "olds": array(olds)})]


def take_categories(db: Database, rowid: int, categories: Iterable[int]) -> None:
    """Take categories, given by id, from a memory."""
    db.execute(_TAKE_CATEGORIES, {"rowid": rowid, "categories": array(categories)})


def give_categories(db: Database, rowid: int, categories: Iterable[int]) -> None:
    """Give a memory categories by id; those that were deleted are passed over."""
    db.execute(_GIVE_CATEGORIES, {"rowid": rowid, "categories": array(categories)})


def erase(db: Database, rowids: Sequence[int], now: int, *, tombstones: bool) -> int:
    """Delete versions with their index entries and vectors, and what was written about them. Returns how many there were.

    Without tombstones it is as if they never had been.
    """
    bound = {"rowids": array(rowids), "now": now}
    with keyword_index.following(db, rowids):
        vector_index.remove(db, rowids)
        if tombstones:
            db.execute(_TOMBSTONES, bound)
        for statement in _SCRUB if tombstones else _NEVER_WAS:
            db.execute(statement, bound)
        return db.execute(_DELETE, bound)


def _move(db: Database, rowid: int, place: Place) -> None:
    bound: dict[str, Any] = {name: getattr(place, name) for name in Place.__slots__}
    db.execute(_MOVE, {**bound, "rowid": rowid})
