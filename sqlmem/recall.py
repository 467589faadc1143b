"""Question to ranked memories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, NamedTuple, TypeVar

from sqlmem import arguments, candidates, pending, planning, ranking, reranking
from sqlmem import text as texts
from sqlmem.candidates import STRATEGIES, Encoded, Relevant, Strategy, Vectors
from sqlmem.clock import DAY_MS, local, moment_ms
from sqlmem.engine import Engine, half_life, recency
from sqlmem.errors import InvalidArgument
from sqlmem.planning import Beside, Planning
from sqlmem.records import Kind, Memory, Recall
from sqlmem.search import filters
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
select memory, outcome, at from feedback
 where memory in (select value from json_each(:rowids)) and (:as_of is null or at <= :as_of) order by id
"""
_SIGNS = {"useful": 1.0, "dead_end": -1.0, "corrected": -1.0}


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Checked arguments of a search. Times are milliseconds."""

    query: str
    chosen: Filter
    now: int
    limit: int | None
    token_budget: int | None
    score_gap: float | None
    at_least: int
    min_relevance: float | None
    min_summary_relevance: float | None
    zone: tzinfo
    half_life_days: float
    recency_weight: float
    recency_gate: float
    feedback_weight: float
    strategy: Strategy

    def bar(self, kind: Kind) -> str:
        """Which argument says how relevant a memory of this kind must be."""
        return "min_summary_relevance" if kind == "summary" and self.min_summary_relevance is not None else "min_relevance"

    def relevant_enough(self, item: Ranked) -> bool:
        """Whether a memory passes that bar."""
        least: float | None = getattr(self, self.bar(item.stored.kind))
        return least is None or item.relevant.relevance >= least


class Ranked(NamedTuple):
    """A memory in its place: its relevance, and what time and grades add to that."""

    score: float
    relevant: Relevant
    recency: float
    feedback: float

    @property
    def stored(self) -> Stored:
        """The memory."""
        return self.relevant.stored

    @property
    def scoring(self) -> Mapping[str, Any]:
        """The parts of the score, as shown in `Memory.scoring`."""
        return {
            "relevance": self.relevant.relevance,
            "relevance_norm": self.relevant.norm,
            "recency": self.recency,
            "feedback": self.feedback,
            "score": self.score,
            "found_by": self.relevant.found_by,
        }


def question(
    engine: Engine,
    query: object,
    *,
    limit: object,
    token_budget: object,
    score_gap: object = None,
    at_least: object = 0,
    min_relevance: object = None,
    min_summary_relevance: object = None,
    timezone: object = None,
    now: object = None,
    as_of: object = None,
    valid_on: object = None,
    half_life_days: object = None,
    recency_weight: object = None,
    strategy: object = "balanced",
    relevance_only: bool = False,
    **selection: Any,
) -> Question:
    """Check the arguments of recall(), search() or context(). Raises InvalidArgument."""
    if not isinstance(query, str):
        raise InvalidArgument(f"query must be a string, not {type(query).__name__}")
    options = engine.options
    if now is not None and as_of is not None:
        raise InvalidArgument("as_of says already at what time the question is asked: leave now out")
    moment = engine.now(now) if as_of is None else moment_ms("as_of", as_of)
    chosen = filters.build(as_of=as_of, valid_on=valid_on, **selection)
    weight = options.recency_weight if recency_weight is None else recency(recency_weight)
    return Question(
        query=texts.readable(query).strip(),
        # What is not true at the time of the question is no answer to it, unless another time is asked about.
        chosen=chosen if valid_on is not None else replace(chosen, valid_on=moment),
        now=moment,
        limit=None if limit is None else arguments.integer("limit", limit, least=1),
        token_budget=arguments.budget(token_budget),
        score_gap=None if score_gap is None else arguments.number("score_gap", score_gap, least=0, most=1, above=True),
        at_least=arguments.integer("at_least", at_least, least=0),
        min_relevance=_share("min_relevance", min_relevance),
        min_summary_relevance=_share("min_summary_relevance", min_summary_relevance),
        zone=arguments.timezone(timezone),
        half_life_days=options.half_life_days if half_life_days is None else half_life("half_life_days", half_life_days),
        recency_weight=0.0 if relevance_only else weight,
        recency_gate=options.recency_gate,
        feedback_weight=0.0 if relevance_only else options.feedback_weight,
        strategy=_strategy(engine, strategy),
    )


def recall(engine: Engine, asked: Question) -> Recall:
    """The best memories for a question: first the gap, then the limit, then the budget cuts."""

    def answer(encoded: Encoded, bonus: Mapping[int, float]) -> Recall:
        ranked = rank(engine, asked, encoded, bonus)
        kept = ranked[: asked.limit]
        shipped, tokens, exceeded = within_budget(engine, kept, asked.token_budget)
        return Recall(
            memories=tuple(recalled(engine, shipped, asked)),
            query=asked.query,
            token_budget=asked.token_budget,
            token_estimate=tokens,
            truncated=exceeded or len(shipped) < len(kept),
            cut_count=len(kept) - len(shipped),
            trace=(encoded.planning or Planning(asked.strategy)).trace(asked.query),
        )

    return answered(engine, asked, answer)


def answered(engine: Engine, asked: Question, answer: Callable[[Encoded, Mapping[int, float]], Answer]) -> Answer:
    """What `answer` makes, inside a read, of the question's vectors and of what the reranker adds by rowid.

    Both are computed before the read, as they may run models; again, if reembed() put others in their place meanwhile.
    """
    pending.embed_newest(engine.db, engine.encoder, EMBED_FIRST)
    planned = _planned(engine, asked)
    while True:
        encoded = _encoded(engine, asked, planned)
        encoder = encoded.encoder
        bonus = _bonus(engine, asked, encoded)
        with engine.db.read():
            if engine.encoder is encoder:
                return answer(encoded, bonus)


def _encoded(engine: Engine, asked: Question, planned: Planning, beside: Sequence[Beside] | None = None) -> Encoded:
    """The vectors of the question, and of what was planned beside it."""
    encoder = engine.encoder
    others = planned.beside if beside is None else beside

    def vectors(query: str) -> Vectors:
        return encoder.query(query) if encoder is not None and query else {}

    # A keyword is searched for as a word.
    more = tuple((one, {} if one.kind == "keyword" else vectors(one.text)) for one in others)
    return Encoded(encoder, vectors(asked.query), planned, more)


def _planned(engine: Engine, asked: Question) -> Planning:
    """What else is to be searched for. Runs the planner, outside of any transaction."""
    if not asked.query or asked.strategy == "low_latency":
        return Planning(asked.strategy)

    def found(beside: Sequence[Beside]) -> tuple[list[str], float]:
        encoded = _encoded(engine, asked, Planning(asked.strategy), beside)
        with engine.db.read():
            if engine.encoder is not encoded.encoder:
                return [], 0.0
            condition = filters.condition(engine.db, asked.chosen, asked.now)
            items = _found(engine, asked, encoded, condition, {}).values()
        best = sorted(items, key=lambda item: (item.joint, item.stored.at, item.stored.id), reverse=True)
        return [item.stored.text for item in best], max((item.relevance for item in best), default=0.0)

    now = local(asked.now, asked.zone)
    return planning.plan(engine, asked.query, asked.strategy, now, found)


def _bonus(engine: Engine, asked: Question, encoded: Encoded) -> Mapping[int, float]:
    """What the store's reranker adds to the best candidates, by rowid."""
    if engine.options.reranker is None or not asked.query:
        return {}
    with engine.db.read():
        if engine.encoder is not encoded.encoder:
            return {}
        found = _found(engine, asked, encoded, filters.condition(engine.db, asked.chosen, asked.now), {})
        best = sorted(found.values(), key=lambda item: (item.joint, item.stored.at, item.stored.id), reverse=True)
        pairs = reranking.passages(engine.db, [item.stored for item in best[: engine.options.rerank_candidates]])
    return reranking.bonus(engine.options.reranker, asked.query, pairs)


