"""Vector candidates: exact cosine over int8 codes, of memories that the bit index proposes where a scope is large."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sqlmem.db import Database
from sqlmem.search import filters
from sqlmem.search.filters import Condition
from sqlmem.search.mirror import Ids, Mirrors
from sqlmem.store import bit_index, memories
from sqlmem.store.memories import array
from sqlmem.store.models import Model

# Reading a code costs 3 µs: up to here all are read, which is exact and needs no mirror.
EXACT_ROWS = 1_000
# A mirror takes 108 bytes a memory. In a larger store sqlite-vec searches the bits in the file, ten times as slowly.
MIRROR_ROWS = 4_000_000
# From this share of the store on, searching the whole index and filtering is quicker than listing a user's rows.
WIDE_SHARE = 0.25
_VEC_K = 4_096  # the most that sqlite-vec returns
_CHUNK = 8_192

_CODES = """
select m.rowid, v.code from memory m join {table} v on v.id = m.rowid where {condition} and v.code is not null
"""
_SCOPE_ROWS = "select count(*) from (select 1 from memory m where {scope} and m.ended_at is null limit :most)"
_ROWIDS = "select group_concat(rowid) from (select m.rowid from memory m where {condition})"
_OF = "select id, code from {table} where id in (select value from json_each(:some)) and code is not null"
_PROPOSE = "select id from {table}_bits where live = 1 and bit match vec_bit(:bits) and k = :k"

Scores = list[tuple[int, float]]


def search(
    db: Database, mirrors: Mirrors, model: Model, query: NDArray[np.float32], condition: Condition, *, limit: int
) -> Scores:
    """The `limit` nearest (rowid, cosine) to the unit vector `query`, float32[dim], nearest first.

    Filters hold inside the search, so it returns `limit` rows wherever the scope has them. Use it inside a read.
    """
    if _small(db, model, condition):
        return _best(db, _CODES.format(table=model.table, condition=condition.sql), condition.bindings, query, limit)
    found = _large(db, mirrors, model, query, condition, limit)
    if not condition.live_only:
        # The index holds what is live; what was replaced is read beside it.
        ended = _CODES.format(table=model.table, condition=f"{condition.sql} and m.ended_at is not null")
        found = _sorted(found + _best(db, ended, condition.bindings, query, limit))
    return found[:limit]


def score(db: Database, model: Model, query: NDArray[np.float32], rowids: Iterable[int]) -> dict[int, float]:
    """The cosines of these memories, without those that have no vector."""
    return dict(_cosines(db.rows(_OF.format(table=model.table), {"some": array(rowids)}), query))


def anchor(model: Model, query: NDArray[np.float32]) -> float:
    """The cosine that `query` has with ordinary text, from which relevance is measured; 0 for a model without a centre."""
    if model.centre is None:
        return 0.0
    return float(np.frombuffer(model.centre, dtype="<f4") @ query)


def _small(db: Database, model: Model, condition: Condition) -> bool:
    if model.centre is None or memories.count_ever(db) <= EXACT_ROWS:
        return True
    sql = _SCOPE_ROWS.format(scope=condition.scope_sql)
    count: int = db.value(sql, {**condition.bindings, "most": EXACT_ROWS + 1})
    return count <= EXACT_ROWS


def _large(
    db: Database, mirrors: Mirrors, model: Model, query: NDArray[np.float32], condition: Condition, limit: int
) -> Scores:
    """The live part of a scope: from the whole index if enough of that passes the filters, else from the scope's rows alone."""
    held = mirrors.of(db, model) if memories.count_ever(db) <= MIRROR_ROWS else None
    if filters.share(db, condition) >= WIDE_SHARE:
        proposed = _propose(db, model, query) if held is None else held.nearest(query)
        near = _sorted(score(db, model, query, proposed).items())
        live = f"{condition.sql} and m.ended_at is null"
        passing = filters.passing(db, live, condition.bindings, near, limit)
        if len(passing) == limit:
            return passing
    live = f"{condition.sql} and m.ended_at is null"
    if held is None:
        return _best(db, _CODES.format(table=model.table, condition=live), condition.bindings, query, limit)
    rowids = _numbers(db.value(_ROWIDS.format(condition=live), condition.bindings))
    chosen = rowids.tolist() if len(rowids) <= EXACT_ROWS else held.nearest(query, among=rowids)
    return _sorted(score(db, model, query, chosen).items())


def _propose(db: Database, model: Model, query: NDArray[np.float32]) -> list[int]:
    """What sqlite-vec finds in the file's own index, and what that lacks; nothing where the one or the other is too little."""
    if not db.has_vec or model.centre is None or model.indexed_to is None or bit_index.state(db, model) != "current":
        return []
    later = bit_index.since(db, model.indexed_to) or {}
    bits = np.packbits(query > np.frombuffer(model.centre, dtype="<f4")).tobytes()
    near = [row[0] for row in db.rows(_PROPOSE.format(table=model.table), {"bits": bits, "k": _VEC_K})]
    return near + [rowid for rowid in later if rowid not in set(near)]


def _numbers(joined: str | None) -> Ids:
    """Sorted whole numbers from text, which SQLite hands over ten times as fast as rows."""
    numbers = np.array([] if not joined else joined.split(","), dtype=np.int64)
    numbers.sort()
    return numbers


def _best(db: Database, sql: str, bindings: Mapping[str, object], query: NDArray[np.float32], limit: int) -> Scores:
    best: Scores = []
    chunk: list[tuple[int, bytes]] = []
    for row in db.stream(sql, bindings):
        chunk.append((row[0], row[1]))
        if len(chunk) == _CHUNK:
            best = _sorted(best + _cosines(chunk, query))[:limit]
            chunk = []
    return _sorted(best + _cosines(chunk, query))[:limit]


def _cosines(rows: Sequence[tuple[int, bytes]], query: NDArray[np.float32]) -> Scores:
    if not rows:
        return []
    codes = np.frombuffer(b"".join(code for _, code in rows), dtype=np.int8).reshape(len(rows), -1).astype(np.float32)
    cosines = (codes @ query) / np.sqrt(np.einsum("ij,ij->i", codes, codes))
    return list(zip((rowid for rowid, _ in rows), cosines.tolist(), strict=True))


def _sorted(scores: Iterable[tuple[int, float]]) -> Scores:
    """Nearest first; of equals, the one stored later."""
    return sorted(scores, key=lambda pair: (-pair[1], -pair[0]))
