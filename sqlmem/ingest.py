"""Remember, correct, grade: every way in which text enters a store. Models run before the transaction, never inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlmem import arguments, clock, lifecycle
from sqlmem.clock import days_ms, moment_ms
from sqlmem.engine import Engine
from sqlmem.errors import AlreadyExists, InvalidArgument, NotFound
from sqlmem.records import OUTCOMES, EndReason, Kind, MemoryId
from sqlmem.search import filters
from sqlmem.store import keyword_index, memories, scopes, vector_index
from sqlmem.store.keyword_index import Place
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.vector_index import Codes

# One transaction and one parallel embedding run in a bulk write: large enough to make the commit cheap, small enough to leave
# the lock to others and to lose little when a long import is stopped.
BATCH = 256

_LATEST_MS = 253_402_300_799_999  # the end of year 9999, the last that a datetime can hold
_TURN_TAKEN = "select id from memory where scope = :scope and turn = :turn and kind = 'turn' and ended_at is null"
_GRADE = "insert into feedback (memory, outcome, at) values (:memory, :outcome, :at)"
_CATEGORY_NAMES = """
select c.name from memory_category mc join category c on c.id = mc.category where mc.memory = :rowid order by c.name
"""
_WAITING = """
select m.rowid, m.role, m.text from pending p join memory m on m.rowid = p.memory where p.model = :model limit :limit
"""

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Checked arguments of one `remember()`. Times are milliseconds, `at` None for now."""

    text: str
    user: str
    session: str | None
    role: str
    kind: Kind
    turn: int | None
    at: int | None
    metadata: str
    id: str | None
    key: str | None
    ttl: int | None
    forever: bool
    categories: tuple[str, ...]


def item(
    text: object,
    *,
    session: object = None,
    user: object = "",
    role: object = "user",
    kind: object = None,
    pinned: object = False,
    turn: object = None,
    timestamp: object = None,
    metadata: object = None,
    id: object = None,
    key: object = None,
    ttl_days: object = None,
    categories: object = (),
) -> Item:
    """Check the arguments of `remember()`. Raises InvalidArgument."""
    chosen = _kind(kind, arguments.boolean("pinned", pinned))
    if turn is not None and chosen != "turn":
        raise InvalidArgument(f"turn numbers belong to turns, this is a {chosen} memory")
    return Item(
        text=arguments.text(text),
        user=arguments.name("user", user, empty=True),
        session=None if session is None else arguments.name("session", session),
        role=arguments.role(role),
        kind=chosen,
        turn=None if turn is None else arguments.integer("turn", turn, least=0),
        at=None if timestamp is None else moment_ms("timestamp", timestamp),
        metadata=arguments.metadata(metadata),
        id=None if id is None else arguments.name("id", id),
        key=None if key is None else arguments.name("key", key),
        ttl=_ttl(ttl_days),
        forever=ttl_days == float("inf"),
        categories=tuple(
            dict.fromkeys(arguments.string("a category", name) for name in arguments.several("categories", categories))
        ),
    )


def remember(engine: Engine, new: Item) -> MemoryId:
    """Store one memory."""
    return _store(engine, [new])[0]


def remember_many(engine: Engine, given: Iterable[object], progress: Progress | None) -> list[MemoryId]:
    """Store many memories, in batches of one transaction each."""
    items = [_from_entry(number, entry) for number, entry in enumerate(arguments.several("items", given))]
    ids: list[MemoryId] = []
    for start in range(0, len(items), BATCH):
        ids += _store(engine, items[start : start + BATCH])
        if progress is not None:
            progress(len(ids), len(items))
    return ids


def correct(
    engine: Engine,
    id_: object,
    *,
    text: object = None,
    pinned: object = None,
    metadata: object = None,
    categories: object = None,
    ttl_days: object = None,
    reason: object = "updated",
) -> MemoryId:
    """Store the next version of a memory."""
    if reason not in ("updated", "system_correction"):
        raise InvalidArgument(f"reason must be 'updated' or 'system_correction', not {reason!r}")
    change = _change(text=text, pinned=pinned, metadata=metadata, categories=categories, ttl_days=ttl_days)
    addressed = _existing(engine, id_)
    codes = _codes_of_text(engine, addressed, change.text)
    with engine.db.write():
        filters.check_categories(engine.db, change.categories or ())
        return _apply(
            engine, addressed, change, codes, reason="updated" if reason == "updated" else "system_correction", at=None
        )


