"""Question to ranked memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmem import arguments, encoding, ranking
from sqlmem import text as texts
from sqlmem.clock import DAY_MS
from sqlmem.engine import Engine, half_life, recency
from sqlmem.errors import InvalidArgument
from sqlmem.ranking import Candidate
from sqlmem.records import Memory, Recall
from sqlmem.search import filters, keywords
from sqlmem.search.filters import Condition, Filter
from sqlmem.store import memories
from sqlmem.store.memories import Stored, array

# RETRIEVAL: 100 from each search lose nothing against 200. A fixed size, so that normalised relevance does not depend on
# `limit`.
POOL = 100
# A budget of many tokens needs more candidates to be filled; no memory is printed in fewer than about this many.
TOKENS_A_MEMORY = 15
# How many waiting vectors one recall computes before it searches: about a second of work.
EMBED_FIRST = 100
FEEDBACK_LIMIT = 2.0

_FEEDBACK = """
select memory, outcome, at from feedback where memory in (select value from json_each(:rowids)) order by id
"""
_SIGNS = {"useful": 1.0, "dead_end": -1.0, "corrected": -1.0}
_RECENT = f"select {memories.OF_M} from memory m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Checked arguments of a search. Times are milliseconds."""

    query: str
    chosen: Filter
    now: int
    limit: int | None
    token_budget: int | None
    score_gap: float | None
    min_relevance: float | None
    half_life_days: float
    recency_weight: float
    feedback_weight: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A memory and its scores, as shown in `Memory.scoring`."""

    stored: Stored
    scoring: Mapping[str, Any]

    @property
    def score(self) -> float:
        """The final score."""
        score: float = self.scoring["score"]
        return score


def question(
    engine: Engine,
    query: object,
    *,
    limit: object,
    token_budget: object,
    score_gap: object = None,
    min_relevance: object = None,
    now: object = None,
    half_life_days: object = None,
    recency_weight: object = None,
    relevance_only: bool = False,
    **selection: Any,
) -> Question:
    """Check the arguments of recall(), search() or context(). Raises InvalidArgument."""
    if not isinstance(query, str):
        raise InvalidArgument(f"query must be a string, not {type(query).__name__}")
    options = engine.options
    weight = options.recency_weight if recency_weight is None else recency(recency_weight)
    return Question(
        query=texts.readable(query).strip(),
        chosen=filters.build(**selection),
        now=engine.now(now),
        limit=None if limit is None else arguments.integer("limit", limit, least=1),
        token_budget=arguments.budget(token_budget),
        score_gap=None if score_gap is None else arguments.number("score_gap", score_gap, least=0, most=1, above=True),
        min_relevance=None if min_relevance is None else arguments.number("min_relevance", min_relevance, least=0, most=1),
        half_life_days=options.half_life_days if half_life_days is None else half_life("half_life_days", half_life_days),
        recency_weight=0.0 if relevance_only else weight,
        feedback_weight=0.0 if relevance_only else options.feedback_weight,
    )


def recall(engine: Engine, asked: Question) -> Recall:
    """The best memories for a question: first the gap, then the limit, then the budget cuts."""
    encoding.embed_pending(engine.db, engine.encoder, limit=EMBED_FIRST)
    vector = encode(engine, asked)
    with engine.db.read():
        ranked = rank(engine, asked, vector)
        kept = ranked[: asked.limit]
        shipped, tokens, exceeded = _within_budget(engine, kept, asked.token_budget)
        return Recall(
            memories=tuple(recalled(engine, shipped, asked.now)),
            query=asked.query,
            token_budget=asked.token_budget,
            token_estimate=tokens,
            truncated=exceeded or len(shipped) < len(kept),
            cut_count=len(kept) - len(shipped),
        )


def encode(engine: Engine, asked: Question) -> Any:
    """The question's unit vector, float32[dim], or None. Call it before a transaction: it may load and run a model."""
    return engine.encoder.query(asked.query) if engine.encoder is not None and asked.query else None


def rank(engine: Engine, asked: Question, vector: Any, *, exclude: Iterable[int] = ()) -> list[Ranked]:
    """All candidates in their final order, less those that `score_gap` and `min_relevance` cut off. Use inside a read."""
    condition = filters.condition(engine.db, asked.chosen, asked.now, exclude=exclude)
    if condition is None:
        return []
    found = _relevant(engine, asked, vector, condition) if asked.query else _recent(engine, asked, condition)
    graded = _feedback(engine, found, asked.now)
    ranked = [_blend(engine, asked, stored, relevance, graded.get(rowid, 0.0)) for rowid, (stored, relevance) in found.items()]
    ranked.sort(key=lambda item: (item.score, item.stored.at, item.stored.id), reverse=True)
    if asked.min_relevance is not None:
        ranked = [item for item in ranked if item.scoring["relevance"] >= asked.min_relevance]
    if asked.score_gap is not None and ranked and ranked[0].score > 0:
        floor = ranked[0].score * asked.score_gap
        ranked = ranked[:1] + [item for item in ranked[1:] if item.score >= floor]
    return ranked


