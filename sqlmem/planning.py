"""Plans for a search: what else to look for, by a planner that the app passes in, or by its language model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from time import perf_counter
from typing import Any

from sqlmem import arguments, asking, clock, settings
from sqlmem.engine import Engine
from sqlmem.errors import CallbackError, InvalidArgument
from sqlmem.records import RecallSettings, Trace

# As many rounds of planning and searching as there may be, and as much of each as is taken from one plan.
ROUNDS, MOST_QUERIES, MOST_KEYWORDS = 3, 4, 8
# "auto" asks no planner where the best memory is as relevant as this.
ENOUGH = 0.6
# Texts that a planner is shown of what was found.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Beside:
    """Something else to search for: its kind, and how much what it finds counts. Times in milliseconds, left out themselves."""

    kind: str
    text: str
    weight: float
    after: int | None = None
    before: int | None = None


Found = Callable[[Sequence[Beside]], tuple[list[str], float]]
"""From what is searched for to the best texts and the relevance of the best one."""


@dataclass(slots=True)
class Planning:
    """What was planned for one question, and how."""

    strategy: str
    beside: list[Beside] = field(default_factory=list)
    calls: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def trace(self, query: str) -> Trace:
        """What callers see of it."""
        times = [(one.after, one.before) for one in self.beside if one.after is not None or one.before is not None]
        after, before = times[-1] if times else (None, None)
        return Trace(
            strategy=self.strategy,
            queries=(query, *(one.text for one in self.beside if one.kind == "subquery")),
            keywords=tuple(one.text for one in self.beside if one.kind == "keyword"),
            after=None if after is None else clock.from_ms(after),
            before=None if before is None else clock.from_ms(before),
            calls=self.calls,
            seconds=self.seconds,
            notes=tuple(self.notes),
        )


def plan(engine: Engine, query: str, strategy: str, now: datetime, found: Found) -> Planning:
    """Plan a search. `now` is the time of the question, in the asker's zone.

    `found` searches for what is planned so far: the best texts, and how relevant the best one is. A planner that raises or
    answers nonsense ends the planning; what was planned before it stands, and a note says so.
    """
    planned = Planning(strategy)
    planner = engine.options.planner
    if strategy == "balanced" and planner is None:
        return planned
    ask = planner if planner is not None else _by_model(engine, planned)
    if strategy == "auto":
        planned.strategy = "balanced"
        if ask is None or found([])[1] >= ENOUGH:
            return planned
        planned.strategy = "agentic"
    assert ask is not None, "checked with the question"
    told = settings.recall(engine.db)
    for _ in range(ROUNDS if planned.strategy == "agentic" else 1):
        texts = found(planned.beside)[0] if planned.strategy == "agentic" else []
        started = perf_counter()
        try:
            answer = ask(query, texts[:SHOWN], told, now)
            more = _checked(answer, told, now.tzinfo)
        except Exception as error:  # noqa: BLE001 - whatever a planner does, the search goes on without it
            planned.notes.append(f"the planner failed, the search went on without it: {type(error).__name__}: {error}"[:300])
            break
        finally:
            planned.seconds += perf_counter() - started
            planned.calls += planner is not None
        new = [one for one in more if (one.kind, one.text) not in {(known.kind, known.text) for known in planned.beside}]
        planned.beside += new
        if not new or answer.get("done") is True:
            break
    return planned


def _by_model(engine: Engine, planned: Planning) -> Callable[[str, list[str], RecallSettings, datetime], Any] | None:
    """A planner that asks the store's language model, if it has one."""
    if engine.options.llm is None:
        return None
    asker = asking.Asker(engine, engine.options.llm)

    def planner(query: str, found: list[str], told: RecallSettings, now: datetime) -> Any:
        before = asker.calls
        try:
            return asker.ask(
                "plan",
                "queries",
                instructions=_instructions(told),
                found="\n".join(json.dumps(text, ensure_ascii=False) for text in found) or "(nothing)",
                now=f"{now:%A %Y-%m-%d %H:%M}",
                query=json.dumps(query, ensure_ascii=False),
            )
        finally:
            planned.calls += asker.calls - before

    return planner


def _instructions(told: RecallSettings) -> str:
    parts = (
        ("Rules", told.custom_instructions),
        ("Good queries are like these", told.example_subqueries),
        ("Good keywords are like these", told.example_keywords),
        ("Good questions for summaries are like these", told.example_summary_questions),
    )
    return "".join(f"{head}:\n" + "".join(f"- {line}\n" for line in lines) for head, lines in parts if lines)


def _checked(answer: object, told: RecallSettings, zone: tzinfo | None) -> list[Beside]:
    """What a plan asks for. Raises CallbackError for what is no plan; single parts that make no sense are left out."""
    if not isinstance(answer, Mapping):
        raise CallbackError(f"a plan must be a mapping with queries and keywords, not {arguments.shown(answer)}")
    after, before = _moment(answer.get("after"), zone, last=True), _moment(answer.get("before"), zone, last=False)
    if after is not None and before is not None and after >= before:
        after = before = None
    queries = [("subquery", text, told.subquery_weight) for text in _texts(answer.get("queries"))[:MOST_QUERIES]]
    words = [("keyword", text, told.keyword_weight) for text in _texts(answer.get("keywords"))[:MOST_KEYWORDS]]
    return [Beside(kind, text, weight, after, before) for kind, text, weight in (*queries, *words) if weight > 0]


def _texts(value: object) -> list[str]:
    found = []
    for text in value if isinstance(value, list | tuple) else []:
        try:
            found.append(arguments.text(text).strip())
        except InvalidArgument:
            continue
    return list(dict.fromkeys(found))


def _moment(value: object, zone: tzinfo | None, *, last: bool) -> int | None:
    """The moment that a plan names; of a day its start, or if `last` its end, so that all of it is left out."""
    try:
        named = value if isinstance(value, date) else _read(str(value))
        if isinstance(named, datetime):
            return clock.to_ms(named if named.utcoffset() is not None else named.replace(tzinfo=zone))
        midnight = datetime.combine(named + timedelta(days=last), time.min, tzinfo=zone)
        return clock.to_ms(midnight) - last
    except (ValueError, OverflowError):
        return None


def _read(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)
