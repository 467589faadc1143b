"""The second look at the best candidates: a reranker's scores, mixed into the order and never replacing it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sqlmem.db import Database
from sqlmem.errors import CallbackError, SqlmemError
from sqlmem.store import leads
from sqlmem.store.memories import Stored

Reranker = Callable[[str, list[str]], Sequence[float]]
"""From a question and passages to one score for each passage, as a logit: above 0 it answers the question rather than not."""

# What certainty is worth beside a joint score whose best are around 1 (RETRIEVAL 4: .2 to .6 do equally well).
WEIGHT = 0.2


def passages(db: Database, stored: Sequence[Stored]) -> dict[int, str]:
    """What the reranker reads of each memory: a turn with the turn before it, without which answers are often mute."""
    before = leads.of(db, [item.rowid for item in stored])
    return {item.rowid: leads.joined(before.get(item.rowid), item.role, item.text) for item in stored}


def bonus(reranker: Reranker, query: str, asked: Mapping[int, str]) -> dict[int, float]:
    """WEIGHT * sigmoid(score) of each passage. Raises CallbackError if the reranker raises or answers anything else."""
    if not asked:
        return {}
    try:
        answer = reranker(query, list(asked.values()))
        scores = [] if isinstance(answer, str) else [float(score) for score in answer]
    except SqlmemError:
        raise
    except Exception as error:
        raise CallbackError(f"the reranker raised {type(error).__name__}: {error}; nothing was changed") from error
    if len(scores) != len(asked) or not all(math.isfinite(score) for score in scores):
        raise CallbackError(
            f"the reranker must return {len(asked)} finite numbers, one for each passage; it returned {answer!r:.200}"
        )
    return {rowid: WEIGHT / (1 + math.exp(-max(-500.0, score))) for rowid, score in zip(asked, scores, strict=True)}
