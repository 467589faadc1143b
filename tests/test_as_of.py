"""as_of= answers with what the store believed at a moment, however much has changed since."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock

QUESTION = "Where does Ana live?"


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
    assert moved.list(as_of=clock.now).items[0].id == again
    assert len(moved.list(as_of=clock.now - MILLISECOND)) == 0


def test_filters_bear_on_what_was_believed(moved: sqlmem.MemoryStore) -> None:
    assert [len(found) for found in texts(moved, START, where={"n": 1})] == [1] * 5
    assert [len(found) for found in texts(moved, START, where={"n": 2})] == [0] * 5
    assert [len(found) for found in texts(moved, START + DAY, where={"n": 2})] == [1] * 5
    assert [len(found) for found in texts(moved, START, user="ben")] == [0] * 5


def test_one_of_many_versions_is_found(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = either.remember("The locker code of Ana is 1000", kind="fact")
    for number in range(1001, 1060):
        clock.forward(seconds=1)
        either.correct(id_, f"The locker code of Ana is {number}")
    for seconds in (0, 1, 30, 58, 59):
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


def test_what_makes_no_sense_is_refused(either: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match="leave now out"):
        either.recall("x", as_of=START, now=START)
    with pytest.raises(sqlmem.InvalidArgument, match="leave include_superseded out"):
        either.list(as_of=START, include_superseded=True)
    for wrong in ("yesterday", 7, START.date()):
        with pytest.raises(sqlmem.InvalidArgument, match="as_of must be a datetime"):
            either.search("x", as_of=wrong)  # type: ignore[arg-type]


STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "state", "brief", "correct", "invalidate", "rollback", "wait"]), st.integers(0, 5)),
    min_size=3,
    max_size=15,
)


@given(steps=STEPS, embedder=st.sampled_from([False, sqlmem.HashEmbedder(16)]))
@settings(max_examples=60)
def test_the_past_looks_as_it_looked(steps: list[tuple[str, int]], embedder: Any) -> None:
    clock = MovableClock()
    with sqlmem.open(":memory:", embedder=embedder, clock=clock) as store:
        ids = [store.remember("thing 0 of Ana", kind="fact")]
        seen = []
        for step, number in steps:
            clock.forward(seconds=7)
            id_ = ids[number % len(ids)]
            try:
                if step == "say":
                    ids.append(store.remember(f"turn {number} of Ana", session="s"))
                elif step in ("state", "brief"):
                    ttl = 20 / 86_400 if step == "brief" else None
                    ids.append(store.remember(f"thing {len(ids)} of Ana", kind="fact", ttl_days=ttl))
                elif step == "correct":
                    store.correct(id_, f"other {clock.now} of Ana")
                elif step == "invalidate":
                    store.invalidate(id_)
                elif step == "rollback":
                    store.rollback(id_, 1)
            except sqlmem.NotFound:
                pass
            found = set(store.recall("Ana", limit=100).ids)
            seen.append((clock.now, store.list(limit=100), found, store.context("", session="s").text))
        for moment, listed, found, block in seen:
            assert store.list(limit=100, as_of=moment) == listed
            assert set(store.recall("Ana", limit=100, as_of=moment).ids) == found
            assert store.context("", session="s", as_of=moment).text == block
