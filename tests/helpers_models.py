"""Embedders for tests of what is done with vectors: one that keeps a list, one with a centre, one whose texts form clusters."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sqlmem
from sqlmem import db as sqlite
from sqlmem.db import Database
from sqlmem.store import models
from sqlmem.store.models import Model

needs_vec = pytest.mark.skipif(sqlite.vec_library() is None, reason="sqlite-vec has no wheel for this platform")


class Noting(sqlmem.HashEmbedder):
    """Notes the texts and questions that it is given, and raises while `broken`."""

    def __init__(self, dim: int = 64, name: str | None = None, fingerprint: str = "") -> None:
        super().__init__(dim, name)
        self.fingerprint = fingerprint
        self.texts: list[str] = []
        self.questions: list[str] = []
        self.broken = False

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.broken:
            raise RuntimeError("out of order")
        self.texts += texts
        return np.array([super(Noting, self).embed_query(text) for text in texts], dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.questions.append(text)
        return super().embed_query(text)

    def taken(self) -> list[str]:
        """The texts since the last call."""
        texts, self.texts = self.texts, []
        return texts


class Centred(sqlmem.HashEmbedder):
    """Brings a centre, so that its file needs no 256 vectors to get a bit index."""

    def __init__(self, dim: int = 16, name: str = "centred") -> None:
        super().__init__(dim, name)
        self.centre = [0.02 * (place % 5 - 1) for place in range(dim)]


class Clustered:
    """Every text has a vector of its own, near one of eight middles."""

    def __init__(self, dim: int) -> None:
        self.name = f"clustered-{dim}"
        self.dim = dim
        self._middles = np.random.default_rng(0).standard_normal((8, dim)) + 0.5

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self.embed_query(text) for text in texts], dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        seed = zlib.crc32(text.encode())
        own = np.random.default_rng(seed).standard_normal(self.dim)
        vector: NDArray[np.float32] = (self._middles[seed % 8] + own).astype(np.float32)
        return vector


def the_model(store: sqlmem.MemoryStore) -> Model:
    """The first model of an open store's file, as it is now."""
    return models.every(store._engine.db)[0]


def codes(db: Database, model: Model) -> dict[int, bytes | None]:
    """The codes of a model by rowid."""
    return dict(db.rows(f"select id, code from {model.table} order by id"))


def waiting(store: sqlmem.MemoryStore) -> list[int]:
    """How many memories wait for each of the file's models."""
    return [model.pending for model in store.stats().models]


def found_by(store: sqlmem.MemoryStore, query: str, **options: Any) -> dict[str, set[str]]:
    """Which searches found each of the recalled texts."""
    found = store.recall(query, **{"limit": 100, **options})
    return {memory.text: set((memory.scoring or {})["found_by"]) for memory in found}


def fill(path: Path, count: int = 600, embedder: Any = "hash-64") -> Path:
    """Put `count` turns, a fact of two versions and a text without a vector into the file: `count` + 3 memories."""
    with sqlmem.open(path, embedder=embedder) as store:
        store.remember_many([{"text": f"number {number}", "id": f"m{number}", "session": "s"} for number in range(count)])
        fact = store.remember("Ana drinks tea", kind="fact")
        store.correct(fact, "Ana drinks rum")
        store.remember("!!!")
    return path


def held(store: sqlmem.MemoryStore) -> list[tuple[str, int, int]]:
    """Name, vectors and waiting memories of the file's models."""
    return [(model.name, model.vectors, model.pending) for model in store.stats().models]
