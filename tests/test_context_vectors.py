"""Context vectors: a turn's second vector, of the turn before it and itself, never of anything that is no longer said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlmem
from sqlmem import candidates
from sqlmem.search.mirror import Mirrors
from sqlmem.store import bit_index, models, vector_index
from sqlmem.store.models import Model
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_models import Centred, Noting, codes, waiting
from tests.helpers_store import assert_sound
from tests.test_bit_index import assert_mirrors


class Exact(Noting):
    """Each text has a vector of its own, from which it can be told."""

    def embed_documents(self, texts: Any) -> Any:
        super().embed_documents(texts)
        return np.array([_vector(text) for text in texts])

    def embed_query(self, text: str) -> Any:
        return _vector(text)


def _vector(text: str) -> Any:
    return np.random.default_rng(list(text.encode())).standard_normal(64).astype(np.float32)


def in_context(store: sqlmem.MemoryStore) -> Model:
    return next(model for model in models.every(store._engine.db) if model.input == "context")


def held(store: sqlmem.MemoryStore, *texts: str) -> dict[str, str | None]:
    """Which of `texts` each memory's context vector is of, by the memory's own text; None for none."""
    unit = [_vector(text) / np.linalg.norm(_vector(text)) for text in texts]
    known = dict(zip(vector_index.encode(np.array(unit, dtype=np.float32)), texts, strict=True)) if texts else {}
    db = store._engine.db
    said: dict[int, str] = dict(db.rows("select rowid, text from memory"))
    return {said[rowid]: None if code is None else known[code] for rowid, code in codes(db, in_context(store)).items()}


def every_code(store: sqlmem.MemoryStore) -> set[bytes | None]:
    """All vectors that the file holds."""
    db = store._engine.db
    return {code for model in models.every(db) for code in codes(db, model).values()}


@pytest.fixture
def embedder() -> Exact:
    return Exact()


@pytest.fixture
def store(embedder: Exact, open_store: OpenStore, tmp_path: Path) -> sqlmem.MemoryStore:
    """Four turns of one session, every second by Ben."""
    store = open_store(tmp_path / "chat.db", embedder=embedder, context_vectors=True)
    for number, text in enumerate("abcd"):
        store.remember(text, id=text, session="s", role="Ben" if number % 2 else "user", turn=2 * number)
    store.remember("f", kind="fact", session="s")
    store.flush()
    embedder.taken()
    return store


FULL = {"a": None, "b": "a\nBen: b", "c": "Ben: b\nc", "d": "c\nBen: d", "f": None}


def test_a_turn_is_embedded_with_the_one_before_it(store: sqlmem.MemoryStore) -> None:
    assert held(store, "a\nBen: b", "Ben: b\nc", "c\nBen: d") == FULL
    assert waiting(store) == [0, 0]


def test_own_vectors_come_at_once_and_those_in_context_later(open_store: OpenStore, embedder: Exact) -> None:
    store = open_store(embedder=embedder, context_vectors=True)
    store.remember_many(["a", "b"])
    assert embedder.taken() == ["a", "b"]
    assert waiting(store) == [0, 2]
    assert store.flush() == 2
    assert embedder.taken() == ["a\nb"]  # nothing stands before the first
    assert waiting(store) == [0, 0]


def test_sessions_and_users_are_no_context_of_each_other(open_store: OpenStore, embedder: Exact) -> None:
    store = open_store(embedder=embedder, context_vectors=True)
    for user, session in (("", "s"), ("", "t"), ("ana", "s"), ("", None)):
        store.remember("a", user=user, session=session)
        store.remember("b", user=user, session=session, kind="fact")
    embedder.taken()
    store.flush()
    assert embedder.taken() == []


Step = Callable[[sqlmem.MemoryStore], object]

STEPS: dict[str, tuple[Step, dict[str, str | None], dict[str, str | None]]] = {
    "corrected": (
        lambda store: store.correct("b", "B"),
        {"a": None, "d": "c\nBen: d", "f": None},
        {"a": None, "B": "a\nBen: B", "c": "Ben: B\nc", "d": "c\nBen: d", "f": None},
    ),
    "corrected, the text as before": (
        lambda store: store.correct("b", metadata={"n": 1}),
        {"a": None, "d": "c\nBen: d", "f": None},
        FULL,
    ),
    "forgotten": (
        lambda store: store.forget(ids=["b"]),
        {"a": None, "d": "c\nBen: d", "f": None},
        {"a": None, "c": "a\nc", "d": "c\nBen: d", "f": None},
    ),
    "the first forgotten": (
        lambda store: store.forget(ids=["a"]),
        {"c": "Ben: b\nc", "d": "c\nBen: d", "f": None},
        {"b": None, "c": "Ben: b\nc", "d": "c\nBen: d", "f": None},
    ),
    "the last forgotten": (
        lambda store: store.forget(ids=["d"]),
        {"a": None, "b": "a\nBen: b", "c": "Ben: b\nc", "f": None},
        {"a": None, "b": "a\nBen: b", "c": "Ben: b\nc", "f": None},
    ),
    "inserted": (
        lambda store: store.remember("x", session="s", turn=3),
        {"a": None, "b": "a\nBen: b", "d": "c\nBen: d", "f": None},
        {"a": None, "b": "a\nBen: b", "x": "Ben: b\nx", "c": "x\nc", "d": "c\nBen: d", "f": None},
    ),
    "followed": (
        lambda store: store.remember("x", session="s"),
        FULL,
        {**FULL, "x": "Ben: d\nx"},
    ),
    "a fact corrected": (
        lambda store: store.correct(store.list(kinds=["fact"]).items[0].id, "F"),
        {key: value for key, value in FULL.items() if key != "f"},
        {**{key: value for key, value in FULL.items() if key != "f"}, "F": None},
    ),
}
CONTEXTS = [
    *("a\nBen: b", "Ben: b\nc", "c\nBen: d", "a\nBen: B", "Ben: B\nc", "a\nc", "Ben: b\nx", "x\nc", "Ben: d\nx"),
]


@pytest.mark.parametrize("name", STEPS)
def test_a_vector_goes_with_what_stood_before_and_comes_anew(store: sqlmem.MemoryStore, name: str) -> None:
    step, before, after = STEPS[name]
    step(store)
    assert held(store, *CONTEXTS) == before
    assert_sound(store)
    store.flush()
    assert held(store, *CONTEXTS) == after
    assert waiting(store) == [0, 0]
    assert_sound(store)


def test_only_what_changed_is_embedded_again(store: sqlmem.MemoryStore, embedder: Exact) -> None:
    store.remember_many([{"text": f"number {number}", "session": "s"} for number in range(50)])
    store.flush()
    embedder.taken()
    store.correct("b", "B")
    store.flush()
    assert embedder.taken() == ["Ben: B", "Ben: B\nc", "a\nBen: B"]


def test_what_changes_while_it_is_embedded_waits_on(
    store: sqlmem.MemoryStore, embedder: Exact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember("x", session="s", turn=7, id="x")
    real, calls = embedder.embed_documents, 0

    def slow(texts: list[str]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            with sqlmem.open(tmp_path / "chat.db", embedder=False) as other:
                other.forget(ids=["d"])
        return real(texts)

    monkeypatch.setattr(embedder, "embed_documents", slow)
    store.flush()
    assert embedder.texts == ["x", "Ben: d\nx", "c\nx"]
    assert held(store, *CONTEXTS, "c\nx") == {**{key: FULL[key] for key in "abcf"}, "x": "c\nx"}
    assert_sound(store)


def test_nothing_of_what_was_forgotten_stays_in_any_vector(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path, embedder=(embedder := Exact()), context_vectors=True)
    for text in ("a", "secret", "b"):
        store.remember(text, id=text)
    store.flush()
    texts = "secret", "a\nsecret", "secret\nb"
    unit = [_vector(text) / np.linalg.norm(_vector(text)) for text in texts]
    gone = vector_index.encode(np.array(unit, dtype=np.float32))
    assert set(gone) < every_code(store)
    store.forget(ids=["secret"])
    assert not set(gone) & every_code(store)
    store.close()
    assert not any(code in path.read_bytes() for code in gone)
    assert embedder.texts[-2:] == ["a\nsecret", "secret\nb"]


# -- searching --------------------------------------------------------------------------------------------------------


def test_the_context_counts_beside_the_text_itself(open_store: OpenStore) -> None:
    places = {"ask": (1.0, 0.0), "first": (0.0, 1.0), "second": (0.0, 1.0), "first\nsecond": (1.0, 0.0)}
    store = open_store(embedder=Vectors(places), context_vectors=True, recency_weight=0.0)
    for text in ("first", "second"):
        store.remember(text)
    found = {memory.text: scoring(memory) for memory in store.recall("ask")}
    weight = candidates.CONTEXT_WEIGHT
    assert found["second"]["relevance"] == pytest.approx(weight / (1 + weight), abs=1e-6)
    assert found["first"]["relevance"] == 0.0  # which has nothing before it, and loses nothing by that
    assert found["second"]["found_by"] == {"vectors": 1, "context_vectors": 1}
    assert found["first"]["found_by"] == {"vectors": 2}


def test_they_are_taken_up_and_given_up_by_reembedding(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path, embedder=(embedder := Exact()))
    store.remember_many([{"text": text, "session": "s"} for text in "abc"])
    store.correct(store.turns("s")[2].id, "C")
    embedder.taken()
    with pytest.raises(sqlmem.ModelMismatch, match=r"without context vectors.*reembed\(context_vectors=True\)"):
        sqlmem.open(path, embedder=embedder, context_vectors=True)
    assert store.reembed(context_vectors=True) == 4 + 2
    assert embedder.taken() == ["a\nb", "b\nC"]
    assert held(store, "a\nb", "b\nC") == {"a": None, "b": "a\nb", "c": None, "C": "b\nC"}
    assert_sound(store)
    with pytest.raises(sqlmem.ModelMismatch, match=r"with context vectors.*reembed\(context_vectors=False\)"):
        sqlmem.open(path, embedder=embedder, context_vectors=False)
    with sqlmem.open(path, embedder=embedder) as other:
        other.remember("d", session="s")
        assert waiting(other) == [0, 1]
    assert store.reembed() == 5 + 3
    assert waiting(store) == [0, 0]
    assert store.reembed(context_vectors=False) == 5
    assert [model.input for model in models.every(store._engine.db)] == ["own"]
    assert_sound(store)


def test_two_models_each_get_context_vectors(open_store: OpenStore) -> None:
    store = open_store(embedder=[Centred(16, "first"), Centred(24, "second")], context_vectors=True)
    store.remember_many(["hello there", "general reply"])
    found = {memory.text: set(scoring(memory)["found_by"]) for memory in store.recall("general")}
    assert found["general reply"] == {
        *("keywords", "vectors:first", "context_vectors:first", "vectors:second", "context_vectors:second"),
    }


# -- the check and the indexes ----------------------------------------------------------------------------------------


def test_the_check_knows_whose_vectors_are_missing(store: sqlmem.MemoryStore) -> None:
    db, table = store._engine.db, in_context(store).table
    with db.write():
        db.execute(f"delete from {table} where id in (2, 5)")  # a turn's and a fact's
    assert store.check().problems == ("1 memories have no vector of hash-64 in context",)
    with db.write():
        db.execute("insert into pending (model, memory) values (?, 2)", (in_context(store).id,))
    assert_sound(store)


def test_the_check_knows_whose_vectors_are_too_many(store: sqlmem.MemoryStore) -> None:
    db, table = store._engine.db, in_context(store).table
    store.correct("b", "B")
    store.flush()
    assert_sound(store)
    with db.write():
        db.execute(f"insert into {table} (id, code) select 2, code from {table} where id = 3")
    assert store.check().problems == ("1 vectors of hash-64 in context belong to no memory",)
    with db.write():
        db.execute(f"delete from {table} where id = 2")


@pytest.mark.parametrize("lag", [256, 3])
def test_indexes_and_mirrors_follow_vectors_that_are_replaced(
    open_store: OpenStore, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bit_index, "LAG", lag)
    store = open_store(embedder=Centred(), context_vectors=True)
    store.remember_many([{"text": f"number {number} of many", "id": f"a{number}"} for number in range(300)])
    db, mirrors = store._engine.db, Mirrors()
    steps: list[Step] = [
        lambda store: store.flush(),
        lambda store: store.correct("a7", "another"),
        lambda store: store.flush(),
        lambda store: store.forget(ids=["a9", "a10", "a50"]),
        lambda store: store.flush(),
        lambda store: [store.correct(f"a{number}", f"corrected {number}") for number in range(100, 250)],
        lambda store: store.flush(),
        lambda store: store.rebuild(),
    ]
    for step in steps:
        step(store)
        with db.read():
            for model in models.every(db):
                assert_mirrors(mirrors.of(db, model), db, model)
        assert_sound(store)
