"""The embedder that a run uses, remembering vectors and what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqlmem.embed import DEFAULT_MODEL, load

KEYWORDS_ONLY = "none"
BUNDLED = "bundled"

Vector = NDArray[np.float32]
Embedding = Any  # what `sqlmem.open(embedder=…)` takes: a name, an Embedder, a list of them, or False


@dataclass
class Cost:
    """Time spent, in seconds: on the clock, and on all of the process's threads."""

    wall: float = 0.0
    cpu: float = 0.0

    def add(self, other: Cost) -> None:
        """Add another cost to this one."""
        self.wall += other.wall
        self.cpu += other.cpu


class Stopwatch:
    """`with Stopwatch() as watch: …; watch.cost`."""

    def __enter__(self) -> Stopwatch:
        self.cost = Cost()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cost = Cost(time.perf_counter() - self._wall, time.process_time() - self._cpu)


class CachedEmbedder:
    """An embedder that embeds a text once per process, and knows what each embedding cost the first time.

    The same question is asked in a dozen settings: embedding it anew each time would take most of a run and measure
    nothing. `query_cost` holds what each query's embedding really cost; `in_call` sums the time spent inside since
    `start_call`, hits and misses alike, so that a caller can take it out of a call and put the real cost back in.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name: str = inner.name
        self.dim: int = inner.dim
        self.query_cost: dict[str, Cost] = {}
        self.in_call = Cost()
        self.documents: dict[str, Vector] = {}
        self.new_documents = 0
        self._queries: dict[str, Vector] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not set yet, as while unpickling: without this the next line would not end
            raise AttributeError(name)
        return getattr(self.inner, name)  # fingerprint, centre and whatever else an embedder may carry

    def start_call(self) -> None:
        """Forget the time spent so far."""
        self.in_call = Cost()

    def embed_query(self, text: str) -> Vector:
        """The query's vector, computed at the first call only."""
        with Stopwatch() as watch:
            first = text not in self._queries
            if first:
                self._queries[text] = self.inner.embed_query(text)
        if first:
            self.query_cost[text] = watch.cost
        self.in_call.add(watch.cost)
        return self._queries[text]

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """The texts' vectors; those in `documents` are not computed."""
        missing = [text for text in dict.fromkeys(texts) if text not in self.documents]
        if missing:
            self.documents.update(zip(missing, self.inner.embed_documents(missing), strict=True))
            self.new_documents += len(missing)
        return np.stack([self.documents[text] for text in texts]) if texts else np.empty((0, self.dim), np.float32)


def cached(embedder: Embedding) -> list[CachedEmbedder]:
    """The caches inside an `embedder=` argument."""
    several = embedder if isinstance(embedder, list) else [embedder]
    return [one for one in several if isinstance(one, CachedEmbedder)]


def describe(embedder: Embedding) -> str:
    """The embedder's names and checksums."""
    return "+".join(f"{e.name}@{getattr(e, 'fingerprint', '')}" for e in cached(embedder)) or KEYWORDS_ONLY


@lru_cache
def load_embedder(name: str) -> Embedding:
    """The `embedder=` argument for a name: `none`, `bundled`, a catalogue name, or several joined by `+` (fused).

    One per process: its query vectors serve every conversation and setting.
    """
    if name == KEYWORDS_ONLY:
        return False
    loaded = [CachedEmbedder(load(DEFAULT_MODEL if part == BUNDLED else part)) for part in name.split("+")]
    for one in loaded:
        one.inner.embed_query("warm up")  # loads the model: no question should pay for that
    return loaded if len(loaded) > 1 else loaded[0]
