"""How much of the exact nearest neighbours a search over codes finds. The only place that knows sqlmem's insides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.scaling.layout import USER
from sqlmem import MemoryStore
from sqlmem.search import filters, vectors
from sqlmem.search.mirror import Mirrors

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

DEPTH = 50
_BLOCK = 65_536


@dataclass(frozen=True)
class Quality:
    """Mean shares of the exact top 50: among the candidates that are scored exactly (None: all are), and in the answer."""

    candidates: float | None
    final: float
    top_1: float
    top_50: float


def exact_top(held: Vectors, asked: Vectors, depth: int = DEPTH) -> tuple[Places, Vectors]:
    """Each question's nearest rows by float32 brute force, nearest first: places and cosines, [questions, depth]."""
    best = np.full((len(asked), depth), -2.0, dtype=np.float32)
    places = np.full((len(asked), depth), -1, dtype=np.int64)
    for start in range(0, len(held), _BLOCK):
        scores = asked @ np.asarray(held[start : start + _BLOCK]).T
        both = np.concatenate([best, scores], axis=1)
        own = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
        named = np.concatenate([places, own], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :depth]
        best, places = np.take_along_axis(both, order, axis=1), np.take_along_axis(named, order, axis=1)
    return places, best


def share(found: Sequence[int], exact: Sequence[int]) -> float:
    """How much of `exact` is in `found`; places that do not exist (fewer rows than the depth) do not count."""
    wanted = {int(place) for place in exact if place >= 0}
    return len(wanted & {int(place) for place in found}) / len(wanted)


def measure(store: MemoryStore, held: Vectors, asked: Vectors) -> Quality:
    """Ask the store's vector search every question over the whole scope and compare with brute force."""
    exact, cosines = exact_top(held, asked)
    proposed, final = [], []
    for query, truth in zip(asked, exact, strict=True):
        candidates, found = vector_search(store, query)
        final.append(share(found, truth))
        if candidates is not None:
            proposed.append(share(candidates, truth))
    mean = float(np.mean(proposed)) if proposed else None
    return Quality(mean, float(np.mean(final)), float(cosines[:, 0].mean()), float(cosines[:, -1].mean()))


def vector_search(store: MemoryStore, query: Vectors) -> tuple[list[int] | None, list[int]]:
    """(places that the mirror proposes, places of the 50 nearest). None where the whole scope is scored.

    A row's place in the corpus is its rowid - 1, as rows are stored in order.
    """
    engine: Any = store._engine
    model = engine.encoder.serving(engine.db)[0]
    engine.mirrors = engine.mirrors or Mirrors()
    with engine.db.read():
        condition = filters.condition(engine.db, filters.build(user=USER), engine.now())
        assert condition is not None, "the user has memories"
        found = vectors.search(engine.db, engine.mirrors, model, query, condition, limit=DEPTH)
        if vectors._small(engine.db, model, condition):
            return None, [rowid - 1 for rowid, _ in found]
        proposed = engine.mirrors.of(engine.db, model).nearest(query)
        return [rowid - 1 for rowid in proposed], [rowid - 1 for rowid, _ in found]
