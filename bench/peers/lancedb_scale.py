"""LanceDB as a store of given vectors: one table, searched exactly, with an index of the words and one of the sessions.

Durable: add() has written a new version of the table to files when it returns, without waiting for the disk. What comes
after the indexes were built is searched without them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import lancedb  # type: ignore[import-not-found]
import numpy as np
import pyarrow as pa  # type: ignore[import-not-found]
from lancedb.index import FTS, Bitmap  # type: ignore[import-not-found]

from bench.peers.harness import LIMIT, main
from bench.scaling.layout import Files, Row

TABLE = "memory"


class LanceDB:
    """One table."""

    def __init__(self, folder: Path, files: Files) -> None:
        fields = [("id", pa.int64()), ("text", pa.string()), ("role", pa.string()), ("session", pa.string())]
        self._schema = pa.schema([*fields, ("vector", pa.list_(pa.float32(), files.dim))])
        self._table = lancedb.connect(folder).create_table(TABLE, schema=self._schema, exist_ok=True)

    def fill(self, rows: Sequence[Row]) -> None:
        numbers = pa.array(np.frombuffer(b"".join(row.vector for row in rows), dtype=np.float32))
        columns = [
            pa.array([row.place for row in rows]),
            pa.array([row.spoken for row in rows]),
            pa.array([row.role for row in rows]),
            pa.array([row.session for row in rows]),
            pa.FixedSizeListArray.from_arrays(numbers, len(numbers) // len(rows)),
        ]
        self._table.add(pa.Table.from_arrays(columns, schema=self._schema))

    def finish(self) -> None:
        self._table.optimize()
        self._table.create_index("text", config=FTS())
        self._table.create_index("session", config=Bitmap())

    def add(self, row: Row) -> None:
        self.fill([row])

    def search(self, text: str, vector: bytes) -> list[int]:
        return _places(self._near(vector))

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        return _places(self._near(vector).where(f"session = '{session}'", prefilter=True))

    def recall(self, text: str, vector: bytes) -> list[int]:
        asked = np.frombuffer(vector, dtype=np.float32)
        return _places(self._table.search(query_type="hybrid").vector(asked).distance_type("cosine").text(text))

    def close(self) -> None:
        return

    def _near(self, vector: bytes) -> Any:
        return self._table.search(np.frombuffer(vector, dtype=np.float32)).distance_type("cosine")


def _places(query: Any) -> list[int]:
    return [int(row["id"]) for row in query.limit(LIMIT).to_list()]


if __name__ == "__main__":
    main(LanceDB)
