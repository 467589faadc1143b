"""Turn numbers: they count up in each session, and no number is given twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors
from tests.helpers_store import START, MovableClock


def number(store: sqlmem.MemoryStore, text: str = "hello", **arguments: Any) -> int | None:
    """The number of a new turn."""
    return store.get(store.remember(text, **{"session": "s", **arguments})).turn


def numbers(store: sqlmem.MemoryStore, session: str | None = "s", user: str = "") -> list[int | None]:
    return [turn.turn for turn in store.turns(session, user)]


def test_turns_count_from_zero_in_each_session_of_each_user(store: sqlmem.MemoryStore) -> None:
    places: list[dict[str, Any]] = [
        {"session": "a"}, {"session": "b"}, {"session": None}, {"session": "a", "user": "ana"},
        {"session": None, "user": "ana"},
    ]  # fmt: skip
    for expected in range(3):
        assert [number(store, **place) for place in places] == [expected] * 5


def test_facts_and_pins_take_no_number(store: sqlmem.MemoryStore) -> None:
    assert number(store) == 0
    assert number(store, kind="fact") is None
    assert number(store, pinned=True) is None
    assert number(store) == 1


def test_counting_goes_on_after_reopening(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    for expected in (0, 1, 2):
        store = open_store(path)
        assert number(store) == expected
        store.close()


@pytest.mark.parametrize("forget", [{"ids": "newest"}, {"session": "s"}, {"all": True}])
def test_the_numbers_of_forgotten_turns_are_not_given_again(
    open_store: OpenStore, tmp_path: Path, forget: dict[str, Any]
) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path)
    ids = [store.remember(f"line {i}", session="s") for i in range(3)]
    store.forget(**({"ids": ids[-1:]} if "ids" in forget else forget))
    assert number(store) == 3
    store.forget(**({"ids": [store.turns("s")[-1].id]} if "ids" in forget else forget))
    store.close()
    assert number(open_store(path)) == 4


def test_the_numbers_of_expired_turns_are_not_given_again(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(ttl_days={"turn": 1})
    assert [number(store), number(store)] == [0, 1]
    clock.forward(days=1)
    assert number(store) == 2
    assert store.expire() == 2
    assert number(store) == 3


def test_a_given_number_is_kept_and_counting_goes_on_above_it(store: sqlmem.MemoryStore) -> None:
    assert [number(store, turn=7), number(store), number(store)] == [7, 8, 9]


def test_a_low_number_given_first_after_reopening_does_not_lower_the_count(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = open_store(path)
    assert [number(store), number(store, turn=52)] == [0, 52]
    store.close()
    store = open_store(path)
    assert number(store, turn=3) == 3
    assert [number(store), number(store)] == [53, 54]
    assert numbers(store) == [0, 3, 52, 53, 54]


def test_turns_read_in_the_order_of_their_numbers_not_of_their_times(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.remember("third", session="s", turn=2)
    store.remember("first", session="s", turn=0, timestamp=clock.forward(days=1))
    clock.forward(days=1)
    store.remember("second", session="s", turn=1, timestamp=START)
    assert [turn.text for turn in store.turns("s")] == ["first", "second", "third"]
    assert [turn.text for turn in store.context("", session="s", recent_turns=2).recent] == ["second", "third"]


@pytest.mark.parametrize("text", ["hello", "another text"])
def test_a_number_that_is_taken_is_refused(store: sqlmem.MemoryStore, text: str) -> None:
    store.remember("hello", session="s", turn=5)
    before = store.turns("s")
    with pytest.raises(sqlmem.AlreadyExists, match="5"):
        store.remember(text, session="s", turn=5)
    assert store.turns("s") == before
    assert number(store) == 6


def test_the_same_number_is_free_in_another_session(store: sqlmem.MemoryStore) -> None:
    assert number(store, turn=5) == 5
    assert number(store, turn=5, session="t") == 5
    assert number(store, turn=5, user="ana") == 5


def test_a_corrected_turn_keeps_its_number(store: sqlmem.MemoryStore) -> None:
    first = store.remember("the meeting is at nine", session="s")
    store.remember("fine", session="s")
    store.correct(first, "the meeting is at ten")
    assert [(turn.turn, turn.text) for turn in store.turns("s")] == [(0, "the meeting is at ten"), (1, "fine")]
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember("again", session="s", turn=0)
    assert number(store) == 2


def test_many_at_once_mix_given_and_automatic_numbers(store: sqlmem.MemoryStore) -> None:
    store.remember("before", session="s")
    numbered: list[dict[str, Any]] = [{}, {"turn": 9}, {}, {"turn": 4}, {}]
    items = [{"text": f"line {i}", "session": "s", **given} for i, given in enumerate(numbered)]
    assert [store.get(id_).turn for id_ in store.remember_many(items)] == [1, 9, 10, 4, 11]
    assert numbers(store) == [0, 1, 4, 9, 10, 11]


@pytest.mark.parametrize("turn", [0, 1])
def test_one_number_twice_in_one_batch_is_refused(store: sqlmem.MemoryStore, turn: int) -> None:
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember_many([{"text": "a", "session": "s"}, {"text": "b", "session": "s", "turn": 1},
                             {"text": "c", "session": "s", "turn": turn}])  # fmt: skip
    assert store.turns("s") == []
    assert number(store) == 0


def test_a_failed_call_takes_no_number(open_store: OpenStore) -> None:
    store = open_store(embedder=Vectors({"bad": (1.0, 2.0, 3.0)}, (1.0, 0.0)))
    assert number(store) == 0
    for failing in ({"text": " "}, {"ttl_days": -1}, {"categories": ["nope"]}, {"text": "bad"}, {"turn": 0}):
        with pytest.raises(sqlmem.SqlmemError):
            number(store, **failing)
    assert number(store) == 1


def test_two_handles_of_one_file_share_the_count(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    one, two = open_store(path), open_store(path)
    assert [number(one), number(two), number(one, turn=9), number(two), number(one)] == [0, 1, 9, 10, 11]
    assert numbers(one) == numbers(two) == [0, 1, 9, 10, 11]
