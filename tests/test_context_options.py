"""What bounds a recall besides the budget, the latest summaries, and the zone of the dates in a context block."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_store import DAY, START

QUESTION = "boiler"


def texts(memories: tuple[sqlmem.Memory, ...]) -> list[str]:
    return [memory.text for memory in memories]


def answering(said: dict[str, Any]) -> Callable[[str], str]:
    return lambda prompt: json.dumps(said)


@pytest.fixture
def graded(open_store: OpenStore) -> sqlmem.MemoryStore:
    """Facts and a summary of falling relevance: 0.9, 0.7 (the summary), 0.5, 0.3."""
    vectors = {"ask": [1.0, 0.0], "first": [0.9, 0.4359], "sum": [0.7, 0.7141], "third": [0.5, 0.866], "last": [0.3, 0.954]}
    store = open_store(embedder=Vectors(vectors), recency_weight=0.0)
    for text in ("first", "third", "last"):
        store.remember(text, kind="fact", id=text)
    store.remember("hello", session="s", id="turn")
    summary = {"memories": [], "summary": "sum"}
    store.extract("s", llm=answering(summary))
    store.forget(ids=["turn"])
    return store


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        ({}, 4),
        ({"min_relevance": 0.6}, 2),
        ({"min_relevance": 0.6, "at_least": 1}, 2),
        ({"min_relevance": 0.6, "at_least": 3}, 3),
        ({"min_relevance": 0.99, "at_least": 2}, 2),
        ({"score_gap": 0.9}, 1),
        ({"score_gap": 0.9, "at_least": 3}, 3),
        ({"min_relevance": 0.6, "at_least": 3, "limit": 3, "token_budget": 3}, 2),
        ({"min_relevance": 0.99, "at_least": 11}, 4),
        ({"at_least": 4, "limit": 1}, 1),
    ],
)
def test_the_best_stay_whatever_the_bars_say_but_not_over_the_budget(
    graded: sqlmem.MemoryStore, bounds: dict[str, Any], kept: int
) -> None:
    assert graded.recall("ask", **bounds).texts == ["first", "sum", "third", "last"][:kept]


def test_summaries_have_a_bar_of_their_own(graded: sqlmem.MemoryStore) -> None:
    assert graded.recall("ask", min_relevance=0.8).texts == ["first"]
    assert graded.recall("ask", min_relevance=0.8, min_summary_relevance=0.6).texts == ["first", "sum"]
    assert graded.search("ask", min_summary_relevance=0.8).texts == ["first", "third", "last"]
    assert texts(graded.context("ask", min_relevance=0.4, min_summary_relevance=1.0).retrieved) == ["first", "third"]
    summary = graded.list(kinds=["summary"]).items[0].id
    why = graded.explain("ask", summary, min_summary_relevance=0.8)
    assert (why.kept_out_by, why.rank) == ("min_summary_relevance", 2)
    assert why.reason.endswith("is below 0.8")
    assert graded.explain("ask", summary, min_relevance=0.8).kept_out_by == "min_relevance"
    assert graded.explain("ask", summary, min_summary_relevance=0.8, at_least=2).recalled


# -- summaries --------------------------------------------------------------------------------------------------------


@pytest.fixture
def talks(open_store: OpenStore) -> sqlmem.MemoryStore:
    """Four sessions of Ana's and one of Ben's, each with its summary, told in a mixed order."""
    store = open_store(embedder=False)
    for user, session, days in (
        ("ana", "two", 2),
        ("ana", "one", 3),
        ("ana", "four", 0),
        ("ana", "three", 1),
        ("ben", "one", 0),
    ):
        store.remember(f"hello {session}", session=session, user=user, timestamp=START - days * DAY)
        said = {"memories": [], "summary": f"About {session}\nand {user}."}
        store.extract(session, user=user, llm=answering(said))
    store.remember("Ana drinks tea", user="ana", pinned=True)
    return store


def test_the_latest_summaries_stand_before_the_conversation(talks: sqlmem.MemoryStore) -> None:
    block = talks.context("nothing like it", user="ana", session="four", recent_summaries=2)
    date = [f"{at.day} {at:%b %Y}" for at in (START, START - DAY)]
    assert block.text == (
        "Pinned facts:\n"
        "- Ana drinks tea\n"
        "\n"
        "Latest summaries:\n"
        f"- {date[1]}: About three\n"
        "  and ana.\n"
        f"- {date[0]}: About four\n"
        "  and ana.\n"
        "\n"
        "Recent conversation:\n"
        "user: hello four"
    )
    assert texts(block.summaries) == ["About three\nand ana.", "About four\nand ana."]
    assert len(block) == 4
    assert block.token_estimate == (len(block.text) + 3) // 4


@pytest.mark.parametrize(("count", "sessions"), [(0, []), (1, ["four"]), (3, ["two", "three", "four"]), (9, None)])
def test_as_many_summaries_as_there_are(talks: sqlmem.MemoryStore, count: int, sessions: list[str] | None) -> None:
    block = talks.context("nothing like it", user="ana", recent_summaries=count)
    wanted = ["one", "two", "three", "four"] if sessions is None else sessions
    assert [memory.metadata["session"] for memory in block.summaries] == wanted


def test_a_summary_stands_in_one_section_only(talks: sqlmem.MemoryStore) -> None:
    block = talks.context("about four three", user="ana", recent_summaries=1, recent_turns=0, kinds=["summary"])
    assert texts(block.summaries) == ["About four\nand ana."]
    assert "About four\nand ana." not in texts(block.retrieved)
    assert "About three\nand ana." in texts(block.retrieved)


def test_summaries_of_the_past_are_those_of_that_time(talks: sqlmem.MemoryStore) -> None:
    before = talks.context("x", user="ana", recent_summaries=9, as_of=START - DAY)
    assert before.summaries == ()
    now = talks.context("x", user="ana", recent_summaries=9, as_of=START)
    assert len(now.summaries) == 4
    talks.forget(kinds=["summary"], user="ana")
    assert talks.context("x", user="ana", recent_summaries=9).summaries == ()
    assert len(talks.context("x", all_users=True, recent_summaries=9).summaries) == 1


def test_room_goes_to_turns_first_then_to_summaries_then_to_the_rest(talks: sqlmem.MemoryStore) -> None:
    def sections(budget: int) -> tuple[int, int, int]:
        block = talks.context("hello", user="ana", session="four", recent_summaries=2, token_budget=budget, timezone=UTC)
        assert block.token_estimate <= budget
        assert block.truncated == (len(block.recent) + len(block.summaries) + len(block.retrieved) < 3)
        return len(block.recent), len(block.summaries), len(block.retrieved)

    assert [sections(budget) for budget in (8, 20, 34, 42, 60)] == [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 2, 0)]


# -- time zones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "date"),
    [
        (None, "7 May 2023"),
        (UTC, "7 May 2023"),
        ("UTC", "7 May 2023"),
        ("Asia/Tokyo", "8 May 2023"),
        (ZoneInfo("America/New_York"), "7 May 2023"),
        (timezone(timedelta(hours=-23)), "6 May 2023"),
    ],
)
def test_dates_are_printed_in_the_zone_that_is_asked_for(store: sqlmem.MemoryStore, zone: Any, date: str) -> None:
    store.remember("the boiler hums", session="s", timestamp=datetime(2023, 5, 7, 22, tzinfo=UTC))
    block = store.context("boiler", timezone=zone)
    assert block.text == f"Relevant memories:\n{date}:\nuser: the boiler hums"


def test_a_moment_that_a_zone_has_no_year_for_is_printed_in_utc(store: sqlmem.MemoryStore) -> None:
    store.remember("the boiler hums", session="s", timestamp=datetime(1, 1, 1, tzinfo=UTC))
    store.remember("the boiler hums", session="s", timestamp=datetime(9999, 12, 31, 23, tzinfo=UTC))
    west, east = (store.context("boiler", timezone=timezone(timedelta(hours=hours))).text for hours in (-5, 5))
    assert "1 Jan 1:" in west
    assert "31 Dec 9999:" in east


def test_scores_do_not_depend_on_the_bars(graded: sqlmem.MemoryStore) -> None:
    free, bound = graded.recall("ask"), graded.recall("ask", min_relevance=0.6, at_least=3)
    assert [scoring(memory) for memory in bound] == [scoring(memory) for memory in free[:3]]
