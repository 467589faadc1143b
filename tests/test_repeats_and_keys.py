"""Saying the same again: turns are kept, facts are counted, and a key makes any call repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors
from tests.helpers_store import START, MovableClock


def texts(store: sqlmem.MemoryStore) -> list[str]:
    return sorted(memory.text for memory in store.list(all_users=True, include_superseded=True, limit=1000))


# -- turns ------------------------------------------------------------------------------------------------------------


def test_the_same_words_twice_are_two_turns(store: sqlmem.MemoryStore) -> None:
    ids = [store.remember("ok", session="s", timestamp=START) for _ in range(2)]
    assert ids[0] != ids[1]
    assert [id_.created for id_ in ids] == [True, True]
    assert [(turn.text, turn.turn, turn.seen) for turn in store.turns("s")] == [("ok", 0, 1), ("ok", 1, 1)]
    assert set(store.recall("ok", session="s").ids) == set(ids)


def test_a_turn_with_the_words_of_a_fact_is_a_turn_and_the_other_way_round(store: sqlmem.MemoryStore) -> None:
    turn = store.remember("the boiler hums", session="s")
    fact = store.remember("the boiler hums", session="s", kind="fact")
    again = store.remember("the boiler hums", session="s")
    assert len({turn, fact, again}) == 3
    assert [store.get(id_).seen for id_ in (turn, fact, again)] == [1, 1, 1]


# -- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fact", "pinned"])
@pytest.mark.parametrize("session", [None, "s"])
def test_a_statement_made_again_is_counted_not_stored(store: sqlmem.MemoryStore, kind: Any, session: str | None) -> None:
    first = store.remember("Ana lives in Lisbon", kind=kind, session=session)
    for seen in (2, 3, 4):
        again = store.remember("Ana lives in Lisbon", kind=kind, session=session, timestamp=START, role="assistant")
        assert again == first
        assert again.created is False
        assert store.get(first).seen == seen
    assert texts(store) == ["Ana lives in Lisbon"]
    assert store.get(first).role == "user"


def test_the_first_statement_keeps_what_it_was_given(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.categories.create("home")
    first = store.remember("Ana lives in Lisbon", kind="fact", metadata={"n": 1}, ttl_days=5)
    before = store.get(first)
    clock.forward(days=1)
    store.remember("Ana lives in Lisbon", kind="fact", metadata={"n": 2}, ttl_days=9, role="bot", categories=["home"])
    after = store.get(first)
    assert (after.metadata, after.expires_at, after.role, after.categories, after.timestamp) == (
        before.metadata, before.expires_at, "user", (), START,
    )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"session": "t"},
        {"session": None},
        {"user": "ana"},
        {"text": "ana lives in Lisbon"},
        {"text": "Ana lives in Lisbon "},
        {"text": "Ana lives in Lisbon."},
    ],
)
def test_another_scope_or_other_words_make_another_statement(store: sqlmem.MemoryStore, other: dict[str, Any]) -> None:
    said: dict[str, Any] = {"text": "Ana lives in Lisbon", "session": "s", "kind": "fact"}
    first = store.remember(**said)
    second = store.remember(**{**said, **other})
    assert second.created is True
    assert second != first
    assert (store.get(first).seen, store.get(second).seen) == (1, 1)


def test_composed_and_decomposed_letters_are_other_words(store: sqlmem.MemoryStore) -> None:
    assert store.remember("caf\u00e9", kind="fact") != store.remember("cafe\u0301", kind="fact")


def test_statements_that_are_nearly_the_same_are_both_stored(store: sqlmem.MemoryStore) -> None:
    for text in ("PocketBase runs on port 8090", "PocketBase backend at localhost:8090"):
        assert store.remember(text, kind="fact").created
    assert len(store.recall("PocketBase port 8090")) == 2


def test_a_statement_made_again_is_not_embedded_again(open_store: OpenStore) -> None:
    embedder = Vectors({}, (1.0, 0.0))
    store = open_store(embedder=embedder)
    for _ in range(3):
        store.remember("Ana lives in Lisbon", kind="fact")
    assert embedder.documents == ["Ana lives in Lisbon"]


def test_what_was_superseded_can_be_said_anew(store: sqlmem.MemoryStore) -> None:
    old = store.remember("Ana lives in Lisbon", kind="fact")
    new = store.correct(old, "Ana lives in Porto")
    back = store.remember("Ana lives in Lisbon", kind="fact")
    assert back.created
    assert back not in (old, new)
    assert store.get(old).state == "superseded"
    assert store.get(back).state == "live"


def test_a_correction_to_words_already_said_is_recognised_next_time(store: sqlmem.MemoryStore) -> None:
    old = store.remember("Ana lives in Lisbon", kind="fact")
    new = store.correct(old, "Ana lives in Porto")
    assert store.remember("Ana lives in Porto", kind="fact") == new
    assert store.get(new).seen == 2


def test_what_was_forgotten_can_be_said_anew(store: sqlmem.MemoryStore) -> None:
    old = store.remember("Ana lives in Lisbon", kind="fact")
    assert store.forget(ids=[old]) == 1
    new = store.remember("Ana lives in Lisbon", kind="fact")
    assert new.created
    assert new != old


def test_what_has_expired_can_be_said_anew(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    old = store.remember("Ana is on holiday", kind="fact", ttl_days=7)
    clock.forward(days=7)
    new = store.remember("Ana is on holiday", kind="fact")
    assert new.created
    assert new != old
    assert store.recall("holiday").ids == [new]


def test_a_fact_said_again_as_pinned_is_pinned(store: sqlmem.MemoryStore) -> None:
    fact = store.remember("Ana eats no fish", session="s", kind="fact", metadata={"n": 1})
    pin = store.remember("Ana eats no fish", session="s", pinned=True)
    assert pin.superseded == (fact,)
    memory = store.get(pin)
    assert (memory.kind, memory.version_number, memory.metadata) == ("pinned", 2, {"n": 1})
    assert [shown.id for shown in store.context("", session="s").pinned] == [pin]
    assert store.recall("Ana eats no fish", session="s").ids == [pin]


def test_a_pin_said_again_as_a_fact_stays_pinned(store: sqlmem.MemoryStore) -> None:
    pin = store.remember("Ana eats no fish", pinned=True)
    assert store.remember("Ana eats no fish", kind="fact") == pin
    assert (store.get(pin).kind, store.get(pin).seen) == ("pinned", 2)


def test_a_statement_twice_in_one_batch_is_stored_once(store: sqlmem.MemoryStore) -> None:
    ids = store.remember_many([{"text": "Ana eats no fish", "kind": "fact"}] * 3 + ["Ana eats no fish"] * 2)
    assert len({*ids}) == 3
    assert [id_.created for id_ in ids] == [True, False, False, True, True]
    assert store.get(ids[0]).seen == 3


def test_a_statement_pinned_later_in_the_batch_is_pinned(store: sqlmem.MemoryStore) -> None:
    fact, pin = store.remember_many(
        [{"text": "Ana eats no fish", "kind": "fact"}, {"text": "Ana eats no fish", "pinned": True}]
    )
    assert pin != fact
    assert [shown.id for shown in store.context("").pinned] == [pin]


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["turn", "fact", "pinned"])
def test_a_key_makes_the_call_repeatable(store: sqlmem.MemoryStore, kind: Any) -> None:
    first = store.remember("ok", session="s", kind=kind, key="message-1")
    before = store.get(first)
    for _ in range(2):
        again = store.remember("ok", session="s", kind=kind, key="message-1")
        assert again == first
        assert again.created is False
    assert store.get(first) == before
    assert texts(store) == ["ok"]


def test_a_repeated_key_takes_no_turn_number_and_no_embedding(open_store: OpenStore) -> None:
    embedder = Vectors({}, (1.0, 0.0))
    store = open_store(embedder=embedder)
    for _ in range(3):
        store.remember("ok", session="s", key="1")
    store.remember("ok", session="s", key="2")
    assert [turn.turn for turn in store.turns("s")] == [0, 1]
    assert embedder.documents == ["ok", "ok"]


def test_a_key_holds_across_handles_and_reopening(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    one, two = open_store(path), open_store(path)
    first = one.remember("ok", session="s", key="1")
    assert two.remember("ok", session="s", key="1") == first
    one.close()
    two.close()
    assert open_store(path).remember("ok", session="s", key="1") == first


def test_a_key_with_another_text_is_refused(store: sqlmem.MemoryStore) -> None:
    first = store.remember("ok", session="s", key="1")
    before = store.stats()
    with pytest.raises(sqlmem.AlreadyExists, match=first):
        store.remember("fine", session="s", key="1")
    assert store.stats() == before


def test_each_user_has_keys_of_their_own(store: sqlmem.MemoryStore) -> None:
    ids = [store.remember(f"hello {user}", user=user, key="1") for user in ("", "ana", "ben")]
    assert [id_.created for id_ in ids] == [True] * 3
    assert [store.remember(f"hello {user}", user=user, key="1") for user in ("", "ana", "ben")] == ids


def test_a_key_names_one_memory_whatever_the_session(store: sqlmem.MemoryStore) -> None:
    first = store.remember("ok", session="s", key="1")
    again = store.remember("ok", session="t", key="1")
    assert again == first
    assert again.created is False
    assert store.turns("t") == []


@pytest.mark.parametrize(("key", "other"), [("a", "A"), ("a", "a "), ("a_", "ab"), ("a%", "ab"), ("é", "e\u0301"), ("1", "01")])
def test_keys_are_compared_exactly(store: sqlmem.MemoryStore, key: str, other: str) -> None:
    assert store.remember("ok", session="s", key=key) != store.remember("ok", session="s", key=other)


def test_a_repeated_key_does_not_bring_a_corrected_text_back(store: sqlmem.MemoryStore) -> None:
    old = store.remember("Ana lives in Lisbon", kind="fact", key="1")
    new = store.correct(old, "Ana lives in Porto")
    assert store.remember("Ana lives in Lisbon", kind="fact", key="1") == old
    assert store.recall("where does Ana live").ids == [new]


def test_a_key_given_for_a_known_statement_names_it_from_then_on(store: sqlmem.MemoryStore) -> None:
    fact = store.remember("Ana lives in Lisbon", kind="fact")
    for _ in range(2):
        again = store.remember("Ana lives in Lisbon", kind="fact", key="1")
        assert again == fact
        assert again.created is False
    assert store.get(fact).seen == 2
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember("Ana lives in Porto", kind="fact", key="1")


def test_a_key_twice_in_one_batch_stores_one(store: sqlmem.MemoryStore) -> None:
    ids = store.remember_many([{"text": "ok", "session": "s", "key": key} for key in ("1", "2", "1")])
    assert ids[0] == ids[2] != ids[1]
    assert [id_.created for id_ in ids] == [True, True, False]
    assert [turn.turn for turn in store.turns("s")] == [0, 1]


def test_a_fact_pinned_within_one_call_is_answered_with_the_pinned_version_from_then_on(store: sqlmem.MemoryStore) -> None:
    first, pinned, again = store.remember_many(
        [
            {"text": "x", "kind": "fact"},
            {"text": "x", "pinned": True},
            {"text": "x", "kind": "fact"},
        ]
    )
    assert (first.created, pinned.created, again.created) == (True, True, False)
    assert again == pinned != first
    assert [(memory.kind, memory.state) for memory in store.history(first)] == [("fact", "superseded"), ("pinned", "live")]
