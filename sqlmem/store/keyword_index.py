"""The keyword index: what is written for each memory, kept exactly in step with the rows.

A turn's words also stand in its neighbours' rows, and the index can only remove a row when told the very words it was written
with. So every change goes through `following()`: it notes the documents of the rows that a change can affect, lets the change
happen, and rewrites those that differ.
"""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlmem import text as texts
from sqlmem.clock import from_ms
from sqlmem.db import Database, Row
from sqlmem.schema import sql
from sqlmem.store import memories, scopes, vector_index
from sqlmem.store.scopes import Scope

# RETRIEVAL: two turns each side, 200 characters of each; none for a text long enough to stand alone (long assistant answers
# otherwise drown in their neighbours' words).
NEIGHBOURS = 2
NEIGHBOUR_CHARACTERS = 200
STANDS_ALONE_CHARACTERS = 300
# Places with at most this many numbers between them are read in one go.
_NEAR = 4 * NEIGHBOURS

_MONTHS = "January February March April May June July August September October November December".split()

# The tokenizer parts words at these as well.
_APART = str.maketrans(dict.fromkeys(".,;:!?'\"()-\u2019\u2026", " "))
_LIVE = "scope = :scope and kind = 'turn' and ended_at is null and held is null"
_TURNS = f"select rowid, turn, role, text, at from memory where {_LIVE}"
_BEFORE = f"{_TURNS} and turn < :first order by turn desc limit :count"
_FROM = f"{_TURNS} and turn >= :first order by turn limit :count"
_INSERT = "insert into memory_fts (rowid, own, ctx, scope) values (?, ?, ?, ?)"
_DELETE = "insert into memory_fts (memory_fts, rowid, own, ctx, scope) values ('delete', ?, ?, ?, ?)"
_PLACES = "select scope, turn from memory where rowid in (select value from json_each(:rowids)) and turn is not null"
_WORDS = 'select term, doc, col, "offset" from memory_word_place'
_ALL = "select rowid from memory where rowid > :after order by rowid limit 1000"


class Document(NamedTuple):
    """The three columns of a memory's row in the index, and the rowid of the live turn before it (0: none)."""

    own: str
    ctx: str
    scope: str
    lead: int

    @property
    def columns(self) -> tuple[str, str, str]:
        """What the index is told."""
        return self.own, self.ctx, self.scope


class Turn(NamedTuple):
    """A live turn, as far as the index needs it."""

    rowid: int
    turn: int
    role: str
    text: str
    at: int


class Place(NamedTuple):
    """Where a turn stands, or is about to."""

    scope: Scope
    turn: int


class Run(NamedTuple):
    """Places of one scope that are near each other, in order."""

    scope: Scope
    turns: list[int]


@dataclass(slots=True)
class Known:
    """What the look at the rows before a change leaves for the look after it.

    A stored text stays as it is, so what it becomes in the index is worked out once. Where no stored row changes, and new ones
    are put in one run of a scope, the turns before that run stay (`lasting`).
    """

    lasting: bool
    words: dict[int, tuple[str, str]] = field(default_factory=dict)  # by rowid: a turn's own, and what it lends
    before: dict[Place, list[Row]] = field(default_factory=dict)


@contextlib.contextmanager
def following(db: Database, rowids: Iterable[int] = (), places: Iterable[Place] = ()) -> Iterator[set[int]]:
    """Bring the index into line with what the body of the `with` does to the rows.

    `rowids` are the existing memories that the body changes or deletes, `places` where it puts turns; rows that it adds are
    to be put into the set that the `with` yields. One transaction must hold it all.
    """
    changed = set(rowids)
    runs = _runs([*_places(db, changed), *places])
    known = Known(lasting=not changed and len({run.scope for run in runs}) == len(runs))
    before = _affected(db, runs, changed, known)
    affected = changed | before.keys()
    yield affected
    after = _affected(db, runs, affected, known)
    _rewrite(db, before, after)
    led_anew = [rowid for rowid, document in before.items() if rowid in after and after[rowid].lead != document.lead]
    if led_anew:
        vector_index.outdate(db, led_anew)


def _rewrite(db: Database, before: Mapping[int, Document], after: Mapping[int, Document]) -> None:
    old = {rowid: document.columns for rowid, document in before.items()}
    new = {rowid: document.columns for rowid, document in after.items()}
    if gone := [(rowid, *columns) for rowid, columns in old.items() if new.get(rowid) != columns]:
        db.execute_many(_DELETE, gone)
    if come := [(rowid, *columns) for rowid, columns in new.items() if old.get(rowid) != columns]:
        db.execute_many(_INSERT, come)


def documents(db: Database, rowids: Iterable[int]) -> dict[int, Document]:
    """What the index must hold for those of `rowids` that exist."""
    chosen = set(rowids)
    return _affected(db, _runs(_places(db, chosen)), chosen, Known(lasting=False))


def own(db: Database, rowids: Iterable[int]) -> dict[int, str]:
    """The words of memories' own texts, as the index holds them."""
    return {rowid: _own(stored.role, stored.text, stored.at) for rowid, stored in memories.by_rowids(db, rowids).items()}


