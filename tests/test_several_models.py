"""Several models at once: their scores are averaged, and a file is opened with just those that filled it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_models import Noting, found_by
from tests.helpers_store import assert_sound

OLD, NEW = sqlmem.HashEmbedder(64), sqlmem.HashEmbedder(32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def fill(path: Path, embedder: Any) -> None:
    with sqlmem.open(path, embedder=embedder) as store:
        store.remember_many(["number 0", "number 1", "number 2"])


TEXTS = ("same", "half", "none")


def by_hand(name: str, *places: Sequence[float]) -> Vectors:
    embedder = Vectors({"ask": (1.0, 0.0), **dict(zip(TEXTS, places, strict=True))}, (0.0, 0.0))
    embedder.name = name
    return embedder


def test_several_models_are_averaged(open_store: OpenStore) -> None:
    first = by_hand("first", (1, 0), (1, 1), (0, 1))
    second = by_hand("second", (1, 1), (1, 0), (0, 0))
    store = open_store(embedder=[first, second], recency_weight=0.0)
    store.remember_many([{"text": text, "kind": "fact"} for text in TEXTS])
    found = {memory.text: scoring(memory) for memory in store.recall("ask")}
    mean = (1 + 0.5**0.5) / 2
    assert {text: part["relevance"] for text, part in found.items()} == pytest.approx(
        {"same": mean, "half": mean, "none": 0.0}, abs=1e-6
    )
    assert {text: part["found_by"] for text, part in found.items()} == {
        "same": {"vectors:first": 1, "vectors:second": 2},
        "half": {"vectors:first": 2, "vectors:second": 1},
        "none": {"vectors:first": 3},
    }


@pytest.mark.parametrize("given", [OLD, [NEW], [OLD, sqlmem.HashEmbedder(16)], [OLD, NEW, sqlmem.HashEmbedder(16)]])
def test_a_list_that_is_not_the_file_s_is_refused(path: Path, given: Any) -> None:
    fill(path, [OLD, NEW])
    before = path.read_bytes()
    with pytest.raises(sqlmem.ModelMismatch) as raised:
        sqlmem.open(path, embedder=given)
    assert "made by 'hash-64' (64 dimensions) and 'hash-32' (32 dimensions)" in str(raised.value)
    assert "reembed()" in str(raised.value)
    assert path.read_bytes() == before


def test_a_file_s_models_are_found_by_their_names(path: Path) -> None:
    fill(path, ["hash-32", OLD])
    with sqlmem.open(path) as store:
        assert sorted(found_by(store, "number 2")["number 2"]) == ["keywords", "vectors:hash-32", "vectors:hash-64"]


@pytest.mark.parametrize("given", [[OLD, NEW], [NEW, OLD], ("hash-32", "hash-64")])
def test_the_order_of_a_list_does_not_matter(path: Path, given: Any) -> None:
    fill(path, [OLD, NEW])
    with sqlmem.open(path, embedder=given) as store:
        assert store.search("number 1").texts[0] == "number 1"
        assert [model.name for model in store.stats().models] == ["hash-64", "hash-32"]


def test_each_model_embeds_each_memory_once(path: Path) -> None:
    first, second = Noting(16), Noting(24)
    with sqlmem.open(path, embedder=[first, second]) as store:
        fact = store.remember("Ana drinks tea", kind="fact")
        store.remember("Ana drinks tea", kind="fact")
        store.correct(fact, "Ana drinks rum")
        store.correct(fact, pinned=True)
        store.recall("rum")
        assert_sound(store)
    assert first.texts == second.texts == ["Ana drinks tea", "Ana drinks rum"]
    assert first.questions == second.questions == ["rum"]


def test_if_one_model_fails_nothing_is_stored(path: Path) -> None:
    first, second = Noting(16), Noting(24)
    with sqlmem.open(path, embedder=[first, second]) as store:
        second.broken = True
        with pytest.raises(sqlmem.EmbeddingError, match="hash-24"):
            store.remember("Ana drinks tea")
        assert store.list().items == ()
        assert_sound(store)
