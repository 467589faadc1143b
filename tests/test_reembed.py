"""Changing the models of a file: the old vectors serve until all new ones are there, and nothing is lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sqlmem
from sqlmem import db as sqlite
from sqlmem.search.mirror import Mirrors
from sqlmem.store import bit_index
from tests.conftest import OpenStore, scoring
from tests.helpers_models import Centred, Noting, codes, fill, found_by, held, needs_vec, the_model, waiting
from tests.helpers_store import assert_sound, contents

OLD, NEW = sqlmem.HashEmbedder(64), sqlmem.HashEmbedder(32)
BOTH = {"keywords", "vectors"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


# -- from models to models --------------------------------------------------------------------------------------------

CHANGES: list[list[Any]] = [[NEW], [OLD, NEW], [NEW, Centred()], [OLD], [sqlmem.HashEmbedder(32, "hash-64")]]


@pytest.mark.parametrize("before", [[OLD], [OLD, NEW], [NEW, OLD], False])
@pytest.mark.parametrize("after", CHANGES, ids=repr)
def test_a_file_changes_its_models(path: Path, before: Any, after: list[Any]) -> None:
    fill(path, embedder=before)
    texts = contents(path)["table memory"]
    with sqlmem.open(path, embedder=before) as store:
        assert store.reembed(after) == 602 * len(after)
        assert sorted(held(store)) == sorted((embedder.name, 602, 0) for embedder in after)
        assert_sound(store)
        found = found_by(store, "number 77", session="s")
        assert found["number 77"] >= {"keywords"}
        assert len(found["number 77"]) == 1 + len(after)
        new = store.remember("a late penguin")
    assert set(texts) < set(contents(path)["table memory"])
    with sqlmem.open(path, embedder=after) as store:
        assert store.recall("a late penguin").ids[0] == new
        assert sorted(held(store)) == sorted((embedder.name, 603, 0) for embedder in after)
        assert_sound(store)
    with sqlmem.open(path, embedder=after[::-1]) as store:
        assert store.recall("a late penguin").ids[0] == new


def test_there_and_back_gives_the_same_vectors(path: Path) -> None:
    with sqlmem.open(fill(path), embedder=OLD) as store:
        before = codes(store._engine.db, the_model(store))
        scores = [dict(scoring(memory)) for memory in store.recall("number 9", limit=20)]
        for models in ([NEW], [NEW, OLD], [NEW], [OLD]):
            store.reembed(models)
            assert_sound(store)
        assert codes(store._engine.db, the_model(store)) == before
        again = [dict(scoring(memory)) for memory in store.recall("number 9", limit=20)]
        assert [part["found_by"] for part in again] == [part["found_by"] for part in scores]


def test_reembedding_with_the_models_that_are_there_embeds_nothing(path: Path) -> None:
    fill(path)
    embedder = Noting()
    with sqlmem.open(path, embedder=embedder) as store:
        before = contents(path)
        assert store.reembed() == store.reembed(embedder) == store.reembed("hash-64") == 602
        assert store.reembed(context_vectors=False) == 602
        assert contents(path) == before
    assert embedder.texts == []


def test_a_keyword_only_store_needs_to_be_told_a_model(path: Path) -> None:
    fill(path, 3, embedder=False)
    with sqlmem.open(path, embedder=False) as store:
        with pytest.raises(sqlmem.InvalidArgument, match="without one"):
            store.reembed()
        assert store.reembed("hash-32") == 5
        assert found_by(store, "number 2")["number 2"] == BOTH


@pytest.mark.parametrize("given", [5, [], [OLD, OLD], [None], True, ["hash-64", 5]])
def test_what_is_no_model_is_refused_and_nothing_written(path: Path, given: Any) -> None:
    with sqlmem.open(fill(path, 3), embedder=OLD) as store:
        before = contents(path)
        with pytest.raises(sqlmem.InvalidArgument):
            store.reembed(given)
        with pytest.raises(sqlmem.InvalidArgument):
            store.reembed(NEW, progress=5)  # type: ignore[arg-type]
        assert contents(path) == before


def test_a_new_build_of_a_model_takes_the_place_of_the_old(path: Path, open_store: OpenStore) -> None:
    """Stores of the old build neither add to the new vectors nor search in them."""
    first, second = Noting(16, "made-up", "aaaa"), Noting(16, "made-up", "bbbb")
    old = open_store(path, embedder=first)
    old.remember_many(["one", "two"])
    with sqlmem.open(path, embedder=False) as store:
        store.reembed(second, progress=lambda done, total: old.remember("three") if done == 2 else None)
        first.taken()
        assert (held(store), second.texts) == ([("made-up", 2, 1)], ["one", "two"])
        with pytest.raises(sqlmem.ModelMismatch):
            old.recall("one")
        old.remember("four")
        assert (held(store), first.taken()) == ([("made-up", 2, 2)], [])
        old.close()
        assert found_by(store, "four")["four"] == BOTH
        assert sorted(second.texts) == ["four", "one", "three", "two"]


# -- the file ---------------------------------------------------------------------------------------------------------


def test_what_the_old_vectors_took_is_used_again(path: Path) -> None:
    fill(path, embedder=sqlmem.HashEmbedder(512))
    with sqlmem.open(path, embedder=False) as store:
        before = store._engine.db.value("pragma page_count")
        store.reembed(sqlmem.HashEmbedder(511))
        both, free = store._engine.db.value("pragma page_count"), store._engine.db.value("pragma freelist_count")
        assert both < 2 * before
        assert free > 600 * 512 // 4096
        store.remember_many([f"later {number}" for number in range(300)])
        assert store._engine.db.value("pragma page_count") == both
        assert store._engine.db.value("pragma freelist_count") < free


@needs_vec
@pytest.mark.parametrize("forgetting", [False, True])
def test_a_machine_without_sqlite_vec_takes_no_bit_index_out(
    path: Path, forgetting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "vec_library", lambda: None)
        with sqlmem.open(path, embedder=OLD) as store:
            if forgetting:
                store.forget(ids=["m1"])
            with pytest.raises(sqlmem.StorageError, match="sqlite-vec is installed"):
                store.reembed(NEW)
            assert found_by(store, "number 77", session="s")["number 77"] == BOTH
            assert_sound(store)
    new = Noting(32)
    with sqlmem.open(path, embedder=OLD) as store:
        assert store.reembed(new) == 602 - forgetting
        assert new.texts == []
        assert_sound(store)
    names = [name for _, name, *_ in contents(path)["schema"]]
    assert [name for name in names if name.startswith("vector_hash_64")] == []


def test_names_that_look_like_a_bit_index_are_no_trap(path: Path) -> None:
    embedders = [sqlmem.HashEmbedder(16, name) for name in ("m", "m-bits", "M bits", "m_bits_chunks", "bits")]
    with sqlmem.open(fill(path, embedder=embedders), embedder=embedders) as store:
        assert held(store) == [(embedder.name, 602, 0) for embedder in embedders]
        assert_sound(store)
        store.reembed(embedders[1])
        assert_sound(store)


# -- in large scopes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [256, 3])
def test_large_scopes_follow_a_change_of_models(
    path: Path, open_store: OpenStore, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are numbered anew, and a mirror of the one that had the number before would find anything."""
    monkeypatch.setattr(bit_index, "LAG", lag)
    monkeypatch.setattr("sqlmem.search.vectors.EXACT_ROWS", 0)
    watching = open_store(fill(path), embedder=[OLD, NEW, Centred(), Centred(24, "wide")][:1])
    store = open_store(path, embedder=OLD)
    for models in ([OLD, NEW], [OLD], [OLD, Centred()], [OLD], [OLD, Centred(24, "wide")], [OLD]):
        store.reembed(models)
        for word in ("number 7", "number 599", "Ana drinks rum"):
            found = store.recall(word, limit=5, recency_weight=0.0)
            assert found.texts[0] == word
            top = scoring(found.top)
            assert {place for name, place in top["found_by"].items() if name != "keywords"} == {1}
        assert_sound(store)
    assert watching.recall("number 7").texts
    assert isinstance(store._engine.mirrors, Mirrors)
    assert waiting(store) == [0]