def rebuild(db: Database) -> int:
    """Write the whole index again from the rows; returns how many it holds. Costs about 0.1 ms a memory."""
    db.execute("insert into memory_fts (memory_fts) values ('delete-all')")
    written = 0
    for batch in _batches(db):
        found = documents(db, batch)
        db.execute_many(_INSERT, [(rowid, *document.columns) for rowid, document in found.items()])
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
                fresh.execute_many(_INSERT, [(rowid, *document.columns) for rowid, document in found.items()])
        with fresh.read():
            pairs = itertools.zip_longest(db.stream(_WORDS), fresh.stream(_WORDS))
            return any(held != expected for held, expected in pairs)
    finally:
        fresh.close()


def _places(db: Database, rowids: Iterable[int]) -> list[Place]:
    chosen = list(rowids)
    rows = db.rows(_PLACES, {"rowids": memories.array(chosen)}) if chosen else []
    known = {scope: scopes.of_memory(db, scope) for scope in {row[0] for row in rows}}
    return [Place(known[scope], turn) for scope, turn in rows]


def _runs(places: Iterable[Place]) -> list[Run]:
    """The places in runs that are worth reading at once."""
    by_scope: dict[Scope, set[int]] = {}
    for place in places:
        by_scope.setdefault(place.scope, set()).add(place.turn)
    runs: list[Run] = []
    for scope, turns in by_scope.items():
        previous = None
        for turn in sorted(turns):
            if previous is None or turn - previous > _NEAR:
                runs.append(Run(scope, []))
            runs[-1].turns.append(turn)
            previous = turn
    return runs


def _affected(db: Database, runs: Iterable[Run], rowids: Iterable[int], known: Known) -> dict[int, Document]:
    """The documents of the turns that the runs bear on, and of `rowids`."""
    found: dict[int, Document] = {}
    for run in runs:
        found.update(_around(db, run, known))
    others = [rowid for rowid in rowids if rowid not in found]
    owners: dict[int, Scope] = {}
    for rowid, stored in memories.by_rowids(db, others).items() if others else ():
        if stored.scope not in owners:
            owners[stored.scope] = scopes.of_memory(db, stored.scope)
        # Not a live turn: those all stand in a run.
        words = owners[stored.scope].words(stored.kind)
        found[rowid] = Document(_own(stored.role, stored.text, stored.at), "", words, 0)
    return found


def _around(db: Database, run: Run, known: Known) -> dict[int, Document]:
    """The documents of the live turns at the run's places and up to two beside them."""
    window = _window(db, run, known)
    numbers = [turn.turn for turn in window]
    near: set[int] = set()
    for turn in run.turns:
        # Where the place is or would be: the turn there, if any, and the nearest on both sides.
        start, end = bisect_left(numbers, turn), bisect_right(numbers, turn)
        near.update(range(max(0, start - NEIGHBOURS), min(len(window), end + NEIGHBOURS)))
    for shown in window:
        if shown.rowid not in known.words:
            known.words[shown.rowid] = _own(shown.role, shown.text, shown.at), _lent(shown)
    scope, lent = run.scope.words("turn"), [known.words[turn.rowid][1] for turn in window]
    found = {}
    for place in near:
        shown = window[place]
        lead = window[place - 1].rowid if place else 0
        ctx = _ctx(lent, place) if len(shown.text) <= STANDS_ALONE_CHARACTERS else ""
        found[shown.rowid] = Document(known.words[shown.rowid][0], ctx, scope, lead)
    return found


def _window(db: Database, run: Run, known: Known) -> list[Turn]:
    """The live turns at and between the run's places, and as many on each side as can bear on them."""
    first, reach = run.turns[0], 2 * NEIGHBOURS
    start = Place(run.scope, first)
    if start not in known.before or not known.lasting:
        known.before[start] = db.rows(_BEFORE, {"scope": run.scope.id, "first": first, "count": reach})
    from_first = {"scope": run.scope.id, "first": first, "count": run.turns[-1] - first + 1 + reach}
    return [Turn(*row) for row in (*reversed(known.before[start]), *db.rows(_FROM, from_first))]


def _own(role: str, text: str, at: int) -> str:
    day = from_ms(at)
    return f"{texts.prepare(f'{texts.speaker(role)} {text}')} {day.day} {_MONTHS[day.month - 1]} {day.year}"


def _ctx(nearby: list[str], place: int) -> str:
    """The words of a live turn's neighbours, from what each turn of the window lends to those beside it.

    The turns after it count once there are two of them, so that a row is rewritten once, not twice, as a conversation grows.
    """
    before, after = nearby[max(0, place - NEIGHBOURS) : place], nearby[place + 1 : place + 1 + NEIGHBOURS]
    return " ".join([*before, *(after if len(after) == NEIGHBOURS else ())])


def _lent(turn: Turn) -> str:
    """The words that a turn lends to its neighbours: without stopwords, which are half of all and hardly ever searched."""
    words = texts.prepare(f"{texts.speaker(turn.role)} {turn.text[:NEIGHBOUR_CHARACTERS]}").translate(_APART).split()
    return " ".join(word for word in words if word.lower() not in texts.STOPWORDS)


def _batches(db: Database) -> Iterator[list[int]]:
    after = 0
    while batch := [row[0] for row in db.rows(_ALL, {"after": after})]:
        yield batch
        after = batch[-1]
