"""What every verb of an open store works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlmem import arguments, clock, tokens
from sqlmem.clock import Clock, days_ms, moment_ms
from sqlmem.db import Database
from sqlmem.encoding import Encoder
from sqlmem.errors import InvalidArgument
from sqlmem.records import KINDS, Kind
from sqlmem.search.keywords import Frequencies
from sqlmem.tokens import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings that `open()` was given, checked."""

    token_counter: TokenCounter
    half_life_days: float
    recency_weight: float
    feedback_weight: float
    feedback_half_life_days: float
    ttl_ms: Mapping[Kind, int]
    clock: Clock


@dataclass(frozen=True, slots=True)
class Engine:
    """An open store's connection, embedder and settings. `encoder` is None for keywords only."""

    db: Database
    encoder: Encoder | None
    options: Options
    frequencies: Frequencies = field(default_factory=Frequencies)

    def now(self, given: object = None) -> int:
        """`given` as milliseconds, or what the store's clock says."""
        return clock.read(self.options.clock) if given is None else moment_ms("now", given)


def options(
    *,
    token_counter: TokenCounter | None,
    half_life_days: float,
    recency_weight: float,
    feedback_weight: float,
    feedback_half_life_days: float,
    ttl_days: Mapping[str, float] | None,
    clock: Clock,
) -> Options:
    """Check the settings of `open()`. Raises InvalidArgument."""
    if token_counter is not None and not callable(token_counter):
        raise InvalidArgument(f"token_counter must be callable, not {token_counter!r}")
    if not callable(clock):
        raise InvalidArgument(f"clock must be callable, not {clock!r}")
    return Options(
        token_counter=tokens.estimate if token_counter is None else tokens.checked(token_counter),
        half_life_days=half_life("half_life_days", half_life_days),
        recency_weight=recency(recency_weight),
        feedback_weight=arguments.number("feedback_weight", feedback_weight, least=0, most=1),
        feedback_half_life_days=half_life("feedback_half_life_days", feedback_half_life_days),
        ttl_ms=_ttl(ttl_days),
        clock=clock,
    )


def half_life(name: str, value: object) -> float:
    """A half-life in days: finite and above 0."""
    return arguments.number(name, value, least=0, above=True)


def recency(value: object) -> float:
    """A recency weight, 0..1."""
    return arguments.number("recency_weight", value, least=0, most=1)


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
