"""The keyword index: what is written for each memory, kept exactly in step with the rows.

A turn's words also stand in its neighbours' rows, and the index can only remove a row when told the very words it was written
with. So every change goes through `following()`: it notes the documents of the rows that a change can affect, lets the change
happen, and rewrites those that differ.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlmem import text as texts
from sqlmem.clock import from_ms
from sqlmem.db import Database
from sqlmem.schema import sql
from sqlmem.store import memories, scopes

# RETRIEVAL: two turns each side, 200 characters of each; none for a text long enough to stand alone (long assistant answers
# otherwise drown in their neighbours' words).
NEIGHBOURS = 2
NEIGHBOUR_CHARACTERS = 200
STANDS_ALONE_CHARACTERS = 300

_MONTHS = "January February March April May June July August September October November December".split()

_AROUND = """
select * from (
    select false, rowid, role, text from memory
     where scope = :scope and kind = 'turn' and ended_at is null and proposed = 0 and turn < :turn
     order by turn desc limit :count)
union all
select * from (
    select true, rowid, role, text from memory
     where scope = :scope and kind = 'turn' and ended_at is null and proposed = 0 and turn > :turn
     order by turn limit :count)
"""
_INSERT = "insert into memory_fts (rowid, own, ctx, scope) values (?, ?, ?, ?)"
_DELETE = "insert into memory_fts (memory_fts, rowid, own, ctx, scope) values ('delete', ?, ?, ?, ?)"
_PLACES = "select rowid, scope, turn from memory where rowid in (select value from json_each(:rowids)) and turn is not null"
_WORDS = 'select term, doc, col, "offset" from memory_word_place'
_ALL = "select rowid from memory where rowid > :after order by rowid limit 1000"


class Document(NamedTuple):
    """The three columns of a memory's row in the index."""

    own: str
    ctx: str
    scope: str


class Neighbour(NamedTuple):
    """A live turn beside another."""

    rowid: int
    role: str
    text: str


class Place(NamedTuple):
    """Where a turn stands, or is about to."""

    scope: int
    turn: int


@contextlib.contextmanager
def following(db: Database, rowids: Iterable[int] = (), places: Iterable[Place] = ()) -> Iterator[set[int]]:
    """Bring the index into line with what the body of the `with` does to the rows.

    `rowids` are the existing memories that the body changes or deletes, `places` where it puts turns; rows that it adds are
    to be put into the set that the `with` yields. One transaction must hold it all.
    """
    changed = set(rowids)
    affected = set(changed)
    stood = db.rows(_PLACES, {"rowids": memories.array(changed)}) if changed else []
    where = [*(Place(*row[1:]) for row in stood), *places]
    for place in where:
        affected.update(turn.rowid for side in _neighbours(db, place) for turn in side)
    before = documents(db, affected)
    yield affected
    after = documents(db, affected)
    for rowid, document in before.items():
        if after.get(rowid) != document:
            db.execute(_DELETE, (rowid, *document))
    db.execute_many(_INSERT, [(rowid, *document) for rowid, document in after.items() if before.get(rowid) != document])


def documents(db: Database, rowids: Iterable[int]) -> dict[int, Document]:
    """What the index must hold for those of `rowids` that exist."""
    known: dict[int, scopes.Scope] = {}
    result = {}
    for rowid, stored in memories.by_rowids(db, rowids).items():
        if stored.scope not in known:
            known[stored.scope] = scopes.of_memory(db, stored.scope)
        result[rowid] = Document(_own(stored), _ctx(db, stored), known[stored.scope].words(stored.kind))
    return result


def rebuild(db: Database) -> int:
    """Write the whole index again from the rows; returns how many it holds. Costs about 0.1 ms a memory."""
    db.execute("insert into memory_fts (memory_fts) values ('delete-all')")
    written = 0
    for batch in _batches(db):
        found = documents(db, batch)
        db.execute_many(_INSERT, [(rowid, *document) for rowid, document in found.items()])
        written += len(found)
    return written


def differs(db: Database) -> bool:
    """Whether the index holds anything but what a fresh one would. Costs as much as rebuild(); writes nothing to the file."""
    fresh = Database(":memory:")
    try:
        with fresh.write():
            fresh.script(sql("fts.sql"))
            for batch in _batches(db):
                found = documents(db, batch)
                fresh.execute_many(_INSERT, [(rowid, *document) for rowid, document in found.items()])
        with fresh.read():
            pairs = itertools.zip_longest(db.stream(_WORDS), fresh.stream(_WORDS))
            return any(held != expected for held, expected in pairs)
    finally:
        fresh.close()


def _own(stored: memories.Stored) -> str:
    said = texts.prepare(f"{texts.speaker(stored.role)} {stored.text}")
    day = from_ms(stored.at)
    return f"{said} {day.day} {_MONTHS[day.month - 1]} {day.year}"


def _ctx(db: Database, stored: memories.Stored) -> str:
    """The words of a live turn's neighbours.

    The turns after it count once there are two of them, so that a row is rewritten once, not twice, as a conversation grows.
    """
    if stored.turn is None or stored.ended_at is not None or stored.proposed or len(stored.text) > STANDS_ALONE_CHARACTERS:
        return ""
    before, after = _neighbours(db, Place(stored.scope, stored.turn))
    around = [*reversed(before), *(after if len(after) == NEIGHBOURS else ())]
    return " ".join(texts.prepare(f"{texts.speaker(turn.role)} {turn.text[:NEIGHBOUR_CHARACTERS]}") for turn in around)


def _neighbours(db: Database, place: Place) -> tuple[list[Neighbour], list[Neighbour]]:
    """The live turns before a place, nearest first, and those after it."""
    found = db.rows(_AROUND, {"scope": place.scope, "turn": place.turn, "count": NEIGHBOURS})
    return [Neighbour(*row[1:]) for row in found if not row[0]], [Neighbour(*row[1:]) for row in found if row[0]]


def _batches(db: Database) -> Iterator[list[int]]:
    after = 0
    while batch := [row[0] for row in db.rows(_ALL, {"after": after})]:
        yield batch
        after = batch[-1]
