"""The score: relevance_norm + recency_weight * recency + feedback_weight * feedback, every part to its value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sqlmem
from sqlmem import ranking
from sqlmem.store.memories import Stored
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_store import DAY, START

ASK = (1.0, 0.0)
# Vectors that the file keeps exactly: cosines 1, √½ and 0 with the question.
PLACES: Mapping[str, Sequence[float]] = {"ask": ASK, "same": (1.0, 0.0), "half": (1.0, 1.0), "none": (0.0, 1.0)}
PARTS = ("relevance", "relevance_norm", "recency", "feedback", "score")


def parts(store: sqlmem.MemoryStore, query: str = "ask", **options: Any) -> dict[str, Mapping[str, Any]]:
    """The scoring of each recalled memory by its text."""
    return {memory.text: scoring(memory) for memory in store.recall(query, **{"limit": 100, **options})}


def fact(store: sqlmem.MemoryStore, text: str, age: float = 0, **arguments: Any) -> sqlmem.MemoryId:
    return store.remember(text, kind="fact", timestamp=START - timedelta(days=age), **arguments)


@pytest.fixture
def store(open_store: OpenStore) -> sqlmem.MemoryStore:
    return open_store(embedder=Vectors(PLACES))


# -- relevance --------------------------------------------------------------------------------------------------------


def test_relevance_is_the_cosine_and_its_norm_runs_from_0_to_1(store: sqlmem.MemoryStore) -> None:
    for text in ("none", "same", "half"):
        fact(store, text)
    found = parts(store)
    assert list(found) == ["same", "half", "none"]
    for name in ("relevance", "relevance_norm"):
        assert [part[name] for part in found.values()] == pytest.approx([1.0, math.sqrt(0.5), 0.0], abs=1e-6)


def test_the_norm_is_taken_over_the_candidates(store: sqlmem.MemoryStore) -> None:
    for text in ("half", "none"):
        fact(store, text)
    found = parts(store)
    assert found["half"]["relevance_norm"] == 1.0
    assert found["half"]["relevance"] == pytest.approx(math.sqrt(0.5), abs=1e-6)
    assert found["none"]["relevance_norm"] == 0.0


@pytest.mark.parametrize("texts", [["none"], ["half"], ["none", "none too"], ["same", "same too"]])
def test_what_nothing_tells_apart_has_the_full_norm(open_store: OpenStore, texts: list[str]) -> None:
    store = open_store(embedder=Vectors({**PLACES, "none too": PLACES["none"], "same too": PLACES["same"]}))
    for text in texts:
        fact(store, text)
    assert [part["relevance_norm"] for part in parts(store).values()] == [1.0] * len(texts)


def test_an_opposite_vector_has_no_relevance(open_store: OpenStore) -> None:
    store = open_store(embedder=Vectors({**PLACES, "against": (-1.0, 0.0)}))
    fact(store, "against")
    fact(store, "same")
    found = parts(store)
    assert (found["against"]["relevance"], found["against"]["relevance_norm"]) == (0.0, 0.0)


class Centred(Vectors):
    centre = (0.5, 0.0)


def test_a_models_centre_is_the_zero_of_relevance(open_store: OpenStore) -> None:
    store = open_store(embedder=Centred(PLACES))
    for text in ("none", "same", "half"):
        fact(store, text)
    found = parts(store)
    assert found["same"]["relevance"] == pytest.approx(1.0, abs=1e-6)
    assert found["half"]["relevance"] == pytest.approx((math.sqrt(0.5) - 0.5) / (1 - 0.5), abs=1e-6)
    assert found["none"]["relevance"] == 0.0


def test_without_vectors_relevance_is_the_share_of_the_question_that_the_text_holds(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    for text in ("alpha", "BETA and gamma", "the alphas, the betas", "gamma"):
        fact(store, text)
    found = parts(store, "Alpha, beta?")
    assert {text: part["relevance"] for text, part in found.items()} == pytest.approx(
        {"alpha": 0.5, "BETA and gamma": 0.5, "the alphas, the betas": 1.0}
    )


def test_the_share_weighs_rare_words_higher(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    for i in range(20):
        fact(store, f"boiler {i}")
    fact(store, "boiler room")
    fact(store, "walrus room")
    found = parts(store, "boiler walrus")
    common, rare = found["boiler room"]["relevance"], found["walrus room"]["relevance"]
    idf = {count: math.log(1 + (22 + 0.5) / (count + 0.5)) for count in (21, 1)}
    assert common == pytest.approx(idf[21] / (idf[21] + idf[1]))
    assert rare == pytest.approx(idf[1] / (idf[21] + idf[1]))


def test_what_only_the_words_find_has_the_relevance_of_its_vector(open_store: OpenStore) -> None:
    """Here a hundred and fifty others are nearer, so that the vector search does not propose it."""
    near = {f"near {i}": (1.0, 0.0) for i in range(150)}
    store = open_store(embedder=Vectors({"ask": ASK, "do ask": (1.0, 1.0), **near}))
    store.remember_many([{"text": text, "kind": "fact"} for text in near])
    id_ = fact(store, "do ask")
    (found,) = (memory for memory in store.recall("ask", limit=100) if memory.id == id_)
    assert scoring(found)["found_by"] == {"keywords": 1}
    assert scoring(found)["relevance"] == pytest.approx(math.sqrt(0.5), abs=1e-6)


@pytest.mark.parametrize("count", [255, 256, 300])
def test_the_same_words_many_times_over_are_still_found(open_store: OpenStore, count: int) -> None:
    """From 256 vectors on the file takes their mean for the model's centre; here it is the question itself."""
    store = open_store()
    store.remember_many(["ok"] * count)
    found = store.recall("ok")
    assert len(found) == 10
    assert all(0.0 <= scoring(memory)["relevance"] <= 1.0 for memory in found)


