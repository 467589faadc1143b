"""The bit index and its mirror in memory: what they hold is what the codes say, however these came and went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import sqlmem
from sqlmem.db import Database
from sqlmem.search import bits
from sqlmem.search.mirror import BY_BITS, Mirror, Mirrors
from sqlmem.store import bit_index
from sqlmem.store.models import Model
from tests.conftest import OpenStore
from tests.helpers_models import Centred, Clustered, codes, needs_vec, the_model
from tests.helpers_store import assert_sound, run

Bits = dict[int, tuple[bytes, bytes, float]]

WIDTHS = [8, 16, 20, 64, 100, 384]


def random(n: int, dim: int, seed: int = 1) -> NDArray[np.float32]:
    """Unit vectors."""
    vectors = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


# -- arithmetic -------------------------------------------------------------------------------------------------------


def values(units: NDArray[np.float32], centre: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the two bits of each component stand for, by plain arithmetic."""
    rest = units - centre
    width = ((1 - float(centre @ centre)) / len(centre)) ** 0.5
    size = np.where(np.abs(rest) > bit_index.CUT * width, bit_index.FAR, bit_index.NEAR)
    stand_for: NDArray[np.float32] = (centre + width * np.where(rest > 0, size, -size)).astype(np.float32)
    return stand_for


