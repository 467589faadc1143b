"""Vector candidates: exact cosine over int8 codes, proposed by the bit index where a scope is large."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from sqlmem.db import Database
from sqlmem.search.filters import Condition
from sqlmem.store.memories import array
from sqlmem.store.models import Model

# ENGINE 1: up to here reading every code of the scope is as fast as asking the bit index, and exact.
EXACT_ROWS = 10_000
# ENGINE 1c: of the exact top 50 of 100,000, centred e5 bits hold .96 in their first 2,000 and .985 in their first 4,000.
PROPOSED = 4_000
# Below this many survivors of the filters the proposals are too thin a sample of the scope; then it is read whole.
ENOUGH = 1_000
_CHUNK = 8_192

_IN_SCOPE = "select count(*) from (select 1 from memory m where {scope} and m.ended_at is null limit :limit)"
_CODES = """
select m.rowid, v.code from memory m join {table} v on v.id = m.rowid where {condition} and v.code is not null
"""
_PROPOSE = "select id from {table}_bits where live = 1 and bit match vec_bit(:bits) and k = :k"
_SOME = " and m.rowid in (select value from json_each(:some))"
_OF = "select id, code from {table} where id in (select value from json_each(:some)) and code is not null"

Scores = list[tuple[int, float]]


def search(db: Database, model: Model, query: NDArray[np.float32], condition: Condition, *, limit: int) -> Scores:
    """The `limit` nearest (rowid, cosine) to the unit vector `query`, float32[dim], nearest first.

    Filters hold inside the search, so it returns `limit` rows wherever the scope has them.
    """
    sql = _CODES.format(table=model.table, condition=condition.sql)
    if _large(db, model, condition):
        proposed = _propose(db, model, query)
        found = _best(db, sql + _SOME, {**condition.bindings, "some": array(proposed)}, query, len(proposed))
        if len(found) >= max(ENOUGH, limit):
            return found[:limit]
    return _best(db, sql, condition.bindings, query, limit)


def score(db: Database, model: Model, query: NDArray[np.float32], rowids: Iterable[int]) -> dict[int, float]:
    """The cosines of these memories, without those that have no vector."""
    sql = _OF.format(table=model.table)
    chosen = list(rowids)
    return dict(_best(db, sql, {"some": array(chosen)}, query, len(chosen)))


def anchor(model: Model, query: NDArray[np.float32]) -> float:
    """The cosine that `query` has with ordinary text, from which relevance is measured; 0 for a model without a centre."""
    if model.centre is None:
        return 0.0
    return float(np.frombuffer(model.centre, dtype="<f4") @ query)


def _best(db: Database, sql: str, bindings: Mapping[str, object], query: NDArray[np.float32], limit: int) -> Scores:
    best: Scores = []
    chunk: list[tuple[int, bytes]] = []
    for row in db.stream(sql, bindings):
        chunk.append((row[0], row[1]))
        if len(chunk) == _CHUNK:
            best = _merge(best, chunk, query, limit)
            chunk = []
    return _merge(best, chunk, query, limit)


def _merge(best: Scores, chunk: list[tuple[int, bytes]], query: NDArray[np.float32], limit: int) -> Scores:
    if chunk:
        codes = np.frombuffer(b"".join(code for _, code in chunk), dtype=np.int8).reshape(len(chunk), -1).astype(np.float32)
        cosines = (codes @ query) / np.sqrt(np.einsum("ij,ij->i", codes, codes))
        best = best + list(zip((rowid for rowid, _ in chunk), cosines.tolist(), strict=True))
    return sorted(best, key=lambda pair: (-pair[1], -pair[0]))[:limit]


def _large(db: Database, model: Model, condition: Condition) -> bool:
    if not (db.has_vec and condition.live_only and model.bits == "current"):
        return False
    sql = _IN_SCOPE.format(scope=condition.scope_sql)
    count: int = db.value(sql, {**condition.bindings, "limit": EXACT_ROWS + 1})
    return count > EXACT_ROWS


def _propose(db: Database, model: Model, query: NDArray[np.float32]) -> list[int]:
    assert model.centre is not None, "the bit index exists only for a model with a centre"
    bits = np.packbits(query > np.frombuffer(model.centre, dtype="<f4")).tobytes()
    sql = _PROPOSE.format(table=model.table)
    return [row[0] for row in db.rows(sql, {"bits": bits, "k": PROPOSED})]
