"""`sqlmem demo`: a conversation remembered, recalled, corrected and put into a prompt, with the calls that do it."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlmem import memory_store
from sqlmem.cli import show, values
from sqlmem.cli.parser import Usage
from sqlmem.memory_store import MemoryStore
from sqlmem.records import Memory, Recall

RECALL_BUDGET = 120
BLOCK_BUDGET = 120


def sample() -> dict[str, Any]:
    """The sample conversation."""
    text = (files("sqlmem") / "sample" / "conversation.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def items(talk: dict[str, Any]) -> list[dict[str, Any]]:
    """The sample's turns and facts as `remember_many()` takes them."""
    turns = [{**turn, "kind": "turn"} for turn in talk["turns"]]
    facts = [{**fact, "kind": "pinned" if fact["pinned"] else "fact"} for fact in talk["facts"]]
    both = sorted(turns + facts, key=lambda item: item["timestamp"])
    return [{**item, "timestamp": _moment(item["timestamp"]), "user": talk["user"]} for item in both]


def run(options: Namespace) -> Iterator[str]:
    """The demo, line by line."""
    if options.keep and Path(options.keep).exists():
        raise Usage(f"{options.keep} is already there; --keep needs a new file")
    with tempfile.TemporaryDirectory(prefix="sqlmem-demo-") as folder:
        path = options.keep or str(Path(folder) / "chat.db")
        talk = sample()
        now = _moment(talk["now"])
        # The clock stands where the talks end, so that their ages are what they were.
        with memory_store.open(path, embedder=values.embedder(options.embedder), clock=lambda: now) as store:
            yield from _remember(store, talk)
            found = store.recall(talk["question"], user=talk["user"], token_budget=RECALL_BUDGET)
            yield from _recall(talk, found)
            assert found.top is not None
            yield from _correct(store, talk, found.top)
            yield from _context(store, talk)
            yield from _history(store, found.top)
    yield ""
    if options.keep:
        yield f"Kept in {path}. Ask it something:  sqlmem {path} recall 'who feeds the cat' --user {talk['user']}"
    else:
        yield "Nothing was kept. With --keep chat.db the file stays, for you to ask."


def _remember(store: MemoryStore, talk: dict[str, Any]) -> Iterator[str]:
    stored = store.remember_many(items(talk))
    yield talk["title"]
    yield f"{len(talk['turns'])} turns and {len(talk['facts'])} facts. For this demo it is {_date(talk['now'])}."
    yield ""
    yield "1. Remember"
    yield "   store = sqlmem.open('chat.db')"
    yield "   store.remember_many(items)"
    yield f"   -> {len(stored)} memories in one file; the model runs here, nothing goes over the network"
    yield ""


def _recall(talk: dict[str, Any], found: Recall) -> Iterator[str]:
    yield "2. Recall, in a token budget"
    yield f"   memories = store.recall({talk['question']!r}, user={talk['user']!r}, token_budget={RECALL_BUDGET})"
    yield "   score = relevance within this list, 0..1, + 0.5 x recency x relevance^4 + 0.25 x feedback"
    for memory in found:
        yield f"   {memory.score:5.2f}  {_said(memory)}"
        yield f"          {show.scoring(memory.scoring)}"
    yield f"   -> {show.summary(found)}"
    yield ""


def _correct(store: MemoryStore, talk: dict[str, Any], top: Memory) -> Iterator[str]:
    correction = talk["correction"]
    because = correction["because"]
    store.remember(
        because["text"],
        role=because["role"],
        session=because["session"],
        user=talk["user"],
        timestamp=_moment(because["timestamp"]),
    )
    store.feedback(top.id, "corrected", correction=correction["text"])
    again = store.recall(talk["question"], user=talk["user"], token_budget=RECALL_BUDGET)
    yield f"3. Correct.  {because['role']}: {because['text']}"
    yield f"   store.feedback(memories.top.id, 'corrected', correction={correction['text']!r})"
    yield "   The same question again, the first answer:"
    yield from (f"   {memory.score:5.2f}  {_said(memory)}" for memory in again[:1])
    yield ""


def _context(store: MemoryStore, talk: dict[str, Any]) -> Iterator[str]:
    session = talk["correction"]["because"]["session"]
    block = store.context(talk["question"], user=talk["user"], session=session, token_budget=BLOCK_BUDGET)
    yield "4. The text for the prompt"
    yield f"   block = store.context(question, user={talk['user']!r}, session={session!r}, token_budget={BLOCK_BUDGET})"
    yield from (f"   | {line}".rstrip() for line in block.text.splitlines())
    cut = f", truncated: {block.cut_count} left out" if block.truncated else ""
    yield f"   -> {block.token_estimate} of {BLOCK_BUDGET} tokens{cut}"
    yield ""


def _history(store: MemoryStore, top: Memory) -> Iterator[str]:
    yield "5. What was believed before stays on record"
    yield "   store.history(memories.top.id)"
    for memory in store.history(top.id):
        yield f"   version {memory.version_number}, {memory.state}: {memory.text}"


def _said(memory: Memory) -> str:
    return f"{memory.role}: {memory.text}" if memory.kind == "turn" else memory.text


def _moment(iso: str) -> datetime:
    return datetime.fromisoformat(iso)


def _date(iso: str) -> str:
    moment = _moment(iso)
    return f"{moment.day} {moment:%B %Y}"