@pytest.mark.parametrize("dim", WIDTHS)
@pytest.mark.parametrize("block", [32_768, 7])
def test_hamming_distances_are_counts_of_differing_signs(dim: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_BLOCK", block)
    signs = random(40, dim) > 0
    packed = bits.words(np.packbits(signs, axis=1))
    assert packed.shape == (-(-dim // 64), 40)
    for place in (0, 39):
        expected = (signs != signs[place]).sum(axis=1)
        assert bits.hamming(packed, packed[:, place]).tolist() == expected.tolist()


@pytest.mark.parametrize("dim", WIDTHS)
@pytest.mark.parametrize("block", [32_768, 7])
def test_cosines_are_those_of_what_the_bits_stand_for(dim: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_BLOCK", block)
    monkeypatch.setattr(bits, "_QUESTION_BITS", 8)  # so finely that cutting the question into whole numbers does not count
    units, query, centre = random(40, dim), random(1, dim, seed=2)[0], random(1, dim, seed=3)[0] / 2
    signs, large = map(bits.words, bit_index.planes(units, centre.astype("<f4").tobytes()))
    stand_for = values(units, centre)
    lengths = np.linalg.norm(stand_for, axis=1)
    assert bits.norms(signs, large, centre) == pytest.approx(lengths, abs=0.01)
    found = bits.cosines(signs, large, lengths.astype(np.float32), query, centre)
    assert found == pytest.approx(stand_for @ query / lengths, abs=0.01)


def test_a_few_bits_of_the_question_are_nearly_all_of_it() -> None:
    units, query, centre = random(500, 384), random(1, 384, seed=2)[0], random(1, 384, seed=3)[0] / 2
    signs, large = map(bits.words, bit_index.planes(units, centre.astype("<f4").tobytes()))
    found = bits.cosines(signs, large, bits.norms(signs, large, centre), query, centre)
    exact = values(units, centre)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    off = found - exact @ query
    assert float(np.sqrt((off * off).mean())) < 0.01
    assert float(np.abs(off).max()) < 0.03


@pytest.mark.parametrize("numpy_2", [True, False])
def test_ones_are_counted_alike_by_numpy_1_and_2(numpy_2: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not numpy_2:
        monkeypatch.delattr(np, "bitwise_count", raising=False)
    numbers = np.random.default_rng(5).integers(0, 2**64, size=(3, 50), dtype=np.uint64)
    numbers[0, :3] = 0, 2**64 - 1, 2**63
    expected = [[int(number).bit_count() for number in row] for row in numbers]
    assert bits._ones(numbers).tolist() == expected
    assert bits._ones(numbers[:, ::2]).tolist() == [row[::2] for row in expected]  # not contiguous
    assert bits._count(iter(numbers)).tolist() == [sum(column) for column in zip(*expected, strict=True)]


def test_planes_are_two_bits_a_component() -> None:
    centre = np.array([0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype="<f4")
    width = (0.75 / 10) ** 0.5
    unit = centre + width * np.array([1, -1, 0.9, -0.9, 0, 0.99, -0.99, 0.98, 2, -3], dtype=np.float32)
    signs, large = bit_index.planes(unit[None, :], centre.tobytes())
    assert np.unpackbits(signs)[:10].tolist() == [1, 0, 1, 0, 0, 1, 0, 1, 1, 0]
    assert np.unpackbits(large)[:10].tolist() == [1, 1, 0, 0, 0, 1, 1, 0, 1, 1]
    assert np.unpackbits(signs)[10:].tolist() == [0] * 6


# -- what a mirror finds ----------------------------------------------------------------------------------------------


def nearest(db: Database, model: Model, query: NDArray[np.float32], count: int) -> list[int]:
    """By the codes themselves."""
    held = {rowid: np.frombuffer(code, dtype=np.int8) for rowid, code in codes(db, model).items() if code is not None}
    cosines = {rowid: float(code @ query / np.linalg.norm(code.astype(float))) for rowid, code in held.items()}
    return sorted(cosines, key=lambda rowid: -cosines[rowid])[:count]


def test_a_mirror_finds_the_nearest(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlmem.search.mirror.BY_SIGNS", 1_000)
    store = open_store(embedder=Clustered(100))
    store.remember_many([{"text": f"number {number}", "session": str(number)} for number in range(3_000)])
    db, model = store._engine.db, the_model(store)
    kept = 0
    with db.read():
        mirror = Mirror(db, model)
        for number in range(20):
            query = Clustered(100).embed_query(f"question {number}")
            query /= np.linalg.norm(query)
            found = mirror.nearest(query)
            assert len(found) == len(set(found)) == BY_BITS
            kept += len(set(found) & set(nearest(db, model, query, 50)))
    assert kept / (20 * 50) >= 0.98


def test_a_small_mirror_finds_all(open_store: OpenStore) -> None:
    store = open_store(embedder=Clustered(20))
    store.remember_many([f"number {number}" for number in range(BY_BITS)])
    query = random(1, 20)[0]
    with store._engine.db.read():
        mirror = Mirror(store._engine.db, the_model(store))
        assert sorted(mirror.nearest(query)) == list(range(1, BY_BITS + 1))
        some = np.array([2, 3, 5, 400, 9_999], dtype=np.int64)
        assert sorted(mirror.nearest(query, among=some)) == [2, 3, 5, 400]
        assert mirror.nearest(query, among=np.empty(0, dtype=np.int64)) == []


def test_a_mirror_of_nothing_finds_nothing(open_store: OpenStore) -> None:
    store = open_store(embedder=Centred())
    with store._engine.db.read():
        assert Mirror(store._engine.db, the_model(store)).nearest(random(1, 16)[0]) == []
    store.remember_many([f"number {number}" for number in range(300)])
    store.forget(all=True)
    with store._engine.db.read():
        mirror = Mirror(store._engine.db, the_model(store))
        assert mirror.nearest(random(1, 16)[0]) == mirror.nearest(random(1, 16)[0], among=np.array([1, 2])) == []


# -- what a mirror holds ----------------------------------------------------------------------------------------------


def expected(db: Database, model: Model) -> Bits:
    """What the codes of the live memories say."""
    live = {row[0] for row in db.rows("select rowid from memory where ended_at is null and held is null")}
    held = {rowid: code for rowid, code in codes(db, model).items() if code is not None and rowid in live}
    if not held:
        return {}
    assert model.centre is not None
    centre = np.frombuffer(model.centre, dtype="<f4")
    units = np.array([np.frombuffer(code, dtype=np.int8) for code in held.values()], dtype=np.float32)
    units /= np.sqrt((units * units).sum(axis=1, keepdims=True))
    signs = np.packbits(units > centre, axis=1)
    width = ((1 - min(1.0, float(centre @ centre))) / model.dim) ** 0.5
    large = np.packbits(np.abs(units - centre) > bit_index.CUT * width, axis=1)
    lengths = bits.norms(bits.words(signs), bits.words(large), centre)
    return {rowid: (signs[i].tobytes(), large[i].tobytes(), float(lengths[i])) for i, rowid in enumerate(held)}


def held(mirror: Mirror) -> Bits:
    """What a mirror holds, which must be in order of the rowids."""
    assert mirror._ids[: mirror.size].tolist() == sorted(set(mirror._ids[: mirror.size].tolist()))
    width = (mirror._model.dim + 7) // 8
    return {
        int(mirror._ids[i]): (
            np.ascontiguousarray(mirror._signs[:, i]).tobytes()[:width],
            np.ascontiguousarray(mirror._large[:, i]).tobytes()[:width],
            float(mirror._norms[i]),
        )
        for i in range(mirror.size)
    }


def assert_mirrors(mirror: Mirror, db: Database, model: Model) -> None:
    """It holds every live memory rightly; what ended or went may still be in it."""
    right = expected(db, model)
    assert {rowid: kept for rowid, kept in held(mirror).items() if rowid in right} == right


@needs_vec
@pytest.mark.parametrize("dim", [16, 20, 100, 384])
@pytest.mark.parametrize("more", [0, 5])
def test_a_mirror_read_from_the_index_is_the_one_made_from_the_codes(
    open_store: OpenStore, dim: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(embedder=Clustered(dim))
    ids = store.remember_many([f"number {number}" for number in range(600)])
    store.remember("!!!")
    store.forget(ids=ids[100:300:3])
    store.correct(ids[0], "another text")
    store.rebuild()
    for number in range(more):
        store.remember(f"later {number}")
    db, model = store._engine.db, the_model(store)
    with db.read():
        assert bit_index.newest(db) - (model.indexed_to or 0) == more
        from_index = Mirror(db, model)
        monkeypatch.setattr(bit_index, "usable", lambda *_: False)
        from_codes = Mirror(db, model)
        assert held(from_index) == held(from_codes) == expected(db, model)
        assert from_index.seq == from_codes.seq == bit_index.newest(db)
        assert from_codes.nbytes == (8 + 4 + 2 * 8 * -(-dim // 64)) * from_codes.size


Step = Callable[[sqlmem.MemoryStore], object]


def _pending_out_of_order(store: sqlmem.MemoryStore) -> None:
    path = store._engine.db.path
    with sqlmem.open(path, embedder=False) as other:
        other.remember_many([f"waits {number}" for number in range(10)])
    store.remember("younger than what waits")
    store.flush()


def _by_another_process(store: sqlmem.MemoryStore) -> None:
    script = """
import sys, sqlmem
from tests.helpers_models import Centred
with sqlmem.open(sys.argv[1], embedder=Centred()) as store:
    store.remember_many([f"foreign {number}" for number in range(20)])
    store.correct("a3", "foreign hand")
    store.forget(ids=["a4"])
"""
    run(script, store._engine.db.path)


def _without_vec(store: sqlmem.MemoryStore) -> None:
    store._engine.db.has_vec = False
    store.remember_many([f"plain {number}" for number in range(20)])
    store.forget(ids=["a5"])
    store._engine.db.has_vec = True


STEPS: dict[str, Step] = {
    "nothing": lambda store: None,
    "one is added": lambda store: store.remember("new"),
    "many are added": lambda store: store.remember_many([f"new {number}" for number in range(4_200)]),
    "one ends": lambda store: store.correct("a1", "corrected"),
    "one ends and its text goes on": lambda store: store.correct("a1", metadata={"n": 1}),
    "some are forgotten": lambda store: store.forget(ids=["a2", "a3", "a99"]),
    "all are forgotten": lambda store: store.forget(all=True),
    "pending ones come late": _pending_out_of_order,
    "the index is rebuilt": lambda store: store.rebuild(),
    "another process writes": _by_another_process,
    "a machine without sqlite-vec writes": _without_vec,
}


@pytest.mark.parametrize("kept", [10_000, 4])
@pytest.mark.parametrize("lag", [256, 3])
@pytest.mark.parametrize("name", STEPS)
def test_a_mirror_follows(
    open_store: OpenStore, tmp_path: Path, name: str, lag: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bit_index, "LAG", lag)
    monkeypatch.setattr(bit_index, "KEPT", kept)
    store = open_store(tmp_path / "chat.db", embedder=Centred())
    store.remember_many([{"text": f"number {number} of many", "id": f"a{number}"} for number in range(100)])
    db, mirrors = store._engine.db, Mirrors()
    for step in (STEPS[name], STEPS["one is added"]):
        with db.read():
            before = mirrors.of(db, the_model(store))
        step(store)
        with db.read():
            mirror = mirrors.of(db, the_model(store))
            assert mirror is before
            assert_mirrors(mirror, db, the_model(store))
            assert mirror.seq == bit_index.newest(db)
    assert_sound(store)


def test_a_mirror_takes_in_order_what_comes_out_of_order(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path / "chat.db", embedder=Centred())
    store.remember("first")
    with sqlmem.open(tmp_path / "chat.db", embedder=False) as other:
        other.remember_many(["waits", "waits too"])
    store.remember("younger")
    db, mirrors = store._engine.db, Mirrors()
    for rowids in ([1, 4], [1, 2, 3, 4]):
        with db.read():
            mirror = mirrors.of(db, the_model(store))
            assert list(held(mirror)) == rowids
            assert_mirrors(mirror, db, the_model(store))
            assert sorted(mirror.nearest(random(1, 16)[0], among=np.array([3, 4]))) == [row for row in rowids if row > 2]
        store.flush()


def test_a_mirror_forgets_what_ended_once_it_is_much(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_index, "LAG", 3)
    store = open_store(embedder=Centred())
    ids = store.remember_many([f"number {number}" for number in range(100)])
    db, mirrors = store._engine.db, Mirrors()
    with db.read():
        mirrors.of(db, the_model(store))
    for count, size in ((4, 100), (1, 95), (2, 95)):
        store.forget(ids=[ids.pop() for _ in range(count)])
        with db.read():
            assert mirrors.of(db, the_model(store)).size == size


# -- what the file holds ----------------------------------------------------------------------------------------------

Entry = tuple[int, bytes, bytes]
DAMAGE: dict[str, Callable[[Entry], Entry | None]] = {
    "lacks one": lambda entry: None,
    "has other signs": lambda entry: (entry[0], bytes(255 - byte for byte in entry[1]), entry[2]),
    "has other sizes": lambda entry: (entry[0], entry[1], bytes(255 - byte for byte in entry[2])),
    "takes what ended for live": lambda entry: (1, *entry[1:]),
}


@needs_vec
@pytest.mark.parametrize("name", DAMAGE)
def test_the_check_finds_a_damaged_index(open_store: OpenStore, name: str) -> None:
    store = open_store(embedder=Centred())
    ids = store.remember_many([{"text": f"number {number}", "kind": "fact"} for number in range(300)])
    store.correct(ids[0], "another number")
    store.rebuild()
    assert_sound(store)
    db = store._engine.db
    with db.write():
        ((live, bit, fine),) = db.rows("select live, bit, fine from vector_centred_bits where id = 1")
        damaged = DAMAGE[name]((live, bytes(bit), bytes(fine)))
        db.execute("delete from vector_centred_bits where id = 1")
        if damaged is not None:
            values = "(1, ?, vec_bit(?), vec_bit(?))"
            db.execute(f"insert into vector_centred_bits (id, live, bit, fine) values {values}", damaged)
    assert store.check().problems == ("the bit index of centred does not match its vectors; rebuild() repairs it",)
    store.rebuild()
    assert_sound(store)


@pytest.mark.parametrize("embedder", [False, sqlmem.HashEmbedder(64), Centred()], ids=["none", "no centre", "centre"])
def test_old_changes_are_dropped(open_store: OpenStore, embedder: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_index, "KEPT", 10)
    store = open_store(embedder=embedder)
    for number in range(30):
        store.remember(f"number {number}", id=str(number))
        store.forget(ids=[str(number)])
    store.remember("one more")
    (count,) = store._engine.db.rows("select count(*) from change")
    assert count == (10,)
    assert_sound(store)
