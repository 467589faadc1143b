"""The judge on write: what it sees, what its verdicts do, and that its failures lose nothing."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest

import sqlmem
from sqlmem import facts
from tests.conftest import OpenStore, Vectors
from tests.helpers_judge import Judge, rows, same_subject, with_reason
from tests.helpers_store import DAY, START, MovableClock, broken_rules

# -- what it sees -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["vectors", "words"])
def judged(request: pytest.FixtureRequest, open_store: OpenStore) -> tuple[sqlmem.MemoryStore, Judge]:
    judge = Judge()
    embedder: Any = sqlmem.HashEmbedder(256) if request.param == "vectors" else False
    return open_store(judge=judge, embedder=embedder), judge


def test_it_is_asked_about_the_live_facts_of_the_session_and_of_the_user(judged: Any) -> None:
    store, judge = judged
    said: dict[str, dict[str, Any]] = {
        "Kim drinks tea with milk": {},
        "Kim drinks tea with sugar": {"session": "s"},
        "Kim drinks tea at noon": {"session": "other"},
        "Kim drinks tea at night": {"user": "ben"},
        "Kim drinks tea all day": {"pinned": True},
        "Kim drinks old tea": {"ttl_days": 1, "timestamp": START - 2 * DAY},
    }
    for text, options in said.items():
        store.remember(text, check=False, **{"kind": "fact", **options})
    store.remember("Kim drinks tea, said in passing", session="s")
    gone = store.remember("Kim drinks no tea", kind="fact", check=False)
    store.invalidate(gone)
    assert judge.shown == []
    store.remember("Kim drinks tea", kind="fact", session="s")
    assert [(new, sorted(known)) for new, known in judge.shown] == [
        ("Kim drinks tea", ["Kim drinks tea all day", "Kim drinks tea with milk", "Kim drinks tea with sugar"])
    ]


def test_a_fact_without_a_session_is_compared_with_all_of_the_user(judged: Any) -> None:
    store, judge = judged
    store.remember("Kim drinks tea", kind="fact", session="s", check=False)
    new = store.remember("Kim drinks rum", kind="fact")
    assert judge.shown == [("Kim drinks rum", ["Kim drinks tea"])]
    assert store.get(new).session is None


def test_it_sees_the_nearest_first_and_no_more_than_asked(open_store: OpenStore) -> None:
    angles = {
        f"fact {degrees}": (math.cos(math.radians(degrees)), math.sin(math.radians(degrees))) for degrees in (5, 10, 20, 40)
    }
    vectors = Vectors({"new": (1.0, 0.0), **angles}, otherwise=(0.0, -1.0))
    judge = Judge(lambda new, known: [False] * len(known))
    store = open_store(judge=judge, judge_candidates=3, embedder=vectors)
    for text in (*angles, "something else"):
        store.remember(text, kind="fact", check=False)
    store.remember("new", kind="fact")
    assert judge.shown == [("new", ["fact 5", "fact 10", "fact 20"])]


def test_what_is_about_something_else_is_not_shown(judged: Any) -> None:
    store, judge = judged
    store.remember("The ferry leaves at nine", kind="fact", check=False)
    store.remember("Kim drinks tea", kind="fact")
    assert judge.shown == []
    assert store.stats().live["fact"] == 2


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, False),
        ({"kind": "fact"}, True),
        ({"pinned": True}, True),
        ({"kind": "fact", "check": False}, False),
        ({"check": True}, True),
        ({"kind": "fact", "check": True}, True),
    ],
)
def test_turns_are_judged_when_told_so_and_facts_unless_told_not_to(judged: Any, options: Any, asked: bool) -> None:
    store, judge = judged
    store.remember("Kim drinks tea", kind="fact", check=False)
    store.remember("Kim drinks rum", **options)
    assert len(judge.shown) == asked
    assert broken_rules(store) == []


def test_a_turn_that_was_judged_stays_a_turn_and_ends_what_it_contradicts(judged: Any) -> None:
    store, _ = judged
    old = store.remember("Kim drinks tea", kind="fact")
    new = store.remember("Kim drinks rum", check=True, session="s")
    assert new.superseded == (old,)
    assert (store.get(new).kind, store.get(new).turn, store.get(new).version_number) == ("turn", 0, 1)
    assert (store.get(old).state, store.get(old).replaced_by) == ("superseded", new)


def test_check_needs_a_judge(open_store: OpenStore) -> None:
    store = open_store()
    with pytest.raises(sqlmem.InvalidArgument, match="this store was opened without one"):
        store.remember("x", kind="fact", check=True)
    store.remember("x", kind="fact", check=False)
    with pytest.raises(sqlmem.InvalidArgument, match="check must be True or False"):
        store.remember("y", kind="fact", check="yes")  # type: ignore[arg-type]
    with pytest.raises(sqlmem.InvalidArgument, match="judge must be callable"):
        open_store(judge="gpt")
    for wrong in ({"judge_candidates": 0}, {"on_judge_error": "ignore"}, {"on_contradiction": "maybe"}):
        with pytest.raises(sqlmem.InvalidArgument):
            open_store(**wrong)


# -- what its verdicts do ---------------------------------------------------------------------------------------------


def test_what_is_contradicted_ends_and_the_new_one_takes_its_place(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=Judge(with_reason))
    store.categories.create("drinks")
    store.categories.create("mornings")
    old = store.remember("Kim drinks tea", kind="fact", categories=["drinks"], metadata={"n": 1})
    clock.forward(days=1)
    new = store.remember("Kim drinks rum", kind="fact", categories=["mornings"], session="s", metadata={"n": 2})
    assert (new.superseded, new.created, new.similar, new.conflict_id) == ((old,), True, (), None)
    ended, following = store.history(old)
    assert (ended.id, ended.state, ended.expired_at, ended.replaced_by) == (old, "superseded", clock.now, new)
    assert (ended.expiration_reason, ended.expiration_note) == ("updated", "Kim drinks rum, not Kim drinks tea")
    assert (following.id, following.version_number, following.created_at) == (new, 2, clock.now)
    assert (following.session, following.categories, following.metadata) == (None, ("drinks", "mornings"), {"n": 2})
    assert store.recall("What does Kim drink?", session="other").ids == [new]


def test_several_end_for_one_which_follows_the_nearest(open_store: OpenStore) -> None:
    vectors = Vectors({"new": (1.0, 0.0), "near": (0.99, 0.1), "far": (0.8, 0.6)})
    store = open_store(judge=lambda new, known: [1] * len(known), embedder=vectors)
    far = store.remember("far", pinned=True, session="s", check=False)
    near = store.remember("near", kind="fact", session="s", check=False)
    new = store.remember("new", kind="fact", session="s")
    assert new.superseded == (near, far)
    memory = store.get(new)
    assert (memory.kind, memory.session, memory.version_number) == ("pinned", "s", 2)
    assert [m.id for m in store.history(near)] == [near, new]
    assert [(m.state, m.replaced_by, m.expiration_reason) for m in store.history(far)] == [("superseded", new, "updated")]
    assert broken_rules(store) == []


def test_a_pin_stays_in_the_block(judged: Any) -> None:
    store, _ = judged
    store.remember("Kim is allergic to nuts", pinned=True)
    store.remember("Kim is allergic to milk", kind="fact")
    assert [memory.text for memory in store.context("").pinned] == ["Kim is allergic to milk"]


def test_a_repeat_is_counted_and_not_judged(judged: Any) -> None:
    store, judge = judged
    old = store.remember("Kim drinks tea", kind="fact")
    again = store.remember("Kim drinks tea", kind="fact")
    assert (again, again.created, store.get(old).seen, judge.shown) == (old, False, 2, [])


def test_the_same_words_in_another_session_are_not_compared(judged: Any) -> None:
    store, judge = judged
    store.remember("Kim drinks tea", kind="fact")
    other = store.remember("Kim drinks tea", kind="fact", session="s")
    assert (other.created, judge.shown) == (True, [])


def test_what_says_nearly_the_same_is_reported(open_store: OpenStore) -> None:
    vectors = Vectors({"a": (1.0, 0.0), "b": (0.98, 0.2), "c": (0.0, 1.0)})
    for judge in (None, lambda new, known: [False] * len(known)):
        store = open_store(judge=judge, embedder=vectors)
        first = store.remember("a", kind="fact")
        assert first.similar == ()
        assert store.remember("b", kind="fact").similar == (first,)
        assert store.remember("c", kind="fact").similar == ()
        assert store.stats().live["fact"] == 3


def test_a_second_call_with_a_key_is_answered_by_the_first(judged: Any) -> None:
    store, judge = judged
    store.remember("Kim drinks tea", kind="fact", check=False)
    new = store.remember("Kim drinks rum", kind="fact", key="k")
    again = store.remember("Kim drinks rum", kind="fact", key="k")
    assert (again, again.created, len(judge.shown)) == (new, False, 1)
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember("Kim drinks gin", kind="fact", key="k")


def test_many_are_judged_one_after_the_other(judged: Any) -> None:
    store, judge = judged
    done: list[tuple[int, int]] = []
    items = ["hello", {"text": "Kim drinks tea", "kind": "fact"}, "and", "then", {"text": "Kim drinks rum", "kind": "fact"}]
    ids = store.remember_many(items, progress=lambda *part: done.append(part))
    assert judge.shown == [("Kim drinks rum", ["Kim drinks tea"])]
    assert ids[4].superseded == (ids[1],)
    assert [turn.text for turn in store.turns(None)] == ["hello", "and", "then"]
    assert done == [(1, 5), (2, 5), (4, 5), (5, 5)]
    assert store.undo().verb == "remember"


def test_corrections_are_judged_but_not_turns_or_what_has_the_same_text(judged: Any) -> None:
    store, judge = judged
    old = store.remember("Kim drinks tea", kind="fact")
    bens = store.remember("Ben drinks rum", kind="fact")
    turn = store.remember("Ben drinks gin")
    store.correct(turn, "Kim drinks gin")
    store.correct(bens, metadata={"n": 1})
    assert [new for new, _ in judge.shown if new != "Ben drinks rum"] == []
    judge.shown.clear()
    new = store.correct(bens, "Kim drinks milk")
    assert judge.shown == [("Kim drinks milk", ["Kim drinks tea"])]
    assert new.superseded[1:] == (old,)
    assert (store.get(new).version_number, store.get(old).replaced_by) == (3, new)
    graded = store.feedback(new, "corrected", "Kim drinks water")
    assert graded is not None
    assert graded.superseded == (new,)
    assert broken_rules(store) == []


def test_a_correction_ends_neither_the_past_nor_the_future(judged: Any) -> None:
    store, _ = judged
    store.remember("Kim drinks tea", kind="fact", valid_to=START, check=False)
    store.remember("Kim drinks rum", kind="fact", valid_from=START + DAY, check=False)
    other = store.remember("Ben drinks gin", kind="fact", check=False)
    assert store.correct(other, "Kim drinks gin").superseded == (other,)


def test_a_new_fact_waits_for_no_vector_where_embedding_is_deferred(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject, embedding="deferred")
    old = store.remember("Kim drinks tea", kind="fact")
    assert store.remember("Kim drinks rum", kind="fact").superseded == (old,)
    assert store.check().ok


# -- what goes wrong --------------------------------------------------------------------------------------------------


def fail(new: str, known: list[str]) -> list[bool]:
    raise ConnectionError("no answer")


@pytest.mark.parametrize(
    "answer",
    [[], [True, False], "y", b"y", None, True, {"a": True}, ["no"], [None], [2], [1.0], [[True]], {True}, iter([True])],
    ids=repr,
)
def test_nonsense_from_a_judge_stores_nothing(open_store: OpenStore, answer: Any) -> None:
    store = open_store(judge=lambda new, known: answer)
    store.remember("Kim drinks tea", kind="fact", check=False)
    before = rows(store)
    options: list[dict[str, Any]] = [{"kind": "fact", "session": "new"}, {"check": True}]
    for option in options:
        with pytest.raises(sqlmem.CallbackError, match="nothing was changed"):
            store.remember("Kim drinks rum", **option)
    assert rows(store) == before


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "verdict",
    [
        sqlmem.Verdict(contradicts="no"),  # type: ignore[arg-type]
        sqlmem.Verdict(contradicts=True, reason=7),  # type: ignore[arg-type]
        sqlmem.Verdict(contradicts=True, reason="\ud800"),
        sqlmem.Verdict(contradicts=True, question=" "),
        sqlmem.Verdict(contradicts=True, question="which?", options="ab"),  # type: ignore[arg-type]
        sqlmem.Verdict(contradicts=True, question="which?", options=(1, 2)),  # type: ignore[arg-type]
        Unspeakable(),
    ],
    ids=lambda verdict: type(verdict).__name__,
)
def test_a_verdict_that_cannot_be_kept_stores_nothing(open_store: OpenStore, verdict: Any) -> None:
    store = open_store(judge=lambda new, known: [verdict])
    store.remember("Kim drinks tea", kind="fact", check=False)
    before = rows(store)
    with pytest.raises(sqlmem.CallbackError, match="nothing was changed"):
        store.remember("Kim drinks rum", kind="fact")
    assert rows(store) == before


def test_a_judge_that_raises_stores_nothing(open_store: OpenStore) -> None:
    store = open_store(judge=fail)
    old = store.remember("Kim drinks tea", kind="fact")
    ben = store.remember("Ben drinks tea", kind="fact", check=False)
    before = rows(store)
    for call in (
        lambda: store.remember("Kim drinks rum", kind="fact"),
        lambda: store.correct(ben, "Kim drinks milk"),
        lambda: store.feedback(ben, "corrected", "Kim drinks milk"),
        lambda: store.remember_many([{"text": "Kim drinks gin", "kind": "fact"}]),
    ):
        with pytest.raises(sqlmem.CallbackError, match="the judge raised ConnectionError: no answer") as raised:
            call()
        assert isinstance(raised.value.__cause__, ConnectionError)
    assert rows(store) == before
    assert store.get(old).state == "live"


def test_what_could_not_be_judged_can_be_stored_and_judged_later(open_store: OpenStore) -> None:
    store = open_store(judge=fail, on_judge_error="store")
    store.remember("Kim drinks tea", kind="fact")
    new = store.remember("Kim drinks rum", kind="fact")
    assert (new.superseded, store.stats().live["fact"]) == ((), 2)
    assert store._engine.db.rows("select text, checked from memory order by rowid") == [
        ("Kim drinks tea", 1),
        ("Kim drinks rum", 0),
    ]


def test_an_error_of_the_store_inside_a_judge_passes(open_store: OpenStore) -> None:
    def judge(new: str, known: list[str]) -> list[bool]:
        store.get("nobody")
        return []

    store = open_store(judge=judge, on_judge_error="store")
    store.remember("Kim drinks tea", kind="fact")
    with pytest.raises(sqlmem.NotFound):
        store.remember("Kim drinks rum", kind="fact")


def test_what_is_stored_meanwhile_is_compared_too(open_store: OpenStore) -> None:
    def judge(new: str, known: list[str]) -> list[bool]:
        if len(shown.shown) == 1:
            store.remember("Kim drinks milk", kind="fact", check=False)
        return same_subject(new, known)

    shown = Judge(judge)
    store = open_store(judge=shown)
    store.remember("Kim drinks tea", kind="fact")
    new = store.remember("Kim drinks rum", kind="fact")
    assert [sorted(known) for _, known in shown.shown] == [["Kim drinks tea"], ["Kim drinks milk", "Kim drinks tea"]]
    assert len(new.superseded) == 2
    assert [memory.text for memory in store.list()] == ["Kim drinks rum"]


@pytest.mark.parametrize("ending", ["invalidate", "forget"])
def test_what_ended_meanwhile_does_not_end_again(open_store: OpenStore, ending: str) -> None:
    def judge(new: str, known: list[str]) -> list[bool]:
        if ending == "invalidate":
            store.invalidate(old)
        else:
            store.forget(ids=[old])
        return same_subject(new, known)

    store = open_store(judge=judge)
    old = store.remember("Kim drinks tea", kind="fact")
    new = store.remember("Kim drinks rum", kind="fact")
    assert (new.superseded, store.get(new).version_number) == ((), 1)
    assert broken_rules(store) == []


def test_facts_that_change_each_time_end_in_busy(open_store: OpenStore) -> None:
    def judge(new: str, known: list[str]) -> list[bool]:
        calls.append(new)
        store.remember(f"Kim drinks {len(calls)} teas", kind="fact", check=False)
        return same_subject(new, known)

    calls: list[str] = []
    store = open_store(judge=judge, judge_candidates=50)
    store.remember("Kim drinks tea", kind="fact", check=False)
    with pytest.raises(sqlmem.Busy, match="nothing was written, try again"):
        store.remember("Kim drinks rum", kind="fact")
    assert len(calls) == facts.ROUNDS
    assert "Kim drinks rum" not in [memory.text for memory in store.list(limit=100)]


# -- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "ends"),
    [
        ({}, {}, True),
        ({"timestamp": START - DAY}, {"timestamp": START - DAY}, True),
        ({"timestamp": START - DAY}, {"timestamp": START - 2 * DAY}, False),
        ({"valid_from": START - DAY}, {"timestamp": START - 2 * DAY}, False),
        ({"timestamp": START}, {"timestamp": START - DAY, "valid_from": START}, True),
        ({}, {"valid_from": START + DAY}, False),
        ({}, {"valid_to": START}, False),
        ({"valid_from": START - 9 * DAY, "valid_to": START}, {}, False),
        ({"valid_from": START - 9 * DAY, "valid_to": START + DAY}, {}, True),
        ({"timestamp": START - 9 * DAY}, {"valid_from": START - DAY, "valid_to": START + DAY}, True),
    ],
)
def test_what_was_true_before_ends_nothing(open_store: OpenStore, first: Any, second: Any, ends: bool) -> None:
    store = open_store(judge=same_subject)
    old = store.remember("Kim drinks tea", kind="fact", **first)
    new = store.remember("Kim drinks rum", kind="fact", **second)
    assert new.superseded == ((old,) if ends else ())
    assert store.get(old).state == ("superseded" if ends else "live")


# -- with the real model ----------------------------------------------------------------------------------------------


@pytest.fixture
def real(open_store: OpenStore) -> tuple[sqlmem.MemoryStore, Judge]:
    judge = Judge(lambda new, known: [False] * len(known))
    return open_store(embedder=None, judge=judge), judge


SHOWN = [
    ("Kiran works on Apollo", "Kiran moved from Apollo to Zeus"),
    ("Ana loves Chinese food", "Ana hates Chinese food"),
    ("My name is Alice", "My name is Bob"),
    ("The meeting is on Monday", "The meeting was moved to Tuesday"),
    ("The user prefers reports as PDF", "The user wants reports as DOCX now"),
    ("PocketBase runs on port 8090", "PocketBase backend at localhost:8090"),
]


@pytest.mark.parametrize(("old", "new"), SHOWN)
def test_what_may_contradict_is_shown(real: Any, old: str, new: str) -> None:
    store, judge = real
    store.remember(old, kind="fact", check=False)
    store.remember("The weather in Madrid was nice last week", kind="fact", check=False)
    store.remember(new, kind="fact")
    assert judge.shown == [(new, [old])]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Ana lives in Lisbon", "The API returns JSON"),
        ("Kiran works on Apollo", "My favourite colour is blue"),
        ("The deadline is on Friday", "Zoe plays the violin"),
    ],
)
def test_what_is_about_another_matter_is_not(real: Any, old: str, new: str) -> None:
    store, judge = real
    store.remember(old, kind="fact", check=False)
    store.remember(new, kind="fact")
    assert judge.shown == []


@pytest.mark.parametrize(
    ("old", "new", "question"),
    [
        ("Ana loves Chinese food", "Ana hates Chinese food", "Does Ana like Chinese food?"),
        ("My name is Alice", "My name is Bob", "What is my name?"),
        ("Kiran works on Apollo", "Kiran moved from Apollo to Zeus", "What does Kiran work on?"),
    ],
)
def test_the_newer_statement_alone_is_recalled(open_store: OpenStore, old: str, new: str, question: str) -> None:
    store = open_store(embedder=None, judge=lambda fact, known: [True] * len(known))
    first = store.remember(old, kind="fact")
    second = store.remember(new, kind="fact")
    assert store.recall(question).texts == [new]
    both = {memory.id: (memory.state, memory.replaced_by) for memory in store.recall(question, include_superseded=True)}
    assert both == {first: ("superseded", second), second: ("live", None)}


def test_facts_of_others_are_not_retired(open_store: OpenStore) -> None:
    def judge(fact: str, known: list[str]) -> list[bool]:
        return [old.split()[0] == fact.split()[0] for old in known]

    store = open_store(embedder=None, judge=judge)
    for text in ("Ana lives in Lisbon", "Ben moved from Lisbon to Porto", "A uses B", "B uses C"):
        assert store.remember(text, kind="fact").superseded == ()
    assert store.stats().live["fact"] == 4


def test_nearly_the_same_is_kept_and_said(real: Any) -> None:
    store, _ = real
    first = store.remember("PocketBase runs on port 8090", kind="fact")
    assert store.remember("PocketBase backend at localhost:8090", kind="fact").similar == (first,)
    assert store.stats().live["fact"] == 2


def test_times_are_compared_as_moments(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject)
    old = store.remember("Kim drinks tea", kind="fact", timestamp=datetime.fromisoformat("2026-02-01T12:00:00+02:00"))
    new = store.remember("Kim drinks rum", kind="fact", timestamp=datetime.fromisoformat("2026-02-01T11:00:00+00:00"))
    assert new.superseded == (old,)