def test_a_question_that_is_the_models_centre_is_answered(open_store: OpenStore) -> None:
    class At(Vectors):
        centre = ASK

    store = open_store(embedder=At(PLACES))
    for text in ("none", "same"):
        fact(store, text)
    assert set(parts(store)) == {"none", "same"}


# -- recency ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "expected"), [(0, 1.0), (7, 0.5), (14, 0.25), (3.5, 0.5**0.5), (70, 0.5**10), (-30, 1.0)])
def test_recency_halves_every_seven_days_and_the_future_is_new(store: sqlmem.MemoryStore, age: float, expected: float) -> None:
    fact(store, "same", age)
    assert parts(store)["same"]["recency"] == expected


@pytest.mark.parametrize("half_life", [0.25, 30, 365])
def test_the_half_life_can_be_set(open_store: OpenStore, half_life: float) -> None:
    store = open_store(embedder=Vectors(PLACES), half_life_days=half_life)
    fact(store, "same", half_life * 2)
    assert parts(store)["same"]["recency"] == 0.25
    assert parts(store, half_life_days=half_life * 2)["same"]["recency"] == 0.5


@pytest.mark.parametrize("half_life", [1e-300, 1e300])
def test_an_extreme_half_life_is_only_extreme(store: sqlmem.MemoryStore, half_life: float) -> None:
    fact(store, "same", 1)
    assert parts(store, half_life_days=half_life)["same"]["recency"] == (0.0 if half_life < 1 else 1.0)


# -- feedback ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ([("useful", 0)], 1.0),
        ([("dead_end", 0)], -1.0),
        ([("corrected", 0)], -1.0),
        ([("useful", 30)], 0.5),
        ([("dead_end", 60)], -0.25),
        ([("useful", 0), ("dead_end", 30)], 0.5),
        ([("useful", 0)] * 10, 2.0),
        ([("dead_end", 0)] * 3, -2.0),
        ([("useful", 0)] * 3 + [("dead_end", 0)] * 2, 1.0),
        ([("useful", -5)], 1.0),
        ([("dead_end", 3000)], 0.0),
    ],
)
def test_feedback_is_the_sum_of_grades_that_halve_every_thirty_days_kept_within_two(
    store: sqlmem.MemoryStore, grades: list[tuple[Any, float]], expected: float
) -> None:
    id_ = fact(store, "same")
    for outcome, age in grades:
        store.feedback(id_, outcome, timestamp=START - timedelta(days=age))
    assert parts(store)["same"]["feedback"] == pytest.approx(expected, abs=1e-12)


