"""Reading without ranking: get, turns, list and its pages, stats."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import DAY, START, MovableClock

# -- get --------------------------------------------------------------------------------------------------------------


def test_get_shows_everything_that_was_given(store: sqlmem.MemoryStore) -> None:
    store.categories.create("food")
    said = datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    id_ = store.remember(
        "tea\nor rum? 🍕", user="ana", session="s", role="Ben", turn=7, timestamp=said, metadata={"a": [1, None, {"b": 2.5}]},
        id="mine", key="k", ttl_days=1000, categories=["food"],
    )  # fmt: skip
    assert id_ == "mine"
    memory = store.get("mine")
    kept = datetime(2024, 2, 29, 18, 29, 59, 999_000, tzinfo=UTC)
    assert memory == sqlmem.Memory(
        id="mine", text="tea\nor rum? 🍕", kind="turn", role="Ben", user="ana", session="s", turn=7, timestamp=kept,
        created_at=START, expires_at=kept + 1000 * DAY, state="live", version_number=1, total_versions=1, expired_at=None,
        expiration_reason=None, replaced_by=None, seen=1, metadata={"a": [1, None, {"b": 2.5}]}, categories=("food",),
        sources=(), previous_versions=(), score=None, scoring=None,
    )  # fmt: skip
    assert memory.timestamp.tzinfo is UTC


@pytest.mark.parametrize("at", [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
                                datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)])  # fmt: skip
def test_any_date_of_the_calendar_comes_back_as_it_was(store: sqlmem.MemoryStore, at: datetime) -> None:
    assert store.get(store.remember("x", timestamp=at)).timestamp == at


# -- turns ------------------------------------------------------------------------------------------------------------


def test_turns_come_in_the_order_of_their_numbers(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    for turn, days in ((5, 0), (2, 3), (9, -3)):
        store.remember(f"turn {turn}", session="s", turn=turn, timestamp=START + timedelta(days=days))
    store.remember("turn 10", session="s")
    assert [turn.turn for turn in store.turns("s")] == [2, 5, 9, 10]
    assert [turn.turn for turn in store.turns("s", last=2)] == [9, 10]
    assert [turn.turn for turn in store.turns("s", last=99)] == [2, 5, 9, 10]
    assert store.turns("s", last=0) == []


def test_turns_are_of_exactly_one_session_and_user(store: sqlmem.MemoryStore) -> None:
    for user in ("", "ana"):
        for session in (None, "s", "t"):
            store.remember(f"{user}/{session}", user=user, session=session)
    assert [turn.text for turn in store.turns("s")] == ["/s"]
    assert [turn.text for turn in store.turns(None)] == ["/None"]
    assert [turn.text for turn in store.turns("s", "ana")] == ["ana/s"]
    assert [turn.text for turn in store.turns(None, user="ana")] == ["ana/None"]
    assert store.turns("unknown") == []
    assert store.turns("s", "unknown") == []


def test_turns_are_turns_only(store: sqlmem.MemoryStore) -> None:
    store.remember("fact", session="s", kind="fact")
    store.remember("pin", session="s", pinned=True)
    assert store.turns("s") == []


@pytest.mark.parametrize(("session", "options"), [("", {}), (5, {}), ("s", {"last": -1}), ("s", {"last": True}),
                                                  ("s", {"last": 1.5}), ("s", {"user": None}), ("s", {"user": 5})])  # fmt: skip
def test_turns_of_nonsense_are_refused(store: sqlmem.MemoryStore, session: Any, options: dict[str, Any]) -> None:
    for known in (False, True):
        with pytest.raises(sqlmem.InvalidArgument):
            store.turns(session, **options)
        if not known:
            store.remember("x", session="s")


# -- list -------------------------------------------------------------------------------------------------------------


def pages(store: sqlmem.MemoryStore, between: Callable[[], object] = lambda: None, **options: Any) -> list[list[str]]:
    """The texts of every page, with a call in between."""
    found: list[list[str]] = []
    cursor = None
    while True:
        page = store.list(cursor=cursor, **options)
        found.append([memory.text for memory in page])
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(page) == options["limit"]
        between()


def fill(store: sqlmem.MemoryStore, count: int, **options: Any) -> list[str]:
    items = [{"text": f"{n}", "session": "s", "timestamp": START + timedelta(minutes=n), **options} for n in range(count)]
    return [str(id_) for id_ in store.remember_many(items)]


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 1000])
def test_pages_hold_everything_once_newest_first(store: sqlmem.MemoryStore, limit: int) -> None:
    fill(store, 7)
    found = pages(store, limit=limit)
    assert [text for page in found for text in page] == ["6", "5", "4", "3", "2", "1", "0"]
    assert len(found) == -(-7 // limit)


def test_what_was_said_at_the_same_moment_comes_later_stored_first(store: sqlmem.MemoryStore) -> None:
    for n in range(5):
        store.remember(f"{n}", timestamp=START)
    assert pages(store, limit=2) == [["4", "3"], ["2", "1"], ["0"]]


def test_the_order_is_of_what_was_said_not_of_what_was_stored(store: sqlmem.MemoryStore) -> None:
    for days in (0, -5, 5, -1):
        store.remember(f"{days}", timestamp=START + timedelta(days=days))
    assert pages(store, limit=3) == [["5", "0", "-1"], ["-5"]]


def test_what_is_added_between_pages_neither_repeats_nor_hides(store: sqlmem.MemoryStore) -> None:
    fill(store, 9)
    number = iter(range(100))

    def add() -> None:
        n = next(number)
        store.remember(f"newer {n}", timestamp=START + DAY)
        store.remember(f"same {n}", session="s", timestamp=START + timedelta(minutes=6))

    assert pages(store, add, limit=3) == [["8", "7", "6"], ["5", "4", "3"], ["2", "1", "0"]]


def test_what_is_forgotten_between_pages_hides_nothing_else(store: sqlmem.MemoryStore) -> None:
    ids = fill(store, 9)
    gone = iter([[6, 5], [8, 2]])  # the cursor's own memory and the next; one seen long ago and the next
    found = pages(store, lambda: store.forget(ids=[ids[n] for n in next(gone)]), limit=3)
    assert found == [["8", "7", "6"], ["4", "3", "2"], ["1", "0"]]
    assert [memory.text for memory in store.list()] == ["7", "4", "3", "1", "0"]


def test_forgetting_the_cursor_s_memory_does_not_break_the_next_page(store: sqlmem.MemoryStore) -> None:
    ids = fill(store, 6)
    first = store.list(limit=2)
    store.forget(ids=[ids[4], ids[3]])
    second = store.list(limit=2, cursor=first.next_cursor)
    assert [memory.text for memory in second] == ["2", "1"]
    assert [memory.text for memory in store.list(limit=2, cursor=second.next_cursor)] == ["0"]


def test_what_is_corrected_between_pages_is_listed_at_its_new_date(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    ids = fill(store, 6, kind="fact")
    clock.forward(days=1)
    first = store.list(limit=2)
    store.correct(ids[0], "0 corrected")
    rest = store.list(limit=10, cursor=first.next_cursor)
    assert [memory.text for memory in rest] == ["3", "2", "1"]
    assert store.list(limit=1).items[0].text == "0 corrected"


def test_the_last_page_says_so_even_when_it_is_full(store: sqlmem.MemoryStore) -> None:
    fill(store, 4)
    first = store.list(limit=2)
    assert first.next_cursor is not None
    second = store.list(limit=2, cursor=first.next_cursor)
    assert (len(second), second.next_cursor) == (2, None)


def test_an_empty_list_is_a_page(store: sqlmem.MemoryStore) -> None:
    assert store.list() == sqlmem.Page(items=(), next_cursor=None)
    assert store.list(user="unknown") == sqlmem.Page(items=(), next_cursor=None)
    fill(store, 1)
    assert store.list(session="s", kinds=["fact"]) == sqlmem.Page(items=(), next_cursor=None)


def test_a_page_holds_twenty_unless_told(store: sqlmem.MemoryStore) -> None:
    fill(store, 25)
    page = store.list()
    assert [memory.text for memory in page] == [f"{n}" for n in range(24, 4, -1)]
    assert len(store.list(cursor=page.next_cursor)) == 5


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({}, ["turn s", "turn t", "turn -", "fact s", "pin -"]),
        ({"session": "s"}, ["turn s", "fact s", "pin -"]),
        ({"session": "t"}, ["turn t", "pin -"]),
        ({"session": "unknown"}, ["pin -"]),
        ({"user": "ana"}, ["ana's"]),
        ({"all_users": True}, ["turn s", "turn t", "turn -", "fact s", "pin -", "ana's"]),
        ({"kinds": ["fact", "pinned"]}, ["fact s", "pin -"]),
        ({"categories": ["food"]}, ["turn s"]),
        ({"categories": ["food", "drink"]}, ["turn s", "fact s"]),
        ({"categories": []}, []),
        ({"where": {"n": 1}}, ["turn t"]),
        ({"after": START - 3 * DAY}, ["turn s", "turn t", "turn -"]),
        ({"before": START - 3 * DAY}, ["pin -"]),
        ({"after": START - 3 * DAY, "before": START}, ["turn t", "turn -"]),
        ({"include_superseded": True, "kinds": ["fact"]}, ["fact s", "old fact s"]),
        ({"as_of": START - 3 * DAY}, ["fact s"]),
        ({"as_of": START, "kinds": ["turn"], "session": "t"}, ["turn t"]),
    ],
)
def test_filters(store: sqlmem.MemoryStore, clock: MovableClock, options: dict[str, Any], texts: list[str]) -> None:
    for name in ("food", "drink"):
        store.categories.create(name)
    clock.now = START - 3 * DAY
    old = store.remember("old fact s", session="s", kind="fact", timestamp=START - 10 * DAY)
    store.correct(old, "fact s", categories=["drink"])
    clock.now = START
    store.remember("turn s", session="s", categories=["food"])
    store.remember("turn t", session="t", timestamp=START - DAY, metadata={"n": 1})
    store.remember("turn -", timestamp=START - 2 * DAY)
    store.remember("pin -", pinned=True, timestamp=START - 4 * DAY)
    store.remember("ana's", user="ana", timestamp=START - 5 * DAY)
    store.remember("expired", session="s", timestamp=START - 9 * DAY, ttl_days=1)
    assert [memory.text for memory in store.list(**options)] == texts


def test_previous_versions_are_shown_unless_told_not_to(store: sqlmem.MemoryStore) -> None:
    old = store.remember("v1", kind="fact")
    store.correct(old, "v2")
    (memory,) = store.list()
    assert [earlier.text for earlier in memory.previous_versions] == ["v1"]
    (memory,) = store.list(include_previous_versions=False)
    assert memory.previous_versions == ()


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0}, {"limit": -1}, {"limit": 1001}, {"limit": True}, {"limit": 1.5}, {"limit": None}, {"limit": "5"},
        {"session": ""}, {"session": 5}, {"user": 5}, {"user": "ana", "all_users": True}, {"session": "s", "all_users": True},
        {"all_users": 1}, {"kinds": "turn"}, {"kinds": []}, {"kinds": ["x"]}, {"categories": "food"}, {"where": []},
        {"after": "2024"}, {"before": 5}, {"include_superseded": 1}, {"include_previous_versions": None},
        {"as_of": "2024"}, {"valid_on": 5}, {"as_of": START, "include_superseded": True},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(store: sqlmem.MemoryStore, options: dict[str, Any]) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        store.list(**options)


def test_an_unknown_category_is_not_found(store: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.NotFound, match="wine"):
        store.list(categories=["wine"])


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "é", "====", 5, b"x", True, *(base64.urlsafe_b64encode(text).decode() for text in (
        b"5", b"null", b"[]", b"[1]", b"[1,2,3]", b'["a","b"]', b"[null,1]", b"[1.5e400,1]", b"{}", b'"ab"', b"[[1],2]",
        b"\xff",
        b"[99999999999999999999999, 1]", b"[true,false]", b'{"a":1,"b":2}',
    ))],
)  # fmt: skip
def test_a_cursor_that_no_page_gave_is_refused(store: sqlmem.MemoryStore, cursor: Any) -> None:
    fill(store, 3)
    with pytest.raises(sqlmem.InvalidArgument, match="cursor"):
        store.list(cursor=cursor)


# -- stats ------------------------------------------------------------------------------------------------------------


def test_stats_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False) as store:
        assert store.stats() == sqlmem.Stats(
            path=str(path), size_bytes=path.stat().st_size, format_version=1, users=0, sessions=0,
            live={"turn": 0, "fact": 0, "pinned": 0, "summary": 0}, superseded=0, expired=0, ended=0, proposed=0, trash=0,
            forgotten=0,
            feedback=0, models=(),
        )  # fmt: skip


def test_stats_count_everything_exactly(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    for user, session in (("", "s"), ("", "t"), ("ana", "s"), ("ana", None)):
        store.remember(f"turn {user} {session}", user=user, session=session)
    fact = store.remember("v1", session="s", kind="fact")
    store.correct(fact, "v2")
    store.remember("pin", session="s", pinned=True)
    store.remember("short", session="s", ttl_days=1)
    store.remember("!!!", session="s")  # nothing in it that the model knows
    store.feedback(fact, "useful")
    store.forget(ids=[store.remember("gone", session="s")])
    clock.forward(days=1)
    stats = store.stats()
    assert dict(stats.live) == {"turn": 5, "fact": 1, "pinned": 1, "summary": 0}
    assert (stats.superseded, stats.expired, stats.ended, stats.proposed, stats.forgotten) == (1, 1, 0, 0, 1)
    assert (stats.users, stats.sessions, stats.feedback, stats.format_version) == (2, 3, 1, 1)
    assert stats.models == (sqlmem.ModelInfo(name="hash-64", dim=64, vectors=8, pending=0, bits="none"),)
    assert stats.path == ":memory:"
    assert stats.size_bytes > 0


def test_the_size_is_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False) as store:
        store.remember_many([f"number {n}" for n in range(500)])
    with sqlmem.open(path, embedder=False) as store:
        assert store.stats().size_bytes == path.stat().st_size > 50_000


def test_categories_count_live_memories(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.categories.create("food", "what is eaten")
    clock.forward(seconds=1)
    store.categories.create("drink")
    for text, options in (("tea", {}), ("rum", {"ttl_days": 1}), ("gin", {"kind": "fact"})):
        store.remember(text, categories=["drink"], **options)
    gin = store.list(kinds=["fact"]).items[0].id
    store.correct(gin, "ale")
    assert store.categories.list() == [
        sqlmem.Category(name="drink", description="", count=3, created_at=START + timedelta(seconds=1)),
        sqlmem.Category(name="food", description="what is eaten", count=0, created_at=START),
    ]
    clock.forward(days=2)
    assert [category.count for category in store.categories.list()] == [2, 0]
    store.categories.delete("drink")
    assert [category.name for category in store.categories.list()] == ["food"]
    assert store.get(gin).categories == ()
    with pytest.raises(sqlmem.NotFound):
        store.categories.delete("drink")
    with pytest.raises(sqlmem.AlreadyExists):
        store.categories.create("food")


@pytest.mark.parametrize("name", ["", "Food", "1st", "a-b", "a b", "é", "food\n", 5, None, "_x"])
def test_a_category_has_a_plain_name(store: sqlmem.MemoryStore, name: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        store.categories.create(name)
    assert store.categories.list() == []
