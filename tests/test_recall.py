"""Recall: what comes back, in which order, and where it is cut."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_store import DAY, START, MovableClock, contents

# Four facts at cosines 1, 0.8, 0.6 and 0 from the question; no word in common with it, so that only vectors count.
NEAR = {"ask": (1.0, 0.0), "1st": (1.0, 0.0), "2nd": (4.0, 3.0), "3rd": (3.0, 4.0), "4th": (0.0, 1.0)}
IN_ORDER = ["1st", "2nd", "3rd", "4th"]


def facts(store: sqlmem.MemoryStore, texts: Sequence[str] = IN_ORDER, **arguments: Any) -> list[str]:
    return [*store.remember_many([{"text": text, "kind": "fact", **arguments} for text in texts])]


@pytest.fixture
def ranked(open_store: OpenStore) -> sqlmem.MemoryStore:
    """The four facts, stored worst first; recall goes by relevance and feedback."""
    store = open_store(embedder=Vectors(NEAR, (0.0, 1.0)), recency_weight=0.0, token_counter=lambda text: len(text.split()))
    facts(store, IN_ORDER[::-1])
    return store


# -- the result -------------------------------------------------------------------------------------------------------


def test_a_recall_is_a_sequence_of_memories_with_their_sums(ranked: sqlmem.MemoryStore) -> None:
    found = ranked.recall("ask")
    assert found.texts == [memory.text for memory in found] == IN_ORDER
    assert found.ids == [memory.id for memory in found]
    assert len(found) == 4
    assert found[0] == found.top
    assert found[-1].text == "4th"
    assert [memory.text for memory in found[1:3]] == ["2nd", "3rd"]
    assert (found.query, found.token_budget, found.token_estimate, found.truncated, found.cut_count) == (
        "ask",
        None,
        4,
        False,
        0,
    )


def test_an_empty_store_recalls_nothing(store: sqlmem.MemoryStore) -> None:
    for query in ("anything", ""):
        found = store.recall(query, session="s", token_budget=0)
        assert (list(found), found.top, found.ids, found.texts) == ([], None, [], [])
        assert (found.token_estimate, found.truncated, found.cut_count) == (0, False, 0)
        assert not found


def test_turns_facts_and_pins_are_all_recalled(store: sqlmem.MemoryStore) -> None:
    ids = {store.remember(f"the boiler {kind}", session="s", kind=kind) for kind in ("turn", "fact", "pinned")}
    assert set(store.recall("boiler", session="s").ids) == ids


def test_a_memory_found_by_words_and_by_vector_comes_once(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("the boiler hums", kind="fact")
    found = store.recall("boiler")
    assert found.ids == [id_]
    assert scoring(found.top)["found_by"] == {"keywords": 1, "vectors": 1}


def test_recall_changes_nothing_in_the_file(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path)
    store.remember_many([f"line {i}" for i in range(5)])
    before = contents(path)
    store.recall("line")
    store.search("line", user="nobody", session="new")
    store.context("line", session="new")
    assert contents(path) == before


def test_what_another_handle_writes_is_recalled_at_once(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    one, two = open_store(path), open_store(path)
    assert two.recall("boiler").ids == []
    id_ = one.remember("the boiler hums")
    assert two.recall("boiler").ids == [id_]
    new = two.correct(id_, "the boiler is silent")
    assert one.recall("boiler").ids == [new]
    one.forget(ids=[new])
    assert two.recall("boiler").ids == []


def test_the_question_may_have_space_around_it(ranked: sqlmem.MemoryStore) -> None:
    assert ranked.recall("  ask\n").texts == IN_ORDER


# -- limit, gap, budget -----------------------------------------------------------------------------------------------


def test_ten_memories_come_unless_told_otherwise(store: sqlmem.MemoryStore) -> None:
    store.remember_many([f"boiler {i}" for i in range(15)])
    assert len(store.recall("boiler")) == 10
    assert len(store.recall("boiler", limit=12)) == 12
    assert len(store.recall("boiler", limit=1000)) == 15


def test_a_limit_keeps_the_best_and_cuts_silently(ranked: sqlmem.MemoryStore) -> None:
    found = ranked.recall("ask", limit=2)
    assert (found.texts, found.truncated, found.cut_count, found.token_estimate) == (IN_ORDER[:2], False, 0, 2)


def test_more_than_the_pool_can_be_asked_for(store: sqlmem.MemoryStore) -> None:
    store.remember_many([f"boiler {i}" for i in range(250)])
    assert len(store.recall("boiler", limit=240)) == 240


@pytest.mark.parametrize(
    ("budget", "texts", "truncated", "cut"),
    [
        (None, IN_ORDER, False, 0),
        (1000, IN_ORDER, False, 0),
        (4, IN_ORDER, False, 0),
        (3, IN_ORDER[:3], True, 1),
        (1, IN_ORDER[:1], True, 3),
        (0, IN_ORDER[:1], True, 3),
    ],
)
def test_a_budget_keeps_the_first_that_fit_and_always_the_best(
    ranked: sqlmem.MemoryStore, budget: int | None, texts: list[str], truncated: bool, cut: int
) -> None:
    found = ranked.recall("ask", token_budget=budget)
    assert (found.texts, found.truncated, found.cut_count) == (texts, truncated, cut)
    assert (found.token_budget, found.token_estimate) == (budget, len(texts))


def test_a_best_memory_over_the_budget_ships_alone_and_is_reported(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    store.remember("boiler boiler " + "filler " * 50, kind="fact")
    found = store.recall("boiler", token_budget=5)
    assert (len(found), found.truncated, found.cut_count) == (1, True, 0)
    assert found.token_estimate == 91  # 364 characters, four to a token


def test_nothing_after_the_first_that_does_not_fit_is_taken(open_store: OpenStore) -> None:
    sizes = {"1st": 2, "2nd": 9, "3rd": 1, "4th": 1}
    store = open_store(embedder=Vectors(NEAR), recency_weight=0.0, token_counter=lambda text: sizes.get(text, 0))
    facts(store)
    found = store.recall("ask", token_budget=5)
    assert (found.texts, found.cut_count, found.token_estimate) == (["1st"], 3, 2)


def test_the_gap_drops_what_scores_below_a_share_of_the_best(ranked: sqlmem.MemoryStore) -> None:
    scores = [memory.score for memory in ranked.recall("ask")]
    assert scores == pytest.approx([1.0, 0.8, 0.6, 0.0], abs=0.01)  # the file keeps vectors in steps of 1/127
    for gap, kept in ((1e-9, 3), (0.5, 3), (0.7, 2), (0.9, 1), (1.0, 1)):
        found = ranked.recall("ask", score_gap=gap)
        assert (found.texts, found.truncated, found.cut_count) == (IN_ORDER[:kept], False, 0)


def test_the_gap_counts_the_whole_score(open_store: OpenStore) -> None:
    store = open_store(embedder=Vectors(NEAR), recency_weight=1.0, recency_gate=0.0)
    facts(store)
    assert len(store.recall("ask", score_gap=0.49)) == 4  # all new: 2.0, 1.8, 1.6, 1.0
    assert store.recall("ask", score_gap=0.85).texts == ["1st", "2nd"]


def test_equals_of_the_best_survive_any_gap(open_store: OpenStore) -> None:
    store = open_store(embedder=Vectors({**NEAR, "same": NEAR["1st"]}), recency_weight=0.0)
    facts(store, [*IN_ORDER, "same"])
    assert store.recall("ask", score_gap=1.0).texts == ["same", "1st"]


def test_gap_then_limit_then_budget(ranked: sqlmem.MemoryStore) -> None:
    found = ranked.recall("ask", score_gap=0.5, limit=2, token_budget=1)
    assert (found.texts, found.cut_count) == (["1st"], 1)
    found = ranked.recall("ask", score_gap=0.7, limit=3, token_budget=1)
    assert (found.texts, found.cut_count) == (["1st"], 1)


def test_only_what_is_relevant_enough_comes_be_it_nothing(ranked: sqlmem.MemoryStore) -> None:
    for least, kept in ((0.0, 4), (0.5, 3), (0.7, 2), (0.9, 1)):
        assert ranked.recall("ask", min_relevance=least).texts == IN_ORDER[:kept]
    ranked.forget(ids=[ranked.recall("ask").ids[0]])
    assert ranked.recall("ask", min_relevance=0.9).texts == []


def test_relevance_does_not_depend_on_the_limit(store: sqlmem.MemoryStore) -> None:
    for i in range(60):
        store.remember(f"the boiler {'hums ' * (i % 7)}{i}", session=f"s{i % 5}")
    wide = {memory.id: dict(scoring(memory)) for memory in store.recall("boiler hums", limit=60)}
    for limit in (1, 3, 10, 59):
        found = store.recall("boiler hums", limit=limit)
        assert {memory.id: dict(scoring(memory)) for memory in found}.items() <= wide.items()
        assert len(found) == limit


# -- a blank question -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "   ", "\n\t\u2003", "\0", "\ud800"])
def test_a_blank_question_brings_the_newest_and_asks_no_model(open_store: OpenStore, query: str) -> None:
    embedder = Vectors({}, (1.0, 0.0))
    store = open_store(embedder=embedder)
    ids = [store.remember(f"line {i}", session="s", timestamp=START - i * DAY) for i in (2, 0, 3, 1)]
    newest_first = [ids[1], ids[3], ids[0], ids[2]]
    assert store.recall(query, session="s").ids == newest_first
    assert store.recall(query, session="s", limit=2).ids == newest_first[:2]
    assert store.search(query, session="s", limit=2).ids == newest_first[:2]
    assert embedder.queries == []


def test_a_blank_question_brings_the_newest_of_many(store: sqlmem.MemoryStore) -> None:
    store.remember_many([{"text": f"line {i}", "timestamp": START - i * DAY} for i in range(250)])
    assert store.recall("", limit=3).texts == ["line 0", "line 1", "line 2"]
    assert [memory.text for memory in store.context("", limit=2).retrieved] == ["line 0", "line 1"]


def test_a_blank_question_goes_by_recency_and_feedback(store: sqlmem.MemoryStore) -> None:
    old = store.remember("old", timestamp=START - 7 * DAY)
    new = store.remember("new", timestamp=START)
    assert store.recall("").ids == [new, old]
    store.feedback(old, "useful")
    store.feedback(old, "useful")
    found = store.recall("")
    assert found.ids == [old, new]
    assert [memory.score for memory in found] == pytest.approx([0.5 * 0.5 + 0.25 * 2, 0.5])
    assert scoring(found.top)["relevance"] == scoring(found.top)["relevance_norm"] == 0.0


def test_a_blank_question_goes_through_the_filters(store: sqlmem.MemoryStore) -> None:
    store.remember("a turn")
    fact = store.remember("a fact", kind="fact")
    assert store.recall("", kinds=["fact"]).ids == [fact]


# -- what must not come -----------------------------------------------------------------------------------------------


def test_superseded_versions_come_only_when_asked_for(store: sqlmem.MemoryStore) -> None:
    old = store.remember("the boiler is green", kind="fact")
    new = store.correct(old, "the boiler is blue")
    assert store.recall("boiler green").ids == [new]
    found = store.recall("boiler green", include_superseded=True)
    assert set(found.ids) == {old, new}
    assert {memory.id: memory.state for memory in found} == {old: "superseded", new: "live"}


def test_a_long_chain_of_corrections_does_not_hide_a_live_memory(either: sqlmem.MemoryStore) -> None:
    other = either.remember("the boiler room has a key", kind="fact")
    head: str = either.remember("the boiler is colour 0", kind="fact")
    for i in range(1, 46):
        head = either.correct(head, f"the boiler is colour {i}")
    assert set(either.recall("boiler", limit=3).ids) == {head, other}


def test_many_expired_neighbours_do_not_hide_a_live_memory(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    either.remember_many([{"text": "boiler", "kind": "turn", "ttl_days": 1} for _ in range(60)])
    live = either.remember("somebody looked at the boiler and other things in the cellar", kind="fact")
    clock.forward(days=1)
    assert either.recall("boiler", limit=3).ids == [live]
    assert either.recall("", limit=3).ids == [live]


def test_dead_neighbours_do_not_hide_a_live_memory_in_the_bit_index(
    open_store: OpenStore, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In large scopes candidates come from an index that knows only whether a version has ended."""
    monkeypatch.setattr("sqlmem.search.vectors.EXACT_ROWS", 100)
    monkeypatch.setattr("sqlmem.search.mirror.BY_SIGNS", 50)
    monkeypatch.setattr("sqlmem.search.mirror.BY_BITS", 20)
    near, other, *noise = np.random.default_rng(7).standard_normal((302, 64)) / 8
    vectors = {"ask": near, "near": near, "far": 0.8 * near + 0.6 * other, **{f"noise {i}": noise[i] for i in range(300)}}
    store = open_store(embedder=Vectors({text: vector.tolist() for text, vector in vectors.items()}, [0.0] * 64))
    store.remember_many([f"noise {i}" for i in range(300)])
    assert store.stats().models[0].bits == "current"
    store.remember_many([{"text": "near", "ttl_days": 1} for _ in range(80)])
    store.remember_many([{"text": "near", "user": "ana"} for _ in range(80)])
    store.remember_many([{"text": "near", "kind": "turn", "timestamp": START - 9 * DAY} for _ in range(80)])
    live = store.remember("far", kind="fact")
    clock.forward(days=1)
    assert store.recall("ask", limit=3, after=START - DAY).texts[0] == "far"
    assert store.recall("ask", limit=3, kinds=["fact"]).ids == [live]
    assert {memory.user for memory in store.recall("ask", limit=300)} == {""}
    assert store.recall("ask", limit=3, user="ana").texts == ["near"] * 3


