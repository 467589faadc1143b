"""What every verb of an open store works with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from sqlmem import arguments, clock, embed, prompting, ranking, tokens
from sqlmem.clock import Clock, days_ms, moment_ms
from sqlmem.db import Database
from sqlmem.encoding import Encoder
from sqlmem.errors import InvalidArgument
from sqlmem.excerpts import Reader
from sqlmem.ranking import Traits
from sqlmem.records import KINDS, Conflict, ContradictionMode, Kind, RecallSettings, Verdict
from sqlmem.reranking import Reranker
from sqlmem.search import keywords
from sqlmem.search.keywords import Frequencies
from sqlmem.tokens import TokenCounter

if TYPE_CHECKING:
    from sqlmem.search.mirror import Mirrors


Judge = Callable[[str, list[str]], Sequence[bool | Verdict]]
"""From a new fact and facts that are known to one verdict for each of these: whether the new one contradicts it."""
Resolver = Callable[[Conflict, Mapping[str, str]], Sequence[str]]
"""From a conflict and the answers by question to what is true: texts that take the place of all that it was about."""
Planner = Callable[[str, list[str], RecallSettings, datetime], Mapping[str, object]]
"""From a question, what was found so far, the settings and the time of the question, to what else to look for:
{"queries": [texts], "keywords": [words], "after": date, "before": date, "done": bool}, each optional. The dates themselves are
left out."""
LanguageModel = Callable[[str], str]
"""From a prompt to a text."""
Summarize = Callable[[list[dict[str, str]]], Sequence[str]]
"""From turns, each with its "role", "text" and "ts" (ISO 8601, UTC), oldest first, to the facts that they hold."""

TRAITS_KEPT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings that `open()` was given, checked."""

    token_counter: TokenCounter
    half_life_days: float
    recency_weight: float
    recency_gate: float
    feedback_weight: float
    feedback_half_life_days: float
    ttl_ms: Mapping[Kind, int]
    clock: Clock
    deferred: bool
    reranker: Reranker | None
    rerank_candidates: int
    judge: Judge | None = None
    judge_candidates: int = 5
    on_judge_error: Literal["raise", "store"] = "raise"
    on_contradiction: ContradictionMode = "supersede"
    on_conflict: Callable[[Conflict], object] | None = None
    resolver: Resolver | None = None
    llm: LanguageModel | None = None
    planner: Planner | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Engine:
    """An open store's connection, embedders and settings. `encoder` is None for keywords only; reembed() replaces it."""

    db: Database
    encoder: Encoder | None
    options: Options
    frequencies: Frequencies = field(default_factory=Frequencies)
    mirrors: Mirrors | None = None  # made when vectors are first searched: they bring numpy
    _traits: dict[int, Traits] = field(default_factory=dict)
    _reader: Reader | None = None

    def traits(self, rowid: int, text: str) -> Traits:
        """What of a memory's text bears on its rank: read once, as a stored text never changes."""
        found = self._traits.get(rowid)
        if found is None:
            if len(self._traits) >= TRAITS_KEPT:
                self._traits.clear()
            found = self._traits[rowid] = ranking.traits(text)
        return found

    @property
    def reader(self) -> Reader:
        """What takes memories apart into passages."""
        if self._reader is None:
            self._reader = Reader(partial(keywords.stems, self.db))
        return self._reader

    def now(self, given: object = None) -> int:
        """`given` as milliseconds, or what the store's clock says."""
        return clock.read(self.options.clock) if given is None else moment_ms("now", given)


def options(
    *,
    token_counter: TokenCounter | None,
    half_life_days: float,
    recency_weight: float,
    recency_gate: float,
    feedback_weight: float,
    feedback_half_life_days: float,
    ttl_days: Mapping[str, float] | None,
    clock: Clock,
    embedding: str,
    reranker: object,
    rerank_candidates: int,
    judge: Judge | None,
    judge_candidates: int,
    on_judge_error: str,
    on_contradiction: str,
    on_conflict: Callable[[Conflict], object] | None,
    resolver: Resolver | None,
    llm: LanguageModel | None,
    planner: Planner | None,
    prompts: Mapping[str, str] | None,
) -> Options:
    """Check the settings of `open()`. Raises InvalidArgument."""
    if token_counter is not None and not callable(token_counter):
        raise InvalidArgument(f"token_counter must be callable, not {token_counter!r}")
    for name, given in (
        ("judge", judge),
        ("on_conflict", on_conflict),
        ("resolver", resolver),
        ("llm", llm),
        ("planner", planner),
    ):
        if given is not None and not callable(given):
            raise InvalidArgument(f"{name} must be callable, not {given!r}")
    if not callable(clock):
        raise InvalidArgument(f"clock must be callable, not {clock!r}")
    return Options(
        token_counter=tokens.estimate if token_counter is None else tokens.checked(token_counter),
        half_life_days=half_life("half_life_days", half_life_days),
        recency_weight=recency(recency_weight),
        recency_gate=arguments.number("recency_gate", recency_gate, least=0),
        feedback_weight=arguments.number("feedback_weight", feedback_weight, least=0, most=1),
        feedback_half_life_days=half_life("feedback_half_life_days", feedback_half_life_days),
        ttl_ms=_ttl(ttl_days),
        clock=clock,
        deferred=_deferred(embedding),
        reranker=_reranker(reranker),
        rerank_candidates=arguments.integer("rerank_candidates", rerank_candidates, least=1),
        judge=judge,
        judge_candidates=arguments.integer("judge_candidates", judge_candidates, least=1),
        on_judge_error=_on_judge_error(on_judge_error),
        on_contradiction=contradiction_mode(on_contradiction),
        on_conflict=on_conflict,
        resolver=resolver,
        llm=llm,
        planner=planner,
        prompts=prompting.checked(prompts),
    )


def half_life(name: str, value: object) -> float:
    """A half-life in days: finite and above 0."""
    return arguments.number(name, value, least=0, above=True)


def recency(value: object) -> float:
    """A recency weight, 0..1."""
    return arguments.number("recency_weight", value, least=0, most=1)


def contradiction_mode(value: object) -> ContradictionMode:
    """What becomes of a fact that contradicts what is known."""
    if value == "supersede":
        return "supersede"
    if value == "ask":
        return "ask"
    raise InvalidArgument(f"on_contradiction must be 'supersede' or 'ask', not {value!r}")


def _on_judge_error(value: object) -> Literal["raise", "store"]:
    if value == "raise":
        return "raise"
    if value == "store":
        return "store"
    raise InvalidArgument(f"on_judge_error must be 'raise' or 'store', not {value!r}")


def _deferred(embedding: object) -> bool:
    if embedding not in ("immediate", "deferred"):
        raise InvalidArgument(f"embedding must be 'immediate' or 'deferred', not {embedding!r}")
    return embedding == "deferred"


def _reranker(reranker: object) -> Reranker | None:
    if isinstance(reranker, str | os.PathLike):
        return embed.CrossEncoder(reranker)
    if reranker is not None and not callable(reranker):
        raise InvalidArgument(f"reranker must be a callable or the folder of a cross-encoder, not {reranker!r}")
    return reranker


def _ttl(value: object) -> dict[Kind, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"ttl_days must map kinds ({', '.join(KINDS)}) to days, not {value!r}")
    return {
        arguments.kind(kind): days_ms(f"ttl_days[{kind!r}]", days, positive=True)
        for kind, days in value.items()
        if days is not None and days != float("inf")
    }