def recalled(engine: Engine, ranked: Sequence[Ranked], now: int) -> list[Memory]:
    """The records of ranked memories, scores included."""
    scoring = {item.stored.rowid: item.scoring for item in ranked}
    return memories.records(engine.db, [item.stored for item in ranked], now, scoring=scoring)


Found = dict[int, tuple[Stored, dict[str, Any]]]


def pool_size(asked: Question) -> int:
    """How many candidates each search proposes."""
    wanted = asked.limit or 0
    if asked.limit is None and asked.token_budget is not None:
        wanted = asked.token_budget // TOKENS_A_MEMORY
    return max(POOL, wanted)


def _relevant(engine: Engine, asked: Question, vector: Any, condition: Condition) -> Found:
    """Candidates of both searches with their relevance."""
    db, size = engine.db, pool_size(asked)
    words = keywords.terms(db, asked.query)
    by_word = dict(keywords.search(db, words, condition, engine.frequencies, limit=size))
    by_vector, cosines, anchor = _near(engine, vector, condition, by_word, size)
    stored = memories.by_rowids(db, by_word.keys() | by_vector.keys())
    candidates = [Candidate(item, cosines.get(rowid), by_word.get(rowid, 0.0)) for rowid, item in stored.items()]
    joint = ranking.joint(asked.query, candidates, anchor, has_vectors=vector is not None)
    norm = ranking.normalised(joint)
    shares = keywords.coverage(db, words, [c.stored.rowid for c in candidates if c.cosine is None], engine.frequencies)
    places = {
        "keywords": {rowid: place for place, rowid in enumerate(by_word, 1)},
        "vectors": {rowid: place for place, rowid in enumerate(by_vector, 1)},
    }
    found: Found = {}
    for candidate in candidates:
        rowid = candidate.stored.rowid
        absolute = shares[rowid] if candidate.cosine is None else ranking.above(anchor, candidate.cosine, 1.0)
        found_by = {name: ranks[rowid] for name, ranks in places.items() if rowid in ranks}
        scoring = {"relevance": min(1.0, max(0.0, absolute)), "relevance_norm": norm[rowid], "found_by": found_by}
        found[rowid] = (candidate.stored, scoring)
    return found


def _near(
    engine: Engine, vector: Any, condition: Condition, by_word: Mapping[int, float], size: int
) -> tuple[dict[int, float], dict[int, float], float]:
    """The nearest memories, the cosines of those and of `by_word`, and the anchor."""
    model = None if engine.encoder is None else engine.encoder.model(engine.db)
    if vector is None or model is None:
        return {}, {}, 0.0
    from sqlmem.search import vectors  # brings numpy, which a keyword-only store does without

    near = dict(vectors.search(engine.db, model, vector, condition, limit=size))
    others = vectors.score(engine.db, model, vector, by_word.keys() - near.keys())
    return near, {**near, **others}, vectors.anchor(model, vector)


def _recent(engine: Engine, asked: Question, condition: Condition) -> Found:
    """What a blank question finds: the newest memories, without relevance."""
    sql = f"{_RECENT} where {condition.sql} order by m.at desc, m.rowid desc limit :limit"
    rows = engine.db.rows(sql, {**condition.bindings, "limit": pool_size(asked)})
    return {
        row[0]: (Stored(*row), {"relevance": 0.0, "relevance_norm": 0.0, "found_by": {"recency": place}})
        for place, row in enumerate(rows, 1)
    }


def _feedback(engine: Engine, found: Found, now: int) -> dict[int, float]:
    """The graded memories' feedback: the sum of ±0.5 ** (age / half-life), kept within ±2."""
    half = engine.options.feedback_half_life_days * DAY_MS
    sums: dict[int, float] = {}
    for rowid, outcome, at in engine.db.rows(_FEEDBACK, {"rowids": array(found)}):
        sums[rowid] = sums.get(rowid, 0.0) + _SIGNS[outcome] * ranking.recency(at, now, half)
    return {rowid: max(-FEEDBACK_LIMIT, min(FEEDBACK_LIMIT, total)) for rowid, total in sums.items()}


def _blend(engine: Engine, asked: Question, stored: Stored, relevance: Mapping[str, Any], feedback: float) -> Ranked:
    new = ranking.recency(stored.at, asked.now, asked.half_life_days * DAY_MS)
    score = relevance["relevance_norm"] + asked.recency_weight * new + asked.feedback_weight * feedback
    return Ranked(stored, {**relevance, "recency": new, "feedback": feedback, "score": score})


def _within_budget(engine: Engine, ranked: Sequence[Ranked], budget: int | None) -> tuple[list[Ranked], int, bool]:
    """The first memories that fit, their tokens, and whether the first alone exceeds the budget (it ships all the same)."""
    count = engine.options.token_counter
    shipped: list[Ranked] = []
    total = 0
    for item in ranked:
        tokens = count(item.stored.text)
        if budget is not None and shipped and total + tokens > budget:
            break
        shipped.append(item)
        total += tokens
    return shipped, total, budget is not None and total > budget
