"""Times to live: counted to the millisecond, invisible at once, deleted by expire()."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock, assert_sound


def everywhere(store: sqlmem.MemoryStore) -> dict[str, list[str]]:
    """The texts that each reading verb shows of session s."""
    block = store.context("tea", session="s")
    return {
        "turns": [memory.text for memory in store.turns("s")],
        "recall": store.recall("tea", session="s").texts,
        "blank recall": store.recall("", session="s").texts,
        "superseded too": store.recall("tea", session="s", include_superseded=True).texts,
        "search": store.search("tea", session="s").texts,
        "context": [memory.text for part in (block.pinned, block.recent, block.retrieved) for memory in part],
        "list": [memory.text for memory in store.list(session="s")],
    }


@pytest.mark.parametrize("kind", ["turn", "fact", "pinned"])
def test_a_memory_is_there_until_its_last_millisecond_and_then_nowhere(clock: MovableClock, kind: Any) -> None:
    with sqlmem.open(":memory:", embedder=sqlmem.HashEmbedder(16), clock=clock) as store:
        id_ = store.remember("tea", session="s", kind=kind, ttl_days=30)
        assert store.get(id_).expires_at == START + 30 * DAY
        clock.now = START + 30 * DAY - MILLISECOND
        for verb, texts in everywhere(store).items():
            assert texts == (["tea"] if verb != "turns" or kind == "turn" else []), verb
        assert store.get(id_).state == "live"
        assert store.expire() == 0
        clock.now += MILLISECOND
        assert {verb: texts for verb, texts in everywhere(store).items() if texts} == {}
        assert store.get(id_).state == "expired"
        assert store.stats().expired == 1
        assert store.expire() == 1
        assert store.expire() == 0
        with pytest.raises(sqlmem.NotFound, match="was forgotten"):
            store.get(id_)
        assert_sound(store)


def test_a_time_between_milliseconds_is_that_millisecond(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        id_ = store.remember("tea", ttl_days=1, timestamp=START + timedelta(microseconds=900))
        assert store.get(id_).timestamp == START
        clock.now = START + DAY - timedelta(microseconds=1)
        assert store.get(id_).state == "live"
        clock.now = START + DAY + timedelta(microseconds=1)
        assert store.get(id_).state == "expired"


def test_by_default_everything_is_kept_for_ever(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        for kind in ("turn", "fact", "pinned"):
            store.remember(f"tea {kind}", session="s", kind=kind)
        clock.now = datetime(9000, 1, 1, tzinfo=UTC)
        assert store.expire() == 0
        assert len(store.list(session="s")) == 3


def test_each_kind_has_its_own_time(clock: MovableClock) -> None:
    rule: dict[str, Any] = {"turn": 30, "fact": 60.5, "pinned": None}
    with sqlmem.open(":memory:", embedder=False, clock=clock, ttl_days=rule) as store:
        ids = {kind: store.remember(kind, session="s", kind=kind) for kind in ("turn", "fact", "pinned")}
        assert {kind: store.get(id_).expires_at for kind, id_ in ids.items()} == {
            "turn": START + 30 * DAY, "fact": START + 60.5 * DAY, "pinned": None,
        }  # fmt: skip
        for after, texts in (
            (29, {"turn", "fact", "pinned"}),
            (30, {"fact", "pinned"}),
            (60.5, {"pinned"}),
            (9999, {"pinned"}),
        ):
            clock.now = START + timedelta(days=after)
            assert {memory.text for memory in store.list(session="s")} == texts
        assert store.expire() == 2


def test_infinity_in_the_store_s_rule_is_for_ever(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock, ttl_days={"turn": math.inf}) as store:
        assert store.get(store.remember("tea")).expires_at is None


def test_a_memory_s_own_time_goes_before_the_store_s(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock, ttl_days={"turn": 30}) as store:
        short = store.remember("short", ttl_days=1)
        for_ever = store.remember("for ever", ttl_days=math.inf)
        ruled = store.remember("ruled", ttl_days=None)
        assert store.get(short).expires_at == START + DAY
        assert store.get(for_ever).expires_at is None
        assert store.get(ruled).expires_at == START + 30 * DAY


def test_the_shortest_time_is_a_millisecond(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        id_ = store.remember("tea", ttl_days=1e-12)
        assert store.get(id_).expires_at == START + MILLISECOND
        assert store.get(id_).state == "live"


@pytest.mark.parametrize("days", [0, -1, 0.0, -0.5, True, False, "1", math.nan, -math.inf, 1e300, [1], timedelta(days=1)])
def test_a_time_that_makes_no_sense_is_refused_and_burns_no_number(clock: MovableClock, days: Any) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        with pytest.raises(sqlmem.InvalidArgument):
            store.remember("tea", session="s", ttl_days=days)
        assert store.get(store.remember("first", session="s")).turn == 0


def test_a_time_beyond_the_calendar_is_refused_and_burns_no_number(clock: MovableClock) -> None:
    clock.now = datetime(9999, 12, 30, tzinfo=UTC)
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        with pytest.raises(sqlmem.InvalidArgument, match="9999"):
            store.remember("tea", session="s", ttl_days=3)
        assert store.get(store.remember("first", session="s", ttl_days=1)).turn == 0


def test_the_store_s_rule_is_applied_when_a_memory_is_stored_not_later(tmp_path: Path, clock: MovableClock) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False, clock=clock) as store:
        kept = store.remember("kept", session="s")
    with sqlmem.open(path, embedder=False, clock=clock, ttl_days={"turn": 1}) as store:
        assert store.get(kept).expires_at is None
        ruled = store.remember("ruled", session="s")
    with sqlmem.open(path, embedder=False, clock=clock, ttl_days={"turn": 100}) as store:
        assert store.get(ruled).expires_at == START + DAY
        clock.forward(days=1)
        assert store.expire() == 1
        assert [turn.text for turn in store.turns("s")] == ["kept"]


def test_time_counts_from_what_the_memory_is_about(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        old = store.remember("imported", session="s", timestamp=START - 31 * DAY, ttl_days=30)
        assert store.get(old).expires_at == START - DAY
        assert store.get(old).state == "expired"  # stored, counted, and invisible from the start
        assert store.stats().expired == 1
        assert store.turns("s") == []
        ahead = store.remember("planned", session="s", timestamp=START + DAY, ttl_days=1)
        assert store.get(ahead).expires_at == START + 2 * DAY
        assert store.expire() == 1


def test_what_is_stored_too_late_says_so(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock, ttl_days={"turn": 30}) as store:
        moments = [START - 30 * DAY, START - 30 * DAY + MILLISECOND]
        items = [{"text": f"turn {number}", "timestamp": moment} for number, moment in enumerate(moments)]
        assert [id_.expired for id_ in store.remember_many(items)] == [True, False]
        assert store.remember("fact", kind="fact", timestamp=START - 5 * DAY, ttl_days=5).expired


def test_what_is_stored_too_late_ends_nothing(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock, judge=lambda new, known: [True] * len(known)) as store:
        store.remember("Ana drinks tea", kind="fact", timestamp=START - 9 * DAY)
        late = store.remember("Ana drinks rum", kind="fact", timestamp=START - 5 * DAY, ttl_days=5)
        assert (late.expired, late.superseded) == (True, ())
        assert store.recall("Ana drinks").texts == ["Ana drinks tea"]


def test_expire_can_be_asked_about_another_time(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        for days in (1, 2, 3):
            store.remember(f"{days}", session="s", ttl_days=days)
        assert store.expire(now=(START + 2 * DAY).replace(tzinfo=None)) == 2
        assert [turn.text for turn in store.turns("s")] == ["3"]
        for nonsense in ("now", 5, True):
            with pytest.raises(sqlmem.InvalidArgument):
                store.expire(now=nonsense)  # type: ignore[arg-type]
        assert len(store.turns("s")) == 1


def test_expire_takes_all_users_and_superseded_versions(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=sqlmem.HashEmbedder(16), clock=clock) as store:
        for user in ("", "ana", "ben"):
            store.remember("tea", user=user, session="s", ttl_days=1)
        old = store.remember("v1", kind="fact", ttl_days=1)
        new = store.correct(old, "v2", ttl_days=5)
        clock.forward(days=1)
        assert store.get(old).state == "superseded"
        assert store.expire() == 4
        assert [memory.id for memory in store.list()] == [new]
        assert [memory.id for memory in store.history(new)] == [new]
        assert store.stats().forgotten == 4
        assert_sound(store)


def test_thousands_expire_in_one_transaction(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        store.remember_many([{"text": f"turn {n}", "session": "s", "ttl_days": 1 + n % 2} for n in range(3000)])
        clock.forward(days=1)
        assert len(store.turns("s")) == 1500
        assert store.expire() == 1500
        assert [turn.turn for turn in store.turns("s", last=2)] == [2997, 2999]
        assert_sound(store)


def test_an_expired_fact_said_again_is_new(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        first = store.remember("tea", kind="fact", ttl_days=1)
        clock.now = START + DAY - MILLISECOND
        assert store.remember("tea", kind="fact") == first
        clock.now += MILLISECOND
        again = store.remember("tea", kind="fact")
        assert again.created
        assert [memory.id for memory in store.list()] == [again]
        assert store.expire() == 1
        assert store.get(again).state == "live"


def test_an_expired_turn_keeps_its_number(clock: MovableClock) -> None:
    with sqlmem.open(":memory:", embedder=False, clock=clock) as store:
        store.remember("tea", session="s", ttl_days=1)
        clock.forward(days=2)
        with pytest.raises(sqlmem.AlreadyExists):
            store.remember("rum", session="s", turn=0)
        assert store.expire() == 1
        assert store.get(store.remember("rum", session="s")).turn == 1


def test_an_expired_text_is_gone_from_the_file(tmp_path: Path, clock: MovableClock) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(16), clock=clock) as store:
        store.remember("Quetzalcoatl's Vault", session="s", ttl_days=1)
        store.remember("kept", session="s")
    assert b"Quetzalcoatl" in path.read_bytes()
    clock.forward(days=1)
    with sqlmem.open(path, clock=clock) as store:
        assert b"Quetzalcoatl" in path.read_bytes()  # expiry alone hides, it does not delete
        assert store.expire() == 1
    assert b"Quetzalcoatl" not in path.read_bytes()
