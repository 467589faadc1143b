"""The bit index in memory: which live memories are probably near a vector, out of a million in milliseconds.

Two bits of each component are held. The signs alone choose some thousands by Hamming distance; both bits order those so well
that the nearest are among their first hundreds, which the caller scores exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sqlmem.db import Database
from sqlmem.search.bits import Words, cosines, hamming, norms, words
from sqlmem.store import bit_index
from sqlmem.store.memories import array
from sqlmem.store.models import Model

# Of the exact top 50 these keep .99 at 100,000 and .97 at 1,000,000 vectors (bench/scale.py).
BY_SIGNS = 12_000
BY_SIGNS_OF = 200
BY_BITS = 500

_CODES = """
select m.rowid, v.code from memory m join {table} v on v.id = m.rowid
 where m.ended_at is null and m.held is null and v.code is not null {some} order by m.rowid
"""
_SOME = "and m.rowid in (select value from json_each(:rowids))"
_CHUNKS = "select chunk_id, rowids, validity from {table}_bits_chunks where partition00 = 1 order by chunk_id"
_PLANE = "select rowid, vectors from {table}_bits_vector_chunks{number}"
_BATCH = 4_096

_Number = TypeVar("_Number", bound=np.generic)
Ids = NDArray[np.int64]
Planes = tuple[Ids, NDArray[np.uint8], NDArray[np.uint8]]
"""Rowids, sign bits and size bits of some memories, each uint8[n, dim / 8]."""


class Mirror:
    """The live vectors of one model as they stand at change `seq`. Use it inside a read transaction.

    Takes 108 bytes a memory at 384 dimensions. A memory that ended stays until a hundredth has: it is the caller's to pass
    over, as every other that the filters keep out.
    """

    def __init__(self, db: Database, model: Model) -> None:
        assert model.centre is not None, "there are bits only for a model with a centre"
        self._model = model
        self._centre = np.frombuffer(model.centre, dtype="<f4")
        self._load(db)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(part.nbytes for part in (self._ids, self._signs, self._large, self._norms))

    def mirrors(self, model: Model) -> bool:
        """Whether it is of this model: reembed() may have given another the number of one that it took out."""
        return (model.table, model.centre) == (self._model.table, self._model.centre)

    def refresh(self, db: Database, model: Model) -> None:
        """Follow what was committed since; `model` is its row as it is now."""
        self._model = model
        newest = bit_index.newest(db)
        if newest == self.seq:
            return
        changed = bit_index.since(db, self.seq)
        if changed is None or len(changed) > bit_index.KEPT:
            self._load(db)
            return
        self._follow(db, changed, newest)
        if self._ended > self.size // 100 + bit_index.LAG:
            self._load(db)

    def nearest(self, query: NDArray[np.float32], *, among: Ids | None = None) -> list[int]:
        """The rowids that are probably nearest to the unit vector `query`, at most BY_BITS, in no particular order.

        `among`, sorted rowids, bounds them; those that are not held count as nothing.
        """
        rows = self._by_bits(query, self._by_signs(query, None if among is None else self._places(among)))
        found: list[int] = self._ids[rows].tolist()
        return found

    def _by_signs(self, query: NDArray[np.float32], rows: Ids | None) -> Ids:
        total = self.size if rows is None else len(rows)
        wanted = BY_SIGNS + total // BY_SIGNS_OF
        if total <= wanted:
            return np.arange(total) if rows is None else rows
        asked = words(np.packbits(query > self._centre)[None, :])[:, 0]
        distances = hamming(self._signs[:, : self.size] if rows is None else self._signs[:, rows], asked)
        within = np.bincount(distances).cumsum()
        places = np.flatnonzero(distances <= np.searchsorted(within, wanted))
        return places if rows is None else rows[places]

    def _by_bits(self, query: NDArray[np.float32], rows: Ids) -> Ids:
        if len(rows) <= BY_BITS:
            return rows
        near = cosines(self._signs[:, rows], self._large[:, rows], self._norms[rows], query, self._centre)
        return rows[np.argpartition(-near, BY_BITS)[:BY_BITS]]

    def _places(self, rowids: Ids) -> Ids:
        ids = self._ids[: self.size]
        places = np.searchsorted(ids, rowids)
        places[places == len(ids)] = 0
        return places[ids[places] == rowids] if len(ids) else np.empty(0, dtype=np.int64)

    # -- following the file -------------------------------------------------------------------------------------------

    def _load(self, db: Database) -> None:
        if bit_index.usable(db, self._model):
            self._set(_held(db, self._model))
            self.seq = self._model.indexed_to or 0
            changed = bit_index.since(db, self.seq)
            assert changed is not None, "a usable index knows its changes"
            self._follow(db, changed, bit_index.newest(db))
        else:
            self._set(self._planes(list(db.stream(_CODES.format(table=self._model.table, some="")))))
            self.seq = bit_index.newest(db)
        self._ended = 0

    def _follow(self, db: Database, changed: dict[int, bool], newest: int) -> None:
        sql = _CODES.format(table=self._model.table, some=_SOME)
        rows = db.rows(sql, {"rowids": array(changed)})
        self._ended += len(changed) - len(rows)
        if rows:
            self._add(self._planes(rows))
        self.seq = newest

    def _planes(self, rows: Sequence[tuple[int, bytes]]) -> Planes:
        assert self._model.centre is not None, "checked at the start"
        width = (self._model.dim + 7) // 8
        signs = np.empty((len(rows), width), dtype=np.uint8)
        large = np.empty_like(signs)
        for start in range(0, len(rows), _BATCH):
            units = bit_index.units([code for _, code in rows[start : start + _BATCH]])
            signs[start : start + _BATCH], large[start : start + _BATCH] = bit_index.planes(units, self._model.centre)
        return np.fromiter((rowid for rowid, _ in rows), dtype=np.int64, count=len(rows)), signs, large

    def _set(self, planes: Planes) -> None:
        """Hold exactly these, in order of their rowids."""
        ids, signs, large = planes
        order = np.argsort(ids, kind="stable")
        self._ids, self._signs, self._large = ids[order], words(signs[order]), words(large[order])
        self._norms = norms(self._signs, self._large, self._centre)
        self.size = len(ids)
        self._ended = 0

    def _add(self, planes: Planes) -> None:
        """Hold these as well, or instead of what is held for the same rowids."""
        ids, signs, large = planes
        if self.size and ids[0] <= self._ids[self.size - 1]:
            kept = np.flatnonzero(~np.isin(self._ids[: self.size], ids))
            self._ids, self._norms = self._ids[kept], self._norms[kept]
            self._signs, self._large = self._signs[:, kept], self._large[:, kept]
            self.size = len(kept)
        self._append(ids, words(signs), words(large))
        if self.size > len(ids) and ids[0] < self._ids[self.size - len(ids) - 1]:
            order = np.argsort(self._ids[: self.size], kind="stable")
            self._ids, self._norms = self._ids[order], self._norms[order]
            self._signs, self._large = self._signs[:, order], self._large[:, order]

    def _append(self, ids: Ids, signs: Words, large: Words) -> None:
        end = self.size + len(ids)
        if end > len(self._ids):
            # Room for more: copying everything at each new memory would cost more than searching.
            room = end + end // 8 + _BATCH
            self._ids, self._norms = _widened(self._ids, room), _widened(self._norms, room)
            self._signs, self._large = _widened(self._signs, room), _widened(self._large, room)
        self._ids[self.size : end] = ids
        self._signs[:, self.size : end], self._large[:, self.size : end] = signs, large
        self._norms[self.size : end] = norms(signs, large, self._centre)
        self.size = end


class Mirrors:
    """The mirrors of an open store, by model, each made when a large scope is first searched."""

    def __init__(self) -> None:
        self._held: dict[int, Mirror] = {}

    def of(self, db: Database, model: Model) -> Mirror:
        """The model's mirror as the current transaction sees the file."""
        mirror = self._held.get(model.id)
        if mirror is None or not mirror.mirrors(model):
            mirror = self._held[model.id] = Mirror(db, model)
        else:
            mirror.refresh(db, model)
        return mirror


def _held(db: Database, model: Model) -> Planes:
    """The live part of the index as it lies in the file: read from the tables that vec0 keeps it in, 20 times as fast."""
    chunks = db.rows(_CHUNKS.format(table=model.table))
    ids = np.frombuffer(b"".join(rowids for _, rowids, _ in chunks), dtype="<i8")
    valid = np.unpackbits(np.frombuffer(b"".join(bits for _, _, bits in chunks), dtype=np.uint8), bitorder="little") > 0
    planes = []
    for number in ("00", "01"):
        blobs: dict[int, bytes] = dict(db.rows(_PLANE.format(table=model.table, number=number)))
        joined = b"".join(blobs[chunk] for chunk, _, _ in chunks)
        planes.append(np.frombuffer(joined, dtype=np.uint8).reshape(-1, (model.dim + 7) // 8)[valid])
    return ids[valid], planes[0], planes[1]


def _widened(part: NDArray[_Number], room: int) -> NDArray[_Number]:
    wider = np.empty((*part.shape[:-1], room), dtype=part.dtype)
    wider[..., : part.shape[-1]] = part
    return wider
