"""Remember: how memories enter a store. Models run before the transaction, never inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlmem import arguments, clock, revise
from sqlmem.clock import Ttl, expiry, moment_ms, ttl
from sqlmem.db import Database
from sqlmem.encoding import BATCH
from sqlmem.engine import Engine
from sqlmem.errors import AlreadyExists, InvalidArgument
from sqlmem.lifecycle import Change, changing
from sqlmem.records import Kind, MemoryId
from sqlmem.search import filters
from sqlmem.store import keyword_index, memories, scopes, vector_index
from sqlmem.store.keyword_index import Place
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.vector_index import Codes

_TURN_TAKEN = (
    "select id from memory where scope = :scope and turn = :turn and kind = 'turn' and ended_at is null and held is null"
)

_MOVE_KEY = """
update memory_key set memory = (select rowid from memory where id = :id) where user = :user and key = :key
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
    ttl: Ttl
    valid_from: int | None
    valid_to: int | None
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
    valid_from: object = None,
    valid_to: object = None,
    categories: object = (),
) -> Item:
    """Check the arguments of `remember()`. Raises InvalidArgument."""
    chosen = _kind(kind, arguments.boolean("pinned", pinned))
    if turn is not None and chosen != "turn":
        raise InvalidArgument(f"turn numbers belong to turns, this is a {chosen} memory")
    valid = _validity(chosen, valid_from, valid_to)
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
        ttl=ttl(ttl_days),
        valid_from=valid[0],
        valid_to=valid[1],
        categories=tuple(
            dict.fromkeys(arguments.string("a category", name) for name in arguments.several("categories", categories))
        ),
    )


def remember(engine: Engine, new: Item) -> MemoryId:
    """Store one memory."""
    return _store(engine, [new], "remember")[0][0]


def remember_many(engine: Engine, given: Iterable[object], progress: Progress | None) -> list[MemoryId]:
    """Store many memories, in batches of one transaction each."""
    engine.db.require_writable()
    if progress is not None and not callable(progress):
        raise InvalidArgument(f"progress must be callable, not {progress!r}; nothing was written")
    items = [from_entry(number, entry) for number, entry in enumerate(arguments.several("items", given))]
    now = engine.now()
    for number, new in enumerate(items):
        try:
            _expires(engine, new, now)
        except InvalidArgument as error:
            raise InvalidArgument(f"items[{number}]: {error}; nothing was written") from error
    filters.check_categories(engine.db, {name for new in items for name in new.categories})
    ids: list[MemoryId] = []
    call: int | None = None
    for start in range(0, len(items), BATCH):
        stored, call = _store(engine, items[start : start + BATCH], "remember_many", call)
        ids += stored
        if progress is not None:
            progress(len(ids), len(items))
    return ids


def _store(engine: Engine, items: Sequence[Item], verb: str, call: int | None = None) -> tuple[list[MemoryId], int | None]:
    """Store these in one transaction, which is part of `call`. Returns their ids, and the call's number."""
    computed = _codes(engine, items)
    now = engine.now()
    db = engine.db
    with changing(db, verb, now, call=call) as change:
        filters.check_categories(db, {name for new in items for name in new.categories})
        where = [scopes.ensure(db, new.user, new.session, now) for new in items]
        for scope in set(where):
            change.touch(scope.id)
        ids: list[MemoryId] = []
        added: dict[int, Codes] = {}
        to_pin: list[int] = []
        with keyword_index.following(db, places=_places(engine, items, where)) as affected:
            for place, (new, scope) in enumerate(zip(items, where, strict=True)):
                answered = new.key is not None and memories.keyed(db, new.user, new.key) is not None
                found = _already(change, new, scope.id, now)
                if found is None:
                    rowid, id_ = _add(engine, change, new, scope.id)
                    added[rowid] = computed[place]
                    ids.append(id_)
                else:
                    ids.append(MemoryId(found.id, created=False))
                    if found.kind == "fact" and new.kind == "pinned" and not answered:
                        to_pin.append(place)
            affected.update(added)
        vector_index.add(db, added)
        for place in to_pin:
            fact = ids[place]
            ids[place] = _pin(engine, change, fact)
            for later in range(place + 1, len(ids)):
                if ids[later] == fact and later not in to_pin:
                    ids[later] = MemoryId(ids[place], created=False)
            if items[place].key is not None:
                db.execute(_MOVE_KEY, {"user": items[place].user, "key": items[place].key, "id": ids[place]})
    return ids, change.call


def _codes(engine: Engine, items: Sequence[Item]) -> Sequence[Codes]:
    """The codes of each item; none for those that seem to be stored already, and none yet if embedding is deferred."""
    none: Sequence[Codes] = [{} for _ in items]
    if engine.encoder is None or engine.options.deferred:
        return none
    fresh = list(range(len(items)))
    if any(new.key is not None or new.kind != "turn" for new in items):
        with engine.db.read():
            now = engine.now()
            fresh = [place for place, new in enumerate(items) if _seen_before(engine, new, now) is None]
    encoded = engine.encoder.documents(engine.db, [(items[place].role, items[place].text) for place in fresh])
    by_place = dict(zip(fresh, encoded, strict=True))
    return [by_place.get(place, {}) for place in range(len(items))]


def is_repeat(engine: Engine, new: Item) -> bool:
    """Whether this call was answered before: by its key, or as the same live statement. Another process may change that."""
    with engine.db.read():
        return _seen_before(engine, new, engine.now()) is not None


def codes(engine: Engine, new: Item, *, at_once: bool) -> Codes:
    """The codes of one memory; none yet if embedding is deferred, unless they are needed `at_once`."""
    if engine.encoder is None or (engine.options.deferred and not at_once):
        return {}
    return engine.encoder.documents(engine.db, [(new.role, new.text)])[0]


