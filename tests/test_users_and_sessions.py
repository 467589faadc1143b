"""Users and sessions: listed with what they hold, and deleted with all that was theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_judge import same_subject
from tests.helpers_store import DAY, START, MovableClock, broken_rules


@pytest.fixture
def filled(open_store: OpenStore, clock: MovableClock) -> sqlmem.MemoryStore:
    """Ana with two sessions, Ben with one of the same name."""
    store = open_store()
    for user, session in (("ana", "s"), ("ana", "t"), ("ben", "s")):
        clock.forward(days=1)
        for number in range(3):
            store.remember(f"{user} says {number} about ferries", user=user, session=session, id=f"{user}-{session}-{number}")
    store.remember("Ana likes ferries", user="ana", kind="fact", id="fact")
    store.remember("Ana likes the sea", user="ana", session="s", kind="fact", id="own")
    return store


def everything(store: sqlmem.MemoryStore) -> str:
    """The rows of all tables as one text."""
    db = store._engine.db
    tables = [row[0] for row in db.rows("select name from sqlite_schema where type = 'table' and name not like '%fts%'")]
    return json.dumps([[str(value) for value in row] for table in tables for row in db.rows(f'select * from "{table}"')])


def test_sessions_are_listed_newest_first_in_pages(filled: sqlmem.MemoryStore) -> None:
    listed = filled.sessions.list()
    assert [(one.user, one.session, one.turns, one.memories) for one in listed] == [
        ("ben", "s", 3, 0),
        ("ana", "t", 3, 0),
        ("ana", "s", 3, 1),
    ]
    first = filled.sessions.list(user="ana", limit=1)
    assert ([one.session for one in first], len(first)) == (["t"], 1)
    second = filled.sessions.list(user="ana", limit=1, cursor=first.next_cursor)
    assert [one.session for one in second] == ["s"]
    assert second.next_cursor is None
    assert len(filled.sessions.list(user="nobody")) == 0


def test_sessions_are_found_by_their_metadata(filled: sqlmem.MemoryStore) -> None:
    filled.sessions.create("made", "cleo", metadata={"channel": "mail", "n": 1, "tags": ["a", "b"]})
    filled.sessions.update("t", "ana", metadata={"channel": "chat", "n": 2})
    chosen: list[tuple[dict[str, Any], list[str]]] = [
        ({"channel": "mail"}, ["made"]),
        ({"channel": {"in": ["mail", "chat"]}}, ["made", "t"]),
        ({"channel": {"ne": "mail"}}, ["s", "t", "s"]),
        ({"channel": "chat", "n": {"gt": 1}}, ["t"]),
        ({"n": "1"}, []),
        ({"tags": {"contains": "b"}}, ["made"]),
    ]
    for where, sessions in chosen:
        assert [one.session for one in filled.sessions.list(where=where)] == sessions
    page = filled.sessions.list(where={"channel": {"ne": "mail"}}, limit=2)
    following = filled.sessions.list(where={"channel": {"ne": "mail"}}, limit=2, cursor=page.next_cursor)
    assert [one.user for one in (*page, *following)] == ["ben", "ana", "ana"]
    assert [one.session for one in filled.sessions.list(where={"n": 1}, status="pending", user="cleo")] == ["made"]


def test_a_session_and_a_user_are_described(filled: sqlmem.MemoryStore, clock: MovableClock) -> None:
    assert filled.sessions.get("s", "ana") == sqlmem.Session(
        user="ana",
        session="s",
        turns=3,
        memories=1,
        created_at=START + DAY,
        last_at=START + DAY,
        extracted_to=None,
        summary_id=None,
    )
    filled.conflicts.set_mode("ask", "ana")
    assert filled.users.get("ana") == sqlmem.User(
        user="ana", sessions=2, memories=8, created_at=START + DAY, last_at=START + 3 * DAY, on_contradiction="ask"
    )
    assert [(user.user, user.memories) for user in filled.users.list()] == [("ben", 3), ("ana", 8)]
    assert [user.user for user in filled.users.list(limit=1, cursor=filled.users.list(limit=1).next_cursor)] == ["ana"]
    filled.forget(user="ana", session="s", trash_days=1)
    assert (filled.sessions.get("s", "ana").turns, filled.sessions.get("s", "ana").last_at) == (0, None)


def test_a_session_goes_with_all_that_was_its_own(filled: sqlmem.MemoryStore) -> None:
    filled.correct("ana-s-0", "corrected")
    filled.forget(ids=["ana-s-1"], trash_days=9)
    filled.feedback("own", "useful")
    report = filled.consolidate("s", lambda turns: ["made"], user="ana", keep_recent=0, keep_turns=True)
    summary = json.dumps({"memories": [{"text": "Ana says corrected", "turns": [0]}], "summary": "On ferries."})
    extracted = filled.extract(
        "s", user="ana", llm=lambda prompt: summary if "decisions" not in prompt else '{"decisions": []}'
    )
    assert filled.sessions.get("s", "ana").summary_id == extracted.summary_id
    assert filled.sessions.get("s", "ana").extracted_to == 2
    # three turns, one of them in two versions, the own fact, what was made of turns twice, and the summary
    assert filled.sessions.delete("s", "ana") == 3 + 1 + 1 + 2 + 1
    for gone in ("ana-s-0", "ana-s-1", "own", report.fact_ids[0], extracted.memory_ids[0], str(extracted.summary_id)):
        with pytest.raises(sqlmem.NotFound, match="was forgotten"):
            filled.get(gone)
    assert filled.get("fact").state == "live"
    assert len(filled.turns("t", "ana")) == len(filled.turns("s", "ben")) == 3
    assert [one.session for one in filled.sessions.list(user="ana")] == ["t"]
    with pytest.raises(sqlmem.NotFound, match=r"sessions\.delete\(\) of .*, was final"):
        filled.undo("ana")
    assert "corrected" not in everything(filled)
    assert filled.get(filled.remember("anew", user="ana", session="s")).turn == 0
    assert broken_rules(filled) == []


def test_a_user_goes_without_a_trace_of_the_name(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject, on_contradiction="ask")
    store.remember("Kim drinks tea", user="zacharias", kind="fact", key="k")
    store.remember("Kim drinks rum", user="zacharias", session="Quetzal", kind="fact")
    store.remember("hello", user="zacharias", session="Quetzal")
    store.remember("hello", user="ben")
    assert len(store.conflicts.list(user="zacharias")) == 1
    assert store.users.delete("zacharias") == 3
    assert not any(word in everything(store) for word in ("zacharias", "Quetzal", "Kim"))
    assert [user.user for user in store.users.list()] == ["ben"]
    assert store.stats().forgotten == 2  # a proposal is no version, and leaves nothing
    with pytest.raises(sqlmem.NotFound, match="nothing to undo"):
        store.undo("zacharias")
    assert store.remember("Kim drinks tea", user="zacharias", kind="fact").created
    assert broken_rules(store) == []


def test_who_or_what_is_not_there_is_named(filled: sqlmem.MemoryStore) -> None:
    for session, user in (("s", ""), ("x", "ana"), ("s", "nobody")):
        with pytest.raises(sqlmem.NotFound, match=f"user '{user}' has no session '{session}'"):
            filled.sessions.get(session, user)
        with pytest.raises(sqlmem.NotFound, match="nothing was deleted"):
            filled.sessions.delete(session, user)
    for call in (filled.users.get, filled.users.delete):
        with pytest.raises(sqlmem.NotFound, match="there is no user 'nobody'"):
            call("nobody")
    for where in ({"n": {"over": 1}}, ["n"], {"n": {"gt": None}}, {1: 1}):
        with pytest.raises(sqlmem.InvalidArgument, match="where"):
            filled.sessions.list(where=where)  # type: ignore[arg-type]
    wrong: list[Any] = [{"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"cursor": "LTE="}, {"limit": True}]
    for arguments in wrong:
        with pytest.raises(sqlmem.InvalidArgument):
            filled.sessions.list(**arguments)
        with pytest.raises(sqlmem.InvalidArgument):
            filled.users.list(**arguments)
