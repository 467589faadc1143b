"""LangGraph's SqliteStore as a store of given vectors: namespaces (user, session), the vectors through its index's `embed`.

Durable: its own settings, a rollback journal with synchronous = full. It has no search by words and vector together.
"""

from __future__ import annotations

# ruff: noqa: E402
import array
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pysqlite3  # type: ignore[import-not-found]

# Python's own may have been built without the loading of extensions, which the store needs.
sys.modules["sqlite3"] = pysqlite3

from langgraph.store.base import PutOp  # type: ignore[import-not-found]
from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found]

from bench.peers.harness import LIMIT, main
from bench.scaling.layout import USER, Files, Row


class LangGraph:
    """One file."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._vectors = dict(files.asked())
        # It documents "fields" and reads "text_fields"; without that it embeds the value's JSON.
        index = {"dims": files.dim, "embed": self._embed, "fields": ["text"], "text_fields": ["text"]}
        self._opened = SqliteStore.from_conn_string(str(folder / "store.db"), index=index)
        self._store = self._opened.__enter__()
        self._store.setup()

    def fill(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._vectors[row.spoken] = row.vector
        self._store.batch([PutOp((USER, row.session), str(row.place), {"text": row.spoken}) for row in rows])
        for row in rows:
            del self._vectors[row.spoken]

    def finish(self) -> None:
        return

    def add(self, row: Row) -> None:
        self._vectors[row.spoken] = row.vector
        self._store.put((USER, row.session), str(row.place), {"text": row.spoken})

    def search(self, text: str, vector: bytes) -> list[int]:
        return [int(item.key) for item in self._store.search((USER,), query=text, limit=LIMIT)]

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        return [int(item.key) for item in self._store.search((USER, session), query=text, limit=LIMIT)]

    def recall(self, text: str, vector: bytes) -> None:
        return None

    def close(self) -> None:
        self._opened.__exit__(None, None, None)

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [list(array.array("f", self._vectors[text])) for text in texts]


if __name__ == "__main__":
    main(LangGraph)
