"""Searching large scopes by vectors: the bits only propose, so that what is found is what reading every code would find."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sqlmem
from sqlmem.search import filters, vectors
from sqlmem.search.mirror import Mirrors
from sqlmem.store import bit_index
from tests.helpers_models import Centred, Clustered, needs_vec, the_model
from tests.helpers_store import DAY, START, MovableClock, assert_sound

SMALL = 10**9  # as EXACT_ROWS: every scope counts as small, and all codes are read


def search(
    store: sqlmem.MemoryStore, mirrors: Mirrors, query: NDArray[np.float32], limit: int, **selection: Any
) -> list[tuple[int, float]]:
    """What the search finds in its own read."""
    engine = store._engine
    with engine.db.read():
        condition = filters.condition(engine.db, filters.build(**selection), engine.now())
        if condition is None:
            return []
        return vectors.search(engine.db, mirrors, the_model(store), query, condition, limit=limit)


def exactly(store: sqlmem.MemoryStore, query: NDArray[np.float32], limit: int, **selection: Any) -> list[tuple[int, float]]:
    """What reading every code finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "EXACT_ROWS", SMALL)
        return search(store, Mirrors(), query, limit, **selection)


def rounded(found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """In one order: how many rows are multiplied at once shows in a cosine's last digits."""
    return sorted(((rowid, round(cosine, 4)) for rowid, cosine in found), key=lambda pair: (-pair[1], -pair[0]))


def unit(embedder: Any, text: str) -> NDArray[np.float32]:
    vector = np.asarray(embedder.embed_query(text), dtype=np.float32)
    unit_vector: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit_vector


# -- filters ----------------------------------------------------------------------------------------------------------

SELECTIONS: dict[str, dict[str, Any]] = {
    "a user with half of the scopes": {},
    "a session and what the user knows": {"session": "s1"},
    "a session that holds nothing": {"session": "elsewhere"},
    "a user with a quarter of the scopes": {"user": "ben"},
    "a user with few memories": {"user": "ana"},
    "a user who is not there": {"user": "nobody"},
    "all users": {"all_users": True},
    "facts": {"kinds": ["fact"]},
    "metadata": {"where": {"n": {"lt": 40}}},
    "metadata of all users": {"where": {"n": {"in": [7, 9, 11, 30, 41]}}, "all_users": True},
    "a category": {"categories": ["food"]},
    "after": {"after": START + timedelta(minutes=200)},
    "before": {"before": START + timedelta(minutes=40), "all_users": True},
    "superseded too": {"include_superseded": True},
    "a user's superseded too": {"include_superseded": True, "user": "ana"},
    "superseded facts of a session": {"include_superseded": True, "session": "s2", "kinds": ["fact"]},
    "as of before the corrections": {"as_of": START + DAY, "all_users": True},
    "a user's as of then": {"as_of": START + DAY, "user": "ana"},
    "facts of a session as of then": {"as_of": START + DAY, "session": "s2", "kinds": ["fact"]},
    "what is true": {"valid_on": START, "all_users": True},
}


@pytest.fixture(scope="module")
def large() -> Iterator[sqlmem.MemoryStore]:
    """A store of three users and 480 memories, some of them corrected, forgotten, expired, or without a vector."""
    clock = MovableClock()
    with sqlmem.open(":memory:", embedder=Clustered(100), clock=clock) as store:
        store.categories.create("food")
        items: list[dict[str, Any]] = []
        for number in range(480):
            user = "ana" if number % 16 == 0 else "ben" if number % 4 == 1 else ""
            sessions = {"ana": 1, "ben": 2, "": 4}[user]
            items.append({
                "text": f"number {number}", "user": user, "metadata": {"n": number // 2}, "id": f"m{number}",
                "session": None if number % 5 == 0 else f"s{number // 4 % sessions}",
                "kind": "fact" if number % 3 == 0 else "turn",
                "timestamp": START + timedelta(minutes=number), "categories": ["food"] if number % 7 == 0 else [],
                "ttl_days": 1 if number % 11 == 0 else None,
            })  # fmt: skip
        store.remember_many(items)
        clock.forward(days=1, minutes=240)
        for number in range(3, 480, 12):
            if store.get(f"m{number}").state == "live":
                store.correct(f"m{number}", f"another {number}")
        store.forget(ids=[f"m{number}" for number in range(4, 480, 40)])
        assert_sound(store)
        yield store


@pytest.mark.parametrize("limit", [5, 100, 1_000])
@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("by", ["mirror", pytest.param("sqlite-vec", marks=needs_vec)])
def test_filters_hold_in_large_scopes_as_in_small_ones(
    large: sqlmem.MemoryStore, by: str, name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", 0)
    if by == "sqlite-vec":
        monkeypatch.setattr(vectors, "MIRROR_ROWS", 0)
    mirrors = Mirrors()
    for question in ("first", "second"):
        query = unit(Clustered(100), question)
        right = exactly(large, query, limit, **SELECTIONS[name])
        assert rounded(search(large, mirrors, query, limit, **SELECTIONS[name])) == rounded(right)
        assert len(right) >= (0 if name == "a user who is not there" else 5)
    assert (mirrors._held == {}) == (by == "sqlite-vec" or name == "a user who is not there")


def test_the_selections_take_every_way_through_the_index(large: sqlmem.MemoryStore) -> None:
    """The whole index for wide scopes, a scope's own rows for narrow ones."""
    wide = {}
    for name, selection in SELECTIONS.items():
        condition = filters.condition(large._engine.db, filters.build(**selection), large._engine.now())
        if condition is not None:
            wide[name] = filters.share(large._engine.db, condition) >= vectors.WIDE_SHARE
    assert wide["all users"]
    assert wide["a user with half of the scopes"]
    assert wide["a user with a quarter of the scopes"]
    assert not wide["a user with few memories"]
    assert not wide["a session and what the user knows"]


@pytest.mark.parametrize("options", [{}, {"all_users": True}, {"user": "ana"}, {"user": "ben"}])
def test_what_the_bits_do_not_propose_is_not_lost_to_a_filter(
    large: sqlmem.MemoryStore, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If too few of the proposed pass, the rows that do are listed, and the nearest of these are found."""
    monkeypatch.setattr(vectors, "EXACT_ROWS", 0)
    monkeypatch.setattr("sqlmem.search.mirror.BY_BITS", 8)
    query = unit(Clustered(100), "question")
    farthest = exactly(large, query, 1_000, **options)[-5:]
    numbers = [large._engine.db.value("select metadata ->> 'n' from memory where rowid = ?", (rowid,)) for rowid, _ in farthest]
    selection = {**options, "where": {"n": {"in": numbers}}}
    right = exactly(large, query, 5, **selection)
    assert len(right) == 5
    assert rounded(search(large, Mirrors(), query, 5, **selection)) == rounded(right)


@needs_vec
def test_sqlite_vec_proposes_from_the_file_where_the_mirror_would_be_too_large(
    large: sqlmem.MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", 0)
    monkeypatch.setattr(vectors, "MIRROR_ROWS", 0)
    large.rebuild()
    query = unit(Clustered(100), "question")
    with large._engine.db.read():
        proposed = vectors._propose(large._engine.db, the_model(large), query)
        live = large._engine.db.rows("select rowid from memory where ended_at is null order by rowid")
    assert sorted(proposed) == [row[0] for row in live]
    monkeypatch.setattr(vectors, "_VEC_K", 200)
    with large._engine.db.read():
        assert len(vectors._propose(large._engine.db, the_model(large), query)) == 200
    right = exactly(large, query, 5, all_users=True)
    assert rounded(search(large, Mirrors(), query, 5, all_users=True)) == rounded(right)


@needs_vec
def test_sqlite_vec_does_not_miss_what_its_index_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "EXACT_ROWS", 0)
    monkeypatch.setattr(vectors, "MIRROR_ROWS", 0)
    embedder = Clustered(100)
    with sqlmem.open(":memory:", embedder=embedder) as store:
        store.remember_many([f"number {number}" for number in range(300)])
        new = [300 + number for number in range(1, 4)]
        store.remember_many(["the newest"] * 3)
        assert the_model(store).indexed_to == 300
        found = search(store, Mirrors(), unit(embedder, "the newest"), 3, all_users=True)
    assert sorted(rowid for rowid, _ in found) == new


def test_a_large_store_recalls_as_it_does_with_all_codes_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlmem.search.mirror.BY_SIGNS", 1_000)
    with sqlmem.open(":memory:", embedder=Clustered(100)) as store:
        store.remember_many([{"text": f"number {number}", "session": str(number // 10)} for number in range(3_000)])
        same = 0
        for number in range(20):
            query = unit(Clustered(100), f"question {number}")
            right = {rowid for rowid, _ in exactly(store, query, 50)}
            same += len(right & {rowid for rowid, _ in search(store, Mirrors(), query, 50)})
    assert same / (20 * 50) >= 0.98


# -- any history ------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["tea", "rum", "gin", "milk", "beer and tea", "rum or gin", "!!!"])
PLACE = st.integers(0, 30)
OPERATION = st.one_of(
    st.tuples(st.just("remember"), st.lists(WORDS, min_size=1, max_size=4)),
    st.tuples(st.just("remember elsewhere"), st.lists(WORDS, min_size=1, max_size=4)),
    st.tuples(st.just("correct"), PLACE, WORDS),
    st.tuples(st.just("correct elsewhere"), PLACE, WORDS),
    st.tuples(st.just("forget"), st.sets(PLACE, min_size=1, max_size=5)),
    st.tuples(st.just("forget elsewhere"), st.sets(PLACE, min_size=1, max_size=5)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("rebuild")),
    st.tuples(st.just("search"), WORDS),
)


def apply(here: sqlmem.MemoryStore, elsewhere: sqlmem.MemoryStore, operation: Any) -> None:
    """Do one thing, in the store with vectors or in that without."""
    verb, *given = operation
    store = elsewhere if verb.endswith("elsewhere") else here
    ids = [memory.id for memory in here.list(limit=100).items]
    if verb.startswith("remember"):
        store.remember_many([{"text": text, "session": "s"} for text in given[0]])
    elif verb.startswith("correct") and ids:
        store.correct(ids[given[0] % len(ids)], given[1])
    elif verb.startswith("forget"):
        store.forget(ids=[ids[place] for place in given[0] if place < len(ids)])
    elif verb == "flush":
        store.flush()
    elif verb == "rebuild":
        store.rebuild()


@settings(max_examples=60)
@given(operations=st.lists(OPERATION, max_size=25), lag=st.integers(1, 6), kept=st.integers(1, 12))
def test_after_any_history_the_index_finds_what_the_codes_say(
    tmp_path_factory: pytest.TempPathFactory, operations: list[Any], lag: int, kept: int
) -> None:
    path: Path = tmp_path_factory.mktemp("any") / "chat.db"
    with (
        pytest.MonkeyPatch.context() as patch,
        sqlmem.open(path, embedder=Centred()) as here,
        sqlmem.open(path, embedder=False) as elsewhere,
    ):
        patch.setattr(bit_index, "LAG", lag)
        patch.setattr(bit_index, "KEPT", kept)
        patch.setattr(vectors, "EXACT_ROWS", 0)
        mirrors = Mirrors()
        for operation in [*operations, ("search", "tea"), ("flush",), ("search", "rum or gin")]:
            apply(here, elsewhere, operation)
            if operation[0] == "search" and operation[1] != "!!!":
                query = unit(Centred(), operation[1])
                right = exactly(here, query, 100, all_users=True)
                assert search(here, mirrors, query, 100, all_users=True) == right
                assert search(here, mirrors, query, 100, session="s") == right
        assert_sound(here)