def test_feedback_moves_the_score_by_a_quarter_and_at_most_by_half(store: sqlmem.MemoryStore) -> None:
    id_ = fact(store, "same")
    for times, expected in ((1, 1.75), (2, 2.0), (3, 2.0)):
        store.feedback(id_, "useful")
        assert parts(store)["same"]["score"] == expected, times


# -- the sum ----------------------------------------------------------------------------------------------------------


@given(
    weight=st.floats(0, 1),
    feedback_weight=st.floats(0, 1),
    half_life=st.floats(0.01, 1000),
    ages=st.lists(st.floats(-10, 1000), min_size=3, max_size=3),
    grades=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["useful", "dead_end"]), st.floats(0, 200)), max_size=6),
)
def test_the_score_is_the_sum_of_its_parts(
    weight: float, feedback_weight: float, half_life: float, ages: list[float], grades: list[tuple[int, Any, float]]
) -> None:
    with sqlmem.open(
        ":memory:", embedder=Vectors(PLACES), recency_weight=weight, feedback_weight=feedback_weight, half_life_days=half_life,
        clock=lambda: START,
    ) as store:  # fmt: skip
        texts = ("same", "half", "none")
        ids = [fact(store, text, age) for text, age in zip(texts, ages, strict=True)]
        for place, outcome, age in grades:
            store.feedback(ids[place], outcome, timestamp=START - timedelta(days=age))
        found = store.recall("ask")
        norms = dict(zip(texts, (1.0, math.sqrt(0.5), 0.0), strict=True))
        for memory in found:
            own = [
                (1 if outcome == "useful" else -1) * 0.5 ** (age / 30)
                for place, outcome, age in grades
                if ids[place] == memory.id
            ]
            age = max(0.0, (START - memory.timestamp) / DAY)
            gain = weight * 0.5 ** (age / half_life) * norms[memory.text] ** 4
            expected = norms[memory.text] + gain + feedback_weight * max(-2.0, min(2.0, sum(own)))
            assert memory.score == pytest.approx(expected, abs=1e-5)
            assert memory.score == scoring(memory)["score"]
        scores = [memory.score or 0.0 for memory in found]
        assert scores == sorted(scores, reverse=True)


def test_every_recalled_memory_shows_all_parts(store: sqlmem.MemoryStore) -> None:
    for text in PLACES:
        fact(store, text, session="s")
    results = [store.recall("ask"), store.search("ask"), store.recall(""), store.context("ask").retrieved]
    for found in results:
        assert len(found) == len(PLACES)
        for memory in found:
            assert set(scoring(memory)) == {*PARTS, "found_by"}
            assert scoring(memory)["found_by"]


