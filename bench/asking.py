"""Asking a stored conversation its questions, in every setting of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import sqlmem
from bench.datasets import Conversation, Question
from bench.embedding import CachedEmbedder, Cost, Stopwatch, cached, load_embedder
from bench.scoring import Answer, count_tokens
from bench.stores import Stored, store_conversation

SAME_TOKENS = "same tokens"
"""A setting whose budget differs by question: what another system's block took."""


@dataclass(frozen=True)
class Setting:
    """How much may be shown: so many items, so many tokens, or (both None) a budget of each question's own."""

    label: str
    limit: int | None = None
    tokens: int | None = None


def parse_setting(text: str) -> Setting:
    """`10 items`, or a number of tokens."""
    words = text.split()
    if words[1:] == ["items"]:
        return Setting(text, limit=int(words[0]))
    return Setting(text, tokens=int(text))


@dataclass(frozen=True)
class Task:
    """One conversation to store and ask. `budgets`: tokens by question ref, for the `SAME_TOKENS` setting."""

    conversation: Conversation
    embedder: str
    settings: tuple[Setting, ...]
    clocks: tuple[str, ...]
    methods: tuple[str, ...] = ("context", "search")
    keep: str | None = None
    budgets: Mapping[str, int] = field(default_factory=dict)
    context_vectors: bool = False
    reranker: str | None = None
    strategy: Literal["balanced", "low_latency"] = "balanced"


@dataclass
class Outcome:
    """A task's answers, by `method|clock|setting`."""

    conversation: str
    stored: Stored
    answers: dict[str, list[Answer]]


def run_task(task: Task) -> Outcome:
    """Store (or reuse) the conversation's file and ask every question in every setting. Can run in another process."""
    embedder = load_embedder(task.embedder)
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as scratch:
        folder = Path(task.keep or scratch)
        keep = task.keep is not None
        stored = store_conversation(task.conversation, embedder, folder, keep=keep, context_vectors=task.context_vectors)
        answers: dict[str, list[Answer]] = {}
        with sqlmem.open(stored.path, embedder=embedder, reranker=task.reranker) as store:
            asker = Asker(store, task.conversation.name, stored.refs, cached(embedder), task.strategy)
            for question in task.conversation.questions:
                for clock in task.clocks:
                    now = moment(clock, question, task.conversation)
                    for key, answer in _ask(asker, task, question, clock, now):
                        answers.setdefault(key, []).append(answer)
    return Outcome(task.conversation.name, stored, answers)


def _ask(asker: Asker, task: Task, question: Question, clock: str, now: datetime) -> list[tuple[str, Answer]]:
    found = []
    for setting in task.settings:
        tokens = task.budgets[question.ref] if setting.label == SAME_TOKENS else setting.tokens
        block = asker.context(question, setting.limit, tokens, now)
        found.append((key("context", clock, setting.label), block))
        if "search" in task.methods:
            plain = asker.search(question, max(1, len(block.refs)), tokens, now)
            found.append((key("search", clock, setting.label), plain))
    return found


def key(method: str, clock: str, setting: str) -> str:
    """The name of one column of answers."""
    return f"{method}|{clock}|{setting}"


def moment(clock: str, question: Question, conversation: Conversation) -> datetime:
    """`today`: the wall clock; `last`: the question's own date if it has one, else the conversation's last turn."""
    if clock == "today":
        return datetime.now(UTC)
    return question.asked_at or conversation.turns[-1].at


@dataclass
class Asker:
    """One open store. Calls are timed with the embedding of the query counted at what it cost when it was computed."""

    store: Any
    user: str
    refs: Mapping[str, str]
    caches: list[CachedEmbedder]
    strategy: str = "balanced"

    def context(self, question: Question, limit: int | None, tokens: int | None, now: datetime) -> Answer:
        """`context()`, with no recent turns: what is measured is what the question brings up."""
        self._start()
        with Stopwatch() as watch:
            block = self.store.context(
                question.text,
                user=self.user,
                recent_turns=0,
                limit=limit,
                token_budget=tokens,
                now=now,
                strategy=self.strategy,
            )
        shown = [*block.pinned, *block.recent, *block.retrieved]
        return self._answer(question, shown, block.text, block.token_estimate, watch.cost)

    def search(self, question: Question, limit: int, tokens: int | None, now: datetime) -> Answer:
        """`search()`: relevance alone."""
        self._start()
        with Stopwatch() as watch:
            results = self.store.search(
                question.text, user=self.user, limit=limit, token_budget=tokens, now=now, strategy=self.strategy
            )
        text = "\n".join(f"{memory.role}: {memory.text}" for memory in results)
        return self._answer(question, list(results), text, results.token_estimate, watch.cost)

    def _start(self) -> None:
        for cache in self.caches:
            cache.start_call()

    def _answer(self, question: Question, shown: list[Any], text: str, own_tokens: int, spent: Cost) -> Answer:
        inside, embedding = Cost(), Cost()
        for cache in self.caches:
            inside.add(cache.in_call)
            embedding.add(cache.query_cost.get(question.text, Cost()))
        return Answer(
            question=question.ref,
            refs=tuple(self.refs[memory.id] for memory in shown),
            tokens=count_tokens(text),
            own_tokens=own_tokens,
            wall_ms=1000 * (spent.wall - inside.wall + embedding.wall),
            cpu_ms=1000 * (spent.cpu - inside.cpu + embedding.cpu),
            embed_wall_ms=1000 * embedding.wall,
            embed_cpu_ms=1000 * embedding.cpu,
        )
