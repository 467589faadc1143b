"""Filters: what they let through, the same in every verb, and inside the search rather than after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors
from tests.helpers_store import DAY, MILLISECOND, START

Found = Callable[..., set[str]]

VERBS = ["recall", "recall a blank question", "search", "context", "list"]


def found_by(store: sqlmem.MemoryStore, verb: str, **filters: Any) -> set[str]:
    """The texts that a verb finds under filters."""
    if verb == "list":
        return {memory.text for memory in store.list(limit=100, **filters)}
    if verb == "context":
        return {memory.text for memory in store.context("memory", token_budget=None, **filters).retrieved}
    verb, query = ("recall", "") if "blank" in verb else (verb, "memory")
    return set(getattr(store, verb)(query, limit=100, **filters).texts)


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "texts"),
    [
        (None, {"memory turn", "memory fact"}),
        (["turn"], {"memory turn"}),
        (("fact",), {"memory fact"}),
        ({"turn", "fact"}, {"memory turn", "memory fact"}),
        (["summary"], set()),
        (["turn", "turn"], {"memory turn"}),
    ],
)
def test_kinds(store: sqlmem.MemoryStore, verb: str, kinds: Any, texts: set[str]) -> None:
    store.remember("memory turn")
    store.remember("memory fact", kind="fact")
    assert found_by(store, verb, kinds=kinds) == texts


@pytest.mark.parametrize("verb", ["recall", "search", "list"])
def test_pins_are_a_kind(store: sqlmem.MemoryStore, verb: str) -> None:
    store.remember("memory fact", kind="fact")
    store.remember("memory pin", pinned=True)
    assert found_by(store, verb, kinds=["pinned"]) == {"memory pin"}


# -- categories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("categories", "texts"),
    [
        (None, {"memory a", "memory b", "memory ab", "memory"}),
        (["a"], {"memory a", "memory ab"}),
        (("b",), {"memory b", "memory ab"}),
        (["a", "b"], {"memory a", "memory b", "memory ab"}),
        (["empty"], set()),
    ],
)
def test_one_of_the_categories_must_be_there(store: sqlmem.MemoryStore, verb: str, categories: Any, texts: set[str]) -> None:
    for name in ("a", "b", "empty"):
        store.categories.create(name)
    for text, held in (("memory a", ["a"]), ("memory b", ["b"]), ("memory ab", ["a", "b"]), ("memory", [])):
        store.remember(text, categories=held)
    assert found_by(store, verb, categories=categories) == texts


def test_unknown_categories_are_named_with_those_that_are_known(store: sqlmem.MemoryStore, verb: str) -> None:
    store.categories.create("food")
    with pytest.raises(sqlmem.NotFound, match=r"drink, sport.*food"):
        found_by(store, verb, categories=["sport", "food", "drink"])


# -- metadata ---------------------------------------------------------------------------------------------------------

HELD: dict[str, dict[str, Any]] = {
    "bare": {},
    "annual": {"plan": "annual", "n": 3, "on": True, "tags": ["x", "y"], "deep": {"plan": "monthly"}},
    "monthly": {"plan": "monthly", "n": 10, "on": False, "tags": ["y", 2, None]},
    "odd": {"plan": None, "n": "3", "on": 1, "tags": "xyz", "a.b": 1, "quote'\"": "é", "$": 5, "": 0},
    "float": {"plan": "Annual", "n": 2.5, "on": "true", "tags": []},
}
EVERY = {f"memory {name}" for name in HELD}


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({}, "bare annual monthly odd float"),
        ({"plan": "annual"}, "annual"),
        ({"plan": "none such"}, ""),
        ({"plan": None}, "odd"),
        ({"n": 3}, "annual"),
        ({"n": 3.0}, "annual"),
        ({"n": "3"}, "odd"),
        ({"n": True}, ""),
        ({"on": True}, "annual"),
        ({"on": 1}, "odd"),
        ({"on": False}, "monthly"),
        ({"on": "true"}, "float"),
        ({"missing": 1}, ""),
        ({"missing": None}, ""),
        ({"plan": {"eq": "annual"}}, "annual"),
        ({"plan": {"ne": "annual"}}, "bare monthly odd float"),
        ({"missing": {"ne": 1}}, "bare annual monthly odd float"),
        ({"n": {"gt": 2.5}}, "annual monthly"),
        ({"n": {"gte": 2.5}}, "annual monthly float"),
        ({"n": {"lt": 3}}, "float"),
        ({"n": {"lte": 3}}, "annual float"),
        ({"n": {"gt": 2.5, "lt": 10}}, "annual"),
        ({"n": {"gt": "2"}}, "odd"),
        ({"plan": {"gte": "a", "lt": "b"}}, "annual"),
        ({"plan": {"in": ["annual", "monthly"]}}, "annual monthly"),
        ({"n": {"in": [3, "3", 2.5]}}, "annual odd float"),
        ({"n": {"in": []}}, ""),
        ({"n": {"nin": []}}, "bare annual monthly odd float"),
        ({"plan": {"nin": ["annual", None]}}, "bare monthly float"),
        ({"tags": {"contains": "x"}}, "annual odd"),
        ({"tags": {"contains": "y"}}, "annual monthly odd"),
        ({"tags": {"contains": 2}}, "monthly"),
        ({"tags": {"contains": None}}, "monthly"),
        ({"plan": {"contains": "nn"}}, "annual float"),
        ({"plan": {"contains": "NN"}}, ""),
        ({"plan": "annual", "n": 3}, "annual"),
        ({"plan": "annual", "n": 10}, ""),
        ({"a.b": 1}, "odd"),
        ({"deep.plan": "monthly"}, ""),
        ({"quote'\"": "é"}, "odd"),
        ({"$": 5}, "odd"),
        ({"": 0}, "odd"),
        ({"on": {"in": [True, "true"]}}, "annual float"),
    ],
)  # fmt: skip
def test_where(store: sqlmem.MemoryStore, verb: str, where: dict[str, Any], names: str) -> None:
    for name, metadata in HELD.items():
        store.remember(f"memory {name}", metadata=metadata)
    assert found_by(store, verb, where=where) == {f"memory {name}" for name in names.split()}


@pytest.mark.parametrize("count", [1000, 5000])
@pytest.mark.parametrize(("operator", "expected"), [("in", {"memory odd one"}), ("nin", {"memory"})])
def test_a_long_list_of_values(store: sqlmem.MemoryStore, count: int, operator: str, expected: set[str]) -> None:
    store.remember("memory", metadata={"ticket": "none"})
    store.remember("memory odd one", metadata={"ticket": f"T-{count - 1}"})
    wanted = {"ticket": {operator: [f"T-{i}" for i in range(count)]}}
    assert set(store.recall("memory", where=wanted).texts) == expected


def test_where_sees_the_live_version(store: sqlmem.MemoryStore) -> None:
    old = store.remember("memory", kind="fact", metadata={"plan": "annual"})
    new = store.correct(old, metadata={"plan": "monthly"})
    assert store.recall("memory", where={"plan": "annual"}).ids == []
    assert store.recall("memory", where={"plan": "monthly"}).ids == [new]
    assert store.recall("memory", where={"plan": "annual"}, include_superseded=True).ids == [old]


# -- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "days"),
    [
        ({"after": START - 2 * DAY}, {0, 1}),
        ({"after": START - 2 * DAY - MILLISECOND}, {0, 1, 2}),
        ({"before": START - 2 * DAY}, {3}),
        ({"before": START - 2 * DAY + MILLISECOND}, {2, 3}),
        ({"after": START - 3 * DAY, "before": START - DAY}, {2}),
        ({"after": START, "before": START - DAY}, set()),
        ({"after": (START - 2 * DAY).astimezone(timezone(timedelta(hours=-7)))}, {0, 1}),
        ({"after": (START - 2 * DAY).replace(tzinfo=None)}, {0, 1}),
    ],
)
def test_after_and_before_leave_their_own_moment_out(
    store: sqlmem.MemoryStore, verb: str, bounds: dict[str, datetime], days: set[int]
) -> None:
    for age in range(4):
        store.remember(f"memory {age}", timestamp=START - age * DAY)
    assert found_by(store, verb, **bounds) == {f"memory {age}" for age in days}


@pytest.mark.parametrize("embedder", ["vectors", "words"])
def test_a_thousand_nearer_old_memories_do_not_hide_the_new_one(open_store: OpenStore, embedder: str) -> None:
    by_hand = Vectors({"memory": (1.0, 0.0), "a new memory of sorts": (1.0, 3.0)}, (1.0, 0.0))
    store = open_store(embedder=by_hand if embedder == "vectors" else False)
    store.remember_many([{"text": "memory", "timestamp": START - 9 * DAY} for _ in range(1000)])
    new = store.remember("a new memory of sorts", timestamp=START)
    assert store.recall("memory", after=START - DAY, limit=5).ids == [new]
    assert [memory.id for memory in store.context("memory", after=START - DAY).retrieved] == [new]


# -- together ---------------------------------------------------------------------------------------------------------


def test_all_filters_hold_at_once(store: sqlmem.MemoryStore, verb: str) -> None:
    store.categories.create("food")
    right: dict[str, Any] = {
        "kind": "fact", "session": "s", "metadata": {"n": 1}, "categories": ["food"], "timestamp": START - 2 * DAY,
    }  # fmt: skip
    store.remember("memory right", **right)
    wrong: list[dict[str, Any]] = [
        {"kind": "turn"}, {"session": "t"}, {"metadata": {"n": 2}}, {"categories": []}, {"timestamp": START - 4 * DAY},
        {"timestamp": START}, {"user": "ana"},
    ]  # fmt: skip
    for number, change in enumerate(wrong):
        store.remember(f"memory wrong {number}", **{**right, **change})
    filters: dict[str, Any] = {
        "kinds": ["fact"], "session": "s", "where": {"n": 1}, "categories": ["food"], "after": START - 3 * DAY,
        "before": START - DAY,
    }  # fmt: skip
    assert found_by(store, verb, **filters) == {"memory right"}


def test_superseded_versions_pass_where_they_are_asked_for(store: sqlmem.MemoryStore, verb: str) -> None:
    old = store.remember("memory old", kind="fact")
    store.correct(old, "memory new")
    assert found_by(store, verb) == {"memory new"}
    assert found_by(store, verb, include_superseded=True) == {"memory new", "memory old"}
