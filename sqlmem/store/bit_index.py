"""The bit index: two bits for each component of a vector, derived from the codes, for searches over large scopes.

It follows in batches. Every change of a vector is noted in the table `change`; the index takes up what it lacks once that is
worth a batch, and whoever reads it adds the rest from the codes (search/mirror.py). So a write pays for one small row, and a
machine without sqlite-vec can write as well: the next one that has it catches up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlmem.db import Database
from sqlmem.errors import StorageError
from sqlmem.schema import sql
from sqlmem.store.memories import array
from sqlmem.store.models import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How many changes the index may lack. Taking them up costs some 30 µs each, reading them beside the index 5 µs.
LAG = 256
# How many changes are kept for stores that are open in other processes, whose mirrors follow by them.
KEPT = 10_000
# What fits into one page of the file beside SQLite's own few bytes: larger chunks would waste a part of a second page.
_CHUNK_BYTES = 4_000
# Lloyd and Max: where two bits cut a normal distribution of variance 1, and the values that they then stand for.
CUT, NEAR, FAR = 0.9816, 0.4528, 1.5104

_NOTE = "insert into change (memory, added) values (?, ?)"
_NEWEST = "select coalesce(max(seq), 0) from change"
_OLDEST = "select coalesce(min(seq), 1) from change"
_SINCE = "select memory, min(added) from change where seq > ? group by memory"
_FORGET_CHANGES = "delete from change where seq <= ?"
_EXISTS = "select 1 from sqlite_schema where name = ?"
_SET = "update model set indexed_to = :seq where id = :id"
_ROWS = """
select m.rowid, m.ended_at is null and m.held is null, v.code from memory m join {table} v on v.id = m.rowid
 where m.rowid in (select value from json_each(:rowids)) and v.code is not null
"""
_ALL = """
select m.rowid, m.ended_at is null and m.held is null, v.code from memory m join {table} v on v.id = m.rowid
 where m.rowid > :after and v.code is not null order by m.rowid limit 4096
"""


def note(db: Database, rowids: Iterable[int], *, added: bool) -> None:
    """Record that the vectors of these memories came, ended or went, in the transaction that does it."""
    db.execute_many(_NOTE, [(rowid, int(added)) for rowid in rowids])


def newest(db: Database) -> int:
    """The number of the last change."""
    seq: int = db.value(_NEWEST)
    return seq


def since(db: Database, seq: int) -> dict[int, bool] | None:
    """The memories changed after `seq`, and whether they did no more than come; None if that is not known any more."""
    if seq < db.value(_OLDEST) - 1:
        return None
    return {memory: bool(added) for memory, added in db.rows(_SINCE, (seq,))}


def follow(db: Database, models: Iterable[Model]) -> None:
    """Bring the indexes of `models` up to date where they lack a batch, and drop old changes."""
    last = newest(db)
    if db.has_vec:
        for model in models:
            if model.centre is not None and last - (model.indexed_to or 0) >= LAG:
                catch_up(db, model)
    db.execute(_FORGET_CHANGES, (last - KEPT,))


def catch_up(db: Database, model: Model) -> None:
    """Take up all changes, or build the index where there is none or it cannot follow. Needs sqlite-vec and a centre."""
    changed = None if model.indexed_to is None else since(db, model.indexed_to)
    if changed is None:
        rebuild(db, model)
        return
    old = [(rowid,) for rowid, added in changed.items() if not added]
    db.execute_many(f"delete from {model.table}_bits where id = ?", old)
    _insert(db, model, db.rows(_ROWS.format(table=model.table), {"rowids": array(changed)}))
    db.execute(_SET, {"seq": newest(db), "id": model.id})


def rebuild(db: Database, model: Model) -> None:
    """Create the index anew from the codes. Costs about 30 µs a vector. Needs sqlite-vec and a centre."""
    db.execute(f"drop table if exists {model.table}_bits")
    width = (model.dim + 7) // 8 * 8
    chunk = max(8, min(512, _CHUNK_BYTES * 8 // width // 8 * 8))
    db.script(sql("bits.sql").format(table=model.table, bits=width, chunk=chunk))
    after = 0
    while rows := db.rows(_ALL.format(table=model.table), {"after": after}):
        _insert(db, model, rows)
        after = rows[-1][0]
    db.execute(_SET, {"seq": newest(db), "id": model.id})


def remove(db: Database, model: Model, rowids: Sequence[int]) -> None:
    """Delete the bits of memories that are about to be forgotten: nothing of a forgotten text may stay."""
    if model.indexed_to is None:
        return
    if db.has_vec:
        db.execute_many(f"delete from {model.table}_bits where id = ?", [(rowid,) for rowid in rowids])
    else:
        # Only the extension can write its table: the next store that has it makes the index anew.
        db.execute(_SET, {"seq": None, "id": model.id})


def drop(db: Database, model: Model) -> None:
    """Take the index out of the file. Raises StorageError where sqlite-vec, which alone can do that, is not available."""
    # One that a machine without the extension gave up is still there.
    if db.row(_EXISTS, (f"{model.table}_bits",)) is None:
        return
    if not db.has_vec:
        raise StorageError(
            f"{db.path}: the old index of {model.name!r} can only be removed where sqlite-vec is installed; nothing was "
            "swapped, and the new vectors are kept: call reembed() again there",
            path=db.path,
        )
    db.execute(f"drop table {model.table}_bits")


def usable(db: Database, model: Model) -> bool:
    """Whether the index, and the changes since, say everything."""
    return model.indexed_to is not None and since(db, model.indexed_to) is not None


def state(db: Database, model: Model) -> str:
    """`none`, `current`, or `stale` if it lacks more than it would on a machine that can write it."""
    if model.indexed_to is None:
        return "none"
    return "current" if usable(db, model) and newest(db) - model.indexed_to <= LAG else "stale"


def planes(units: NDArray[np.float32], centre: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The signs of (unit vector - centre) and which of them are large, each uint8[n, dim / 8 rounded up]."""
    import numpy as np

    middle = np.frombuffer(centre, dtype="<f4")
    rest = units - middle
    return np.packbits(rest > 0, axis=1), np.packbits(np.abs(rest) > CUT * spread(middle), axis=1)


def spread(middle: NDArray[np.float32]) -> float:
    """The standard deviation of a component of (unit vector - centre), from the length of the centre alone."""
    return float(((1.0 - min(1.0, float(middle @ middle))) / len(middle)) ** 0.5)


def units(codes: Sequence[bytes]) -> NDArray[np.float32]:
    """Codes as unit vectors, float32[n, dim]."""
    import numpy as np

    vectors: NDArray[np.float32] = np.frombuffer(b"".join(codes), dtype=np.int8).reshape(len(codes), -1).astype(np.float32)
    vectors /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return vectors


def _insert(db: Database, model: Model, rows: Sequence[tuple[int, int, bytes]]) -> None:
    if not rows:
        return
    assert model.centre is not None, "the bit index exists only for a model with a centre"
    signs, large = planes(units([code for _, _, code in rows]), model.centre)
    many = [(rowid, live, signs[place].tobytes(), large[place].tobytes()) for place, (rowid, live, _) in enumerate(rows)]
    statement = f"insert into {model.table}_bits (id, live, bit, fine) values (?, ?, vec_bit(?), vec_bit(?))"
    db.execute_many(statement, many)
