"""Strategies: "balanced" searches by words and vectors, "low_latency" by vectors alone."""

from __future__ import annotations

from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_models import found_by

# "near" has the question's meaning, "ask me" its word.
PLACES = {"ask": (1.0, 0.0), "near": (4.0, 3.0), "ask me": (0.0, 1.0)}


@pytest.fixture
def store(open_store: OpenStore) -> sqlmem.MemoryStore:
    store = open_store(embedder=Vectors(PLACES), recency_weight=0.0)
    store.remember_many([{"text": text, "kind": "fact"} for text in ("near", "ask me")])
    return store


def test_balanced_is_the_default_and_uses_both(store: sqlmem.MemoryStore) -> None:
    both = {"near": {"vectors"}, "ask me": {"keywords", "vectors"}}
    assert found_by(store, "ask") == found_by(store, "ask", strategy="balanced") == both


@pytest.mark.parametrize("verb", ["recall", "search"])
def test_low_latency_goes_by_vectors_alone(store: sqlmem.MemoryStore, verb: str) -> None:
    found = getattr(store, verb)("ask", strategy="low_latency")
    assert found.texts == ["near", "ask me"]
    assert [dict(scoring(memory)["found_by"]) for memory in found] == [{"vectors": 1}, {"vectors": 2}]
    assert [scoring(memory)["relevance"] for memory in found] == pytest.approx([0.8, 0.0], abs=1e-2)
    assert [scoring(memory)["relevance_norm"] for memory in found] == [1.0, 0.0]


def test_low_latency_asks_the_keyword_index_nothing(store: sqlmem.MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = store._engine.db.rows

    def watching(sql: str, *given: Any) -> Any:
        asked.append(sql)
        return real(sql, *given)

    monkeypatch.setattr(store._engine.db, "rows", watching)
    store.recall("ask", strategy="low_latency")
    assert asked
    assert not [sql for sql in asked if "memory_fts" in sql]
    asked.clear()
    store.recall("ask")
    assert [sql for sql in asked if "memory_fts" in sql]


def test_context_takes_a_strategy_too(store: sqlmem.MemoryStore) -> None:
    for strategy, texts in (("balanced", {"near", "ask me"}), ("low_latency", {"near", "ask me"})):
        block = store.context("ask", strategy=strategy)  # type: ignore[arg-type]
        assert {memory.text for memory in block.retrieved} == texts
        found = {name for memory in block.retrieved for name in scoring(memory)["found_by"]}
        assert ("keywords" in found) == (strategy == "balanced")


def test_what_waits_for_its_vector_is_not_found_by_vectors_alone(store: sqlmem.MemoryStore) -> None:
    store.remember("!!!", kind="fact")  # which the embedder places nowhere
    assert store.recall("ask", strategy="low_latency").texts == ["near", "ask me"]


def test_a_question_without_a_vector_finds_nothing_by_vectors_alone(store: sqlmem.MemoryStore) -> None:
    assert store.recall("me", strategy="low_latency").texts == []
    assert store.recall("me").texts == ["ask me"]


def test_a_blank_question_returns_the_newest_whatever_the_strategy(store: sqlmem.MemoryStore) -> None:
    assert store.recall("", strategy="low_latency").texts == store.recall("").texts == ["ask me", "near"]


@pytest.mark.parametrize("verb", ["recall", "search", "context"])
def test_a_store_without_a_model_has_no_vectors_to_go_by(open_store: OpenStore, verb: str) -> None:
    store = open_store(embedder=False)
    store.remember("near")
    with pytest.raises(sqlmem.InvalidArgument, match="without a model"):
        getattr(store, verb)("ask", strategy="low_latency")
    assert store.recall("near", strategy="balanced").texts == ["near"]


@pytest.mark.parametrize("verb", ["recall", "search", "context"])
@pytest.mark.parametrize("strategy", [None, "", "LOW_LATENCY", "fast", 5, ["balanced"], True])
def test_a_strategy_that_is_none_is_refused(store: sqlmem.MemoryStore, verb: str, strategy: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match="low_latency, balanced"):
        getattr(store, verb)("ask", strategy=strategy)
