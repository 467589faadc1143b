"""sqlmem files of a corpus: built in bounded memory, kept for as long as neither the code nor the corpus changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlmem
from bench.scaling.layout import USER, Files, Row
from bench.scaling.prepared import Prepared
from bench.scaling.timing import once
from bench.stores import code_hash

# What is held in memory at a time: some 20 MB.
BATCH = 10_240


@dataclass(frozen=True)
class Built:
    """A file of `rows` memories, and what storing them took beyond their embedding."""

    path: Path
    rows: int
    bytes: int
    cpu_s: float
    wall_s: float


def items(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """`remember_many`'s items."""
    return [{"text": row.text, "user": USER, "session": row.session, "role": row.role} for row in rows]


def build(files: Files, embedder: Prepared, folder: Path, rows: int) -> Built:
    """The store of the corpus' first `rows` rows: one kept in `folder` that this very code made, or a new one."""
    path = folder / f"{files.vectors.stem}-{rows}-{code_hash()[:8]}{code_hash()[64:72]}.db"
    notes = path.with_suffix(".json")
    if path.exists() and notes.exists():
        return Built(path=path, **json.loads(notes.read_text(encoding="utf-8")))
    for leftover in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        leftover.unlink(missing_ok=True)
    cpu = wall = 0.0
    with sqlmem.open(path, embedder=embedder) as store:
        for batch in files.batches(rows, BATCH):
            embedder.prepare(batch)
            took = once(partial(store.remember_many, items(batch)), less=embedder.spent)
            cpu, wall = cpu + took.median / 1000, wall + took.median_wall / 1000
    built = Built(path, rows, path.stat().st_size, cpu, wall)
    saved = {key: value for key, value in asdict(built).items() if key != "path"}
    notes.write_text(json.dumps(saved), encoding="utf-8")  # last: a file without its notes was cut short
    return built