def test_what_was_only_read_has_no_score(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("same", session="s")
    for memory in (store.get(id_), store.turns("s")[0], store.list().items[0]):
        assert (memory.score, memory.scoring) == (None, None)


@pytest.mark.parametrize(("gate", "gain"), [(4.0, 0.5 / 4), (0.0, 0.5), (1.0, 0.5 * math.sqrt(0.5))])
def test_what_a_new_memory_gains_is_gated_by_its_relevance(open_store: OpenStore, gate: float, gain: float) -> None:
    """With the gate off it is the plain sum: the recency weight, whatever the memory says."""
    store = open_store(embedder=Vectors(PLACES), recency_gate=gate)
    fact(store, "same", 5000)
    fact(store, "half", 0)
    found = parts(store)
    assert found["same"]["score"] == pytest.approx(1.0)
    assert found["half"]["score"] == pytest.approx(math.sqrt(0.5) + gain, abs=1e-5)


def test_of_two_good_matches_the_newer_wins(either: sqlmem.MemoryStore) -> None:
    old = fact(either, "Alice lives in Paris", 100)
    new = fact(either, "Alice lives in Rome", 0)
    for number in range(20):
        fact(either, f"number {number} is nothing to her", 0)
    assert either.recall("where does Alice live").ids[:2] == [new, old]


def test_an_old_exact_match_beats_fresh_noise(either: sqlmem.MemoryStore) -> None:
    old = fact(either, "the wifi password is hunter2", 730)
    for i in range(40):
        either.remember(f"what a lovely day number {i}, the weather is fine", session=f"s{i % 4}")
        fact(either, f"somebody said the password was changed for account {i}")
    top = either.recall("what is the wifi password").top
    assert top is not None
    assert top.id == old


# -- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations([500, 400, 1000])))
@pytest.mark.parametrize("options", [{}, {"recency_weight": 0.0}])
def test_the_newer_of_two_equals_comes_first(
    either: sqlmem.MemoryStore, order: tuple[int, ...], options: dict[str, Any]
) -> None:
    for age in order:
        fact(either, "the boiler was serviced", age, session=f"s{age}")
    for found in (either.recall("boiler serviced", **options), either.search("boiler serviced")):
        assert [(START - memory.timestamp).days for memory in found] == [400, 500, 1000]


def test_the_newest_come_first_of_more_equals_than_a_search_proposes(either: sqlmem.MemoryStore) -> None:
    for age in range(150, 0, -1):
        fact(either, "the boiler hums", age, session=f"s{age}")
    for found in (either.recall("boiler hums", limit=3), either.search("boiler hums", limit=3)):
        assert [(START - memory.timestamp).days for memory in found] == [1, 2, 3]


def test_of_equals_of_one_moment_the_one_stored_last_comes_first(store: sqlmem.MemoryStore) -> None:
    ids = [fact(store, "same", 3, session=f"s{i}") for i in range(5)]
    assert store.recall("ask").ids == ids[::-1]
    assert store.search("").ids == ids[::-1]


def test_equal_words_are_equally_relevant_in_a_session_and_outside(either: sqlmem.MemoryStore) -> None:
    old = fact(either, "the boiler was serviced", 100, session="s")
    new = fact(either, "the boiler was serviced", 1)
    other = fact(either, "Ana lives in Lisbon", 1)
    found = either.recall("boiler serviced", session="s")
    assert [id_ for id_ in found.ids if id_ != other] == [new, old]
    assert scoring(found[0])["relevance_norm"] == scoring(found[1])["relevance_norm"] == 1.0


def test_with_recency_off_only_relevance_orders(store: sqlmem.MemoryStore) -> None:
    fact(store, "none", 0)
    fact(store, "half", 10)
    fact(store, "same", 1000)
    found = parts(store, recency_weight=0.0)
    assert list(found) == ["same", "half", "none"]
    assert [part["score"] for part in found.values()] == pytest.approx([1.0, math.sqrt(0.5), 0.0], abs=1e-6)


# -- the joint score --------------------------------------------------------------------------------------------------


def candidate(
    number: int, cosine: float | tuple[float | None, ...] | None = None, bm25: float = 0.0, **columns: Any
) -> ranking.Candidate:
    at = round(START.timestamp() * 1000)
    given: dict[str, Any] = {
        "rowid": number, "id": str(number), "scope": 1, "kind": "fact", "role": "user", "turn": None, "text": "abc def ghi j",
        "at": at, "created_at": at, "expires_at": None, "chain": number, "version": 1, "ended_at": None, "end_reason": None,
        "ended_by": None, "held": None, "seen": 1, "metadata": "{}", "valid_from": None, "valid_to": None, "end_note": None,
    }  # fmt: skip
    cosines = cosine if isinstance(cosine, tuple) else (cosine,)
    return ranking.Candidate(Stored(**{**given, **columns}), cosines, bm25)


WHOLE = 1 + ranking.SESSION_WEIGHT  # a fact is the evidence of its own session


ONE = (ranking.Space(0.0, 1.0),)


def joint(
    *candidates: ranking.Candidate, query: str = "ask", spaces: Sequence[ranking.Space] = ONE, expected: float = 1.0
) -> list[float]:
    """`expected` is 0 where no words were searched."""
    known = {one.stored.rowid: ranking.traits(one.stored.text) for one in candidates}
    return list(ranking.joint(query, candidates, spaces, known, expected=expected).values())


def test_words_and_vectors_share_the_joint_score() -> None:
    share = ranking.VECTOR_SHARE
    candidates = candidate(1, 0.9, 4.0), candidate(2, 0.6, 0.0), candidate(3, None, 2.0), candidate(4, 0.3, 1.0)
    own = [1.0, share * 0.5, (1 - share) * 0.5, (1 - share) * 0.25]
    assert joint(*candidates, spaces=[ranking.Space(0.3, 1.0)]) == pytest.approx([WHOLE * score for score in own])


def test_without_vectors_words_are_the_whole_joint_score() -> None:
    scores = joint(candidate(1, (), 4.0), candidate(2, (), 1.0), spaces=())
    assert scores == pytest.approx([WHOLE, WHOLE / 4])


def test_without_keywords_vectors_are_the_whole_joint_score() -> None:
    scores = joint(candidate(1, 0.9), candidate(2, 0.6), candidate(3, 0.3), spaces=[ranking.Space(0.3, 1.0)], expected=0.0)
    assert scores == pytest.approx([WHOLE, WHOLE / 2, 0.0])


def test_spaces_count_by_their_weights() -> None:
    """Each space is stretched from its own anchor to its own best; a candidate is the weighted mean of those it stands in."""
    spaces = ranking.Space(0.2, 3.0), ranking.Space(0.5, 1.0)
    candidates = (
        candidate(1, (1.0, 0.5)),  # 1 and 0
        candidate(2, (0.6, 0.9)),  # 1/2 and 1
        candidate(3, (0.6, None)),
        candidate(4, (None, 0.7)),
        candidate(5, (None, None)),
    )
    expected = [0.75, 0.625, 0.5, 0.5, 0.0]
    assert joint(*candidates, spaces=spaces, expected=0.0) == pytest.approx([WHOLE * score for score in expected])


def test_several_spaces_share_with_words_as_one_does() -> None:
    share = ranking.VECTOR_SHARE
    spaces = ranking.Space(0.0, 1.0), ranking.Space(0.0, 1.0)
    scores = joint(candidate(1, (1.0, 0.5), 1.0), candidate(2, (0.5, 0.5), 2.0), candidate(3, (None, None), 2.0), spaces=spaces)
    own = [share + (1 - share) / 2, share * 0.75 + (1 - share), 1 - share]
    assert scores == pytest.approx([WHOLE * score for score in own])


def test_relevance_is_the_mean_of_the_spaces_in_which_a_memory_stands() -> None:
    spaces = ranking.Space(0.2, 1.0), ranking.Space(0.5, 3.0)
    both, first, second = candidate(1, (0.6, 1.0)), candidate(2, (0.6, None)), candidate(3, (None, 0.5))
    means = ranking.means_above([both, first, second, candidate(4, (None, None))], spaces)
    assert means == pytest.approx([(0.5 + 3 * 1.0) / 4, 0.5, 0.0, 0.0])
    assert not candidate(1, (None, None)).seen
    assert candidate(1, (None, 0.5)).seen


def test_the_best_keyword_score_counts_in_full_only_if_most_words_are_there() -> None:
    scores = joint(candidate(1, (), 2.0), candidate(2, (), 1.0), spaces=(), expected=4.0)
    assert scores == pytest.approx([WHOLE * 2.0 / 2.8, WHOLE * 1.0 / 2.8])


def test_turns_share_the_evidence_of_their_session() -> None:
    turns = [candidate(i, (), bm25, kind="turn", turn=2 * i) for i, bm25 in enumerate((4.0, 2.0, 1.0, 1.0))]
    alone = candidate(9, (), 3.0, kind="turn", turn=9, scope=2)
    lift = ranking.SESSION_WEIGHT * 1
    expected = [1 + lift, 0.5 + lift, 0.25 + lift, 0.25 + lift, 0.75 + ranking.SESSION_WEIGHT * 0.75]
    assert joint(*turns, alone, spaces=()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "answer", "gain"),
    [
        ({"text": "abc def ghi?", "role": "Ana"}, {"role": "Ben"}, ranking.ANSWER_SHARE),
        ({"text": "abc def ghi?", "role": "Ana"}, {"role": "Ana"}, 0.0),
        ({"role": "Ana"}, {"role": "Ben"}, 0.0),
        ({"text": "abc def ghi?", "role": "Ana"}, {"role": "Ben", "scope": 2}, 0.0),
        ({"text": "abc def ghi?", "role": "Ana"}, {"role": "Ben", "turn": 3}, 0.0),
    ],
)
def test_a_turn_gains_by_the_question_before_it(asked: dict[str, Any], answer: dict[str, Any], gain: float) -> None:
    question = candidate(1, (), 4.0, **{"kind": "turn", "turn": 1, **asked})
    reply = candidate(2, (), 1.0, **{"kind": "turn", "turn": 2, **answer})
    apart = candidate(2, (), 1.0, **{"kind": "turn", **answer, "turn": 9})
    assert joint(question, reply, spaces=())[1] - joint(question, apart, spaces=())[1] == pytest.approx(gain)