def rank(
    engine: Engine, asked: Question, encoded: Encoded, bonus: Mapping[int, float], *, exclude: Iterable[int] = ()
) -> list[Ranked]:
    """All candidates in their final order, less those that `score_gap` and `min_relevance` cut off. Use inside a read."""
    return cut(asked, order(engine, asked, encoded, bonus, exclude=exclude))


def order(
    engine: Engine, asked: Question, encoded: Encoded, bonus: Mapping[int, float], *, exclude: Iterable[int] = ()
) -> list[Ranked]:
    """All candidates in their final order. Use inside a read."""
    condition = filters.condition(engine.db, asked.chosen, asked.now, exclude=exclude)
    found = _found(engine, asked, encoded, condition, bonus, exclude=frozenset(exclude))
    graded = _feedback(engine, found, asked)
    ranked = [_blend(asked, item, graded.get(rowid, 0.0)) for rowid, item in found.items()]
    ranked.sort(key=lambda item: (item.score, item.stored.at, item.stored.id), reverse=True)
    return ranked


def cut(asked: Question, ranked: list[Ranked]) -> list[Ranked]:
    """What the bars of relevance and `score_gap` leave, and the best `at_least` in any case."""
    ranked = ranked[: asked.at_least] + [item for item in ranked[asked.at_least :] if asked.relevant_enough(item)]
    if asked.score_gap is not None and ranked and ranked[0].score > 0:
        floor = ranked[0].score * asked.score_gap
        sure = max(1, asked.at_least)
        ranked = ranked[:sure] + [item for item in ranked[sure:] if item.score >= floor]
    return ranked


