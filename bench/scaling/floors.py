"""What sqlmem is measured beside, in the same run: the least that memory, SQLite and the model take on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from bench.scaling.layout import Files
from bench.scaling.timing import WARM_UP, Sample, timed
from sqlmem.db import vec_library
from sqlmem.embed import DEFAULT_MODEL, load

Vectors = NDArray[np.float32]

_BATCH = 10_000


def gemv(held: Vectors, asked: Vectors, repeat: int) -> Sample:
    """Numpy's float32 product of all vectors with a question: nothing that reads them all is faster."""
    whole = np.array(held) if held.nbytes < 4 << 30 else held  # the page cache's pages are slower
    return timed([partial(np.dot, whole, query) for query in _some(asked, repeat + WARM_UP)])


def vec0(files: Files, rows: int, folder: Path, asked: Vectors, repeat: int) -> Sample:
    """sqlite-vec's own search: vec0, float32, cosine, k = 50, over all rows."""
    path = folder / f"{files.vectors.stem}-{rows}-vec0.db"
    if not path.exists():
        unfinished = path.with_suffix(".partial")
        unfinished.unlink(missing_ok=True)
        _fill_vec0(files, rows, unfinished)
        unfinished.rename(path)
    connection = _with_vec0(path)
    sql = "select id, distance from held where vector match ? and k = 50"

    def nearest(query: Vectors) -> list[tuple[object, ...]]:
        return connection.execute(sql, (query.tobytes(),)).fetchall()

    sample = timed([partial(nearest, query) for query in _some(asked, repeat + WARM_UP)])
    connection.close()
    return sample


def _fill_vec0(files: Files, rows: int, path: Path) -> None:
    connection = _with_vec0(path)
    dim = files.dim
    connection.execute(
        f"create virtual table held using vec0(id integer primary key, vector float[{dim}] distance_metric=cosine)"
    )
    for batch in files.batches(rows, _BATCH):
        with connection:
            connection.executemany("insert into held (id, vector) values (?, ?)", [(row.place, row.vector) for row in batch])
    connection.close()


def _with_vec0(path: Path) -> apsw.Connection:
    library = vec_library()
    if library is None:
        raise SystemExit("sqlite-vec is not installed: nothing to compare with")
    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(library)
    return connection


def bare_insert(files: Files, rows: int, folder: Path, repeat: int) -> Sample:
    """One text and one vector code in one transaction: WAL, synchronous = normal, no index."""
    path = folder / "bare.db"
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal").fetchall()
    connection.execute("pragma synchronous = normal")
    connection.execute("create table memory (id integer primary key, text text, code blob)")
    code = bytes(files.dim)
    texts = [row.text for row in files.rows(rows, 0, min(rows, repeat + WARM_UP))]

    def insert(text: str) -> None:
        connection.execute("begin immediate")
        connection.execute("insert into memory (text, code) values (?, ?)", (text, code))
        connection.execute("commit")

    sample = timed([partial(insert, text) for text in texts])
    connection.close()
    return sample


def embedding(files: Files, rows: int, repeat: int) -> Sample:
    """The bundled model, one turn at a time: what a write costs before the store does anything."""
    model = load(DEFAULT_MODEL)
    texts = [row.spoken for row in files.rows(rows, 0, min(rows, repeat + WARM_UP))]
    return timed([partial(model.embed_documents, [text]) for text in texts])


def _some(asked: Vectors, count: int) -> Iterator[Vectors]:
    for number in range(count):
        yield asked[number % len(asked)]