def _seen_before(engine: Engine, new: Item, now: int) -> object:
    if new.key is None and new.kind == "turn":
        return None
    scope = scopes.find(engine.db, new.user, new.session)
    return None if scope is None else find(engine.db, new, scope.id, now)


def find(db: Database, new: Item, scope: int, now: int) -> Stored | None:
    """The memory that this call was already answered with: by its key, or as the same live statement."""
    if new.key is not None:
        keyed = memories.keyed(db, new.user, new.key)
        if keyed is not None:
            if keyed.text != new.text:
                raise AlreadyExists(
                    f"the key {new.key!r} of user {new.user!r} already names {keyed.id}, which has another text"
                )
            return keyed
    if new.kind == "turn" or new.id is not None:
        return None
    return memories.repeated(db, scope, new.text, now)


def _already(change: Change, new: Item, scope: int, now: int) -> Stored | None:
    found = find(change.db, new, scope, now)
    if found is not None and (new.key is None or memories.keyed(change.db, new.user, new.key) is None):
        change.seen(found)
        if new.key is not None:
            memories.add_key(change.db, new.user, new.key, found.rowid)
    return found


def _places(engine: Engine, items: Sequence[Item], where: Sequence[scopes.Scope]) -> set[Place]:
    """Everywhere that these turns may come to stand: which of them are there already is not known yet."""
    places: set[Place] = set()
    for scope in dict.fromkeys(where):
        turns = [new.turn for new, own in zip(items, where, strict=True) if own == scope and new.kind == "turn"]
        given = {turn for turn in turns if turn is not None}
        numbered = len(turns) - sum(turn is not None for turn in turns)
        first = scopes.next_turn(engine.db, scope.id) if numbered else 0
        starts = {first, *(turn + 1 for turn in given if turn >= first)}
        places.update(Place(scope, turn) for turn in given)
        places.update(Place(scope, start + step) for start in starts for step in range(numbered))
    return places


def _add(engine: Engine, change: Change, new: Item, scope: int) -> tuple[int, MemoryId]:
    stored = row(engine, change, new, scope)
    rowid = change.begin(stored, categories=new.categories)
    if new.key is not None:
        memories.add_key(engine.db, new.user, new.key, rowid)
    return rowid, MemoryId(stored.id, expired=expired(stored, change.now))


def row(engine: Engine, change: Change, new: Item, scope: int) -> NewMemory:
    """What is to be stored for `new`; takes its turn number. Raises AlreadyExists if its id or number is taken."""
    now = change.now
    _check_free(engine, new, scope)
    turn = scopes.take_turn(engine.db, scope) if new.kind == "turn" and new.turn is None else new.turn
    if new.turn is not None:
        scopes.raise_turn(engine.db, scope, new.turn)
    return NewMemory(
        id=new.id or clock.new_id(now),
        scope=scope,
        kind=new.kind,
        role=new.role,
        turn=turn,
        text=new.text,
        at=now if new.at is None else new.at,
        created_at=now,
        expires_at=_expires(engine, new, now),
        valid_from=new.valid_from,
        valid_to=new.valid_to,
        metadata=new.metadata,
    )


def lifetime(engine: Engine, kind: Kind, at: int, now: int) -> int | None:
    """When what was made of older memories expires, whose time to live counts from now; None for never."""
    rule = engine.options.ttl_ms.get(kind)
    return None if rule is None else max(at, now) + rule


def expired(stored: NewMemory, now: int) -> bool:
    """Whether the time to live of what is being stored has passed already."""
    return stored.expires_at is not None and stored.expires_at <= now


def _expires(engine: Engine, new: Item, now: int) -> int | None:
    return expiry(now if new.at is None else new.at, new.ttl, otherwise=engine.options.ttl_ms.get(new.kind))


def _check_free(engine: Engine, new: Item, scope: int) -> None:
    """Raise AlreadyExists if the caller's id or turn number is taken."""
    db = engine.db
    if new.id is not None and (memories.by_id(db, new.id) is not None or memories.was_forgotten(db, new.id)):
        raise AlreadyExists(f"the id {new.id!r} is taken by a memory that is, or was, in this store; nothing was written")
    if new.turn is not None:
        taken = db.value(_TURN_TAKEN, {"scope": scope, "turn": new.turn})
        if taken is not None:
            raise AlreadyExists(f"turn {new.turn} of session {new.session!r} is already there ({taken}); nothing was written")


def _pin(engine: Engine, change: Change, id_: str) -> MemoryId:
    """Pin a fact that was stated again as pinned."""
    fact = memories.by_id(engine.db, id_)
    assert fact is not None
    return revise.apply(change, fact, revise.change(pinned=True), {}, reason="updated", at=None)


def from_entry(number: int, entry: object) -> Item:
    """One of remember_many()'s items, checked. Raises InvalidArgument, which names it."""
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


def _kind(kind: object, pinned: bool) -> Kind:
    if kind is None:
        return "pinned" if pinned else "turn"
    chosen = arguments.kind(kind)
    if chosen == "summary":
        raise InvalidArgument("kind must be turn, fact or pinned; summaries are made from sessions")
    return "pinned" if pinned else chosen


def _validity(kind: Kind, valid_from: object, valid_to: object) -> tuple[int | None, int | None]:
    since = None if valid_from is None else moment_ms("valid_from", valid_from)
    until = None if valid_to is None else moment_ms("valid_to", valid_to)
    if kind == "turn" and (since is not None or until is not None):
        raise InvalidArgument("valid_from and valid_to belong to facts; a turn was said at its timestamp")
    if since is not None and until is not None and since >= until:
        raise InvalidArgument("valid_from must be before valid_to")
    return since, until
