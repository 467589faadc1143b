"""Chroma as a store of given vectors: a persistent collection, HNSW with cosine distance, its defaults otherwise.

Durable: a row is in SQLite (its defaults) when add() returns; the HNSW index is written every 1,000 rows and caught up from
SQLite when the collection is opened. It has no search by words and vector together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import chromadb  # type: ignore[import-not-found]
import numpy as np
from chromadb.config import Settings  # type: ignore[import-not-found]

from bench.peers.harness import LIMIT, main
from bench.scaling.layout import Files, Row


class Chroma:
    """One collection."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._dim = files.dim
        client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        configuration = {"hnsw": {"space": "cosine"}}
        self._held = client.get_or_create_collection("memory", configuration=configuration, embedding_function=None)

    def fill(self, rows: Sequence[Row]) -> None:
        vectors = np.frombuffer(b"".join(row.vector for row in rows), dtype=np.float32).reshape(len(rows), self._dim)
        self._held.add(
            ids=[str(row.place) for row in rows],
            embeddings=vectors,
            documents=[row.spoken for row in rows],
            metadatas=[{"session": row.session, "role": row.role} for row in rows],
        )

    def finish(self) -> None:
        return

    def add(self, row: Row) -> None:
        self.fill([row])

    def search(self, text: str, vector: bytes) -> list[int]:
        return self._query(vector)

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        return self._query(vector, where={"session": session})

    def recall(self, text: str, vector: bytes) -> None:
        return None

    def close(self) -> None:
        return

    def _query(self, vector: bytes, **filters: Any) -> list[int]:
        asked = np.frombuffer(vector, dtype=np.float32)[None, :]
        return [int(id_) for id_ in self._held.query(query_embeddings=asked, n_results=LIMIT, **filters)["ids"][0]]


if __name__ == "__main__":
    main(Chroma)
