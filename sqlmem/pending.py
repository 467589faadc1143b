"""Vectors that memories wait for: computed in batches, outside of transactions, and stored in one transaction each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from sqlmem.db import Database
from sqlmem.encoding import BATCH, Encoder
from sqlmem.errors import EmbeddingError, StorageError
from sqlmem.store import leads, models, vector_index
from sqlmem.store.memories import array
from sqlmem.store.models import Model
from sqlmem.text import worded

_WAITING = """
select m.rowid, m.role, m.text from pending p join memory m on m.rowid = p.memory
 where p.model = :model and p.memory > :after order by p.memory limit :limit
"""
_NEWEST = """
select m.rowid, m.role, m.text from pending p join memory m on m.rowid = p.memory
 where p.model = :model order by p.memory desc limit :limit
"""
_COUNT = "select count(*) from pending where model in (select value from json_each(:models))"

Progress = Callable[[int, int], object]
Waiting = tuple[int, str, str]  # rowid, role, text


def embed_all(
    db: Database, encoder: Encoder | None, *, only: Sequence[int] | None = None, progress: Progress | None = None
) -> int:
    """Compute all vectors that memories wait for and return how many; `only` names models by id.

    After each batch `progress(done, total)` is called. A text that the embedder refuses goes on waiting and does not keep the
    others from theirs; its EmbeddingError is raised when they have them. Does nothing without an embedder.
    """
    if encoder is None or db.read_only:
        return 0
    able = [model for model in encoder.able(models.every(db)) if only is None or model.id in only]
    total = 0 if progress is None else db.value(_COUNT, {"models": array(model.id for model in able)})
    done, refused = 0, None
    for model in able:
        changed = True
        while changed:
            changed = False
            for batch in _batches(db, model):
                settled, error = _settle(db, encoder, model, batch, patient=True)
                if error is not None and not settled:
                    raise error
                refused = refused or error
                # What stands before a turn may change while it is embedded: then it has its turn once more.
                changed = changed or (error is None and settled < len(batch))
                done += settled
                if progress is not None:
                    progress(done, max(done, total))
    if refused is not None:
        raise refused
    return done


def embed_newest(db: Database, encoder: Encoder | None, limit: int) -> None:
    """Compute the vectors that the newest `limit` of the waiting memories lack, before a search.

    A search does not fail for that, nor wait for a lock: memories that stay without are found by their keywords, and flush()
    raises what keeps them from their vectors.
    """
    if encoder is None or db.read_only:
        return
    for model in encoder.able(models.held(db)):
        batch = db.rows(_NEWEST, {"model": model.id, "limit": limit})
        if batch:
            with contextlib.suppress(StorageError):
                _settle(db, encoder, model, batch, patient=False)


def _batches(db: Database, model: Model) -> Iterator[list[Waiting]]:
    after = -1
    while batch := db.rows(_WAITING, {"model": model.id, "after": after, "limit": BATCH}):
        yield batch
        if len(batch) < BATCH:
            return  # what others store meanwhile can wait: who goes on for it beside a steady writer never ends
        after = batch[-1][0]


def _settle(
    db: Database, encoder: Encoder, model: Model, waiting: Sequence[Waiting], *, patient: bool
) -> tuple[int, EmbeddingError | None]:
    """Store the vectors of those waiting; returns of how many, and the first refusal if some were refused."""
    try:
        return _store(db, encoder, model, waiting, patient=patient), None
    except EmbeddingError as error:
        if len(waiting) == 1:
            return 0, error
        parts = [_settle(db, encoder, model, [one], patient=patient) for one in waiting]
        return sum(count for count, _ in parts), next((error for _, error in parts if error is not None), None)


def _store(db: Database, encoder: Encoder, model: Model, waiting: Sequence[Waiting], *, patient: bool) -> int:
    rowids = [row[0] for row in waiting]
    in_context = model.input == "context"
    before = leads.of(db, rowids) if in_context else {}
    texts = {
        rowid: leads.joined(before.get(rowid), role, text)
        for rowid, role, text in waiting
        if (rowid in before if in_context else worded(text))
    }
    codes: dict[int, bytes | None] = dict.fromkeys(rowids)
    codes.update(zip(texts, encoder.codes(model, list(texts.values())), strict=True))
    with db.write(patient=patient):
        if in_context:
            now = leads.of(db, codes)
            codes = {rowid: code for rowid, code in codes.items() if now.get(rowid) == before.get(rowid)}
        vector_index.settle(db, model, codes)
    return len(codes)