def test_a_turn_gains_by_the_one_that_follows_it() -> None:
    first, second = candidate(1, (), 1.0, kind="turn", turn=4), candidate(2, (), 4.0, kind="turn", turn=5)
    apart = candidate(2, (), 4.0, kind="turn", turn=7)
    assert joint(first, second, spaces=())[0] - joint(first, apart, spaces=())[0] == pytest.approx(ranking.REPLY_SHARE)


@pytest.mark.parametrize(
    ("query", "columns", "gain"),
    [
        ("what did Ana say", {"role": "Ana"}, ranking.SPEAKER_BONUS),
        ("what did she say", {"role": "Ana"}, 0.0),
        ("in March 2026", {}, ranking.DATE_BONUS),
        ("in April 2026", {}, 0.0),
        ("ask", {"text": "abc def ghi?"}, -ranking.QUESTION_PENALTY),
        ("ask", {"text": "yesterday ab c"}, ranking.TIME_BONUS),
    ],
)
def test_small_signals_add_to_the_joint_score(query: str, columns: dict[str, Any], gain: float) -> None:
    own = -ranking.traits(columns.get("text", "abc def ghi j")).length_cost
    assert joint(candidate(1, 1.0, **columns), query=query) == pytest.approx([ranking.VECTOR_SHARE * WHOLE + gain + own])


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("abc def ghi j", 0.0),  # four words in four tokens
        ("abc abc ab ab", -ranking.DENSITY_WEIGHT * math.log2(3 / 5)),
        ("x" * 4 * ranking.LENGTH_FREE_TOKENS, -ranking.DENSITY_WEIGHT * math.log2(2 / 97)),
        ("x" * 8 * ranking.LENGTH_FREE_TOKENS, ranking.LENGTH_PENALTY - ranking.DENSITY_WEIGHT * math.log2(2 / 193)),
        ("x" * 32 * ranking.LENGTH_FREE_TOKENS, 3 * ranking.LENGTH_PENALTY - ranking.DENSITY_WEIGHT * math.log2(2 / 769)),
    ],
)
def test_long_texts_and_those_that_repeat_themselves_cost(text: str, cost: float) -> None:
    assert ranking.traits(text).length_cost == pytest.approx(cost)


