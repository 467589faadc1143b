"""Sessions that were created as such: pending while they take turns, processed once, failed without a loss."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import sqlmem
from sqlmem.owners import LEASE_SECONDS
from tests.conftest import OpenStore
from tests.helpers_store import START, MovableClock, broken_rules

GOOD = json.dumps({"memories": [{"text": "The user lives in Porto", "turns": [0]}], "summary": "On Porto."})


def good(prompt: str) -> str:
    return GOOD if "Turns:" in prompt else '{"decisions": []}'


@pytest.fixture
def chat(open_store: OpenStore) -> sqlmem.MemoryStore:
    store = open_store()
    store.sessions.create("s", metadata={"channel": "web"}, auto_process_after_seconds=600)
    store.remember("I live in Porto", session="s")
    return store


def status(store: sqlmem.MemoryStore, session: str = "s") -> str | None:
    return store.sessions.get(session).status


def test_a_session_is_created_before_its_first_turn(open_store: OpenStore) -> None:
    store = open_store()
    created = store.sessions.create("s", "ana", metadata={"n": 1})
    assert (created.status, created.turns, created.metadata, created.processed_at) == ("pending", 0, {"n": 1}, None)
    assert store.sessions.get("s", "ana") == created
    store.remember("hello", session="t", user="ana")
    for taken in ("s", "t"):
        with pytest.raises(sqlmem.AlreadyExists, match=f"has a session '{taken}' already"):
            store.sessions.create(taken, "ana")
    assert store.sessions.create("s").user == ""
    assert [one.session for one in store.sessions.list(user="ana", status="pending")] == ["s"]


def test_metadata_is_replaced_as_a_whole(chat: sqlmem.MemoryStore) -> None:
    assert chat.sessions.update("s", metadata={"other": [1]}).metadata == {"other": [1]}
    assert chat.sessions.update("s", metadata=None).metadata == {}
    with pytest.raises(sqlmem.NotFound):
        chat.sessions.update("x", metadata={})
    with pytest.raises(sqlmem.InvalidArgument):
        chat.sessions.update("s", metadata={1: 2})  # type: ignore[dict-item]


def test_processing_reads_it_and_closes_it(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    clock.forward(minutes=1)
    report = chat.sessions.process("s", llm=good)
    assert len(report) == 1
    assert (status(chat), chat.sessions.get("s").processed_at) == ("processed", clock.now)
    before = chat.sessions.get("s")
    for arguments in ({}, {"turn": 9}):
        with pytest.raises(sqlmem.InvalidArgument, match="the session 's' of user '' is processed, and takes no more turns"):
            chat.remember("more", session="s", **arguments)  # type: ignore[arg-type]
    with pytest.raises(sqlmem.InvalidArgument):
        chat.remember_many([{"text": "fine", "session": "t"}, {"text": "more", "session": "s"}])
    assert chat.turns("t") == []
    assert chat.sessions.get("s") == before
    assert chat.remember("Ana has a dog", session="s", kind="fact").created
    with pytest.raises(sqlmem.InvalidArgument, match="is processed; it cannot be processed"):
        chat.sessions.process("s", llm=good)
    assert broken_rules(chat) == []


def test_other_sessions_stay_open(chat: sqlmem.MemoryStore) -> None:
    chat.remember("hello", session="open")
    assert chat.sessions.get("open").status is None
    with pytest.raises(sqlmem.InvalidArgument, match=r"was not made by sessions\.create\(\); it cannot be processed"):
        chat.sessions.process("open", llm=good)
    chat.extract("open", llm=good)
    assert chat.get(chat.remember("and on", session="open")).turn == 1


def test_an_empty_session_is_processed_without_a_model(open_store: OpenStore) -> None:
    store = open_store()
    store.sessions.create("s")
    assert store.sessions.process("s", llm=lambda prompt: pytest.fail("asked")).calls == 0
    assert status(store) == "processed"


@pytest.mark.parametrize("answer", ["no", ValueError("broken")], ids=repr)
def test_what_fails_can_be_processed_again(chat: sqlmem.MemoryStore, answer: Any) -> None:
    def bad(prompt: str) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    with pytest.raises(sqlmem.CallbackError):
        chat.sessions.process("s", llm=bad)
    assert (status(chat), len(chat.turns("s")), chat.stats().live["fact"]) == ("failed", 1, 0)
    assert [one.session for one in chat.sessions.list(status="failed")] == ["s"]
    assert len(chat.sessions.process("s", llm=good)) == 1
    assert status(chat) == "processed"


def test_retrying_what_failed_closes_it(chat: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.CallbackError):
        chat.sessions.process("s", llm=lambda prompt: "no")
    (report,) = chat.retry_failed(llm=good)
    assert (len(report), status(chat), chat.failures()) == (1, "processed", [])


def test_a_session_is_due_when_it_was_idle_for_its_time(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    clock.forward(seconds=500)
    chat.remember("still here", session="s")
    clock.forward(seconds=599)
    assert chat.sessions.process_due(llm=good) == {}
    clock.forward(seconds=1)
    (done,) = chat.sessions.process_due(llm=good).items()
    assert (done[0], status(chat)) == (("", "s"), "processed")
    assert chat.sessions.process_due(llm=good) == {}


def test_one_that_fails_does_not_keep_others_from_being_processed(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    for user in ("ana", "ben"):
        chat.sessions.create("s", user, auto_process_after_seconds=0)
        chat.remember(f"I am {user}", session="s", user=user)

    def model(prompt: str) -> str:
        return "no" if "I am ana" in prompt else '{"memories": [], "summary": ""}'

    done = chat.sessions.process_due(llm=model)
    assert {who: type(what).__name__ for who, what in done.items()} == {
        ("ana", "s"): "Unread",
        ("ben", "s"): "ExtractionReport",
    }
    assert (chat.sessions.get("s", "ana").status, chat.sessions.get("s", "ben").status) == ("failed", "processed")
    assert set(chat.sessions.process_due("ana", llm=model, now=START + timedelta(days=1))) == set()


def test_a_worker_that_is_gone_does_not_block(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    def dies(prompt: str) -> str:
        assert status(chat) == "processing"
        with pytest.raises(sqlmem.InvalidArgument, match="is processing; it cannot be processed"):
            chat.sessions.process("s", llm=good)
        clock.forward(seconds=LEASE_SECONDS)
        assert list(chat.sessions.process_due(llm=good)) == [("", "s")]
        return GOOD

    report = chat.sessions.process("s", llm=dies)
    assert (report.turns, status(chat), chat.stats().live["fact"]) == (0, "processed", 1)


def test_what_makes_no_sense_is_refused(chat: sqlmem.MemoryStore) -> None:
    wrong: list[dict[str, Any]] = [
        {"auto_process_after_seconds": -1},
        {"auto_process_after_seconds": float("nan")},
        {"auto_process_after_seconds": True},
        {"metadata": "x"},
        {"user": None},
    ]
    for arguments in wrong:
        with pytest.raises(sqlmem.InvalidArgument):
            chat.sessions.create("new", **arguments)
    with pytest.raises(sqlmem.NotFound):
        chat.sessions.get("new")
    with pytest.raises(sqlmem.InvalidArgument, match=r"process\(\) needs a language model"):
        chat.sessions.process("s")
    with pytest.raises(sqlmem.InvalidArgument, match="status must be one of pending"):
        chat.sessions.list(status="open")  # type: ignore[arg-type]
    with pytest.raises(sqlmem.NotFound):
        chat.sessions.process("x", llm=good)
    assert status(chat) == "pending"
