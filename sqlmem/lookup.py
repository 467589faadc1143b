"""Reading without ranking: get, list, turns, history, stats."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping

from sqlmem import arguments
from sqlmem.engine import Engine
from sqlmem.errors import InvalidArgument
from sqlmem.records import KINDS, Memory, ModelInfo, Page, Stats
from sqlmem.search import filters
from sqlmem.search.filters import Filter
from sqlmem.store import bit_index, memories, models, scopes
from sqlmem.store.memories import Stored

LONGEST_PAGE = 1_000

_PAGE = f"select {memories.OF_M} from memory m where {{condition}} {{after}} order by m.at desc, m.rowid desc limit :limit"
_STATES = """
select case when held is not null then held
            when ended_by is not null then 'superseded'
            when ended_at is not null then 'ended'
            when expires_at <= :now then 'expired'
            else 'live' end as state,
       kind, count(*)
  from memory group by 1, 2
"""
_COUNTS = """
select (select count(*) from scope where session is null), (select count(*) from scope where session is not null),
       (select count(*) from tombstone), (select count(*) from feedback), (select user_version from pragma_user_version)
"""


def get(engine: Engine, id_: object) -> Memory:
    """One version by id, in whatever state, with its earlier versions."""
    with engine.db.read():
        return memories.records(engine.db, [memories.required(engine.db, id_)], engine.now(), previous=True)[0]


def history(engine: Engine, id_: object) -> list[Memory]:
    """All versions that are still held of the chain that `id_` belongs to, oldest first."""
    with engine.db.read():
        return memories.records(engine.db, memories.chain(engine.db, memories.required(engine.db, id_).chain), engine.now())


def page(engine: Engine, chosen: Filter, *, limit: object, cursor: object, previous: object) -> Page[Memory]:
    """One page of memories, newest first."""
    size = arguments.integer("limit", limit, least=1)
    if size > LONGEST_PAGE:
        raise InvalidArgument(f"limit must be at most {LONGEST_PAGE:,}, not {size}; use cursor for the rest")
    with_previous = arguments.boolean("include_previous_versions", previous)
    bound = {} if cursor is None else _after(cursor)
    with engine.db.read():
        now = engine.now() if chosen.as_of is None else chosen.as_of
        condition = filters.condition(engine.db, chosen, now)
        if condition is None:
            return Page(items=(), next_cursor=None)
        after = "and (m.at, m.rowid) < (:at, :rowid)" if bound else ""
        sql = _PAGE.format(condition=condition.sql, after=after)
        stored = [Stored(*row) for row in engine.db.rows(sql, {**condition.bindings, **bound, "limit": size + 1})]
        items = memories.records(engine.db, stored[:size], now, previous=with_previous, as_of=chosen.as_of)
        return Page(items=tuple(items), next_cursor=_cursor(stored[size - 1]) if len(stored) > size else None)


def turns(engine: Engine, session: object, user: object, last: object) -> list[Memory]:
    """The live turns of exactly one session, in the order spoken."""
    name = None if session is None else arguments.name("session", session)
    count = None if last is None else arguments.integer("last", last, least=0)
    with engine.db.read():
        scope = scopes.find(engine.db, arguments.name("user", user, empty=True), name)
        if scope is None:
            return []
        now = engine.now()
        found = memories.last_turns(engine.db, scope.id, now, count)
        return memories.records(engine.db, found[::-1], now)


def stats(engine: Engine) -> Stats:
    """Counts of what the store holds. Scans all rows once."""
    db = engine.db
    with db.read():
        states: dict[str, dict[str, int]] = {}
        for state, kind, count in db.rows(_STATES, {"now": engine.now()}):
            states.setdefault(state, {})[kind] = count
        counts = db.row(_COUNTS)
        assert counts is not None
        users, sessions, forgotten, feedback, version = counts
        return Stats(
            path=db.path,
            size_bytes=_size(engine),
            format_version=version,
            users=users,
            sessions=sessions,
            live={kind: states.get("live", {}).get(kind, 0) for kind in KINDS},
            superseded=_sum(states, "superseded"),
            expired=_sum(states, "expired"),
            ended=_sum(states, "ended"),
            proposed=_sum(states, "proposed"),
            trash=_sum(states, "trash"),
            forgotten=forgotten,
            feedback=feedback,
            models=tuple(_model_info(engine, model) for model in models.every(db)),
        )


def _model_info(engine: Engine, model: models.Model) -> ModelInfo:
    return ModelInfo(
        name=model.name,
        dim=model.dim,
        vectors=engine.db.value(f"select count(code) from {model.table}"),
        pending=engine.db.value("select count(*) from pending where model = ?", (model.id,)),
        bits=bit_index.state(engine.db, model),
        input=model.input,
    )


def _size(engine: Engine) -> int:
    if engine.db.path != ":memory:":
        return os.stat(engine.db.path).st_size
    pages: int = engine.db.value("select page_count * page_size from pragma_page_count, pragma_page_size")
    return pages


def _sum(states: Mapping[str, Mapping[str, int]], state: str) -> int:
    return sum(states.get(state, {}).values())


def _cursor(stored: Stored) -> str:
    return base64.urlsafe_b64encode(json.dumps([stored.at, stored.rowid]).encode()).decode()


def _after(cursor: object) -> dict[str, int]:
    try:
        if not isinstance(cursor, str):
            raise ValueError("not a string")
        at, rowid = json.loads(base64.urlsafe_b64decode(cursor))
        if not all(type(number) is int and -(2**63) <= number < 2**63 for number in (at, rowid)):
            raise ValueError("not two whole numbers")
        return {"at": at, "rowid": rowid}
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"cursor must be a page's next_cursor, not {cursor!r}") from error
