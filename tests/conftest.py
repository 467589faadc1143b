"""What most test files share: a clock that stands still, stores that close themselves, vectors chosen by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import numpy as np
import pytest
from numpy.typing import NDArray

import sqlmem
from tests.helpers_store import MovableClock, assert_sound

# A shared machine may stall any example; how long one takes is nobody's business here.
hypothesis.settings.register_profile("sqlmem", deadline=None, print_blob=True)
hypothesis.settings.load_profile("sqlmem")


class OpenStore(Protocol):
    """Opens a store that the test need not close."""

    def __call__(self, path: str | Path = ":memory:", **options: Any) -> sqlmem.MemoryStore: ...


class Vectors:
    """An embedder with a given vector for each text; every other text has `otherwise`. Notes what it was asked for."""

    def __init__(self, vectors: Mapping[str, Sequence[float]], otherwise: Sequence[float] = (0.0, 0.0)) -> None:
        self.name = "by-hand"
        self.dim = len(otherwise)
        self.documents: list[str] = []
        self.queries: list[str] = []
        self._vectors = dict(vectors)
        self._otherwise = otherwise

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.documents += texts
        return np.array([self._vectors.get(text, self._otherwise) for text in texts], dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.queries.append(text)
        return np.array(self._vectors.get(text, self._otherwise), dtype=np.float32)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def open_store(clock: MovableClock) -> Iterator[OpenStore]:
    """Stores with the standing clock and a hash embedder, unless told otherwise. At the end their indexes must be right."""
    opened: list[sqlmem.MemoryStore] = []

    def open_one(path: str | Path = ":memory:", **options: Any) -> sqlmem.MemoryStore:
        store = sqlmem.open(path, **{"embedder": sqlmem.HashEmbedder(64), "clock": clock, **options})
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        try:
            assert_sound(store)
        except sqlmem.StoreClosed:
            continue
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> sqlmem.MemoryStore:
    """One empty store in memory."""
    return open_store()


@pytest.fixture(params=["vectors and words", "words"])
def either(request: pytest.FixtureRequest, open_store: OpenStore) -> sqlmem.MemoryStore:
    """An empty store in memory: once one that searches both ways, once one by words alone."""
    return open_store() if request.param == "vectors and words" else open_store(embedder=False)


def scoring(memory: sqlmem.Memory | None) -> Mapping[str, Any]:
    """The scores of a recalled memory."""
    assert memory is not None
    assert memory.scoring is not None
    return memory.scoring
