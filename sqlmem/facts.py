"""Remember what is compared with what is known: facts, and what a judge has to say of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlmem import arguments, conflicts, ingest, judging, revise
from sqlmem.engine import Engine
from sqlmem.errors import Busy
from sqlmem.ingest import Item, Progress
from sqlmem.judging import Compared, Contradiction, Statement
from sqlmem.lifecycle import Change, End, changing
from sqlmem.records import ContradictionMode, EndReason, MemoryId
from sqlmem.search import filters
from sqlmem.store import keyword_index, memories, scopes, vector_index
from sqlmem.store.keyword_index import Place
from sqlmem.store.memories import NewMemory
from sqlmem.store.scopes import Scope
from sqlmem.store.vector_index import Codes

# How often a statement is compared anew because others were stored meanwhile.
ROUNDS = 10


def remember(engine: Engine, new: Item, check: object) -> MemoryId:
    """Store one memory; a fact is compared with what is known first, and judged if there is a judge."""
    judged = judging.wanted(engine, new.kind, check)
    if new.kind == "turn" and not judged:
        return ingest.remember(engine, new)
    for _ in range(ROUNDS):
        stored = _round(engine, new, judged)
        if stored is not None:
            conflicts.announce(engine, stored)
            return stored
    raise Busy(
        f"{engine.db.path}: other facts near to this one were stored each time that it was compared; nothing was written, "
        "try again",
        path=engine.db.path,
    )


def remember_many(engine: Engine, given: Iterable[object], progress: Progress | None) -> list[MemoryId]:
    """Store many memories; with a judge, each fact in a transaction of its own, so that it is compared with those before it."""
    if engine.options.judge is None:
        return ingest.remember_many(engine, given, progress)
    entries = arguments.several("items", given)
    items = [ingest.from_entry(number, entry) for number, entry in enumerate(entries)]
    ids: list[MemoryId] = []
    while len(ids) < len(items):
        done = len(ids)
        following = next((place for place in range(done, len(items)) if items[place].kind != "turn"), len(items))
        if following > done:
            ids += ingest.remember_many(engine, entries[done:following], None)
        else:
            ids.append(remember(engine, items[done], None))
        if progress is not None:
            progress(len(ids), len(items))
    return ids


@dataclass(frozen=True, slots=True)
class Prepared:
    """A memory that is to be stored, beside what was known when it was compared."""

    new: Item
    codes: Codes
    said: Statement
    compared: Compared


def prepare(engine: Engine, new: Item, *, judged: bool, least: float | None = None) -> Prepared:
    """Compare a memory with what is known, and ask the judge about it if `judged`. Outside of transactions."""
    codes = ingest.codes(engine, new, at_once=judged)
    said = Statement(new.text, codes, new.user, new.session)
    return Prepared(new, codes, said, judging.compare(engine, said, judged=judged, least=least))


def holds(engine: Engine, prepared: Prepared, scope: Scope, now: int) -> bool:
    """Whether, inside the transaction, what was prepared is still right: no repeat, and compared with all that is near."""
    repeated = ingest.find(engine.db, prepared.new, scope.id, now) is not None
    return not repeated and judging.holds(engine, prepared.said, prepared.compared)


def store(
    engine: Engine,
    change: Change,
    prepared: Prepared,
    scope: Scope,
    *,
    reason: EndReason = "updated",
    mode: ContradictionMode | None = None,
) -> MemoryId:
    """Store what was prepared, and end what it contradicts, or open a conflict about it. holds() must be true.

    `mode` says which of the two, instead of the user's or the store's rule.
    """
    new, compared = prepared.new, prepared.compared
    filters.check_categories(engine.db, new.categories)
    row = replace(ingest.row(engine, change, new, scope.id), checked=int(compared.checked))
    # Another one that was stored in this transaction may have taken the place of some.
    present = [one for one in compared.contradicted if judging.lives(engine.db, one.stored, change.now)]
    contradicted = [one for one in present if judging.meets(row, one.stored)]
    if ingest.expired(row, change.now):
        contradicted = []  # what is not there after all takes nobody's place
    if contradicted and not _is_current(row, contradicted, change.now):
        row, contradicted = _as_past(row, contradicted, change.now), []
    ends = [End(stored, reason, verdict.reason) for stored, verdict in contradicted]
    ended = tuple(end.stored.id for end in ends)
    if not ends or row.kind == "turn":
        _begin(change, new, row, scope, prepared.codes)
        if ends:
            change.supersede(ends, memories.required(change.db, row.id))
        return MemoryId(row.id, superseded=ended, similar=compared.similar, expired=ingest.expired(row, change.now))
    if (mode or judging.mode(engine, new.user)) == "ask":
        _begin(change, new, replace(row, held="proposed"), scope, prepared.codes)
        name = conflicts.begin(change, new.user, memories.required(change.db, row.id), contradicted)
        return MemoryId(row.id, similar=compared.similar, conflict_id=name)
    place = revise.heir([end.stored for end in ends], row.kind, scope)
    row = replace(row, chain=place.chain, kind=place.kind, scope=place.scope)
    row = replace(row, created_at=max(row.created_at, *(end.stored.created_at for end in ends)))
    rowid = change.succeed(ends, row, prepared.codes)
    change.categorise(rowid, new.categories)
    return MemoryId(row.id, superseded=ended, similar=compared.similar)


def _round(engine: Engine, new: Item, judged: bool) -> MemoryId | None:
    """Compare and store; None if what it was compared with has changed meanwhile."""
    if ingest.is_repeat(engine, new):
        return ingest.remember(engine, new)
    prepared = prepare(engine, new, judged=judged)
    now = engine.now()
    with changing(engine.db, "remember", now) as change:
        scope = scopes.ensure(engine.db, new.user, new.session, now)
        change.touch(scope.id)
        # Another process may have stored this very statement meanwhile: then it is a repeat, in the next round.
        if not holds(engine, prepared, scope, now):
            return None
        stored = store(engine, change, prepared, scope)
        if new.key is not None:
            memories.add_key(engine.db, new.user, new.key, memories.required(engine.db, stored).rowid)
        return stored


def _begin(change: Change, new: Item, row: NewMemory, scope: Scope, codes: Codes) -> int:
    places = [] if row.turn is None else [Place(scope, row.turn)]
    with keyword_index.following(change.db, places=places) as affected:
        rowid = change.begin(row, categories=new.categories)
        affected.add(rowid)
    vector_index.add(change.db, {rowid: codes})
    return rowid


def _is_current(row: NewMemory, contradicted: Sequence[Contradiction], now: int) -> bool:
    """Whether a statement says what is so now: it holds at this moment, and nothing that it contradicts is of a later time."""
    began = judging.begins(row)
    if began > now or (row.valid_to is not None and row.valid_to <= now):
        return False
    return all(judging.begins(stored) <= began for stored, _ in contradicted)


def _as_past(row: NewMemory, contradicted: Sequence[Contradiction], now: int) -> NewMemory:
    """A statement of an earlier time, true until the first that contradicts it; one of a later time stays to be checked."""
    began = judging.begins(row)
    later = [judging.begins(stored) for stored, _ in contradicted if judging.begins(stored) > began]
    if later and (row.valid_to is None or row.valid_to > min(later)):
        return replace(row, valid_to=min(later))
    return replace(row, checked=0) if began > now else row