# -- the clock --------------------------------------------------------------------------------------------------------


def test_now_stands_for_the_clock(store: sqlmem.MemoryStore) -> None:
    passing = store.remember("the boiler hums today", ttl_days=2)
    lasting = store.remember("the boiler hums", kind="fact")
    for days, ids in ((0, {passing, lasting}), (1.9, {passing, lasting}), (2, {lasting})):
        now = START + timedelta(days=days)
        found = store.recall("boiler", now=now)
        assert set(found.ids) == ids
        assert {scoring(memory)["recency"] for memory in found} == {0.5 ** (days / 7)}
    assert set(store.recall("boiler").ids) == {passing, lasting}


def test_now_counts_for_feedback(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("the boiler hums")
    store.feedback(id_, "useful")
    assert scoring(store.recall("boiler", now=START + 30 * DAY).top)["feedback"] == 0.5


def test_half_life_and_weight_can_be_given_for_one_call(store: sqlmem.MemoryStore) -> None:
    store.remember("the boiler hums", timestamp=START - 30 * DAY)
    top = store.recall("boiler", half_life_days=30, recency_weight=0.3).top
    assert (scoring(top)["recency"], scoring(top)["score"]) == (0.5, pytest.approx(1.15))
    assert scoring(store.recall("boiler").top)["recency"] == pytest.approx(0.5 ** (30 / 7))


# -- the bundled model ------------------------------------------------------------------------------------------------


def test_the_bundled_model_finds_what_is_meant(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(tmp_path / "chat.db", embedder=None)
    said = [
        "I'd like the report as a PDF",
        "My sister is getting married in June",
        "The dentist moved my appointment to Thursday",
        "We adopted a puppy, she is called Bella",
        "Traffic on the ring road was terrible this morning",
    ]
    store.remember_many([{"text": text, "session": "u42"} for text in said])
    for question, answer in (
        ("what file type did they want", said[0]),
        ("is there a wedding coming up", said[1]),
        ("do they have a dog", said[3]),
    ):
        found = store.recall(question, session="u42")
        assert found.texts[0] == answer
        assert len(found) == 5
    top = store.recall(said[3], session="u42").top
    assert top is not None
    assert top.text == said[3]
    assert 0.6 < scoring(top)["relevance"] <= 1.0