@pytest.mark.parametrize(
    ("text", "asks", "tells_time"),
    [
        ("really? ", True, False),
        ("本当？", True, False),
        ("We met last week.", False, True),
        ("That was the last drop", False, False),
        ("since 2019", False, True),
        ("12345", False, False),
        ("On Friday!", False, True),
        ("may I march on", False, False),
        ("In June?", True, True),
    ],
)
def test_a_text_shows_whether_it_asks_and_whether_it_tells_a_time(text: str, asks: bool, tells_time: bool) -> None:
    found = ranking.traits(text)
    assert (found.asks, found.tells_time) == (asks, tells_time)


# -- dates and speakers that a question names -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("what happened on 8 May 2023", [(2023, 5, 8)]),
        ("what happened on May 8th, 2023", [(2023, 5, 8)]),
        ("the 3rd of march", [(None, 3, 3)]),
        ("Sep. 3 or 4 October", [(None, 10, 4), (None, 9, 3)]),
        ("in May 2023", [(2023, 5, None)]),
        ("in december", [(None, 12, None)]),
        ("may I ask", []),
        ("in May", [(None, 5, None)]),
        ("since 2023-05-08", [(2023, 5, 8)]),
        ("in 2023-05", [(2023, 5, None)]),
        ("in 2023", [(2023, None, None)]),
        ("between 2022 and 2023", []),
        ("call 555 1234", []),
        ("", []),
    ],
)
def test_dates_in_a_question_are_read(query: str, named: list[tuple[int | None, int | None, int | None]]) -> None:
    assert [(day.year, day.month, day.day) for day in ranking.days_named(query)] == named


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ("8 May 2023", 1.0),
        ("May 2023", 1.0),
        ("9 May 2023", 0.5),
        ("2023", 0.5),
        ("8 June 2023", 0.0),
        ("2022", 0.0),
        ("8 May", 1.0),
        ("now", 0.0),
    ],
)
def test_a_date_matches_by_day_month_or_year(query: str, match: float) -> None:
    at = round(datetime.fromisoformat("2023-05-08T12:00+00:00").timestamp() * 1000)
    assert ranking.date_match(ranking.days_named(query), at) == match


