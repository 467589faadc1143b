"""explain(): which part of recall() keeps a memory out, and that it says what recall() does."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_store import DAY, START, MovableClock, contents

CHOICES: dict[str, list[Any]] = {
    "session": ["a", "b"],
    "token_budget": [0, 5, 20],
    "score_gap": [0.5, 0.9],
    "min_relevance": [0.3, 0.7],
    "at_least": [1, 3],
    "kinds": [["fact"], ["turn"]],
    "after": [START - 20 * DAY],
}


@pytest.fixture
def store(open_store: OpenStore) -> sqlmem.MemoryStore:
    store = open_store(embedder=sqlmem.HashEmbedder())
    for name in ("food", "work"):
        store.categories.create(name)
    for number in range(12):
        store.remember(f"the boiler number {number} hums", kind="fact", id=f"fact-{number}", timestamp=START - number * DAY)
    return store


@pytest.mark.parametrize(
    ("arguments", "kept_out_by"),
    [
        ({}, None),
        ({"user": "ana"}, "scope"),
        ({"kinds": ["turn"]}, "kinds"),
        ({"categories": ["food"]}, "categories"),
        ({"where": {"n": 1}}, "where"),
        ({"after": START}, "after"),
        ({"before": START - 30 * DAY}, "before"),
        ({"as_of": START}, None),
        ({"as_of": START - DAY}, "state"),
        ({"valid_on": START - 30 * DAY}, None),
        ({"min_relevance": 1.0}, "min_relevance"),
        ({"score_gap": 1.0}, "score_gap"),
        ({"min_relevance": 1.0, "score_gap": 1.0, "at_least": 10}, None),
        ({"min_summary_relevance": 1.0}, None),
        ({"limit": 1}, "limit"),
        ({"token_budget": 1}, "token_budget"),
    ],
)
def test_the_first_thing_that_keeps_a_memory_out_is_named(
    store: sqlmem.MemoryStore, arguments: dict[str, Any], kept_out_by: str | None
) -> None:
    why = store.explain("the boiler number 0 hums", "fact-3", **arguments)
    assert why.kept_out_by == kept_out_by
    assert why.recalled == (kept_out_by is None) == ("fact-3" in store.recall("the boiler number 0 hums", **arguments).ids)
    assert why.id == "fact-3"
    assert why.reason


def test_a_memory_of_another_session_is_out_of_scope(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("the boiler", session="a")
    assert store.explain("boiler", id_, session="b").kept_out_by == "scope"
    assert store.explain("boiler", id_, session="a").kept_out_by is None


def test_states_are_told(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(embedder=False)
    old = store.remember("the boiler hums", kind="fact")
    store.correct(old, "the boiler is silent")
    passing = store.remember("the boiler leaks", ttl_days=1)
    clock.now += timedelta(days=2)
    assert (store.explain("boiler", old).kept_out_by, store.explain("boiler", old).reason) == (
        "state", "it is superseded, not live",
    )  # fmt: skip
    assert store.explain("boiler", passing).reason == "it is expired, not live"
    assert store.explain("boiler", old, include_superseded=True).recalled


def test_what_no_search_proposed_is_no_candidate(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    store.remember("the boiler hums", kind="fact")
    other = store.remember("a walrus", kind="fact")
    why = store.explain("boiler", other)
    assert (why.kept_out_by, why.rank, why.candidates, why.scoring) == ("candidates", None, 1, None)


def test_rank_and_scores_are_those_of_the_recall(store: sqlmem.MemoryStore) -> None:
    found = store.recall("boiler number 7", limit=12)
    for place, memory in enumerate(found, 1):
        why = store.explain("boiler number 7", memory.id, limit=12)
        assert (why.rank, why.candidates, why.scoring) == (place, 12, memory.scoring)


def test_an_unknown_id_is_not_found(store: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.NotFound):
        store.explain("boiler", "nobody")


def test_it_writes_nothing(tmp_path: Path, open_store: OpenStore) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path, embedder=sqlmem.HashEmbedder())
    id_ = store.remember("the boiler hums")
    before = contents(path)
    store.explain("boiler", id_)
    assert contents(path) == before


@pytest.mark.parametrize("seed", range(12))
def test_it_says_of_every_memory_what_the_recall_does(open_store: OpenStore, seed: int) -> None:
    chance = random.Random(seed)
    store = open_store(embedder=sqlmem.HashEmbedder() if chance.random() < 0.5 else False)
    words = "boiler kettle walrus tea hums leaks old new".split()
    ids = [
        store.remember(
            " ".join(chance.choices(words, k=chance.randint(1, 6))),
            session=chance.choice(["a", "b", None]),
            kind=chance.choice(["turn", "fact"]),
            timestamp=START - chance.randint(0, 40) * DAY,
        )
        for _ in range(40)
    ]
    for _ in range(6):
        arguments: dict[str, Any] = {"limit": chance.choice([1, 3, 10, 50])}
        for name, values in CHOICES.items():
            if chance.random() < 0.4:
                arguments[name] = chance.choice(values)
        question = " ".join(chance.choices(words, k=2))
        recalled = set(store.recall(question, **arguments).ids)
        assert {id_ for id_ in ids if store.explain(question, id_, **arguments).recalled} == recalled
