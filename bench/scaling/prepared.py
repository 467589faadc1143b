"""An embedder that has all vectors already, so that what is measured is the store; and the real ones it is filled with."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Conversation
from bench.scaling.corpus import Source, spread_questions
from bench.scaling.layout import Files, Row
from sqlmem.embed import DEFAULT_MODEL, load

Vectors = NDArray[np.float32]


class Prepared:
    """Vectors looked up by text under the bundled model's name. `spent` is what the looking up took so far."""

    def __init__(self, queries: Mapping[str, Vectors], *, model: Any = None) -> None:
        real = load(DEFAULT_MODEL) if model is None else model
        self.name: str = real.name
        self.dim: int = real.dim
        self.fingerprint: str = getattr(real, "fingerprint", "")
        self.centre: Vectors | None = getattr(real, "centre", None)
        self._queries = dict(queries)
        self._documents: dict[str, bytes] = {}
        self._cpu = self._wall = 0.0

    def prepare(self, rows: Iterable[Row]) -> None:
        """Have these rows' vectors at hand, and no others."""
        self._documents = {row.spoken: row.vector for row in rows}

    def spent(self) -> tuple[float, float]:
        """Seconds (CPU, clock) spent here so far."""
        return self._cpu, self._wall

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The prepared rows' vectors. Another text is an error."""
        wall, cpu = time.perf_counter(), time.process_time()
        found = np.frombuffer(b"".join(self._documents[text] for text in texts), dtype=np.float32)
        self._count(wall, cpu)
        return found.reshape(len(texts), self.dim)

    def embed_query(self, text: str) -> Vectors:
        """A question's vector. Another question is an error."""
        wall, cpu = time.perf_counter(), time.process_time()
        found = self._queries[text]
        self._count(wall, cpu)
        return found

    def _count(self, wall: float, cpu: float) -> None:
        self._wall += time.perf_counter() - wall
        self._cpu += time.process_time() - cpu


def prepared(files: Files) -> Prepared:
    """The embedder that knows a corpus' questions."""
    return Prepared({text: np.frombuffer(vector, dtype=np.float32) for text, vector in files.asked()})


def real_source(conversations: Sequence[Conversation], folder: Path) -> Source:
    """All turns and 200 questions with the bundled model's vectors; embedding them takes a minute, so they are kept."""
    turns = [turn for conversation in conversations for turn in conversation.turns]
    roles, texts = [turn.speaker for turn in turns], [turn.stored_text for turn in turns]
    questions = spread_questions(conversations)
    model: Any = load(DEFAULT_MODEL)
    name = hashlib.sha256(json.dumps([model.fingerprint, roles, texts, questions]).encode()).hexdigest()[:12]
    kept = folder / f"source-{name}.npz"
    if not kept.exists():
        vectors = model.embed_documents([f"{role}: {text}" for role, text in zip(roles, texts, strict=True)])
        np.savez(kept, vectors=vectors, asked=np.stack([model.embed_query(question) for question in questions]))
    with np.load(kept) as saved:
        return Source(roles, texts, saved["vectors"], questions, saved["asked"])
