"""The verbs of a store of a given size: what each call takes beyond embedding."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import sqlmem
from bench.scaling.files import items
from bench.scaling.layout import LONG, LONG_FROM, USER, Files, Row, probe_sessions
from bench.scaling.prepared import Prepared
from bench.scaling.timing import WARM_UP, Sample, timed

BUDGET = 1_500
# Rows that remember_many adds a call: ten of its transactions.
_MANY = 2_560


def reading(
    store: sqlmem.MemoryStore, embedder: Prepared, rows: int, questions: Sequence[str], repeat: int
) -> dict[str, Sample]:
    """recall() in a session and over the whole scope, and context() in the session of 5,000 turns where there is one."""
    count = repeat + WARM_UP
    # Each verb has questions of its own: what a store keeps of a question must not serve it twice.
    asked = [[questions[(verb * count + number) % len(questions)] for number in range(count)] for verb in range(3)]
    sessions = probe_sessions(rows, count)
    within = [partial(store.recall, q, user=USER, session=s) for q, s in zip(asked[0], sessions, strict=True)]
    over = [partial(store.recall, q, user=USER) for q in asked[1]]
    block = [partial(store.context, q, user=USER, session=LONG, token_budget=BUDGET) for q in asked[2]]
    found = {"session": timed(within, less=embedder.spent), "scope": timed(over, less=embedder.spent)}
    if rows >= LONG_FROM:
        found["context"] = timed(block, less=embedder.spent)
    return found


def writing(path: Path, embedder: Prepared, files: Files, rows: int, scratch: Path, repeat: int) -> dict[str, Sample]:
    """remember(), and remember_many() per row, on a copy of the file: the store itself stays as it is."""
    copied = scratch / path.name
    shutil.copyfile(path, copied)
    new = [Row(row.place, f"{row.text} Once more.", row.role, "new", row.vector) for row in files.rows(rows, 0, _MANY)]
    embedder.prepare(new)
    alone = [new[number % len(new)] for number in range(repeat + WARM_UP)]
    with sqlmem.open(copied, embedder=embedder) as store:
        calls = [partial(store.remember, row.text, user=USER, session=row.session, role=row.role) for row in alone]
        single = timed(calls, less=embedder.spent)
        given = items(new)
        many = timed([partial(store.remember_many, given)] * 4, less=embedder.spent, warm_up=1)
    for leftover in scratch.glob(f"{path.name}*"):
        leftover.unlink()
    size = len(given)
    return {"remember": single, "many": Sample(tuple(t / size for t in many.cpu), tuple(t / size for t in many.wall))}
