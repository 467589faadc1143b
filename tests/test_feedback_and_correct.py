"""Grading memories, and correcting them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock, assert_sound


def feedback_of(store: sqlmem.MemoryStore, id_: str, **options: Any) -> float:
    """The feedback that recall counts for a memory."""
    (memory,) = (memory for memory in store.recall("memory", limit=100, **options) if memory.id == id_)
    assert memory.scoring is not None
    return float(memory.scoring["feedback"])


# -- grades -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "sign"), [("useful", 1.0), ("dead_end", -1.0), ("corrected", -1.0)])
def test_a_grade_counts_one_unit(store: sqlmem.MemoryStore, outcome: Any, sign: float) -> None:
    id_ = store.remember("a memory", kind="fact")
    assert store.feedback(id_, outcome) is None
    assert feedback_of(store, id_) == sign


def test_grades_reorder_what_is_equally_relevant(store: sqlmem.MemoryStore) -> None:
    bad, plain, good = (store.remember(f"memory {name}", kind="fact") for name in ("one", "two", "three"))
    store.feedback(good, "useful")
    store.feedback(bad, "dead_end")
    assert store.recall("memory").ids == [good, plain, bad]
    assert [memory.scoring["feedback"] for memory in store.recall("memory") if memory.scoring] == [1.0, 0.0, -1.0]


def test_the_score_is_moved_by_a_quarter_of_the_feedback_and_at_most_half(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("a memory", kind="fact")
    plain = store.recall("memory").top
    assert plain is not None
    assert plain.score is not None
    for times in range(1, 11):
        store.feedback(id_, "useful")
        top = store.recall("memory").top
        assert top is not None
        assert top.scoring is not None
        assert top.scoring["feedback"] == min(2.0, times)
        assert top.score == pytest.approx(plain.score + 0.25 * min(2.0, times))


def test_the_sum_is_kept_within_two_not_each_grade(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("a memory", kind="fact")
    for _ in range(5):
        store.feedback(id_, "dead_end")
    assert feedback_of(store, id_) == -2.0
    for _ in range(4):
        store.feedback(id_, "useful")
    assert feedback_of(store, id_) == -1.0


def test_a_grade_halves_every_thirty_days(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("a memory", kind="fact")
    store.feedback(id_, "dead_end")
    for days, left in ((0, -1.0), (15, -math.sqrt(0.5)), (30, -0.5), (60, -0.25), (3000, -(0.5**100))):
        assert feedback_of(store, id_, now=clock.now + timedelta(days=days)) == pytest.approx(left)


def test_the_half_life_and_weight_of_grades_are_options_of_the_store(clock: MovableClock) -> None:
    options: dict[str, Any] = {"feedback_half_life_days": 1, "feedback_weight": 1, "recency_weight": 0}
    with sqlmem.open(":memory:", embedder=False, clock=clock, **options) as store:
        id_ = store.remember("a memory", kind="fact")
        store.feedback(id_, "useful")
        clock.forward(days=1)
        top = store.recall("memory").top
        assert top is not None
        assert top.scoring is not None
        assert top.scoring["feedback"] == pytest.approx(0.5)
        assert top.score == pytest.approx(top.scoring["relevance_norm"] + 0.5)


def test_a_grade_can_be_dated(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("a memory", kind="fact")
    store.feedback(id_, "useful", timestamp=(clock.now - 30 * DAY).replace(tzinfo=None))
    assert feedback_of(store, id_) == pytest.approx(0.5)
    store.feedback(id_, "useful", timestamp=(clock.now - 60 * DAY).astimezone(timezone(timedelta(hours=-9))))
    assert feedback_of(store, id_) == pytest.approx(0.75)


def test_a_grade_from_the_future_counts_one_at_most(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("a memory", kind="fact")
    store.feedback(id_, "useful", timestamp=clock.now + 60 * DAY)
    assert feedback_of(store, id_) == 1.0


def test_grades_accumulate_as_rows_in_their_order(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("a memory", kind="fact")
    for outcome in ("useful", "dead_end", "useful", "corrected"):
        store.feedback(id_, outcome)
        clock.forward(seconds=1)
    rows = store._engine.db.rows("select outcome from feedback order by id")
    assert [row[0] for row in rows] == ["useful", "dead_end", "useful", "corrected"]
    assert store.stats().feedback == 4


def test_grades_belong_to_the_version_that_was_graded(store: sqlmem.MemoryStore) -> None:
    old = store.remember("a memory of tea", kind="fact")
    new = store.correct(old, "a memory of rum")
    assert store.feedback(old, "useful") is None
    assert feedback_of(store, new) == 0.0
    assert feedback_of(store, old, include_superseded=True) == 1.0


@pytest.mark.parametrize("outcome", ["good", "", "Useful", None, 1, True, ["useful"], b"useful"])
def test_an_unknown_outcome_is_refused_before_the_id_is_looked_at(store: sqlmem.MemoryStore, outcome: Any) -> None:
    id_ = store.remember("a memory", kind="fact")
    for given in (id_, "unknown"):
        with pytest.raises(sqlmem.InvalidArgument, match="outcome"):
            store.feedback(given, outcome)
    assert store.stats().feedback == 0


def test_an_unknown_or_forgotten_memory_cannot_be_graded(store: sqlmem.MemoryStore) -> None:
    gone = store.remember("a memory", kind="fact")
    store.forget(ids=[gone])
    for given, said in (("unknown", "is not in this store"), ("", "is not in this store"), (gone, "was forgotten")):
        with pytest.raises(sqlmem.NotFound, match=said) as raised:
            store.feedback(given, "useful")
        assert isinstance(raised.value, KeyError)
    assert store.stats().feedback == 0


@pytest.mark.parametrize("given", [None, 5, b"id", ["id"]])
def test_an_id_that_is_no_string_is_refused(store: sqlmem.MemoryStore, given: Any) -> None:
    for verb in (store.get, store.history, lambda id_: store.feedback(id_, "useful"), lambda id_: store.correct(id_, "x")):
        with pytest.raises(sqlmem.InvalidArgument):
            verb(given)


# -- feedback with a correction ---------------------------------------------------------------------------------------


def test_a_correction_takes_the_place_of_what_it_corrects(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    old = store.remember("the report goes out as PDF", session="s", kind="fact")
    clock.forward(days=1)
    new = store.feedback(old, "corrected", correction="the report goes out as DOCX")
    assert new is not None
    assert (new.created, new.superseded) == (True, (old,))
    assert store.recall("the report goes out as PDF", session="s").ids == [new]
    before, after = store.get(old), store.get(new)
    assert (before.state, before.replaced_by, before.expired_at, before.expiration_reason) == (
        "superseded", new, clock.now, "updated"
    )  # fmt: skip
    assert (after.text, after.state, after.version_number, after.timestamp) == (
        "the report goes out as DOCX", "live", 2, clock.now
    )  # fmt: skip
    assert [memory.id for memory in after.previous_versions] == [old]
    assert store.stats().feedback == 1
    assert feedback_of(store, old, include_superseded=True, session="s") == -1.0
    assert feedback_of(store, new, session="s") == 0.0


def test_a_dated_correction_is_of_that_date(store: sqlmem.MemoryStore) -> None:
    old = store.remember("tea", kind="fact")
    new = store.feedback(old, "corrected", "rum", timestamp=datetime(2020, 5, 1, 7, tzinfo=UTC))
    assert new is not None
    memory = store.get(new)
    assert (memory.timestamp, memory.created_at) == (datetime(2020, 5, 1, 7, tzinfo=UTC), START)


@pytest.mark.parametrize("outcome", ["useful", "dead_end"])
def test_a_correction_goes_with_corrected_only(store: sqlmem.MemoryStore, outcome: Any) -> None:
    id_ = store.remember("tea", kind="fact")
    with pytest.raises(sqlmem.InvalidArgument, match="correction"):
        store.feedback(id_, outcome, correction="rum")
    assert store.stats().feedback == 0
    assert [memory.id for memory in store.list()] == [id_]


@pytest.mark.parametrize("correction", [None, ""])
def test_corrected_without_a_correction_leaves_the_memory_live(store: sqlmem.MemoryStore, correction: Any) -> None:
    id_ = store.remember("a memory", kind="fact")
    assert store.feedback(id_, "corrected", correction) is None
    assert store.get(id_).state == "live"
    assert feedback_of(store, id_) == -1.0


@pytest.mark.parametrize("correction", ["  ", "\n", 5, b"rum", ["rum"], "a\0b", "\ud800"])
def test_a_correction_that_cannot_be_stored_is_refused_and_no_grade_kept(store: sqlmem.MemoryStore, correction: Any) -> None:
    id_ = store.remember("tea", kind="fact")
    with pytest.raises(sqlmem.InvalidArgument):
        store.feedback(id_, "corrected", correction)
    assert store.stats().feedback == 0
    assert store.get(id_).state == "live"


def test_a_correction_to_the_same_text_is_a_grade_and_nothing_else(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("a memory", kind="fact")
    same = store.feedback(id_, "corrected", "a memory")
    assert same is not None
    assert (same, same.created, same.superseded) == (id_, False, ())
    assert store.recall("memory").ids == [id_]
    assert feedback_of(store, id_) == -1.0
    assert len(store.history(id_)) == 1


def test_correcting_an_old_version_corrects_the_live_one(store: sqlmem.MemoryStore) -> None:
    first = store.remember("v1", kind="fact")
    second = store.correct(first, "v2")
    third = store.feedback(first, "corrected", "v3")
    assert third is not None
    assert third.superseded == (second,)
    assert [(memory.text, memory.state, memory.replaced_by) for memory in store.history(first)] == [
        ("v1", "superseded", second),
        ("v2", "superseded", third),
        ("v3", "live", None),
    ]
    assert [memory.id for memory in store.list()] == [third]
    back = store.correct(first, "v1")  # the old text again is a new version, not the old one
    assert (back.created, back.superseded) == (True, (third,))
    assert store.get(back).version_number == 4


def test_a_correction_to_the_live_text_addressed_to_an_old_version_changes_nothing(store: sqlmem.MemoryStore) -> None:
    first = store.remember("v1", kind="fact")
    second = store.correct(first, "v2")
    again = store.correct(first, "v2")
    assert (again, again.created) == (second, False)
    assert len(store.history(first)) == 2


def test_a_memory_without_a_live_version_cannot_be_corrected(store: sqlmem.MemoryStore) -> None:
    first = store.remember("v1", kind="fact")
    second = store.correct(first, "v2")
    store.forget(ids=[second])
    with pytest.raises(sqlmem.NotFound, match="no live version"):
        store.correct(first, "v3")
    with pytest.raises(sqlmem.NotFound, match="no live version"):
        store.feedback(first, "corrected", "v3")
    assert store.stats().feedback == 0
    assert [memory.state for memory in store.history(first)] == ["superseded"]
    assert store.list().items == ()


# -- what a correction keeps ------------------------------------------------------------------------------------------


def test_a_correction_keeps_everything_that_it_does_not_change(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.categories.create("food")
    store.categories.create("people")
    old = store.remember(
        "Ana drinks tea", user="ana", session="s", role="Ben", kind="fact", metadata={"source": "mail", "n": [1, {"x": None}]},
        categories=["food", "people"], ttl_days=10,
    )  # fmt: skip
    clock.forward(days=3)
    new = store.get(store.correct(old, "Ana drinks rum"))
    assert (new.user, new.session, new.role, new.kind, new.turn) == ("ana", "s", "Ben", "fact", None)
    assert new.metadata == {"source": "mail", "n": [1, {"x": None}]}
    assert new.categories == ("food", "people")
    assert (new.timestamp, new.created_at, new.expires_at) == (clock.now, clock.now, clock.now + 10 * DAY)
    assert store.get(old).categories == ("food", "people")
    assert {category.name: category.count for category in store.categories.list()} == {"food": 1, "people": 1}


def test_a_correction_overrides_what_it_names(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.categories.create("food")
    store.categories.create("people")
    old = store.remember("tea", kind="fact", metadata={"a": 1, "b": 2}, categories=["food"], ttl_days=10)
    new = store.correct(old, metadata={"c": 3}, categories=["people"], ttl_days=1)
    memory = store.get(new)
    assert (memory.text, memory.metadata, memory.categories) == ("tea", {"c": 3}, ("people",))
    assert memory.expires_at == clock.now + DAY
    cleared = store.get(store.correct(new, metadata={}, categories=[], ttl_days=math.inf))
    assert (cleared.metadata, cleared.categories, cleared.expires_at) == ({}, (), None)
    before = store.get(old)
    assert (before.metadata, before.categories) == ({"a": 1, "b": 2}, ("food",))


def test_the_rule_of_the_store_for_ttl_does_not_shorten_what_was_kept_for_ever(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock, ttl_days={"fact": 1}) as store:
        kept = store.remember("tea", kind="fact", ttl_days=math.inf)
        assert store.get(store.correct(kept, "rum")).expires_at is None
        ruled = store.remember("gin", kind="fact")
        clock.forward(hours=12)
        assert store.get(store.correct(ruled, "ale")).expires_at == clock.now + DAY


def test_a_corrected_pin_stays_pinned(store: sqlmem.MemoryStore) -> None:
    old = store.remember("answer in French", session="s", pinned=True)
    new = store.feedback(old, "corrected", "answer in Portuguese")
    assert new is not None
    assert store.get(new).kind == "pinned"
    block = store.context("anything", session="s")
    assert [memory.id for memory in block.pinned] == [new]
    assert "French" not in block.text


def test_a_fact_is_pinned_and_unpinned(store: sqlmem.MemoryStore) -> None:
    fact = store.remember("Ana drinks tea", session="s", kind="fact")
    pin = store.correct(fact, pinned=True)
    assert [memory.id for memory in store.context("x", session="s").pinned] == [pin]
    again = store.correct(fact, pinned=True)
    assert (again, again.created) == (pin, False)
    loose = store.correct(pin, pinned=False)
    assert store.context("x", session="s").pinned == ()
    assert [memory.kind for memory in store.history(fact)] == ["fact", "pinned", "fact"]
    assert store.recall("tea", session="s").ids == [loose]


def test_a_corrected_turn_keeps_its_place_in_the_conversation(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    said = [store.remember(text, session="s", role=role) for text, role in (("one", "user"), ("too", "Ben"), ("three", "user"))]
    at = store.get(said[1]).timestamp
    clock.forward(days=2)
    new = store.correct(said[1], "two")
    assert [(turn.turn, turn.role, turn.text) for turn in store.turns("s")] == [
        (0, "user", "one"), (1, "Ben", "two"), (2, "user", "three"),
    ]  # fmt: skip
    memory = store.get(new)
    assert (memory.kind, memory.timestamp, memory.created_at) == ("turn", at, clock.now)
    assert store.get(store.remember("four", session="s")).turn == 3
    assert store.context("x", session="s").text.count("two") == 1
    assert "too" not in store.context("x", session="s").text


def test_a_corrected_turn_is_found_by_its_new_words_only(store: sqlmem.MemoryStore) -> None:
    store.remember("before", session="s")
    old = store.remember("elephants", session="s")
    store.remember("after", session="s")
    store.remember("later", session="s")
    new = store.correct(old, "penguins")
    found = store.recall("penguins", session="s").top
    assert found is not None
    assert found.id == new
    words = {row[0] for row in store._engine.db.rows("select term from memory_word_place where doc <> 2")}
    assert "elephant" not in words  # it stood in its neighbours' rows as well
    assert "penguin" in words


@pytest.mark.parametrize("pinned", [True, False])
def test_a_turn_cannot_be_pinned(store: sqlmem.MemoryStore, pinned: bool) -> None:
    turn = store.remember("hello", session="s")
    with pytest.raises(sqlmem.InvalidArgument, match="turn"):
        store.correct(turn, pinned=pinned)
    assert store.get(turn).state == "live"


def test_nothing_to_change_changes_nothing(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.categories.create("food")
    id_ = store.remember("tea", kind="fact", metadata={"a": 1}, categories=["food"])
    clock.forward(days=1)
    changes: list[dict[str, Any]] = [
        {}, {"text": "tea"}, {"pinned": False}, {"metadata": {"a": 1}}, {"categories": ["food", "food"]},
        {"ttl_days": math.inf},
    ]  # fmt: skip
    for change in changes:
        same = store.correct(id_, **change)
        assert (same, same.created, same.superseded) == (id_, False, ()), change
    assert len(store.history(id_)) == 1
    assert store.get(id_).seen == 1


def test_a_new_ttl_alone_is_a_change(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("tea", kind="fact", ttl_days=1)
    new = store.correct(id_, ttl_days=2)
    assert new.superseded == (id_,)
    assert store.get(new).expires_at == clock.now + 2 * DAY


@pytest.mark.parametrize(
    "change",
    [
        {"text": ""}, {"text": " "}, {"text": 5}, {"pinned": 1}, {"pinned": "yes"}, {"metadata": [1]}, {"metadata": {1: 2}},
        {"metadata": {"x": math.nan}}, {"metadata": {"x": object()}}, {"categories": "food"}, {"categories": [5]},
        {"ttl_days": 0}, {"ttl_days": -1}, {"ttl_days": True}, {"ttl_days": math.nan}, {"ttl_days": "1"},
        {"ttl_days": -math.inf}, {"reason": "merged"}, {"reason": None}, {"reason": ""},
    ],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_refused(store: sqlmem.MemoryStore, change: dict[str, Any]) -> None:
    id_ = store.remember("tea", kind="fact")
    with pytest.raises(sqlmem.InvalidArgument):
        store.correct(id_, **{"text": "rum", **change})
    assert [memory.text for memory in store.history(id_)] == ["tea"]


def test_an_unknown_category_is_refused(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("tea", kind="fact")
    with pytest.raises(sqlmem.NotFound, match="wine"):
        store.correct(id_, "rum", categories=["wine"])
    assert [memory.text for memory in store.history(id_)] == ["tea"]


def test_the_reason_is_kept(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("tea", kind="fact")
    store.correct(id_, "Tea", reason="system_correction")
    store.correct(id_, "rum")
    assert [memory.expiration_reason for memory in store.history(id_)] == ["system_correction", "updated", None]


def test_a_correction_is_of_the_corrected_memory_s_user(store: sqlmem.MemoryStore) -> None:
    hers = store.remember("tea", user="ana", kind="fact")
    store.remember("tea", user="ben", kind="fact")
    store.correct(hers, "rum")
    assert store.recall("tea rum", user="ana").texts == ["rum"]
    assert store.recall("tea rum", user="ben").texts == ["tea"]


def test_a_history_runs_forwards_even_when_the_clock_is_set_back(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("v1", kind="fact")
    clock.forward(hours=-1)
    new = store.correct(id_, "v2")
    old, live = store.history(id_)
    assert live.id == new
    assert old.expired_at == live.created_at == START
    assert live.timestamp == START - timedelta(hours=1)


def test_two_corrections_in_one_millisecond_stay_in_order(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("v1", kind="fact")
    for number in range(2, 30):
        store.correct(id_, f"v{number}")
    versions = store.history(id_)
    assert [memory.text for memory in versions] == [f"v{number}" for number in range(1, 30)]
    assert [memory.id for memory in versions] == sorted(memory.id for memory in versions)


def test_a_failing_model_leaves_the_memory_and_its_grades_as_they_were(tmp_path: Path, clock: MovableClock) -> None:
    class Failing(sqlmem.HashEmbedder):
        def embed_query(self, text: str) -> Any:
            if "boom" in text:
                raise OSError("no model")
            return super().embed_query(text)

    with sqlmem.open(tmp_path / "chat.db", embedder=Failing(16), clock=clock) as store:
        id_ = store.remember("tea", kind="fact")
        with pytest.raises(sqlmem.EmbeddingError):
            store.correct(id_, "boom")
        with pytest.raises(sqlmem.EmbeddingError):
            store.feedback(id_, "corrected", "boom")
        assert [memory.text for memory in store.history(id_)] == ["tea"]
        assert store.stats().feedback == 0
        assert_sound(store)


# -- facts said again, and their corrections --------------------------------------------------------------------------


def test_an_old_text_said_again_is_a_memory_of_its_own(store: sqlmem.MemoryStore) -> None:
    first = store.remember("Ana lives in Lisbon", kind="fact")
    store.correct(first, "Ana lives in Porto")
    again = store.remember("Ana lives in Lisbon", kind="fact")
    assert again.created
    assert store.get(again).version_number == 1
    assert {memory.text for memory in store.list()} == {"Ana lives in Lisbon", "Ana lives in Porto"}


def test_a_keyed_call_repeated_after_its_pin_was_loosened_does_not_pin_again(store: sqlmem.MemoryStore) -> None:
    store.remember("answer in French", session="s", kind="fact")
    pin = store.remember("answer in French", session="s", pinned=True, key="k")
    loose = store.correct(pin, pinned=False)
    store.remember("answer in French", session="s", pinned=True, key="k")
    assert [memory.id for memory in store.list(session="s")] == [loose]
    assert store.get(loose).kind == "fact"


def test_a_keyed_pin_of_a_known_fact_answers_with_the_same_id_twice(store: sqlmem.MemoryStore) -> None:
    store.remember("answer in French", session="s", kind="fact")
    pin = store.remember("answer in French", session="s", pinned=True, key="k")
    again = store.remember("answer in French", session="s", pinned=True, key="k")
    assert (again, again.created) == (pin, False)


def test_an_expired_memory_is_not_brought_back_by_correcting_it(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("tea", kind="fact", ttl_days=1)
    clock.now = START + DAY - MILLISECOND
    store.correct(id_, "rum")
    clock.forward(days=1)
    with pytest.raises(sqlmem.NotFound):
        store.correct(id_, "gin")
    assert store.list().items == ()
