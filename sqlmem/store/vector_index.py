"""Vectors: int8 codes by memory, and the bit index derived from them.

Codes are the truth that search scores with. The bit index only proposes candidates in large scopes; where sqlite-vec is not
available it is marked stale and rebuilt by the next open that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sqlmem.db import Database
from sqlmem.schema import sql
from sqlmem.store.memories import array
from sqlmem.store.models import Model, held

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Codes = Mapping[str, bytes | None]
"""A text's code by model name; None where the text has no vector."""

# A model that brings no centre gets the mean of the file's first vectors, once there are enough for it to be stable.
CENTRE_FROM = 256

_SET_BITS = "update model set bits = :bits where id = :id"
_SET_CENTRE = "update model set centre = :centre where id = :id"
_WAIT = "insert or ignore into pending (model, memory) values (?, ?)"
_DONE = "delete from pending where model = :model and memory in (select value from json_each(:memories))"
_LIVE = "select rowid, ended_at is null and proposed = 0 from memory where rowid in (select value from json_each(:rowids))"


def encode(unit: NDArray[np.float32]) -> list[bytes]:
    """Unit vectors, float32[n, dim], as int8 codes scaled by each vector's own largest component."""
    import numpy as np

    scale = np.abs(unit).max(axis=1, keepdims=True)
    codes: NDArray[np.int8] = np.rint(unit * (127 / scale)).astype(np.int8)
    return [row.tobytes() for row in codes]


def add(db: Database, codes: Mapping[int, Codes]) -> None:
    """Store the vectors of new memories, given by rowid. A memory without a code for one of the file's models waits for it."""
    for model in held(db):
        given = {rowid: held_codes[model.name] for rowid, held_codes in codes.items() if model.name in held_codes}
        _store(db, model, given)
        db.execute_many(_WAIT, [(model.id, rowid) for rowid in codes if rowid not in given])


def of(db: Database, rowid: int) -> Codes:
    """The codes that a memory has, for a version that has the same text."""
    found = {model.name: db.row(f"select code from {model.table} where id = ?", (rowid,)) for model in held(db)}
    return {name: row[0] for name, row in found.items() if row is not None}


def settle(db: Database, model: Model, codes: Mapping[int, bytes | None]) -> None:
    """Store vectors that were pending. Memories that were forgotten meanwhile are passed over."""
    existing = {row[0] for row in db.rows(_LIVE, {"rowids": array(codes)})}
    _store(db, model, {rowid: code for rowid, code in codes.items() if rowid in existing})
    db.execute(_DONE, {"model": model.id, "memories": array(codes)})


def remove(db: Database, rowids: Iterable[int]) -> None:
    """Delete the vectors of memories that are about to be deleted."""
    rowids = list(rowids)
    for model in held(db):
        db.execute_many(f"delete from {model.table} where id = ?", [(rowid,) for rowid in rowids])
        if _bits_writable(db, model):
            db.execute_many(f"delete from {model.table}_bits where id = ?", [(rowid,) for rowid in rowids])


def end(db: Database, rowid: int) -> None:
    """Take an ended memory out of the live part of the bit index."""
    for model in held(db):
        if _bits_writable(db, model):
            code = db.value(f"select code from {model.table} where id = ?", (rowid,))
            if code is not None:
                # vec0 refuses to update a partition key.
                db.execute(f"delete from {model.table}_bits where id = ?", (rowid,))
                _add_bits(db, model, {rowid: code})


def rebuild_bits(db: Database, model: Model) -> None:
    """Create the bit index of a model again from its codes. Costs about 20 µs a vector. Needs sqlite-vec and a centre."""
    db.execute(f"drop table if exists {model.table}_bits")
    db.script(sql("bits.sql").format(table=model.table, bits=_bit_width(model)))
    after = 0
    while rows := db.rows(f"select id, code from {model.table} where id > ? order by id limit 1000", (after,)):
        _add_bits(db, model, {rowid: code for rowid, code in rows if code is not None})
        after = rows[-1][0]
    db.execute(_SET_BITS, {"bits": "current", "id": model.id})


def refresh_bits(db: Database) -> None:
    """Bring every model's bit index up to date, where this machine can: after writes by one that could not, or when due."""
    for model in held(db):
        if db.has_vec and model.bits != "current" and model.centre is not None:
            rebuild_bits(db, model)


def bits_of(code: bytes, centre: bytes) -> bytes:
    """The sign bits of (unit vector of `code` - `centre`), padded to whole bytes."""
    import numpy as np

    vector = np.frombuffer(code, dtype=np.int8).astype(np.float32)
    unit = vector / np.linalg.norm(vector)
    return np.packbits(unit > np.frombuffer(centre, dtype="<f4")).tobytes()


def _store(db: Database, model: Model, codes: Mapping[int, bytes | None]) -> None:
    db.execute_many(f"insert into {model.table} (id, code) values (?, ?)", codes.items())
    if _bits_writable(db, model):
        _add_bits(db, model, {rowid: code for rowid, code in codes.items() if code is not None})
    elif model.centre is None:
        _find_centre(db, model)


def _find_centre(db: Database, model: Model) -> None:
    codes = [row[0] for row in db.rows(f"select code from {model.table} where code is not null limit ?", (CENTRE_FROM,))]
    if len(codes) < CENTRE_FROM:
        return
    import numpy as np

    vectors = np.frombuffer(b"".join(codes), dtype=np.int8).reshape(len(codes), model.dim).astype(np.float32)
    centre = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).mean(axis=0).astype("<f4").tobytes()
    db.execute(_SET_CENTRE, {"centre": centre, "id": model.id})
    refresh_bits(db)


def _bits_writable(db: Database, model: Model) -> bool:
    """Whether the bit index can follow this write; where it cannot, it is marked stale."""
    if model.bits != "current":
        return False
    if not db.has_vec:
        db.execute(_SET_BITS, {"bits": "stale", "id": model.id})
        return False
    return True


def _add_bits(db: Database, model: Model, codes: Mapping[int, bytes]) -> None:
    assert model.centre is not None, "the bit index exists only for a model with a centre"
    live: dict[int, int] = dict(db.rows(_LIVE, {"rowids": array(codes)}))
    rows = [(rowid, live[rowid], bits_of(code, model.centre)) for rowid, code in codes.items()]
    db.execute_many(f"insert into {model.table}_bits (id, live, bit) values (?, ?, vec_bit(?))", rows)


def _bit_width(model: Model) -> int:
    return (model.dim + 7) // 8 * 8
