"""Scope: users never see each other's memories, and sessions see their own and their user's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import START

# Names that a careless comparison, pattern, or query language would take for one another or for something else.
ODD_NAMES = [
    "a", "A", "b", "ab", "a b", "a-b", "a_b", "a%", "a*", "*", "%", "_", "a/b", "a\\b", "o'hara", 'say "hi"', "main", "null",
    "None",
    "0", "1", "01", "1.0", "1e0", "-1", "true", "a ", " a", "a\n", "a:b", "a'--", "550e8400-e29b-41d4-a716-446655440000",
    "550E8400-E29B-41D4-A716-446655440000", "é", "e\u0301", "ß", "ss", "İ", "i", "🍕", "👩\u200d🚀", "👩🚀", "部署", "\u200b",
    "u1", "s1", "w1",
    "u1 s1", "x" * 1000,
]  # fmt: skip


def all_found(store: sqlmem.MemoryStore, query: str = "hello", **scope: Any) -> set[str]:
    """What recall, search, list and a blank recall agree on."""
    results = [
        set(store.recall(query, limit=1000, **scope).texts),
        set(store.search(query, limit=1000, **scope).texts),
        set(store.recall("", limit=1000, **scope).texts),
        {memory.text for memory in store.list(limit=1000, **scope)},
    ]
    for other in results[1:]:
        assert other == results[0]
    return results[0]


# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def talk(either: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    """Two users, two sessions each, with facts and pins inside and outside of the sessions."""
    for user, session, kind in itertools.product(("", "ana"), (None, "s", "t"), ("turn", "fact", "pinned")):
        if not (session is None and kind == "turn"):
            either.remember(f"hello {user or 'nobody'} {session} {kind}", user=user, session=session, kind=kind)  # type: ignore[arg-type]
    return either


def named(user: str, *places: str) -> set[str]:
    return {f"hello {user} {place}" for place in places}


SESSION_S = ("s turn", "s fact", "s pinned", "None fact", "None pinned")


def test_a_session_sees_itself_and_its_users_facts(talk: sqlmem.MemoryStore) -> None:
    assert all_found(talk, session="s") == named("nobody", *SESSION_S)
    assert all_found(talk, session="s", user="ana") == named("ana", *SESSION_S)


def test_without_a_session_all_of_the_user_is_seen(talk: sqlmem.MemoryStore) -> None:
    everything = (*SESSION_S, "t turn", "t fact", "t pinned")
    assert all_found(talk) == named("nobody", *everything)
    assert all_found(talk, user="ana") == named("ana", *everything)


def test_everything_is_seen_only_when_asked_for(talk: sqlmem.MemoryStore) -> None:
    everything = (*SESSION_S, "t turn", "t fact", "t pinned")
    assert all_found(talk, all_users=True) == named("nobody", *everything) | named("ana", *everything)
    block = talk.context("hello", all_users=True, token_budget=None)
    assert {pin.user for pin in block.pinned} == {"", "ana"}
    assert block.recent == ()


def test_a_new_session_sees_its_users_facts(talk: sqlmem.MemoryStore) -> None:
    assert all_found(talk, session="new", user="ana") == named("ana", "None fact", "None pinned")


@pytest.mark.parametrize("session", [None, "s"])
def test_an_unknown_user_sees_nothing(talk: sqlmem.MemoryStore, session: str | None) -> None:
    assert all_found(talk, user="ben", session=session) == set()
    block = talk.context("hello", user="ben", session=session)
    assert (block.text, len(block), block.truncated) == ("", 0, False)
    assert talk.turns(session, "ben") == []


def test_the_block_of_a_session_is_made_of_what_it_sees(talk: sqlmem.MemoryStore) -> None:
    block = talk.context("hello", session="s", user="ana", token_budget=None)
    assert {pin.text for pin in block.pinned} == named("ana", "s pinned", "None pinned")
    assert {turn.text for turn in block.recent} == named("ana", "s turn")
    assert {memory.text for memory in block.retrieved} == named("ana", "s fact", "None fact")


def test_without_a_session_the_block_has_all_of_the_users_pins_and_no_recent_turns(talk: sqlmem.MemoryStore) -> None:
    block = talk.context("hello", user="ana", token_budget=None)
    assert {pin.text for pin in block.pinned} == named("ana", "s pinned", "t pinned", "None pinned")
    assert block.recent == ()
    assert {memory.text for memory in block.retrieved} == named("ana", "s turn", "t turn", "s fact", "t fact", "None fact")


def test_turns_said_outside_of_sessions_are_not_a_sessions_business(store: sqlmem.MemoryStore) -> None:
    """Facts and pins without a session hold in all of them; a conversation without one is still another conversation."""
    store.remember("hello from nowhere")
    fact = store.remember("hello is a greeting", kind="fact")
    assert store.recall("hello", session="s").ids == [fact]
    assert len(store.recall("hello")) == 2


def test_a_session_may_be_named_like_another_users(store: sqlmem.MemoryStore) -> None:
    for user in ("", "ana", "ben"):
        store.remember(f"hello {user}", user=user, session="main")
    assert all_found(store, session="main", user="ana") == {"hello ana"}
    assert [turn.text for turn in store.turns("main", "ben")] == ["hello ben"]
    assert [turn.turn for turn in store.turns("main", "ben")] == [0]


# -- names ------------------------------------------------------------------------------------------------------------


def test_sessions_with_odd_names_are_kept_apart(either: sqlmem.MemoryStore) -> None:
    either.remember_many([{"text": f"hello {place}", "session": name} for place, name in enumerate(ODD_NAMES)])
    for place, name in enumerate(ODD_NAMES):
        assert all_found(either, session=name) == {f"hello {place}"}, name
        assert [(turn.text, turn.session, turn.turn) for turn in either.turns(name)] == [(f"hello {place}", name, 0)]
        assert [turn.text for turn in either.context("hello", session=name).recent] == [f"hello {place}"]
    assert either.stats().sessions == len(ODD_NAMES)


def test_users_with_odd_names_are_kept_apart(store: sqlmem.MemoryStore) -> None:
    store.remember_many([{"text": f"hello {place}", "user": name, "session": "s"} for place, name in enumerate(ODD_NAMES)])
    store.remember_many([{"text": f"hello pin {place}", "user": name, "pinned": True} for place, name in enumerate(ODD_NAMES)])
    for place, name in enumerate(ODD_NAMES):
        assert all_found(store, user=name) == {f"hello {place}", f"hello pin {place}"}, name
        assert store.context("hello", user=name, session="s").text == (
            f"Pinned facts:\n- hello pin {place}\n\nRecent conversation:\nuser: hello {place}"
        )
    for place, name in enumerate(ODD_NAMES):
        assert store.forget(user=name, session="s") == 1
        assert len(store.recall("hello", all_users=True, limit=1000, kinds=["turn"])) == len(ODD_NAMES) - place - 1


# -- every verb -------------------------------------------------------------------------------------------------------


def test_no_verb_lets_one_user_touch_anothers_memories(store: sqlmem.MemoryStore) -> None:
    """Apart from ids, which name their memory whoever asks."""
    for user in ("alice", "bob"):
        for text, arguments in (("hello turn", {}), ("hello fact", {"kind": "fact"}), ("hello pin", {"pinned": True})):
            store.remember(text, user=user, session="s", key=text, metadata={"of": user}, timestamp=START, **arguments)
    bobs = store.list(user="bob").items
    assert store.remember("hello fact", user="alice", session="s", kind="fact") in [m.id for m in store.list(user="alice")]
    store.remember("hello again", user="alice", session="s")
    results: list[Iterable[sqlmem.Memory]] = [
        store.recall("hello", user="alice"),
        store.recall("hello", user="alice", session="s", include_superseded=True),
        store.recall("", user="alice", where={"of": "bob"}),
        store.search("hello", user="alice"),
        store.turns("s", "alice"),
        store.list(user="alice"),
        store.list(user="alice", session="s"),
    ]
    block = store.context("hello", user="alice", session="s")
    results += [block.pinned, block.recent, block.retrieved]
    assert {memory.user for found in results for memory in found} == {"alice"}
    assert store.forget(user="alice", session="s", kinds=["turn", "fact", "pinned"]) == 4
    assert store.forget(user="alice", all=True) == 0
    assert store.list(user="alice").items == ()
    assert store.list(user="bob").items == bobs
    assert [memory.seen for memory in bobs] == [1, 1, 1]


def test_another_users_neighbours_do_not_hide_a_users_own_memory(store: sqlmem.MemoryStore) -> None:
    store.remember_many([{"text": "hello", "user": "bob"} for _ in range(300)])
    own = store.remember("well hello there my friend", user="alice")
    assert store.recall("hello", user="alice", limit=3).ids == [own]


@pytest.mark.parametrize("scope", [{"user": "ana"}, {"session": "s"}, {"user": "ana", "session": "s"}])
def test_all_users_goes_with_no_other_scope(store: sqlmem.MemoryStore, scope: dict[str, str]) -> None:
    for verb in (store.recall, store.search, store.context):
        with pytest.raises(sqlmem.InvalidArgument):
            verb("hello", all_users=True, **scope)  # type: ignore[arg-type]
    with pytest.raises(sqlmem.InvalidArgument):
        store.list(all_users=True, **scope)  # type: ignore[arg-type]