def recalled(engine: Engine, ranked: Sequence[Ranked], asked: Question) -> list[Memory]:
    """The records of ranked memories, scores included."""
    scoring = {item.stored.rowid: item.scoring for item in ranked}
    stored = [item.stored for item in ranked]
    return memories.records(engine.db, stored, asked.now, as_of=asked.chosen.as_of, scoring=scoring)


def pool_size(asked: Question) -> int:
    """How many candidates each search proposes."""
    wanted = asked.limit or 0
    if asked.limit is None and asked.token_budget is not None:
        wanted = asked.token_budget // TOKENS_A_MEMORY
    return max(POOL, wanted)


def _found(
    engine: Engine,
    asked: Question,
    encoded: Encoded,
    condition: Condition | None,
    bonus: Mapping[int, float],
    *,
    exclude: frozenset[int] = frozenset(),
) -> dict[int, Relevant]:
    if condition is None:
        return {}
    if not asked.query:
        return candidates.newest(engine, condition, pool_size(asked))
    size, strategy = pool_size(asked), "low_latency" if asked.strategy == "low_latency" else "balanced"
    pool = candidates.gather(engine, asked.query, strategy, encoded, condition, size)
    found = candidates.relevant(engine, asked.query, pool, bonus)
    if not encoded.beside:
        return found
    others = []
    for one, vectors in encoded.beside:
        within = _within(engine, asked, one)
        if within is not None:
            pool = candidates.gather(engine, one.text, "balanced", Encoded(encoded.encoder, vectors), within, size)
            more = candidates.relevant(engine, one.text, pool, {})
            others.append((one, {rowid: item for rowid, item in more.items() if rowid not in exclude}))
    return candidates.joined(found, others)


def _within(engine: Engine, asked: Question, one: Beside) -> Condition | None:
    """The question's filters, and the time that a plan is about."""
    after = max((moment for moment in (asked.chosen.after, one.after) if moment is not None), default=None)
    before = min((moment for moment in (asked.chosen.before, one.before) if moment is not None), default=None)
    return filters.condition(engine.db, replace(asked.chosen, after=after, before=before), asked.now)


def _feedback(engine: Engine, found: Iterable[int], asked: Question) -> dict[int, float]:
    """The graded memories' feedback: the sum of ±0.5 ** (age / half-life), kept within ±2."""
    half = engine.options.feedback_half_life_days * DAY_MS
    sums: dict[int, float] = {}
    for rowid, outcome, at in engine.db.rows(_FEEDBACK, {"rowids": array(found), "as_of": asked.chosen.as_of}):
        sums[rowid] = sums.get(rowid, 0.0) + _SIGNS[outcome] * ranking.recency(at, asked.now, half)
    return {rowid: max(-FEEDBACK_LIMIT, min(FEEDBACK_LIMIT, total)) for rowid, total in sums.items()}


def _blend(asked: Question, item: Relevant, feedback: float) -> Ranked:
    new = ranking.recency(item.stored.at, asked.now, asked.half_life_days * DAY_MS)
    # A blank question asks for what is new, whatever it says.
    gain = asked.recency_weight * new * (item.norm**asked.recency_gate if asked.query else 1.0)
    return Ranked(item.norm + gain + asked.feedback_weight * feedback, item, new, feedback)


def _share(name: str, value: object) -> float | None:
    return None if value is None else arguments.number(name, value, least=0, most=1)


def _strategy(engine: Engine, strategy: object) -> Strategy:
    for known in STRATEGIES:
        if strategy == known:
            if known == "agentic" and engine.options.planner is None and engine.options.llm is None:
                raise InvalidArgument("strategy='agentic' needs a planner or a language model: open(..., planner=…) or llm=…")
            if known == "low_latency" and engine.encoder is None:
                raise InvalidArgument(
                    "strategy='low_latency' searches by vectors alone, and this store was opened without a model"
                )
            return known
    raise InvalidArgument(f"strategy must be one of {', '.join(STRATEGIES)}, not {strategy!r}")


def within_budget(engine: Engine, ranked: Sequence[Ranked], budget: int | None) -> tuple[list[Ranked], int, bool]:
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
