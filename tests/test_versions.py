"""Versions that end without a successor, come back, or follow each other: numbers, moments and reasons are exact."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_judge import rows, same_subject
from tests.helpers_store import DAY, START, MovableClock, broken_rules


@pytest.fixture
def chain(either: sqlmem.MemoryStore, clock: MovableClock) -> list[str]:
    """The ids of three versions, a day apart."""
    either.categories.create("food")
    ids = [str(either.remember("Ana eats rice", kind="fact", metadata={"n": 1}, categories=["food"], ttl_days=30, session="s"))]
    for number, text in ((2, "Ana eats pasta"), (3, "Ana eats bread")):
        clock.forward(days=1)
        ids.append(str(either.correct(ids[0], text, metadata={"n": number}, categories=[], ttl_days=float("inf"))))
    clock.forward(days=1)
    return ids


# -- invalidate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("reason", ["invalidated", "system_correction"])
def test_a_memory_ends_whichever_version_is_named(
    either: sqlmem.MemoryStore, chain: list[str], clock: MovableClock, version: int, reason: Any
) -> None:
    assert either.invalidate(chain[version], reason, note="she told me") == chain[2]
    ended = either.get(chain[2])
    assert (ended.state, ended.expired_at, ended.expiration_reason, ended.expiration_note, ended.replaced_by) == (
        "ended",
        clock.now,
        reason,
        "she told me",
        None,
    )
    assert either.recall("What does Ana eat?", session="s", include_superseded=True).ids != [chain[2]]
    assert either.list(session="s").items == ()
    assert (either.stats().ended, either.stats().superseded) == (1, 2)
    assert broken_rules(either) == []


def test_what_has_ended_cannot_end_or_be_corrected(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    either.invalidate(chain[0])
    before = rows(either)
    with pytest.raises(sqlmem.NotFound, match="has no live version"):
        either.invalidate(chain[0])
    with pytest.raises(sqlmem.NotFound, match="has no live version"):
        either.correct(chain[0], "Ana eats nothing")
    assert rows(either) == before


@pytest.mark.parametrize("reason", ["updated", "merged", "conflict_resolved", "", None, 7])
def test_reasons_that_other_verbs_give_are_refused(either: sqlmem.MemoryStore, chain: list[str], reason: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match="reason must be 'invalidated' or 'system_correction'"):
        either.invalidate(chain[0], reason)
    if reason != "updated":
        with pytest.raises(sqlmem.InvalidArgument, match="reason must be 'updated' or 'system_correction'"):
            either.correct(chain[0], "Ana eats corn", reason=reason)
    with pytest.raises(sqlmem.InvalidArgument, match="note must be a string"):
        either.invalidate(chain[0], note=7)  # type: ignore[arg-type]
    assert either.get(chain[2]).state == "live"


def test_a_corrected_version_keeps_why(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    either.correct(chain[0], "Ana eats corn", reason="system_correction", note="a typing error")
    ended = either.get(chain[2])
    assert (ended.expiration_reason, ended.expiration_note) == ("system_correction", "a typing error")


def test_the_note_goes_with_the_version_that_it_may_quote(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    new = either.correct(chain[0], "Ana eats corn", note="corn, she said")
    either.forget(ids=[new])
    assert either.get(chain[2]).expiration_note is None


def test_an_invalidated_turn_leaves_its_place(either: sqlmem.MemoryStore) -> None:
    for number in range(5):
        either.remember(f"turn {number} about ferries", session="s", id=f"t{number}")
    either.invalidate("t2")
    assert [turn.turn for turn in either.turns("s")] == [0, 1, 3, 4]
    assert either.check().ok
    back = either.get(either.rollback("t2", 1))
    assert (back.turn, back.text, back.version_number) == (2, "turn 2 about ferries", 2)
    assert [turn.turn for turn in either.turns("s")] == [0, 1, 2, 3, 4]
    assert either.check().ok
    assert back.id in either.recall("turn 2", session="s").ids


# -- rollback ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [0, 1, 2])
def test_an_earlier_version_becomes_the_next(
    either: sqlmem.MemoryStore, chain: list[str], clock: MovableClock, named: int
) -> None:
    new = either.rollback(chain[named], 1)
    assert (new.created, new.superseded) == (True, (chain[2],))
    versions = either.history(new)
    assert [(m.text, m.version_number, m.state) for m in versions] == [
        ("Ana eats rice", 1, "superseded"),
        ("Ana eats pasta", 2, "superseded"),
        ("Ana eats bread", 3, "superseded"),
        ("Ana eats rice", 4, "live"),
    ]
    last, back = versions[2:]
    assert (last.expired_at, last.expiration_reason, last.expiration_note, last.replaced_by) == (
        clock.now,
        "updated",
        "rolled back to version 1",
        new,
    )
    assert (back.created_at, back.timestamp, back.expires_at) == (clock.now, clock.now, clock.now + 30 * DAY)
    assert (back.metadata, back.categories, back.session) == ({"n": 1}, ("food",), "s")
    assert either.recall("What does Ana eat?", session="s").ids == [new]
    assert broken_rules(either) == []


def test_the_live_version_is_no_change(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    before = rows(either)
    again = either.rollback(chain[0], 3)
    assert (again, again.created) == (chain[2], False)
    assert rows(either) == before


def test_what_ended_lives_again(either: sqlmem.MemoryStore, chain: list[str], clock: MovableClock) -> None:
    either.invalidate(chain[0])
    clock.forward(days=1)
    new = either.rollback(chain[0], 3)
    assert new.superseded == ()
    assert [(m.version_number, m.state, m.replaced_by) for m in either.history(new)[2:]] == [
        (3, "ended", None),
        (4, "live", None),
    ]


def test_a_version_that_is_not_held_is_named(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    either.forget(ids=[chain[1]])
    for number in (2, 4):
        with pytest.raises(sqlmem.NotFound, match=f"has no version {number} that is still held; held are: 1, 3"):
            either.rollback(chain[0], number)
    for wrong in (0, -1, True, "1"):
        with pytest.raises(sqlmem.InvalidArgument):
            either.rollback(chain[0], wrong)  # type: ignore[arg-type]
    with pytest.raises(sqlmem.NotFound, match="was forgotten"):
        either.rollback(chain[1], 1)


def test_an_expired_head_can_be_rolled_back_to(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = either.remember("Ana is away", kind="fact", ttl_days=1)
    clock.forward(days=5)
    new = either.get(either.rollback(id_, 1))
    assert (new.version_number, new.expires_at, new.state) == (2, clock.now + DAY, "live")


# -- how versions follow each other -----------------------------------------------------------------------------------


def test_every_reason_is_given_by_its_verb(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject)
    ids = [store.remember(f"{name} eats rice", kind="fact") for name in ("Ana", "Ben", "Cleo", "Dan")]
    store.correct(ids[0], "Ana eats bread")
    store.correct(ids[1], "Ben eats bread", reason="system_correction")
    store.invalidate(ids[2])
    store.conflicts.set_mode("ask")
    new = store.remember("Dan eats bread", kind="fact")
    store.conflicts.resolve(str(new.conflict_id), "take_new")
    assert [store.get(id_).expiration_reason for id_ in ids] == [
        "updated",
        "system_correction",
        "invalidated",
        "conflict_resolved",
    ]


def test_a_clock_that_goes_back_does_not_turn_a_history_round(either: sqlmem.MemoryStore, clock: MovableClock) -> None:
    id_ = either.remember("Ana eats rice", kind="fact")
    clock.now = START - 5 * DAY
    either.correct(id_, "Ana eats bread")
    either.rollback(id_, 1)
    either.invalidate(id_)
    versions = either.history(id_)
    assert [memory.created_at for memory in versions] == [START] * 3
    assert [memory.expired_at for memory in versions] == [START] * 3
    assert broken_rules(either) == []


def test_numbers_have_no_gap_after_undone_versions(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    either.correct(chain[0], "Ana eats corn")
    either.undo()
    assert either.get(either.rollback(chain[0], 1)).version_number == 4
    either.undo()
    assert either.get(either.correct(chain[0], "Ana eats figs")).version_number == 4
    assert broken_rules(either) == []


@pytest.mark.parametrize(
    "change",
    [
        "text = 'x'",
        "at = 0",
        "created_at = 0",
        "chain = 1",
        "version = 9",
        "scope = 1",
        "kind = 'pinned'",
        "valid_from = 1",
        "metadata = '{}'",
        "id = 'x'",
    ],
)
def test_a_stored_version_cannot_be_changed_by_anyone(tmp_path: Path, change: str) -> None:
    with sqlmem.open(tmp_path / "chat.db", embedder=False, judge=same_subject, on_contradiction="ask") as store:
        store.remember("Ana eats rice", kind="fact")
        store.remember("Ana eats bread", kind="fact")
    with closing(sqlite3.connect(tmp_path / "chat.db")) as db:
        with pytest.raises(sqlite3.IntegrityError, match="a stored version never changes"):
            db.execute(f"update memory set {change} where held is null")
        if not change.startswith(("kind", "scope", "chain", "version", "created_at")):
            with pytest.raises(sqlite3.IntegrityError, match="a stored version never changes"):
                db.execute(f"update memory set {change} where held = 'proposed'")


def test_a_fact_may_be_stated_anew_after_it_ended(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    either.invalidate(chain[0])
    new = either.remember("Ana eats bread", kind="fact", session="s")
    assert (new.created, either.get(new).version_number) == (True, 1)
    assert either.get(either.rollback(chain[0], 1)).version_number == 4


def test_metadata_and_notes_may_be_long(either: sqlmem.MemoryStore, chain: list[str]) -> None:
    note = "because " * 10_000
    either.invalidate(chain[0], note=note)
    assert either.get(chain[2]).expiration_note == note
    assert either.history(chain[0])[0].timestamp + timedelta(days=2) == either.get(chain[2]).timestamp
