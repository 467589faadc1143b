"""Sqlmem as a store of given vectors. By vector alone it searches with strategy="low_latency", whose
order counts more than the cosine: length, questions, dates and names; in a session, and by words
and vector, recall() is measured: words, vector, recency and feedback together.

Durable: WAL, synchronous = normal: what a call has stored survives the process being killed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import sqlmem
from bench.peers.harness import LIMIT, main
from bench.scaling.files import items
from bench.scaling.layout import USER, Files, Row
from bench.scaling.prepared import prepared


class Sqlmem:
    """One file."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._embedder = prepared(files)
        self._store = sqlmem.open(folder / "memory.db", embedder=self._embedder)

    def fill(self, rows: Sequence[Row]) -> None:
        self._embedder.prepare(rows)
        self._store.remember_many([{**item, "id": str(row.place)} for item, row in zip(items(rows), rows, strict=True)])

    def finish(self) -> None:
        return

    def add(self, row: Row) -> None:
        self._embedder.prepare([row])
        self._store.remember(row.text, user=USER, session=row.session, role=row.role, id=str(row.place))

    def search(self, text: str, vector: bytes) -> list[int]:
        found = self._store.search(text, user=USER, limit=LIMIT, strategy="low_latency")
        return [int(memory.id) for memory in found]

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        return [int(memory.id) for memory in self._store.recall(text, user=USER, session=session, limit=LIMIT)]

    def recall(self, text: str, vector: bytes) -> list[int]:
        return [int(memory.id) for memory in self._store.recall(text, user=USER, limit=LIMIT)]

    def close(self) -> None:
        self._store.close()


if __name__ == "__main__":
    main(Sqlmem)