@given(st.text())
def test_no_question_upsets_the_reading_of_dates_and_names(query: str) -> None:
    ranking.days_named(query)
    ranking.named_speaker(query, {"Ana", "user", "…", "Ana Maria"})


@pytest.mark.parametrize(
    "query", ["in ſeptember", "ſep 2023", "3 ſept", "auguſt", "٣ May", "2023-99-99", "99 May 2023", "0 june"]
)
def test_odd_dates_are_no_crash(open_store: OpenStore, query: str) -> None:
    store = open_store(embedder=False)
    id_ = fact(store, f"what was said {query}")
    assert store.recall(f"what was said {query}?").ids == [id_]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("what did Ana say", "Ana"),
        ("ana's bike", "Ana"),
        ("Ana Maria left", None),
        ("banana", None),
        ("what did the user say", None),
        ("Ana and Ben", None),
        ("ben!", "Ben"),
    ],
)
def test_a_question_names_a_speaker_by_all_the_words_of_the_name(query: str, named: str | None) -> None:
    assert ranking.named_speaker(query, ["Ana", "Ana Maria", "Ben", "user", "…"]) == named


def test_who_is_named_answers_first(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    ben = store.remember("I bought a bike", session="s", role="Ben")
    for i in range(3):
        store.remember(f"nice weather {i}", session="s", role="Ana")
    ana = store.remember("I bought a bike", session="s", role="Ana")
    assert store.search("what did Ana buy, a bike?").ids.index(ana) < store.search("what did Ana buy, a bike?").ids.index(ben)
    assert store.search("did Ben buy a bike").top == store.search("did Ben buy a bike")[0]
    assert store.search("did Ben buy a bike").ids[0] == ben
