"""Remembering: what is kept of a memory, and that a call that fails keeps nothing."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock

# -- one memory -------------------------------------------------------------------------------------------------------


def test_a_turn_is_what_a_bare_call_stores(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("I'd like the report as a PDF", session="u42")
    (turn,) = store.turns("u42")
    assert turn == store.get(id_)
    assert (turn.id, turn.text, turn.kind, turn.role) == (id_, "I'd like the report as a PDF", "turn", "user")
    assert (turn.user, turn.session, turn.turn, turn.state) == ("", "u42", 0, "live")
    assert (turn.metadata, turn.categories, turn.expires_at) == ({}, (), None)


def test_an_id_is_a_string_that_says_what_the_call_did(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("hello")
    assert isinstance(id_, str)
    assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{26}", id_)
    assert id_.created is True
    assert id_.superseded == ()


def test_ids_do_not_come_from_the_text_and_sort_by_time(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    ids = [store.remember("same", session="s", timestamp=START) for _ in range(3)]
    clock.forward(milliseconds=1)
    ids.append(store.remember("a", session="s", timestamp=START - DAY))
    assert len(set(ids)) == 4
    assert sorted(ids) == ids


@pytest.mark.parametrize(
    "text",
    [
        " padded \t",
        "two\nlines\r\n\r\nand more\u2028here",
        "naïve café 部署 🍕👩🏽\u200d🚀",
        "'; drop table memory; --",
        '{"a": "\\u0000"}',
        "\u200b",
        "x" * 200_000,
    ],
    ids=["padded", "lines", "scripts", "sql", "json", "zero-width", "200,000 characters"],
)
def test_the_text_comes_back_as_it_was_said(store: sqlmem.MemoryStore, text: str) -> None:
    for kind in ("turn", "fact"):
        assert store.get(store.remember(text, kind=kind)).text == text


def test_a_fact_is_no_turn(store: sqlmem.MemoryStore) -> None:
    id_ = store.remember("Ana lives in Lisbon", session="s", kind="fact")
    assert (store.get(id_).kind, store.get(id_).turn) == ("fact", None)
    assert store.turns("s") == []
    block = store.context("something else entirely", session="s")
    assert (block.pinned, block.recent) == ((), ())
    assert store.recall("where does Ana live", session="s").ids == [id_]


@pytest.mark.parametrize("kind", [None, "turn", "fact", "pinned"])
def test_pinned_beats_the_kind(store: sqlmem.MemoryStore, kind: Any) -> None:
    memory = store.get(store.remember("vegetarian", session="s", kind=kind, pinned=True))
    assert (memory.kind, memory.turn) == ("pinned", None)
    assert [pin.id for pin in store.context("", session="s").pinned] == [memory.id]


def test_the_kind_pinned_pins(store: sqlmem.MemoryStore) -> None:
    assert store.get(store.remember("vegetarian", kind="pinned")).kind == "pinned"


def test_metadata_comes_back_as_json_keeps_it(store: sqlmem.MemoryStore) -> None:
    given = {"plan": "annual", "n": 3, "x": 2.5, "on": True, "none": None, "list": [1, {"ä": "🍕"}], "": "", "a.b": {"$": "\0"}}
    assert store.get(store.remember("hello", metadata=given)).metadata == given


def test_metadata_is_a_copy(store: sqlmem.MemoryStore) -> None:
    given = {"tags": ["a"]}
    id_ = store.remember("hello", metadata=given)
    given["tags"].append("b")
    assert store.get(id_).metadata == {"tags": ["a"]}


def test_categories_are_kept_once_each(store: sqlmem.MemoryStore) -> None:
    store.categories.create("work")
    store.categories.create("food")
    assert store.get(store.remember("lunch at work", categories=["work", "food", "work"])).categories == ("food", "work")


# -- time -------------------------------------------------------------------------------------------------------------


def test_the_time_is_now_unless_given(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    now = clock.forward(days=3)
    memory = store.get(store.remember("hello"))
    assert (memory.timestamp, memory.created_at) == (now, now)


def test_a_given_time_is_when_it_was_said_not_when_it_was_stored(store: sqlmem.MemoryStore) -> None:
    memory = store.get(store.remember("hello", timestamp=START - 400 * DAY))
    assert (memory.timestamp, memory.created_at) == (START - 400 * DAY, START)


NOON = datetime(2025, 7, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "given",
    [
        datetime(2025, 7, 1, 12, 0),  # noqa: DTZ001
        NOON,
        datetime(2025, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2))),
        datetime(2025, 7, 1, 17, 45, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2025, 6, 30, 22, 0, tzinfo=timezone(timedelta(hours=-14))),
        datetime(2025, 7, 2, 11, 59, tzinfo=timezone(timedelta(hours=23, minutes=59))),
        datetime(2025, 7, 1, 12, 0, 0, 999, tzinfo=UTC),
    ],
)
def test_times_are_kept_in_utc_by_the_millisecond_and_naive_ones_are_utc(store: sqlmem.MemoryStore, given: datetime) -> None:
    kept = store.get(store.remember("hello", timestamp=given)).timestamp
    assert kept == NOON
    assert kept.tzinfo is UTC


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="this system cannot change its zone while running")
def test_the_machines_zone_does_not_matter(store: sqlmem.MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    naive = datetime(2025, 7, 1, 12, 0)  # noqa: DTZ001
    try:
        monkeypatch.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        kept = store.get(store.remember("hello", timestamp=naive)).timestamp
        found = store.recall("hello", after=naive - MILLISECOND, before=naive + MILLISECOND).texts
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (kept, found) == (NOON, ["hello"])


def test_the_hour_that_a_clock_change_repeats_is_told_apart(store: sqlmem.MemoryStore) -> None:
    paris = ZoneInfo("Europe/Paris")
    first = datetime(2025, 10, 26, 2, 30, tzinfo=paris)
    kept = [store.get(store.remember("x", timestamp=at)).timestamp for at in (first, first.replace(fold=1))]
    assert kept == [datetime(2025, 10, 26, 0, 30, tzinfo=UTC), datetime(2025, 10, 26, 1, 30, tzinfo=UTC)]


def test_times_of_different_zones_sort_by_the_moment(store: sqlmem.MemoryStore) -> None:
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))
    early = store.remember("pin one", pinned=True, timestamp=datetime(2025, 7, 1, 20, 0, tzinfo=east))  # 11:00 UTC
    late = store.remember("pin two", pinned=True, timestamp=datetime(2025, 7, 1, 5, 0, tzinfo=west))  # 13:00 UTC
    assert [pin.id for pin in store.context("").pinned] == [early, late]
    assert store.recall("").ids == [late, early]


# -- time to live -----------------------------------------------------------------------------------------------------


def visible(store: sqlmem.MemoryStore, **options: Any) -> bool:
    return bool(store.recall("boiler", session="s", **options))


def test_what_expires_is_gone_at_that_very_moment(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = store.remember("the boiler hums", session="s", ttl_days=1)
    assert store.get(id_).expires_at == START + DAY
    clock.now = START + DAY - MILLISECOND
    assert visible(store)
    assert [turn.id for turn in store.turns("s")] == [id_]
    clock.now = START + DAY
    assert not visible(store)
    assert store.turns("s") == []
    assert store.get(id_).state == "expired"


def test_a_ttl_counts_from_the_time_that_was_given(store: sqlmem.MemoryStore) -> None:
    dead = store.remember("the boiler hums", session="s", timestamp=START - 2 * DAY, ttl_days=1)
    assert (store.get(dead).expires_at, store.get(dead).state) == (START - DAY, "expired")
    assert not visible(store)
    alive = store.remember("the boiler hums", session="s", timestamp=START - 2 * DAY, ttl_days=2.5)
    assert store.recall("boiler", session="s").ids == [alive]


@pytest.mark.parametrize(
    ("arguments", "days"),
    [
        ({}, 30),
        ({"kind": "fact"}, None),
        ({"pinned": True}, 0.5),
        ({"ttl_days": 2}, 2),
        ({"ttl_days": math.inf}, None),
        ({"kind": "fact", "ttl_days": 3}, 3),
    ],
)
def test_the_stores_ttl_holds_for_its_kinds_and_the_memorys_own_beats_it(
    open_store: OpenStore, arguments: dict[str, Any], days: float | None
) -> None:
    store = open_store(ttl_days={"turn": 30, "pinned": 0.5, "fact": None})
    expires = store.get(store.remember("hello", **arguments)).expires_at
    assert expires == (None if days is None else START + days * DAY)


def test_the_smallest_ttl_is_a_millisecond_not_none(store: sqlmem.MemoryStore) -> None:
    assert store.get(store.remember("hello", ttl_days=1e-12)).expires_at == START + MILLISECOND


def test_a_ttl_changed_later_does_not_touch_what_is_stored(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    first = open_store(path, ttl_days={"turn": 1})
    id_ = first.remember("hello", session="s")
    first.close()
    second = open_store(path, ttl_days={"turn": 9})
    assert second.get(id_).expires_at == START + DAY


# -- given ids --------------------------------------------------------------------------------------------------------


def test_a_given_id_is_the_memorys_id(store: sqlmem.MemoryStore) -> None:
    assert store.remember("hello", id="msg/1 é") == "msg/1 é"
    assert store.get("msg/1 é").text == "hello"


@pytest.mark.parametrize("again", [{"text": "other"}, {"text": "hello"}, {"text": "hello", "user": "bob", "session": "t"}])
def test_a_taken_id_is_refused_and_what_has_it_stays(store: sqlmem.MemoryStore, again: dict[str, Any]) -> None:
    store.remember("hello", id="a", session="s")
    before = store.get("a")
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember(**again, id="a")
    assert store.get("a") == before
    assert store.stats().live["turn"] == 1


def test_the_id_of_a_forgotten_memory_is_not_given_to_another(store: sqlmem.MemoryStore) -> None:
    store.remember("hello", id="a")
    store.forget(ids=["a"])
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember("hello", id="a")


# -- a call that fails ------------------------------------------------------------------------------------------------


class Failing(Vectors):
    """Fails at whatever mentions a fault."""

    def embed_documents(self, texts: Sequence[str]) -> Any:
        if any("fault" in text for text in texts):
            raise OSError("no such device")
        return super().embed_documents(texts)


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (sqlmem.NotFound, {"text": "x", "categories": ["nope"]}),
        (sqlmem.AlreadyExists, {"text": "x", "id": "taken"}),
        (sqlmem.AlreadyExists, {"text": "x", "session": "s", "turn": 0}),
        (sqlmem.AlreadyExists, {"text": "x", "key": "k"}),
        (sqlmem.InvalidArgument, {"text": "x", "ttl_days": 1_000_000, "timestamp": datetime(9000, 1, 1, tzinfo=UTC)}),
        (sqlmem.EmbeddingError, {"text": "a fault"}),
    ],
)
@pytest.mark.parametrize("where", [{}, {"session": "new"}, {"user": "new", "session": "s"}])
def test_a_failed_call_leaves_nothing_behind(
    open_store: OpenStore, error: type[Exception], arguments: dict[str, Any], where: dict[str, str]
) -> None:
    store = open_store(embedder=Failing({}, (1.0, 0.0)))
    store.remember("first", session="s", id="taken", key="k")
    if error is sqlmem.AlreadyExists and "id" not in arguments:
        where = {"session": "s"}
    before = store.stats()
    with pytest.raises(error):
        store.remember(**{**where, **arguments})
    assert store.stats() == before
    assert [store.get(store.remember(f"next {i}", session="s")).turn for i in range(2)] == [1, 2]


def test_a_failing_embedder_is_named_with_its_reason(open_store: OpenStore) -> None:
    store = open_store(embedder=Failing({}, (1.0, 0.0)))
    with pytest.raises(sqlmem.EmbeddingError, match=r"by-hand.*OSError.*no such device") as caught:
        store.remember("a fault")
    assert isinstance(caught.value.__cause__, OSError)


# -- many -------------------------------------------------------------------------------------------------------------


def test_many_are_stored_in_order_with_the_arguments_of_one(store: sqlmem.MemoryStore) -> None:
    store.categories.create("food")
    ids = store.remember_many(
        [
            "bare",
            {"text": "hi", "session": "s", "role": "Ana", "timestamp": START - DAY, "metadata": {"n": 1}},
            {"text": "hello", "session": "s", "role": "Ben"},
            {"text": "eats no fish", "pinned": True, "categories": ("food",), "user": "ana", "ttl_days": 5, "id": "mine"},
        ]
    )
    bare, ana, ben, pin = (store.get(id_) for id_ in ids)
    assert (bare.text, bare.kind, bare.session, bare.turn) == ("bare", "turn", None, 0)
    assert (ana.text, ana.role, ana.turn, ana.timestamp, ana.metadata) == ("hi", "Ana", 0, START - DAY, {"n": 1})
    assert (ben.text, ben.role, ben.turn, ben.timestamp) == ("hello", "Ben", 1, START)
    assert (pin.id, pin.kind, pin.user, pin.categories, pin.expires_at) == ("mine", "pinned", "ana", ("food",), START + 5 * DAY)
    assert all(isinstance(id_, sqlmem.MemoryId) and id_.created for id_ in ids)


def test_many_from_any_iterable(store: sqlmem.MemoryStore) -> None:
    ids = store.remember_many(f"line {i}" for i in range(3))
    assert [store.get(id_).text for id_ in ids] == ["line 0", "line 1", "line 2"]


def test_none_of_many_is_nothing(store: sqlmem.MemoryStore) -> None:
    calls: list[tuple[int, int]] = []
    assert store.remember_many([], progress=lambda done, total: calls.append((done, total))) == []
    assert calls == []
    assert store.stats().users == 0


def test_one_by_one_and_many_at_once_store_the_same(open_store: OpenStore) -> None:
    items: list[dict[str, Any]] = [
        {"text": f"line {i} about {'tea' if i % 3 else 'rum'}", "session": f"s{i % 2}", "role": "Ana"} for i in range(12)
    ]
    one, many = open_store(), open_store()
    for item in items:
        one.remember(**item)
    many.remember_many(items)
    found = [
        [(m.text, m.session, m.turn, m.score) for m in store.recall("who had rum on line 3", limit=20)] for store in (one, many)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 12


def test_progress_is_told_after_each_batch(store: sqlmem.MemoryStore) -> None:
    calls: list[tuple[int, int, int]] = []
    store.remember_many(["line"] * 600, progress=lambda done, total: calls.append((done, total, store.stats().live["turn"])))
    assert calls == [(256, 600, 256), (512, 600, 512), (600, 600, 600)]


def test_a_call_that_progress_stops_keeps_the_batches_done_and_can_be_repeated(open_store: OpenStore) -> None:
    embedder = Vectors({}, (1.0, 0.0))
    store = open_store(embedder=embedder)
    items = [{"text": f"line {i}", "session": "s", "key": f"k{i}"} for i in range(300)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.remember_many(items, progress=stop)
    assert store.stats().live["turn"] == 256
    ids = store.remember_many(items)
    assert [id_.created for id_ in ids] == [False] * 256 + [True] * 44
    assert [turn.text for turn in store.turns("s")] == [f"line {i}" for i in range(300)]
    assert embedder.documents == [f"line {i}" for i in range(300)]


BAD_LAST: dict[str, tuple[type[Exception], Any]] = {
    "blank": (sqlmem.InvalidArgument, {"text": " "}),
    "not a text": (sqlmem.InvalidArgument, 7),
    "none": (sqlmem.InvalidArgument, None),
    "unknown argument": (sqlmem.InvalidArgument, {"text": "x", "sesion": "s"}),
    "no text": (sqlmem.InvalidArgument, {"session": "s"}),
    "key that is no string": (sqlmem.InvalidArgument, {"text": "x", 1: 2}),
    "bad turn": (sqlmem.InvalidArgument, {"text": "x", "turn": -1}),
    "ttl beyond the calendar": (
        sqlmem.InvalidArgument,
        {"text": "x", "timestamp": datetime(9999, 12, 31, tzinfo=UTC), "ttl_days": 9},
    ),
    "unknown category": (sqlmem.NotFound, {"text": "x", "categories": ["nope"]}),
}


@pytest.mark.parametrize("case", BAD_LAST)
def test_one_bad_item_of_many_is_found_before_the_first_is_written(store: sqlmem.MemoryStore, case: str) -> None:
    error, last = BAD_LAST[case]
    before = store.stats()
    with pytest.raises(error):
        store.remember_many([*(["good"] * 300), last])
    assert store.stats() == before


@pytest.mark.parametrize("last", [{"text": "x", "id": "a"}, {"text": "x", "session": "s", "turn": 0}])
def test_what_is_taken_ends_the_batch_as_a_whole(store: sqlmem.MemoryStore, last: dict[str, Any]) -> None:
    store.remember("first", id="a", session="s")
    before = store.stats()
    with pytest.raises(sqlmem.AlreadyExists):
        store.remember_many(["good", {"text": "also good", "session": "s", "key": "k"}, last])
    assert store.stats() == before
    assert store.remember("also good", session="s", key="k").created


def test_the_place_of_the_bad_item_is_named(store: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match=r"items\[2\].*blank"):
        store.remember_many(["a", "b", "", "d"])


def test_many_items_given_as_one_mapping_are_refused(store: sqlmem.MemoryStore) -> None:
    """Iterating it would store its keys as texts."""
    with pytest.raises(sqlmem.InvalidArgument):
        store.remember_many({"text": "hello", "session": "s"})
    assert store.stats().live["turn"] == 0


def test_progress_that_cannot_be_called_is_refused_before_anything_is_written(store: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        store.remember_many(["hello"], progress=5)  # type: ignore[arg-type]
    assert store.stats().live["turn"] == 0


# -- what has no vector -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", [[0.0, 0.0], [math.nan, 1.0], [math.inf, 0.0], [-math.inf, math.nan]])
def test_a_text_without_a_usable_vector_is_kept_and_found_by_its_words(open_store: OpenStore, vector: list[float]) -> None:
    store = open_store(embedder=Vectors({"the zero plan": vector, "zero": (1.0, 0.0)}, (1.0, 0.0)))
    other = store.remember("unrelated")
    id_ = store.remember("the zero plan", kind="fact")
    (model,) = store.stats().models
    assert (model.vectors, model.pending) == (1, 0)
    found = store.recall("zero")
    assert set(found.ids) == {id_, other}
    assert all(math.isfinite(memory.score or math.nan) for memory in found)


def test_a_keyword_store_embeds_nothing(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    id_ = store.remember("the spare key is under the mat")
    assert store.recall("spare key").ids == [id_]
    assert store.stats().models == ()
