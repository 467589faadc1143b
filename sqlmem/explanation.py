"""Why a memory is recalled, or what keeps it out."""

from __future__ import annotations

from collections.abc import Mapping

from sqlmem import recall
from sqlmem.candidates import Encoded
from sqlmem.engine import Engine
from sqlmem.recall import Question, Ranked
from sqlmem.records import Explanation
from sqlmem.search import filters
from sqlmem.store import memories
from sqlmem.store.memories import Stored


def explain(engine: Engine, asked: Question, id_: object) -> Explanation:
    """Follow one memory through the whole of recall()."""
    memories.required(engine.db, id_)

    def answer(encoded: Encoded, bonus: Mapping[int, float]) -> Explanation:
        stored = memories.required(engine.db, id_)
        ranked = recall.order(engine, asked, encoded, bonus)
        place = next((place for place, item in enumerate(ranked) if item.stored.rowid == stored.rowid), None)
        kept_out_by, reason = (
            _missing(engine, asked, stored, len(ranked)) if place is None else _cut(engine, asked, ranked, place)
        )
        return Explanation(
            id=stored.id,
            kept_out_by=kept_out_by,
            reason=reason,
            rank=None if place is None else place + 1,
            candidates=len(ranked),
            scoring=None if place is None else ranked[place].scoring,
        )

    return recall.answered(engine, asked, answer)


def _missing(engine: Engine, asked: Question, stored: Stored, candidates: int) -> tuple[str | None, str]:
    """Why a memory is no candidate."""
    test = filters.failing(engine.db, asked.chosen, asked.now, stored.rowid)
    if test == "state":
        return test, _state(stored, asked)
    if test == "scope":
        return test, "it belongs to another user or session than the one asked about"
    if test is not None:
        return test, f"it does not pass the filter {test}"
    return "candidates", f"neither its words nor its vector put it among the {candidates} candidates"


def _state(stored: Stored, asked: Question) -> str:
    """Which state keeps a memory out."""
    moment = asked.chosen.as_of
    if moment is None or stored.held is not None:
        return f"it is {memories.state(stored, asked.now)}, not live"
    if stored.created_at > moment:
        return "it was not known then"
    return "it had ended by then" if stored.ended_at is not None and stored.ended_at <= moment else "it had expired by then"


def _cut(engine: Engine, asked: Question, ranked: list[Ranked], place: int) -> tuple[str | None, str]:
    """What cuts a candidate off, if anything."""
    item = ranked[place]
    if place >= asked.at_least and not asked.relevant_enough(item):
        bar = asked.bar(item.stored.kind)
        return bar, f"its relevance {item.relevant.relevance:.3f} is below {getattr(asked, bar)}"
    kept = recall.cut(asked, ranked)
    if item not in kept:
        return "score_gap", f"its score {item.score:.3f} is below {asked.score_gap} of the best, {kept[0].score:.3f}"
    if asked.limit is not None and kept.index(item) >= asked.limit:
        return "limit", f"it is number {kept.index(item) + 1}, and the limit is {asked.limit}"
    shipped, tokens, _ = recall.within_budget(engine, kept[: asked.limit], asked.token_budget)
    if item not in shipped:
        return "token_budget", f"{len(shipped)} better ones take {tokens} of the {asked.token_budget} tokens"
    return None, f"it is number {kept.index(item) + 1} of {len(ranked)} candidates"
