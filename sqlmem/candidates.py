"""From a question to the memories that may answer it, each with its relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlmem import ranking
from sqlmem.encoding import Encoder
from sqlmem.engine import Engine
from sqlmem.planning import Beside, Planning
from sqlmem.ranking import Candidate, Space
from sqlmem.search import keywords
from sqlmem.search.filters import Condition
from sqlmem.store import memories
from sqlmem.store.memories import Stored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sqlmem.store.models import Model

Strategy = Literal["low_latency", "balanced", "agentic", "auto"]
STRATEGIES: tuple[Strategy, ...] = ("low_latency", "balanced", "agentic", "auto")

Vectors = Mapping[str, "NDArray[np.float32]"]
"""A question's unit vector by model name."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A question's vectors, and what made them."""

    encoder: Encoder | None
    vectors: Vectors
    planning: Planning | None = None
    beside: tuple[tuple[Beside, Vectors], ...] = ()


# How much the vector of a turn in its context counts beside the vector of its own text.
CONTEXT_WEIGHT = 0.35 / 0.65

_RECENT = f"select {memories.OF_M} from memory m"


Places = Mapping[str, Mapping[int, int]]
"""By the name of a search, the places of what it found, by rowid."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What the searches proposed."""

    candidates: list[Candidate]
    spaces: list[Space]
    expected: float
    places: Places


class Relevant(NamedTuple):
    """A candidate with its relevance: absolute, joint with the small signals, and stretched to 0..1 over the pool."""

    stored: Stored
    relevance: float
    joint: float
    norm: float
    places: Places

    @property
    def found_by(self) -> dict[str, int]:
        """Which searches found the memory, and at which place."""
        return {name: ranks[self.stored.rowid] for name, ranks in self.places.items() if self.stored.rowid in ranks}


def gather(engine: Engine, query: str, strategy: str, encoded: Encoded, condition: Condition, size: int) -> Pool:
    """The best `size` of each search. Use it inside a read."""
    db, vectors = engine.db, encoded.vectors
    words = keywords.asked(db, "" if strategy == "low_latency" else query, engine.frequencies)
    models = [] if encoded.encoder is None else [model for model in encoded.encoder.serving(db) if model.name in vectors]
    by_word = dict(keywords.search(db, words, condition, limit=size, alone=not models))
    near = {model.id: _near(engine, model, vectors[model.name], condition, size) for model in models}
    chosen = by_word.keys() | {rowid for found in near.values() for rowid in found}
    cosines = [_with_rest(engine, model, vectors[model.name], near[model.id], chosen) for model in models]
    candidates = [
        Candidate(stored, tuple([by_rowid.get(rowid) for by_rowid in cosines]), by_word.get(rowid, 0.0))
        for rowid, stored in memories.by_rowids(db, chosen).items()
    ]
    places = {"keywords": _placed(by_word), **{_search_name(model, models): _placed(near[model.id]) for model in models}}
    return Pool(candidates, [_space(model, vectors) for model in models], words.expected, places)


def relevant(engine: Engine, query: str, pool: Pool, bonus: Mapping[int, float]) -> dict[int, Relevant]:
    """The candidates' relevance by rowid; `bonus` is added to the joint score."""
    known = {c.stored.rowid: engine.traits(c.stored.rowid, c.stored.text) for c in pool.candidates}
    joint = ranking.joint(query, pool.candidates, pool.spaces, known, expected=pool.expected)
    joint = {rowid: score + bonus.get(rowid, 0.0) for rowid, score in joint.items()}
    norm = ranking.normalised(joint)
    unseen = [c.stored.rowid for c in pool.candidates if not c.seen]
    shares = keywords.coverage(engine.db, query, unseen, engine.frequencies)
    found = {}
    for candidate, above in zip(pool.candidates, ranking.means_above(pool.candidates, pool.spaces), strict=True):
        rowid = candidate.stored.rowid
        bounded = min(1.0, max(0.0, shares.get(rowid, above)))
        found[rowid] = Relevant(candidate.stored, bounded, joint[rowid], norm[rowid], pool.places)
    return found


def joined(found: Mapping[int, Relevant], beside: Sequence[tuple[Beside, Mapping[int, Relevant]]]) -> dict[int, Relevant]:
    """What a question and the searches beside it found, as one: by what the question gives it, and the best of each kind.

    joint = norm + the sum over the kinds of weight * best norm; stretched to 0..1 again.
    """
    joint = {rowid: item.norm for rowid, item in found.items()}
    known = dict(found)
    places: dict[str, Mapping[int, int]] = dict(next(iter(found.values())).places) if found else {}
    for kind in dict.fromkeys(one.kind for one, _ in beside):
        best: dict[int, float] = {}
        for number, (one, others) in enumerate(((o, f) for o, f in beside if o.kind == kind), 1):
            for rowid, item in others.items():
                best[rowid] = max(best.get(rowid, 0.0), one.weight * item.norm)
                seen = known.get(rowid)
                known[rowid] = item if seen is None else seen._replace(relevance=max(seen.relevance, item.relevance))
            ranked = sorted(others.values(), key=lambda item: item.norm, reverse=True)
            places[f"{kind} {number}"] = {item.stored.rowid: place for place, item in enumerate(ranked, 1)}
        for rowid, score in best.items():
            joint[rowid] = joint.get(rowid, 0.0) + score
    norm = ranking.normalised(joint)
    return {rowid: Relevant(item.stored, item.relevance, joint[rowid], norm[rowid], places) for rowid, item in known.items()}


def newest(engine: Engine, condition: Condition, size: int) -> dict[int, Relevant]:
    """What a blank question finds: the newest memories, without relevance."""
    sql = f"{_RECENT} where {condition.sql} order by m.at desc, m.rowid desc limit :limit"
    rows = engine.db.rows(sql, {**condition.bindings, "limit": size})
    places = {"recency": {row[0]: place for place, row in enumerate(rows, 1)}}
    return {row[0]: Relevant(Stored(*row), 0.0, 0.0, 0.0, places) for row in rows}


def _near(engine: Engine, model: Model, vector: Any, condition: Condition, size: int) -> dict[int, float]:
    from sqlmem.search import vectors  # brings numpy, which a keyword-only store does without
    from sqlmem.search.mirror import Mirrors

    if engine.mirrors is None:
        engine.mirrors = Mirrors()
    return dict(vectors.search(engine.db, engine.mirrors, model, vector, condition, limit=size))


def _with_rest(engine: Engine, model: Model, vector: Any, near: Mapping[int, float], chosen: set[int]) -> dict[int, float]:
    """The cosines of all that were chosen, whoever found them."""
    from sqlmem.search import vectors

    return {**near, **vectors.score(engine.db, model, vector, chosen - near.keys())}


def _space(model: Model, vectors: Vectors) -> Space:
    from sqlmem.search.vectors import anchor

    return Space(anchor(model, vectors[model.name]), 1.0 if model.input == "own" else CONTEXT_WEIGHT)


def _search_name(model: Model, models: list[Model]) -> str:
    """What `found_by` calls the search of this model: "vectors" where there is one alone."""
    name = "vectors" if model.input == "own" else "context_vectors"
    return name if len({m.name for m in models}) == 1 else f"{name}:{model.name}"


def _placed(found: Mapping[int, float]) -> dict[int, int]:
    return {rowid: place for place, rowid in enumerate(found, 1)}
