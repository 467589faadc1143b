"""Plain sqlite-vec as a store of given vectors: one vec0 table, float32, cosine, the session a metadata column.

Durable: WAL, synchronous = normal, as sqlmem's. It has no search by words and vector together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import apsw
import sqlite_vec  # type: ignore[import-untyped,unused-ignore]

from bench.peers.harness import LIMIT, main
from bench.scaling.layout import Files, Row

_INSERT = "insert into held (id, vector, session, role, text) values (?, ?, ?, ?, ?)"
_NEAR = "select id, distance from held where vector match ? and k = ?"


class SqliteVec:
    """One file."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._connection = apsw.Connection(str(folder / "vec.db"))
        self._connection.enable_load_extension(True)
        self._connection.load_extension(sqlite_vec.loadable_path())
        self._connection.execute("pragma journal_mode = wal").fetchall()
        self._connection.execute("pragma synchronous = normal")
        columns = (
            f"id integer primary key, vector float[{files.dim}] distance_metric=cosine, session text, +role text, +text text"
        )
        self._connection.execute(f"create virtual table if not exists held using vec0({columns})")

    def fill(self, rows: Sequence[Row]) -> None:
        with self._connection:
            many = [(row.place, row.vector, row.session, row.role, row.text) for row in rows]
            self._connection.executemany(_INSERT, many)

    def finish(self) -> None:
        return

    def add(self, row: Row) -> None:
        self.fill([row])

    def search(self, text: str, vector: bytes) -> list[int]:
        return [int(row[0]) for row in self._connection.execute(_NEAR, (vector, LIMIT))]

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        found = self._connection.execute(f"{_NEAR} and session = ?", (vector, LIMIT, session))
        return [int(row[0]) for row in found]

    def recall(self, text: str, vector: bytes) -> None:
        return None

    def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    main(SqliteVec)
