"""The trash keeps what was forgotten for a while: out of every answer, restorable, and gone for good at its end."""

from __future__ import annotations

import json
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock, broken_rules


@pytest.fixture
def chat(either: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    for number in range(4):
        either.remember(f"turn {number} about ferries", session="s", id=f"t{number}")
    either.remember("Ana likes ferries", kind="fact", id="v1")
    either.correct("v1", "Ana loves ferries")
    return either


def head(chat: sqlmem.MemoryStore) -> str:
    return chat.history("v1")[-1].id


def by_words(chat: sqlmem.MemoryStore, query: str) -> list[str]:
    """What the keyword search alone finds."""
    found = chat.search(query, session="s", limit=100)
    return [memory.id for memory in found if memory.scoring is not None and "keywords" in memory.scoring["found_by"]]


def test_what_lies_in_the_trash_is_in_no_answer(chat: sqlmem.MemoryStore) -> None:
    gone = head(chat)
    assert chat.forget(ids=["t1", gone, gone, "unknown"], trash_days=3) == 2
    found = chat.recall("ferries", session="s", include_superseded=True, limit=100).ids
    assert sorted(found) == ["t0", "t2", "t3", "v1"]
    assert [turn.id for turn in chat.turns("s")] == ["t0", "t2", "t3"]
    assert "turn 1" not in chat.context("ferries", session="s").text
    assert [memory.id for memory in chat.history("v1")] == ["v1"]
    assert (chat.get("v1").total_versions, chat.get("v1").replaced_by) == (1, gone)
    assert len(chat.list(session="s", include_superseded=True)) == 4
    assert (chat.stats().trash, chat.stats().forgotten, chat.stats().live["turn"]) == (2, 0, 3)
    for verb in (chat.get, chat.history, chat.invalidate):
        with pytest.raises(sqlmem.NotFound, match="lies in the trash until 2026-03-04 12:00 UTC"):
            verb("t1")
    with pytest.raises(sqlmem.NotFound, match="no live version"):
        chat.correct("v1", "Ana hates ferries")
    assert broken_rules(chat) == []


def test_neighbours_of_a_turn_in_the_trash_forget_its_words(chat: sqlmem.MemoryStore) -> None:
    chat.remember("penguins everywhere", session="s", id="t4")
    chat.remember("ok", session="s", id="t5")
    assert "t5" in by_words(chat, "penguins")
    chat.forget(ids=["t4"], trash_days=1)
    assert by_words(chat, "penguins") == []
    chat.undo()
    assert by_words(chat, "penguins")[0] == "t4"
    assert "t5" in by_words(chat, "penguins")


def test_a_fact_can_be_stated_again_meanwhile(chat: sqlmem.MemoryStore) -> None:
    chat.forget(ids=[head(chat)], trash_days=3)
    again = chat.remember("Ana loves ferries", kind="fact")
    assert again.created
    chat.undo()
    chat.undo()
    assert chat.get(head(chat)).text == "Ana loves ferries"
    assert broken_rules(chat) == []


def test_a_key_whose_memory_lies_in_the_trash_is_free(either: sqlmem.MemoryStore) -> None:
    first = either.remember("hello", key="k")
    either.forget(ids=[first], trash_days=3)
    second = either.remember("hello", key="k")
    assert (second.created, either.remember("hello", key="k")) == (True, second)


def test_its_time_ends_at_the_millisecond(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    chat.forget(ids=["t1"], trash_days=2)
    clock.now = START + 2 * DAY - MILLISECOND
    assert chat.expire() == 0
    clock.forward(milliseconds=1)
    assert chat.expire() == 1
    assert (chat.stats().trash, chat.stats().forgotten) == (0, 1)
    with pytest.raises(sqlmem.NotFound, match="was forgotten"):
        chat.get("t1")
    assert chat.expire() == 0


@pytest.mark.parametrize("way", ["by id", "at its end"])
def test_its_text_goes_for_good(chat: sqlmem.MemoryStore, clock: MovableClock, way: str) -> None:
    chat.remember("the Quetzalcoatl temple", session="s", id="secret")
    chat.forget(ids=["secret"], trash_days=2)
    assert chat.forget(session="s", kinds=["turn"], trash_days=2) == 4  # what lies there already is not selected again
    if way == "by id":
        assert chat.forget(ids=["secret"]) == 1
    else:
        clock.forward(days=2)
        assert chat.expire() == 5
    db = chat._engine.db
    tables = [row[0] for row in db.rows("select name from sqlite_schema where type = 'table'")]
    held = {
        table: [list(map(str, row)) for row in db.rows(f'select * from "{table}"')] for table in tables if "fts_" not in table
    }
    assert "uetzalcoatl" not in json.dumps(held)
    assert db.value("select count(*) from memory_fts where memory_fts match 'quetzalcoatl'") == 0


def test_trash_twice_keeps_the_first_time(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    chat.forget(ids=["t1"], trash_days=2)
    assert chat.forget(ids=["t1"], trash_days=9) == 0
    clock.forward(days=2)
    assert chat.expire() == 1


def test_a_proposal_cannot_wait_in_the_trash(open_store: OpenStore) -> None:
    store = open_store(judge=lambda new, known: [True] * len(known), on_contradiction="ask")
    store.remember("Ana likes ferries", kind="fact", id="v1")
    proposal = store.remember("Ana likes no ferries", kind="fact")
    with pytest.raises(sqlmem.InvalidArgument, match=f"{proposal} is proposed: resolve its conflict"):
        store.forget(ids=["v1", proposal], trash_days=1)
    assert store.get("v1").state == "live"
    assert store.forget(ids=[proposal]) == 1


@pytest.mark.parametrize("days", [0, -1, float("nan"), float("inf"), True, "3"])
def test_a_time_in_the_trash_must_be_days(chat: sqlmem.MemoryStore, days: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match="trash_days"):
        chat.forget(ids=["t1"], trash_days=days)
    assert chat.get("t1").state == "live"


# -- what lives again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trash_days", [None, 3])
def test_the_version_before_can_take_the_place_of_a_head(
    chat: sqlmem.MemoryStore, clock: MovableClock, trash_days: Any
) -> None:
    gone = head(chat)
    clock.forward(days=1)
    assert chat.forget(ids=[gone], resurrect=True, trash_days=trash_days) == 1
    new = chat.get(head(chat))
    assert (new.text, new.version_number, new.state, new.timestamp, new.created_at) == (
        "Ana likes ferries",
        3,
        "live",
        START,
        clock.now,
    )
    assert chat.get("v1").replaced_by == gone
    assert chat.recall("ferries", kinds=["fact"]).ids == [new.id]
    assert broken_rules(chat) == []


def test_without_it_the_memory_has_no_live_version_and_can_be_rolled_back(chat: sqlmem.MemoryStore) -> None:
    chat.forget(ids=[head(chat)])
    assert [memory.state for memory in chat.history("v1")] == ["superseded"]
    assert chat.get(chat.rollback("v1", 1)).version_number == 3


def test_only_memories_that_lost_their_live_version_get_one(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    either.remember("ended", kind="fact", id="ended")
    either.correct("ended", "ended indeed")
    either.invalidate("ended")
    either.remember("brief", kind="fact", id="brief", ttl_days=1)
    either.remember("single", kind="fact", id="single")
    either.remember("kept", kind="fact", id="kept")
    kept = either.correct("kept", "kept still")
    brief = either.correct("brief", "brief still", ttl_days=9)
    clock.forward(days=2)
    gone = [either.history("ended")[-1].id, "single", "kept", brief]
    assert either.forget(ids=gone, resurrect=True) == 4
    assert [memory.id for memory in either.list()] == [kept]
    assert broken_rules(either) == []


# -- what goes along --------------------------------------------------------------------------------------------------


def test_what_was_made_from_a_turn_goes_with_it_and_so_on(either: sqlmem.MemoryStore) -> None:
    for number in range(4):
        either.remember(f"turn {number}", session="s", id=f"t{number}")
    report = either.consolidate("s", lambda turns: ["first", "second"], keep_turns=True, batch_turns=2, keep_recent=2)
    corrected = either.correct(report.fact_ids[0], "first, corrected")
    either.consolidate("s", lambda turns: ["third"], keep_turns=True, keep_recent=0)
    assert either.get("t0").derived == tuple(report.fact_ids)
    assert either.forget(ids=["t0"], cascade=True, trash_days=1) == 4
    assert sorted(memory.text for memory in either.list()) == ["third", "turn 1", "turn 2", "turn 3"]
    either.undo()
    assert either.get(corrected).state == "live"
    assert either.get("t1").derived == tuple(report.fact_ids)
    assert either.forget(ids=["t0", "t1"], cascade=True) == 5
    assert either.forget(ids=["t2"]) == 1
    assert broken_rules(either) == []


def test_cascade_takes_nothing_else(chat: sqlmem.MemoryStore) -> None:
    assert chat.forget(ids=["t0"], cascade=True) == 1
    assert chat.forget(ids=[], cascade=True) == 0
    with pytest.raises(sqlmem.InvalidArgument):
        chat.forget(cascade=True)
    with pytest.raises(sqlmem.InvalidArgument):
        chat.forget(ids=["t1"], cascade=1)  # type: ignore[arg-type]