def feedback(engine: Engine, id_: object, outcome: object, correction: object, timestamp: object) -> MemoryId | None:
    """Grade a memory, and with a correction store its next version."""
    if outcome not in OUTCOMES:
        raise InvalidArgument(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
    if correction == "":
        correction = None
    if correction is not None and outcome != "corrected":
        raise InvalidArgument(f"a correction goes with the outcome 'corrected', not with {outcome!r}")
    change = None if correction is None else _change(text=correction)
    at = engine.now() if timestamp is None else moment_ms("timestamp", timestamp)
    addressed = _existing(engine, id_)
    codes = {} if change is None else _codes_of_text(engine, addressed, change.text)
    with engine.db.write():
        if memories.by_id(engine.db, addressed.id) is None:
            raise _unknown(engine, addressed.id)
        engine.db.execute(_GRADE, {"memory": addressed.rowid, "outcome": outcome, "at": at})
        return None if change is None else _apply(engine, addressed, change, codes, reason="updated", at=at)


def embed_pending(engine: Engine, *, limit: int | None = None) -> int:
    """Give vectors to memories that wait for them, in batches; returns to how many. Does nothing without an embedder."""
    if engine.encoder is None or engine.db.read_only:
        return 0
    done = 0
    while limit is None or done < limit:
        model = engine.encoder.model(engine.db)
        if model is None:
            break
        waiting = engine.db.rows(
            _WAITING, {"model": model.id, "limit": BATCH if limit is None else min(BATCH, limit - done)}
        )
        if not waiting:
            break
        codes = engine.encoder.documents([(role, text) for _, role, text in waiting])
        with engine.db.write():
            vector_index.settle(engine.db, model, dict(zip((row[0] for row in waiting), codes, strict=True)))
        done += len(waiting)
    return done


# -- storing ------------------------------------------------------------------------------------------------------------


def _store(engine: Engine, items: Sequence[Item]) -> list[MemoryId]:
    codes = _codes(engine, items)
    now = engine.now()
    db = engine.db
    with db.write():
        filters.check_categories(db, {name for new in items for name in new.categories})
        where = [scopes.ensure(db, new.user, new.session, now) for new in items]
        ids: list[MemoryId] = []
        added: dict[int, Codes] = {}
        to_pin: list[int] = []
        with keyword_index.following(db, places=_places(engine, items, where)) as affected:
            for place, (new, scope) in enumerate(zip(items, where, strict=True)):
                found = _already(engine, new, scope.id, now)
                if found is None:
                    rowid, id_ = _add(engine, new, scope.id, now)
                    added[rowid] = codes[place]
                    ids.append(id_)
                else:
                    ids.append(MemoryId(found.id, created=False))
                    if found.kind == "fact" and new.kind == "pinned":
                        to_pin.append(place)
            affected.update(added)
        vector_index.add(db, added)
        for place in to_pin:
            ids[place] = _pin(engine, ids[place])
    return ids


def _codes(engine: Engine, items: Sequence[Item]) -> list[Codes]:
    """The codes of each item, without any for those that seem to be stored already."""
    if engine.encoder is None:
        return [{} for _ in items]
    with engine.db.read():
        now = engine.now()
        fresh = [place for place, new in enumerate(items) if _seen_before(engine, new, now) is None]
    codes: list[Codes] = [{} for _ in items]
    encoded = engine.encoder.documents([(items[place].role, items[place].text) for place in fresh])
    for place, code in zip(fresh, encoded, strict=True):
        codes[place] = {engine.encoder.name: code}
    return codes


def _seen_before(engine: Engine, new: Item, now: int) -> object:
    if new.key is None and new.kind == "turn":
        return None
    scope = scopes.find(engine.db, new.user, new.session)
    return None if scope is None else _find(engine, new, scope.id, now)


def _find(engine: Engine, new: Item, scope: int, now: int) -> Stored | None:
    """The memory that this call was already answered with: by its key, or as the same live statement."""
    if new.key is not None:
        keyed = memories.keyed(engine.db, new.user, new.key)
        if keyed is not None:
            if keyed.text != new.text:
                raise AlreadyExists(
                    f"the key {new.key!r} of user {new.user!r} already names {keyed.id}, which has another text"
                )
            return keyed
    if new.kind == "turn" or new.id is not None:
        return None
    return memories.repeated(engine.db, scope, new.text, now)


def _already(engine: Engine, new: Item, scope: int, now: int) -> Stored | None:
    found = _find(engine, new, scope, now)
    if found is not None:
        if new.key is None:
            memories.count_seen(engine.db, found.rowid)
        elif memories.keyed(engine.db, new.user, new.key) is None:
            memories.count_seen(engine.db, found.rowid)
            memories.add_key(engine.db, new.user, new.key, found.rowid)
    return found


def _places(engine: Engine, items: Sequence[Item], where: Sequence[scopes.Scope]) -> set[Place]:
    return {
        Place(scope.id, scopes.next_turn(engine.db, scope.id) if new.turn is None else new.turn)
        for new, scope in zip(items, where, strict=True)
        if new.kind == "turn"
    }


def _add(engine: Engine, new: Item, scope: int, now: int) -> tuple[int, MemoryId]:
    db = engine.db
    id_ = new.id or clock.new_id(now)
    if memories.by_id(db, id_) is not None or memories.was_forgotten(db, id_):
        raise AlreadyExists(f"the id {id_!r} is taken by a memory that is, or was, in this store; nothing was written")
    turn = new.turn
    if new.kind == "turn":
        turn = scopes.next_turn(db, scope) if turn is None else turn
        taken = db.value(_TURN_TAKEN, {"scope": scope, "turn": turn})
        if taken is not None:
            raise AlreadyExists(
                f"turn {turn} of session {new.session!r} is already there ({taken}); nothing was written"
            )
    at = now if new.at is None else new.at
    ttl = None if new.forever else (engine.options.ttl_ms.get(new.kind) if new.ttl is None else new.ttl)
    rowid = lifecycle.begin(
        db,
        NewMemory(
            id=id_,
            scope=scope,
            kind=new.kind,
            role=new.role,
            turn=turn,
            text=new.text,
            at=at,
            created_at=now,
            expires_at=_expiry(at, ttl),
            metadata=new.metadata,
        ),
        categories=new.categories,
    )
    if new.key is not None:
        memories.add_key(db, new.user, new.key, rowid)
    return rowid, MemoryId(id_)


def _pin(engine: Engine, id_: str) -> MemoryId:
    """Pin a fact that was stated again as pinned."""
    fact = memories.by_id(engine.db, id_)
    assert fact is not None
    return _apply(engine, fact, _change(pinned=True), {}, reason="updated", at=None)


def _from_entry(number: int, entry: object) -> Item:
    try:
        if isinstance(entry, Mapping):
            return item(**entry)
        return item(entry)
    except InvalidArgument as error:
        raise InvalidArgument(f"items[{number}]: {error}; nothing was written") from error
    except TypeError as error:
        raise InvalidArgument(
            f"items[{number}] has keys that remember() does not know: {error}; nothing was written"
        ) from error


# -- next versions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """What a next version has that its predecessor has not; None keeps what was."""

    text: str | None
    pinned: bool | None
    metadata: str | None
    categories: tuple[str, ...] | None
    ttl: int | None
    forever: bool


def _change(
    *,
    text: object = None,
    pinned: object = None,
    metadata: object = None,
    categories: object = None,
    ttl_days: object = None,
) -> Change:
    return Change(
        text=None if text is None else arguments.text(text),
        pinned=None if pinned is None else arguments.boolean("pinned", pinned),
        metadata=None if metadata is None else arguments.metadata(metadata),
        categories=None
        if categories is None
        else tuple(
            dict.fromkeys(arguments.string("a category", name) for name in arguments.several("categories", categories))
        ),
        ttl=_ttl(ttl_days),
        forever=ttl_days == float("inf"),
    )


def _apply(
    engine: Engine, addressed: Stored, change: Change, codes: Codes, *, reason: EndReason, at: int | None
) -> MemoryId:
    """Inside a transaction: store the version that follows the chain's head, or return the head if nothing would differ."""
    db = engine.db
    head = memories.head(db, addressed.chain)
    if head is None:
        raise NotFound(f"{addressed.id} has no live version that could be corrected; remember() the statement anew")
    now = engine.now()
    new = _successor(head, change, now, now if at is None else at)
    held = tuple(row[0] for row in db.rows(_CATEGORY_NAMES, {"rowid": head.rowid}))
    same_categories = change.categories is None or set(change.categories) == set(held)
    unchanged = (new.text, new.kind, new.metadata) == (head.text, head.kind, head.metadata)
    if unchanged and same_categories and change.ttl is None and not change.forever:
        return MemoryId(head.id, created=False)
    if new.text == head.text:
        codes = vector_index.of(db, head.rowid)
    lifecycle.replace(db, head, new, codes, reason=reason, categories=change.categories)
    return MemoryId(new.id, superseded=(head.id,))


def _successor(head: Stored, change: Change, now: int, at: int) -> NewMemory:
    kind = head.kind
    if change.pinned is not None:
        if kind not in ("fact", "pinned"):
            raise InvalidArgument(f"{head.id} is a {kind}; only facts can be pinned, so remember() it as one")
        kind = "pinned" if change.pinned else "fact"
    # A turn keeps the time at which it was said, so that the conversation reads in order.
    moment = head.at if kind == "turn" else at
    ttl = change.ttl if change.ttl is not None else None if head.expires_at is None else head.expires_at - head.at
    return NewMemory(
        id=clock.new_id(now),
        scope=head.scope,
        kind=kind,
        role=head.role,
        turn=head.turn,
        text=head.text if change.text is None else change.text,
        at=moment,
        # Never before its predecessor: a clock that was set back must not make a history run backwards.
        created_at=max(now, head.created_at),
        expires_at=None if change.forever else _expiry(moment, ttl),
        metadata=head.metadata if change.metadata is None else change.metadata,
        chain=head.chain,
        version=head.version + 1,
    )


def _codes_of_text(engine: Engine, addressed: Stored, text: str | None) -> Codes:
    if text is None or engine.encoder is None:
        return {}
    return {engine.encoder.name: engine.encoder.documents([(addressed.role, text)])[0]}


def _existing(engine: Engine, id_: object) -> Stored:
    if not isinstance(id_, str):
        raise InvalidArgument(f"id must be a string, not {id_!r}")
    stored = memories.by_id(engine.db, arguments.string("id", id_))
    if stored is None:
        raise _unknown(engine, id_)
    return stored


def _unknown(engine: Engine, id_: str) -> NotFound:
    gone = "was forgotten" if memories.was_forgotten(engine.db, id_) else "is not in this store"
    return NotFound(f"the memory {id_!r} {gone}")


# -- arguments ----------------------------------------------------------------------------------------------------------


def _kind(kind: object, pinned: bool) -> Kind:
    if kind is None:
        return "pinned" if pinned else "turn"
    chosen = arguments.kind(kind)
    if chosen == "summary":
        raise InvalidArgument("kind must be turn, fact or pinned; summaries are made from sessions")
    return "pinned" if pinned else chosen


def _ttl(ttl_days: object) -> int | None:
    """Milliseconds of a TTL; None where none was given, or forever (math.inf) was asked for."""
    if ttl_days is None or ttl_days == float("inf"):
        return None
    return days_ms("ttl_days", ttl_days, positive=True)


def _expiry(at: int, ttl: int | None) -> int | None:
    if ttl is None:
        return None
    if at + ttl > _LATEST_MS:
        raise InvalidArgument("ttl_days reaches beyond the year 9999; leave it out to keep the memory")
    return at + ttl
