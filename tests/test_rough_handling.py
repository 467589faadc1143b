"""What must not go wrong when texts, callbacks, locks or other stores are not as one would wish."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import sqlmem
from sqlmem.db import Database
from tests.conftest import OpenStore
from tests.helpers_store import START


def test_short_memories_fill_the_block(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    store.remember_many([{"text": f"likes tea {number}", "kind": "fact"} for number in range(60)])
    block = store.context("who likes tea", token_budget=100)
    one_more = 1 + len("- likes tea 59") // 4
    assert 100 - one_more <= block.token_estimate <= 100
    assert len(block.retrieved) + block.cut_count == 60


def test_a_small_memory_behind_many_that_are_too_large_is_shown(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    for number in range(5):
        store.remember(f"boiler {number} " + "x" * 900, kind="fact")
    small = store.remember("a boiler", kind="fact")
    block = store.context("boiler boiler", token_budget=100)
    assert [memory.id for memory in block.retrieved] == [small]
    assert (block.truncated, block.cut_count) == (True, 5)


def test_a_memory_that_holds_the_whole_question_is_wholly_relevant(open_store: OpenStore) -> None:
    words = "alder birch cedar elder fir gorse hazel juniper larch maple oak pine rowan spruce willow yew"
    store = open_store(embedder=False)
    store.remember(words, kind="fact")
    assert store.recall(words, min_relevance=1.0).texts == [words]


def test_a_word_that_is_common_elsewhere_is_still_found_where_it_is_all_there_is(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlmem.search.keywords.MOST_WALKED", 10)
    monkeypatch.setattr("sqlmem.search.keywords.MOST_SCORED", 10)
    store = open_store(embedder=False)
    store.remember_many([{"text": f"milk {number}", "user": "ben"} for number in range(40)])
    store.remember("coffee", user="ben")
    own = store.remember("the milk is in the fridge", user="alice")
    assert store.recall("coffee and milk", user="alice").ids == [own]


class Fussy(sqlmem.HashEmbedder):
    """Refuses a text that says so, and with it whatever it is embedded with."""

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("poison" in text for text in texts):
            raise RuntimeError("cannot embed this")
        return super().embed_documents(texts)


def test_a_text_that_the_embedder_refuses_keeps_no_other_from_its_vector(tmp_path: Path, open_store: OpenStore) -> None:
    store = open_store(tmp_path / "chat.db", embedder=Fussy(), embedding="deferred")
    good = store.remember("the boiler hums")
    bad = store.remember("poison ivy")
    assert store.recall("ivy").ids[0] == bad
    assert set(store.recall("boiler").ids) >= {good}
    assert store.stats().models[0].pending == 1
    with pytest.raises(sqlmem.EmbeddingError, match="cannot embed this"):
        store.flush()
    assert (store.stats().models[0].vectors, store.stats().models[0].pending) == (1, 1)
    with pytest.raises(sqlmem.EmbeddingError, match="cannot embed this"):
        store.close()


def test_a_recall_neither_fails_nor_waits_for_a_lock_that_another_holds(tmp_path: Path, open_store: OpenStore) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path, embedder=sqlmem.HashEmbedder(), embedding="deferred")
    id_ = store.remember("the boiler hums")
    other = Database(str(path))
    try:
        with other.write():
            assert store.recall("boiler").ids == [id_]
            assert store.context("boiler").retrieved[0].id == id_
        assert store.stats().models[0].pending == 1
        store.recall("boiler")
        assert store.stats().models[0].pending == 0
    finally:
        other.close()


def test_recalls_go_on_while_the_same_store_changes_its_model(tmp_path: Path, open_store: OpenStore) -> None:
    store = open_store(tmp_path / "chat.db", embedder=sqlmem.HashEmbedder(64))
    store.remember_many([{"text": f"boiler {number}", "timestamp": START} for number in range(30)])
    found: list[set[str]] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                found.append({name for memory in store.recall("boiler 7") for name in (memory.scoring or {})["found_by"]})
            except Exception as error:  # noqa: BLE001
                failures.append(error)
                return

    thread = threading.Thread(target=ask)
    thread.start()
    for dim in (32, 64, 16, 64):
        store.reembed(sqlmem.HashEmbedder(dim))
    stop.set()
    thread.join()
    assert failures == []
    assert found
    assert all(names == {"keywords", "vectors"} for names in found)


def test_a_text_without_words_has_no_vector_and_outranks_nothing(open_store: OpenStore) -> None:
    store = open_store(embedder=sqlmem.HashEmbedder())
    store.remember_many(["?", "...", "👍", "I adopted a kitten"])
    assert store.stats().models[0].vectors == 1
    assert store.recall("which kitten").texts[0] == "I adopted a kitten"
    assert store.recall("👍").top is not None


def test_a_long_list_fills_a_large_budget(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    store.remember("\n".join(f"{number} boiler parts are in this box" for number in range(2_000)))
    for budget in (300, 1_500, 6_000):
        block = store.context("which boiler parts", token_budget=budget)
        assert 0.8 * budget < block.token_estimate <= budget


def test_a_question_cannot_name_the_words_that_mark_scopes(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    store.remember_many(["the boiler", "the kettle"])
    assert store.search("scopexu1x").texts == []


def test_context_vectors_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match="needs a model"):
        sqlmem.open(tmp_path / "chat.db", embedder=False, context_vectors=True)


def test_the_same_question_is_answered_alike_before_and_after_other_writes_and_reopening(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(), clock=lambda: START) as store:
        store.recall("boiler kettle")  # when neither word is there
        store.remember_many([f"boiler {number}" for number in range(9)] + ["kettle and boiler", "a kettle"])
        first = [(memory.id, memory.score) for memory in store.recall("boiler kettle")]
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(), clock=lambda: START) as store:
        assert [(memory.id, memory.score) for memory in store.recall("boiler kettle")] == first
