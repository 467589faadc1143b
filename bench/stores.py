"""Conversations as stores: one fresh file each, or one kept from an earlier run of the same code."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import sqlmem
from bench.datasets import Conversation
from bench.embedding import CachedEmbedder, Cost, Embedding, Stopwatch, cached, describe


@dataclass
class Stored:
    """One conversation's file: where, memory id -> turn ref, and what storing it cost.

    `embedded` is how many texts were embedded while storing: fewer than there are means times without their embedding.
    """

    path: str
    refs: dict[str, str]
    cost: Cost
    embedded: int
    bytes: int = 0
    reused: bool = field(default=False, compare=False)


def source_hash(package: Path, patterns: Sequence[str] = ("**/*.py", "**/*.sql", "**/manifest.json")) -> str:
    """Checksum of a package's sources: a kept file or vector is only reused by the code that made it."""
    files = sorted({file for pattern in patterns for file in package.glob(pattern)})
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def code_hash() -> str:
    """Checksum of sqlmem's sources, and of the schema folder that a checkout keeps beside them."""
    package = Path(sqlmem.__file__).parent
    return source_hash(package) + source_hash(package.parent / "schema")


def content_hash(conversation: Conversation, *parts: str) -> str:
    """Twenty hex digits that name this conversation's turns and `parts`."""
    turns = [(t.ref, t.session, t.speaker, t.stored_text, t.at.isoformat()) for t in conversation.turns]
    return hashlib.sha256(json.dumps([turns, parts]).encode()).hexdigest()[:20]


def items(conversation: Conversation) -> Iterable[dict[str, Any]]:
    """`remember_many`'s items: user = the conversation, sessions = its dated sessions, roles = the speakers."""
    for turn in conversation.turns:
        yield {
            "text": turn.stored_text,
            "user": conversation.name,
            "session": turn.session,
            "role": turn.speaker,
            "timestamp": turn.at,
            "metadata": {"ref": turn.ref},
        }


def store_conversation(
    conversation: Conversation, embedder: Embedding, folder: Path, *, keep: bool, context_vectors: bool = False
) -> Stored:
    """The conversation in a file in `folder`: the kept one of the same turns, code and model, or a new one."""
    described = describe(embedder)
    if context_vectors:
        described += "+context"
    # A user's name may hold anything (LongMemEval's are ids of other data sets); a file's may not.
    slug = re.sub(r"[^\w.-]+", "_", conversation.name)
    path = folder / f"{slug}-{content_hash(conversation, code_hash(), described)}.db"
    notes = path.with_suffix(".json")
    if keep and notes.exists() and path.exists():
        saved = json.loads(notes.read_text(encoding="utf-8"))
        return Stored(**{**saved, "path": str(path), "cost": Cost(**saved["cost"]), "reused": True})
    for leftover in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        leftover.unlink(missing_ok=True)
    vectors = VectorFile(folder, conversation, described) if keep else None
    caches = cached(embedder)
    for cache in caches:
        cache.documents.clear()  # another conversation's
    if vectors:
        vectors.load(caches)
    stored = _store(conversation, embedder, caches, path, context_vectors)
    if vectors:
        vectors.save(caches)
    saved = {**asdict(stored), "reused": False}
    notes.write_text(json.dumps(saved), encoding="utf-8")  # last: a file without its notes is one that was cut short
    return stored


def _store(
    conversation: Conversation, embedder: Embedding, caches: list[CachedEmbedder], path: Path, context_vectors: bool
) -> Stored:
    before = sum(cache.new_documents for cache in caches)
    turns = list(items(conversation))
    with Stopwatch() as watch, sqlmem.open(path, embedder=embedder, context_vectors=context_vectors) as store:
        ids = store.remember_many(turns)
        store.flush()
    refs = {str(id_): turn.ref for id_, turn in zip(ids, conversation.turns, strict=True)}
    embedded = sum(cache.new_documents for cache in caches) - before
    return Stored(str(path), refs, watch.cost, embedded, path.stat().st_size)


class VectorFile:
    """Document vectors of one conversation, kept so that a change to the search does not mean embedding it all again.

    Named by the model and by the code of `sqlmem.embed`, so a change there does.
    """

    def __init__(self, folder: Path, conversation: Conversation, described: str) -> None:
        code = source_hash(Path(sqlmem.__file__).parent / "embed")
        self._path = folder / f"vectors-{content_hash(conversation, code, described)}.npz"

    def load(self, caches: list[CachedEmbedder]) -> None:
        """Fill the caches from the file, if there is one."""
        if not self._path.exists():
            return
        with np.load(self._path) as saved:
            for i, cache in enumerate(caches):
                texts = json.loads(str(saved[f"texts{i}"]))
                cache.documents.update(zip(texts, saved[f"vectors{i}"], strict=True))

    def save(self, caches: list[CachedEmbedder]) -> None:
        """Write the caches' documents."""
        arrays: dict[str, Any] = {}
        for i, cache in enumerate(caches):
            arrays[f"texts{i}"] = np.array(json.dumps(list(cache.documents)))
            arrays[f"vectors{i}"] = np.stack(list(cache.documents.values()))
        if arrays:
            np.savez(self._path, **arrays)
