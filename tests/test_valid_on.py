"""Facts may be true for a time: they are recalled within it, or for a time that is asked about."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock

QUESTION = "Where does Ana live?"


@pytest.fixture
def homes(either: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    """Where Ana lives by the day, all said on the first one."""
    for place, since, until in (
        ("Lisbon", None, START - 10 * DAY),
        ("Porto", START - 10 * DAY, START + 10 * DAY),
        ("Rome", START + 10 * DAY, None),
    ):
        either.remember(f"Ana lives in {place}", kind="fact", id=place, valid_from=since, valid_to=until)
    return either


def places(store: sqlmem.MemoryStore, **options: Any) -> list[list[str]]:
    """What every verb that finds memories finds."""
    block = store.context(QUESTION, **options)
    return [
        store.recall(QUESTION, **options).ids,
        store.search(QUESTION, **options).ids,
        store.recall("", **options).ids,
        [memory.id for memory in (*block.pinned, *block.recent, *block.retrieved)],
    ]


@pytest.mark.parametrize(
    ("day", "place"),
    [
        (START - 9_000 * DAY, "Lisbon"),
        (START - 10 * DAY - MILLISECOND, "Lisbon"),
        (START - 10 * DAY, "Porto"),
        (START + 10 * DAY - MILLISECOND, "Porto"),
        (START + 10 * DAY, "Rome"),
        (START + 9_000 * DAY, "Rome"),
    ],
)
def test_a_fact_is_true_from_its_first_moment_to_before_its_last(
    homes: sqlmem.MemoryStore, clock: MovableClock, day: datetime, place: str
) -> None:
    assert places(homes, valid_on=day) == [[place]] * 4
    assert places(homes, valid_on=day.replace(tzinfo=None)) == [[place]] * 4
    assert [memory.id for memory in homes.list(valid_on=day)] == [place]
    assert places(homes, now=day) == [[place]] * 4
    clock.now = day
    assert places(homes) == [[place]] * 4


def test_list_and_get_show_all_with_their_times(homes: sqlmem.MemoryStore) -> None:
    assert sorted(memory.id for memory in homes.list()) == ["Lisbon", "Porto", "Rome"]
    porto = homes.get("Porto")
    assert (porto.state, porto.valid_from, porto.valid_to) == ("live", START - 10 * DAY, START + 10 * DAY)
    assert (homes.get("Lisbon").valid_from, homes.get("Rome").valid_to) == (None, None)


def test_pins_are_shown_while_they_are_true(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    either.remember("Ana is on leave", pinned=True, valid_from=START + DAY, valid_to=START + 2 * DAY)
    shown = []
    for _ in range(3):
        shown.append(either.context("").text)
        clock.forward(days=1)
    assert shown == ["", "Pinned facts:\n- Ana is on leave", ""]
    assert either.context("", valid_on=START + DAY).text == shown[1]


def test_both_times_can_be_asked_about_at_once(homes: sqlmem.MemoryStore, clock: MovableClock) -> None:
    clock.forward(days=1)
    homes.correct("Rome", "Ana will live in Paris")
    clock.forward(days=1)
    future = START + 20 * DAY
    assert homes.recall(QUESTION, valid_on=future).texts == ["Ana will live in Paris"]
    assert homes.recall(QUESTION, valid_on=future, as_of=START).texts == ["Ana lives in Rome"]
    assert homes.recall(QUESTION, as_of=START).texts == ["Ana lives in Porto"]
    assert homes.recall(QUESTION, valid_on=future, as_of=START - DAY).texts == []


def test_as_of_shows_what_was_true_then(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    leave = either.remember("Ana is on leave", pinned=True, valid_from=START + DAY, valid_to=START + 2 * DAY)
    clock.forward(days=5)
    for moment, shown in (
        (START + DAY - MILLISECOND, []),
        (START + DAY, [leave]),
        (START + 2 * DAY - MILLISECOND, [leave]),
        (START + 2 * DAY, []),
    ):
        assert places(either, as_of=moment) == [shown] * 4
        assert [memory.id for memory in either.list(as_of=moment)] == [leave]
        explained = either.explain("Is Ana on leave?", leave, as_of=moment)
        assert explained.kept_out_by == (None if shown else "valid_on")
    assert places(either, as_of=START, valid_on=START + DAY) == [[leave]] * 4
    assert places(either, as_of=START + DAY, valid_on=START) == [[]] * 4


def test_explain_names_the_validity(homes: sqlmem.MemoryStore) -> None:
    explained = homes.explain(QUESTION, "Rome")
    assert (explained.kept_out_by, explained.reason) == ("valid_on", "it does not pass the filter valid_on")
    assert homes.explain(QUESTION, "Rome", valid_on=START + 10 * DAY).recalled


def test_a_fact_of_the_past_that_is_told_late_does_not_become_current(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=lambda new, known: [True] * len(known))
    store.remember("Ana lives in Porto", kind="fact", id="Porto", valid_from=START - 100 * DAY)
    for arguments, until in (
        ({"valid_from": START - 900 * DAY}, START - 100 * DAY),
        ({"timestamp": START - 800 * DAY}, START - 100 * DAY),
        ({"valid_from": START - 900 * DAY, "valid_to": START - 500 * DAY}, START - 500 * DAY),
        ({"valid_to": START - 50 * DAY}, START - 50 * DAY),
    ):
        told = store.remember("Ana lives in Lisbon", kind="fact", **arguments)  # type: ignore[arg-type]
        assert told.superseded == ()
        assert store.get(told).valid_to == until
        assert store.recall(QUESTION).ids == ["Porto"]
        assert store.recall(QUESTION, valid_on=START - 700 * DAY).ids == [told]
        store.forget(ids=[told])
    assert store.get("Porto").state == "live"


def test_a_fact_of_the_future_ends_nothing_yet(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=lambda new, known: [True] * len(known))
    store.remember("Ana lives in Porto", kind="fact", id="Porto")
    told = store.remember("Ana lives in Rome", kind="fact", valid_from=START + 5 * DAY)
    assert told.superseded == ()
    assert store.recall(QUESTION).ids == ["Porto"]
    clock.forward(days=5)
    assert store.recheck().ended == ("Porto",)
    assert store.recall(QUESTION).ids == [told]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"valid_from": START, "valid_to": START, "kind": "fact"}, "valid_from must be before valid_to"),
        ({"valid_from": START}, "belong to facts"),
        ({"valid_to": START, "kind": "turn"}, "belong to facts"),
        ({"valid_to": "today", "kind": "fact"}, "valid_to must be a datetime"),
        ({"valid_from": 7, "pinned": True}, "valid_from must be a datetime"),
    ],
)
def test_times_that_make_no_sense_are_refused(either: sqlmem.MemoryStore, arguments: Any, message: str) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match=message):
        either.remember("Ana lives in Porto", **arguments)
    assert len(either.list()) == 0
    with pytest.raises(sqlmem.InvalidArgument, match="valid_on must be a datetime"):
        either.recall("x", valid_on=timedelta(days=1))  # type: ignore[arg-type]


def test_the_times_stay_with_the_following_versions(homes: sqlmem.MemoryStore) -> None:
    new = homes.get(homes.correct("Porto", "Ana lives in Porto, near the river"))
    assert (new.valid_from, new.valid_to) == (START - 10 * DAY, START + 10 * DAY)
    assert homes.get(homes.rollback("Porto", 1)).valid_to == START + 10 * DAY
