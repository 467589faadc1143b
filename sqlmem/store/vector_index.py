"""Vectors: int8 codes by memory, one for each of the file's models. They are the truth that search scores with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlmem.db import Database
from sqlmem.store import bit_index
from sqlmem.store.memories import array
from sqlmem.store.models import Model, every

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Codes = Mapping[int, bytes | None]
"""A text's code by model id; None where the text has no vector."""

# A model that brings no centre gets the mean of the file's first vectors, once there are enough for it to be stable.
CENTRE_FROM = 256

_SET_CENTRE = "update model set centre = :centre where id = :id"
_WAIT = "insert or ignore into pending (model, memory) values (?, ?)"
_WAIT_AGAIN = """
insert into pending (model, memory)
select :model, rowid from memory where rowid in (select value from json_each(:memories)) and ended_at is null
"""
_DONE = "delete from pending where model = :model and memory in (select value from json_each(:memories))"
_WAITING = "select memory from pending where model = :model and memory in (select value from json_each(:memories))"


def encode(unit: NDArray[np.float32]) -> list[bytes]:
    """Unit vectors, float32[n, dim], as int8 codes scaled by each vector's own largest component."""
    import numpy as np

    scale = np.abs(unit).max(axis=1, keepdims=True)
    codes: NDArray[np.int8] = np.rint(unit * (127 / scale)).astype(np.int8)
    return [row.tobytes() for row in codes]


def add(db: Database, codes: Mapping[int, Codes]) -> None:
    """Store the vectors of new memories, given by rowid. A memory without a code for one of the file's models waits for it."""
    models = every(db)
    for model in models:
        given = {rowid: held_codes[model.id] for rowid, held_codes in codes.items() if model.id in held_codes}
        _store(db, model, given, first=True)
        waiting = [(model.id, rowid) for rowid in codes if rowid not in given]
        if waiting:
            db.execute_many(_WAIT, waiting)
    bit_index.follow(db, models)


def of(db: Database, rowid: int) -> Codes:
    """The codes of a memory's own text, for a version that has the same."""
    own = [model for model in every(db) if model.input == "own"]
    found = {model.id: db.row(f"select code from {model.table} where id = ?", (rowid,)) for model in own}
    return {id_: row[0] for id_, row in found.items() if row is not None}


def settle(db: Database, model: Model, codes: Codes) -> None:
    """Store vectors that were pending, given by rowid. Those that were forgotten or came meanwhile are passed over.

    `model` may be as it was before they were computed: it may have got its centre since, or be gone.
    """
    models = every(db)
    now = [one for one in models if (one.id, one.table) == (model.id, model.table)]
    if not now:
        return
    waiting = {row[0] for row in db.rows(_WAITING, {"model": model.id, "memories": array(codes)})}
    # Changes are noted for all models at once: in the index of another one these memories may be already.
    _store(db, now[0], {rowid: code for rowid, code in codes.items() if rowid in waiting}, first=len(models) == 1)
    db.execute(_DONE, {"model": model.id, "memories": array(codes)})
    bit_index.follow(db, models)


def remove(db: Database, rowids: Iterable[int]) -> None:
    """Delete the vectors of memories that are about to be deleted."""
    chosen = list(rowids)
    for model in every(db):
        _delete(db, model, chosen)
    bit_index.note(db, chosen, added=False)


def moved(db: Database, rowids: Sequence[int]) -> None:
    """Note that memories ended or came to life: bit indexes move them, and what stands before them is looked up anew."""
    outdate(db, rowids)
    bit_index.note(db, rowids, added=False)


def outdate(db: Database, rowids: Sequence[int]) -> None:
    """Drop the context vectors of turns that something else stands before now; those that are live wait for new ones."""
    for model in every(db):
        if model.input == "context":
            _delete(db, model, rowids)
            bit_index.note(db, rowids, added=False)
            db.execute(_DONE, {"model": model.id, "memories": array(rowids)})
            db.execute(_WAIT_AGAIN, {"model": model.id, "memories": array(rowids)})


def behind(db: Database) -> list[Model]:
    """The models whose bit index lacks more than a batch and can be brought up to date here."""
    if not db.has_vec:
        return []
    last = bit_index.newest(db)
    return [m for m in every(db) if m.centre is not None and last - (m.indexed_to or 0) >= bit_index.LAG]


def refresh(db: Database) -> None:
    """Bring every bit index up to date, where this machine can, after writes by one that could not."""
    for model in behind(db):
        bit_index.catch_up(db, model)


def _delete(db: Database, model: Model, rowids: Sequence[int]) -> None:
    db.execute_many(f"delete from {model.table} where id = ?", [(rowid,) for rowid in rowids])
    bit_index.remove(db, model, rowids)


def _store(db: Database, model: Model, codes: Codes, *, first: bool) -> None:
    if not codes:
        return
    db.execute_many(f"insert into {model.table} (id, code) values (?, ?)", codes.items())
    bit_index.note(db, [rowid for rowid, code in codes.items() if code is not None], added=first)
    if model.centre is None:
        _find_centre(db, model)


def _find_centre(db: Database, model: Model) -> None:
    codes = [row[0] for row in db.rows(f"select code from {model.table} where code is not null limit ?", (CENTRE_FROM,))]
    if len(codes) < CENTRE_FROM:
        return
    centre = bit_index.units(codes).mean(axis=0).astype("<f4").tobytes()
    db.execute(_SET_CENTRE, {"centre": centre, "id": model.id})
