"""as_of= answers with what the store believed at a moment, however much has changed since."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_judge import same_subject
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock

QUESTION = "Where does Ana live?"
ANSWERS: tuple[Literal["keep_old", "take_new", "keep_both"], ...] = ("keep_old", "take_new", "keep_both")


@pytest.fixture
def moved(either: sqlmem.MemoryStore, clock: MovableClock) -> sqlmem.MemoryStore:
    """Ana lives in Lisbon from the first day, in Porto from the second one, and nowhere known from the third."""
    either.remember("Ana lives in Lisbon", kind="fact", id="lisbon", metadata={"n": 1})
    clock.forward(days=1)
    either.correct("lisbon", "Ana lives in Porto", metadata={"n": 2}, note="she moved")
    clock.forward(days=1)
    either.invalidate("lisbon", note="she left")
    clock.forward(days=1)
    return either


def texts(store: sqlmem.MemoryStore, moment: datetime, **options: Any) -> list[list[str]]:
    """What every verb that finds memories finds."""
    block = store.context(QUESTION, as_of=moment, **options)
    return [
        store.recall(QUESTION, as_of=moment, **options).texts,
        store.search(QUESTION, as_of=moment, **options).texts,
        store.recall("", as_of=moment, **options).texts,
        [memory.text for memory in (*block.pinned, *block.recent, *block.retrieved)],
        [memory.text for memory in store.list(as_of=moment, **options)],
    ]


@pytest.mark.parametrize(
    ("moment", "believed"),
    [
        (START - MILLISECOND, []),
        (START, ["Ana lives in Lisbon"]),
        (START + DAY - MILLISECOND, ["Ana lives in Lisbon"]),
        (START + DAY, ["Ana lives in Porto"]),
        (START + 2 * DAY - MILLISECOND, ["Ana lives in Porto"]),
        (START + 2 * DAY, []),
        (START + 9 * DAY, []),
    ],
)
def test_each_version_is_believed_from_its_first_to_its_last_moment(
    moved: sqlmem.MemoryStore, moment: datetime, believed: list[str]
) -> None:
    assert texts(moved, moment) == [believed] * 5
    assert texts(moved, moment.replace(tzinfo=None)) == [believed] * 5


def test_a_memory_is_shown_as_it_was(moved: sqlmem.MemoryStore) -> None:
    for shown in (
        moved.recall(QUESTION, as_of=START + DAY)[0],
        moved.context(QUESTION, as_of=START + DAY).retrieved[0],
        moved.list(as_of=START + DAY).items[0],
    ):
        assert (shown.state, shown.version_number, shown.total_versions) == ("live", 2, 2)
        assert (shown.expired_at, shown.expiration_reason, shown.expiration_note, shown.replaced_by) == (None,) * 4
    first = moved.list(as_of=START).items[0]
    assert (first.id, first.total_versions, first.previous_versions, first.replaced_by) == ("lisbon", 1, (), None)
    before = moved.list(as_of=START + DAY).items[0].previous_versions[0]
    assert (before.id, before.state, before.expired_at, before.expiration_note) == (
        "lisbon",
        "superseded",
        START + DAY,
        "she moved",
    )


def test_versions_that_were_rolled_back_are_believed_again(moved: sqlmem.MemoryStore, clock: MovableClock) -> None:
    again = moved.rollback("lisbon", 1)
    rolled = clock.now
    clock.forward(days=1)
    assert texts(moved, rolled - MILLISECOND) == [[]] * 5
    assert texts(moved, rolled) == [["Ana lives in Lisbon"]] * 5
    assert [(memory.id, memory.version_number) for memory in moved.list(as_of=rolled)] == [(again, 3)]
    assert [(memory.id, memory.total_versions) for memory in moved.list(as_of=START)] == [("lisbon", 1)]


def test_filters_bear_on_what_was_believed(moved: sqlmem.MemoryStore) -> None:
    assert [len(found) for found in texts(moved, START, where={"n": 1})] == [1] * 5
    assert [len(found) for found in texts(moved, START, where={"n": 2})] == [0] * 5
    assert [len(found) for found in texts(moved, START + DAY, where={"n": 2})] == [1] * 5


@pytest.mark.parametrize(
    ("scope", "seen"),
    [
        ({"user": "ana", "session": "s"}, ["Lisbon", "Porto"]),
        ({"user": "ana", "session": "t"}, ["Porto", "Rome"]),
        ({"user": "ana", "session": "unknown"}, ["Porto"]),
        ({"user": "ana"}, ["Lisbon", "Porto", "Rome"]),
        ({"user": "ben"}, ["Paris"]),
        ({}, []),
        ({"all_users": True}, ["Lisbon", "Paris", "Porto", "Rome"]),
    ],
)
def test_users_and_sessions_see_of_the_past_what_is_theirs(
    either: sqlmem.MemoryStore, clock: MovableClock, scope: dict[str, Any], seen: list[str]
) -> None:
    owners = {
        "Lisbon": {"user": "ana", "session": "s"},
        "Porto": {"user": "ana"},
        "Rome": {"user": "ana", "session": "t"},
        "Paris": {"user": "ben"},
    }
    for place, owner in owners.items():
        either.remember(f"Ana lives in {place}", kind="fact", id=place, **owner)  # type: ignore[arg-type]
    clock.forward(days=1)
    for place in owners:
        either.invalidate(place)
    assert [sorted(found) for found in texts(either, START, **scope)] == [[f"Ana lives in {place}" for place in seen]] * 5
    assert texts(either, clock.now, **scope) == [[]] * 5


def test_one_of_many_versions_is_found(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = either.remember("The locker code of Ana is 1000", kind="fact")
    for number in range(1001, 1060):
        clock.forward(seconds=1)
        either.correct(id_, f"The locker code of Ana is {number}")
    for seconds in range(60):
        found = either.recall("What is the locker code of Ana?", as_of=START + timedelta(seconds=seconds))
        assert found.texts == [f"The locker code of Ana is {1000 + seconds}"]


def test_turns_and_pins_of_the_block_are_those_of_then(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    either.remember("hello", session="s", id="hello")
    pin = either.remember("Ana is allergic to nuts", pinned=True)
    clock.forward(days=1)
    either.correct("hello", "hallo")
    either.remember("second", session="s")
    either.correct(pin, pinned=False)
    block = either.context("", session="s", as_of=START)
    assert block.text == "Pinned facts:\n- Ana is allergic to nuts\n\nRecent conversation:\nuser: hello"
    assert either.context("", session="s", as_of=clock.now).text == (
        "Recent conversation:\nuser: hallo\nuser: second\n\nRelevant memories:\n- Ana is allergic to nuts"
    )


def test_what_had_expired_then_is_left_out_and_what_expired_since_is_not(
    either: sqlmem.MemoryStore, clock: MovableClock
) -> None:
    either.remember("Ana lives in Rome", kind="fact", ttl_days=1)
    clock.forward(days=5)
    assert either.recall(QUESTION).texts == []
    assert texts(either, START + DAY - MILLISECOND) == [["Ana lives in Rome"]] * 5
    assert texts(either, START + DAY) == [[]] * 5
    either.expire()
    assert texts(either, START) == [[]] * 5


def test_what_was_forgotten_stays_forgotten(moved: sqlmem.MemoryStore) -> None:
    moved.forget(ids=["lisbon"])
    assert texts(moved, START) == [[]] * 5
    assert texts(moved, START + DAY) == [["Ana lives in Porto"]] * 5
    moved.forget(ids=[moved.list(as_of=START + DAY).items[0].id], trash_days=1)
    assert texts(moved, START + DAY) == [[]] * 5


def test_grades_given_later_do_not_count(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = either.remember("Ana lives in Lisbon", kind="fact")
    clock.forward(hours=1)
    either.feedback(id_, "dead_end")

    def feedback(moment: datetime) -> float:
        scoring = either.recall(QUESTION, as_of=moment)[0].scoring
        assert scoring is not None
        value: float = scoring["feedback"]
        return value

    assert feedback(clock.now - MILLISECOND) == 0.0
    assert feedback(clock.now) == -1.0


def test_recency_counts_from_then(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    either.remember("Ana lives in Lisbon", kind="fact")
    clock.forward(days=70)
    then = either.recall(QUESTION, as_of=START + 7 * DAY)[0].scoring
    now = either.recall(QUESTION, now=START + 7 * DAY)[0].scoring
    assert then is not None
    assert then == now
    assert then["recency"] == pytest.approx(0.5)


def test_a_proposal_is_believed_from_its_acceptance(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=lambda new, known: [True] * len(known), on_contradiction="ask")
    store.remember("Ana lives in Lisbon", kind="fact", id="lisbon")
    clock.forward(days=1)
    conflict = store.remember("Ana lives in Porto", kind="fact").conflict_id
    assert conflict is not None
    clock.forward(days=1)
    assert store.list(as_of=START).items[0].conflicts == ()
    assert store.list(as_of=START + DAY).items[0].conflicts == (conflict,)
    store.conflicts.resolve(conflict, "take_new")
    assert store.list(as_of=START + DAY).items[0].conflicts == (conflict,)
    assert texts(store, clock.now - MILLISECOND) == [["Ana lives in Lisbon"]] * 5
    assert texts(store, clock.now) == [["Ana lives in Porto"]] * 5


def test_what_a_judge_ended_was_believed_until_then(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=same_subject)
    store.remember("Ana lives in Lisbon", kind="fact", id="lisbon", valid_from=START - DAY)
    clock.forward(days=1)
    porto = store.remember("Ana lives in Porto", kind="fact")
    assert porto.superseded == ("lisbon",)
    clock.forward(days=1)
    assert texts(store, START + DAY - MILLISECOND) == [["Ana lives in Lisbon"]] * 5
    assert texts(store, START + DAY) == [["Ana lives in Porto"]] * 5
    (then,) = store.list(as_of=START + DAY - MILLISECOND)
    assert (then.state, then.total_versions, then.replaced_by, then.expiration_reason) == ("live", 1, None, None)
    (now,) = store.list(as_of=START + DAY)
    assert (now.id, now.total_versions, [one.id for one in now.previous_versions]) == (porto, 2, ["lisbon"])


def test_what_was_undone_never_was(moved: sqlmem.MemoryStore) -> None:
    moved.undo()  # that she left
    assert texts(moved, START + 2 * DAY) == [["Ana lives in Porto"]] * 5
    moved.undo()  # that she moved
    assert texts(moved, START + 2 * DAY) == [["Ana lives in Lisbon"]] * 5
    moved.redo()
    assert texts(moved, START + 2 * DAY) == [["Ana lives in Porto"]] * 5
    assert texts(moved, START) == [["Ana lives in Lisbon"]] * 5


def test_a_version_that_was_deleted_before_counts(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    either.remember("Ana lives in Lisbon", kind="fact", id="lisbon")
    either.correct("lisbon", "Ana lives in Porto")
    either.undo()
    clock.forward(days=31)
    before = clock.now - MILLISECOND
    assert either.expire() == 1  # what was undone
    assert [memory.total_versions for memory in either.list(as_of=before)] == [1]
    assert either.list(as_of=clock.now) == either.list()
    assert [memory.total_versions for memory in either.list()] == [2]


@pytest.mark.parametrize("forgetting", [True, False])
def test_what_was_made_of_a_memory_later_was_not_known(
    either: sqlmem.MemoryStore, clock: MovableClock, forgetting: bool
) -> None:
    summarize: Callable[..., list[str]] = lambda turns: ["Ana lives in Lisbon"]  # noqa: E731
    either.remember("I live in Lisbon", session="s", id="first")
    clock.forward(days=1)
    (fact,) = either.consolidate("s", summarize, keep_recent=0, keep_turns=True).fact_ids
    clock.forward(days=1)
    either.remember("Still in Lisbon", session="s", id="second")
    clock.forward(days=1)
    either.consolidate("s", summarize, keep_recent=0, keep_turns=not forgetting)

    def relations(moment: datetime) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        return {memory.id: (memory.sources, memory.derived) for memory in either.list(as_of=moment)}

    assert relations(START) == {"first": ((), ())}
    assert relations(START + DAY) == {"first": ((), (fact,)), fact: (("first",), ())}
    assert either.get(fact).sources == ("first", "second")
    assert relations(clock.now)[fact] == (("first", "second"), ())


def test_the_past_is_paged(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    for number in range(7):
        either.remember(f"fact {number}", kind="fact", id=f"f{number}", timestamp=START + number * MILLISECOND)
    clock.forward(days=1)
    for number in range(0, 7, 2):
        either.correct(f"f{number}", f"other {number}")
    first = either.list(as_of=START, limit=4)
    either.correct("f1", "other 1")
    second = either.list(as_of=START, limit=4, cursor=first.next_cursor)
    assert [memory.id for memory in (*first, *second)] == [f"f{number}" for number in range(6, -1, -1)]
    assert second.next_cursor is None


def test_explain_says_why_a_version_was_not_believed(moved: sqlmem.MemoryStore) -> None:
    def why(moment: datetime, id_: str) -> tuple[str | None, str]:
        explained = moved.explain(QUESTION, id_, as_of=moment)
        return explained.kept_out_by, explained.reason

    porto = moved.list(as_of=START + DAY).items[0].id
    assert why(START, "lisbon")[0] is None
    assert why(START - MILLISECOND, "lisbon") == ("state", "it was not known then")
    assert why(START + DAY, "lisbon") == ("state", "it had ended by then")
    assert why(START, porto) == ("state", "it was not known then")
    moved.remember("Ana lives in Rome", kind="fact", id="rome", ttl_days=1)
    assert why(START + 5 * DAY, "rome") == ("state", "it had expired by then")


@pytest.mark.parametrize("verb", ["recall", "search", "context", "explain", "list"])
def test_what_makes_no_sense_is_refused(moved: sqlmem.MemoryStore, verb: str) -> None:
    given = {"list": (), "explain": (QUESTION, "lisbon")}.get(verb, (QUESTION,))
    call = partial(getattr(moved, verb), *given)
    if verb != "list":
        with pytest.raises(sqlmem.InvalidArgument, match="leave now out"):
            call(as_of=START, now=START)
    with pytest.raises(sqlmem.InvalidArgument, match="of which none is superseded: leave include_superseded out"):
        call(as_of=START, include_superseded=True)
    for name in ("as_of", "valid_on"):
        for wrong in ("yesterday", 7, START.date()):
            with pytest.raises(sqlmem.InvalidArgument, match=f"{name} must be a datetime"):
                call(**{name: wrong})


class Life:
    """A store that changes step by step; what contradicts has the same first word."""

    def __init__(self, store: sqlmem.MemoryStore) -> None:
        self.store = store
        self.ids: list[str] = [store.remember("Ana0 has a thing", kind="fact")]
        self.count = 0

    def step(self, name: str, number: int) -> None:
        """Take a step; one that is not possible changes nothing."""
        self.count += 1
        with contextlib.suppress(sqlmem.NotFound, sqlmem.InvalidArgument, sqlmem.ConflictError):
            TAKE[name](self, self.ids[number % len(self.ids)], number)

    def add(self, text: str, **options: Any) -> None:
        self.ids.append(self.store.remember(text, **options))

    def ask(self, text: str) -> None:
        self.store.conflicts.set_mode("ask")
        self.add(text, kind="fact")
        self.store.conflicts.set_mode(None)

    def resolve(self, number: int) -> None:
        for conflict in self.store.conflicts.list(limit=1):
            self.store.conflicts.resolve(conflict.id, ANSWERS[number % 3])

    def consolidate(self) -> None:
        self.store.consolidate("s", lambda turns: [f"Ana{self.count} summed up a thing"], keep_recent=0, keep_turns=True)


TAKE: dict[str, Callable[[Life, str, int], object]] = {
    "say": lambda life, id_, n: life.add(f"thing {life.count}, they said", session="s"),
    "state": lambda life, id_, n: life.add(f"Ana{life.count} has a thing", kind="fact", session=(None, "s", "other")[n % 3]),
    "brief": lambda life, id_, n: life.add(f"Ana{life.count} has a thing", kind="fact", ttl_days=20 / 86_400),
    "contradict": lambda life, id_, n: life.add(f"Ana{n} has thing {life.count}", kind="fact"),
    "ask": lambda life, id_, n: life.ask(f"Ana{n} has thing {life.count}"),
    "resolve": lambda life, id_, n: life.resolve(n),
    "correct": lambda life, id_, n: life.store.correct(id_, f"Ana{n} had thing {life.count}"),
    "pin": lambda life, id_, n: life.store.correct(id_, pinned=n % 3 > 0),
    "invalidate": lambda life, id_, n: life.store.invalidate(id_),
    "rollback": lambda life, id_, n: life.store.rollback(id_, 1 + n % 2),
    "grade": lambda life, id_, n: life.store.feedback(id_, "useful"),
    "consolidate": lambda life, id_, n: life.consolidate(),
    "recheck": lambda life, id_, n: life.store.recheck(),
    "wait": lambda life, id_, n: None,
}
STEPS = st.lists(st.tuples(st.sampled_from(list(TAKE)), st.integers(0, 5), st.booleans()), min_size=3, max_size=18)


def plainly(page: sqlmem.Page[sqlmem.Memory]) -> list[sqlmem.Memory]:
    """Without the conflicts, of which only the last versions that they are about are known."""
    return [
        replace(memory, conflicts=(), previous_versions=tuple(replace(one, conflicts=()) for one in memory.previous_versions))
        for memory in page
    ]


@given(steps=STEPS, embedder=st.sampled_from([False, sqlmem.HashEmbedder(16)]))
@settings(max_examples=100)
def test_the_past_looks_as_it_looked(steps: list[tuple[str, int, bool]], embedder: Any) -> None:
    clock = MovableClock()
    with sqlmem.open(":memory:", embedder=embedder, clock=clock, judge=same_subject) as store:

        def seen(moment: datetime | None = None) -> list[Any]:
            return [
                plainly(store.list(limit=100, as_of=moment)),
                plainly(store.list(limit=100, session="s", as_of=moment)),
                *(set(store.recall(query, limit=100, as_of=moment).ids) for query in ("a thing", "")),
                store.context("", session="s", as_of=moment).text,
            ]

        life = Life(store)
        past = {}
        for name, number, at_once in steps:
            # Of several changes in one moment, what the last of them leaves is what was believed then.
            clock.forward(seconds=0 if at_once else 7)
            life.step(name, number)
            past[clock.now] = seen()
        for moment, looked in past.items():
            assert seen(moment) == looked
