"""Versions of a memory: their order, their links, and what is left when some are forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest

import sqlmem
from tests.helpers_store import START, MovableClock


@pytest.fixture
def chain(store: sqlmem.MemoryStore, clock: MovableClock) -> list[str]:
    """The ids of v1 to v4, an hour apart."""
    ids = [store.remember("v1", kind="fact", session="s")]
    for number in (2, 3, 4):
        clock.forward(hours=1)
        ids.append(store.correct(ids[0], f"v{number}"))
    return [str(id_) for id_ in ids]


def test_any_version_leads_to_the_whole_history(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    for id_ in chain:
        assert [(memory.id, memory.text, memory.version_number) for memory in store.history(id_)] == [
            (chain[number], f"v{number + 1}", number + 1) for number in range(4)
        ]


def test_each_version_ends_when_the_next_begins(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    versions = store.history(chain[0])
    assert [memory.created_at for memory in versions] == [START + timedelta(hours=number) for number in range(4)]
    assert [memory.expired_at for memory in versions] == [*[memory.created_at for memory in versions[1:]], None]
    assert [memory.replaced_by for memory in versions] == [*chain[1:], None]
    assert [memory.state for memory in versions] == ["superseded"] * 3 + ["live"]
    assert {memory.total_versions for memory in versions} == {4}


def test_a_version_shows_those_before_it(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    for number, id_ in enumerate(chain):
        memory = store.get(id_)
        assert [earlier.id for earlier in memory.previous_versions] == chain[:number]
        assert all(earlier.previous_versions == () for earlier in memory.previous_versions)
    assert all(memory.previous_versions == () for memory in store.history(chain[0]))


def test_old_versions_are_readable_and_never_recalled(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    assert store.get(chain[0]).text == "v1"
    assert store.recall("v1", session="s").ids == [chain[3]]
    assert store.list(session="s").items[0].id == chain[3]
    assert set(store.recall("v1", session="s", include_superseded=True).ids) == set(chain)
    assert [memory.id for memory in store.list(session="s", include_superseded=True)] == chain[::-1]


def test_a_memory_that_was_never_corrected_has_one_version(store: sqlmem.MemoryStore) -> None:
    turn = store.remember("hello", session="s")
    (only,) = store.history(turn)
    assert (only.id, only.version_number, only.total_versions, only.state) == (turn, 1, 1, "live")


def test_an_unknown_memory_has_no_history(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    for verb in (store.history, store.get):
        with pytest.raises(sqlmem.NotFound, match="is not in this store"):
            verb("unknown")


def test_a_forgotten_old_version_leaves_a_gap(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    assert store.forget(ids=[chain[1]]) == 1
    versions = store.history(chain[0])
    assert [memory.version_number for memory in versions] == [1, 3, 4]
    assert {memory.total_versions for memory in versions} == {4}
    assert versions[0].replaced_by == chain[1]  # the id of what it was replaced by is not forgotten
    with pytest.raises(sqlmem.NotFound, match="was forgotten"):
        store.history(chain[1])
    new = store.correct(chain[0], "v5")
    assert store.get(new).version_number == 5


def test_a_forgotten_first_version_does_not_break_the_chain(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    assert store.forget(ids=[chain[0]]) == 1
    assert [memory.version_number for memory in store.history(chain[3])] == [2, 3, 4]
    assert store.get(store.correct(chain[2], "v5")).version_number == 5


def test_forgetting_the_live_version_revives_none(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    assert store.forget(ids=[chain[3]]) == 1
    assert store.list(session="s").items == ()
    versions = store.history(chain[0])
    assert [(memory.version_number, memory.state) for memory in versions] == [(n, "superseded") for n in (1, 2, 3)]
    assert versions[-1].replaced_by == chain[3]
    assert {memory.total_versions for memory in versions} == {4}


def test_forgetting_all_versions_forgets_the_memory(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    assert store.forget(ids=chain) == 4
    for id_ in chain:
        with pytest.raises(sqlmem.NotFound, match="was forgotten"):
            store.get(id_)
    assert store.stats().forgotten == 4


def test_the_content_of_a_stored_version_never_changes(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    db = store._engine.db
    for column in (
        "rowid id scope kind role turn text at created_at expires_at chain version digest metadata".split()
    ):  # fmt: skip
        with pytest.raises(sqlmem.StorageError), db.write():
            db.execute(f"update memory set {column} = {column}")
    assert [memory.text for memory in store.history(chain[0])] == ["v1", "v2", "v3", "v4"]


def test_two_live_versions_of_one_memory_are_impossible(store: sqlmem.MemoryStore, chain: list[str]) -> None:
    db = store._engine.db
    with pytest.raises(sqlmem.StorageError), db.write():
        db.execute("update memory set ended_at = null, end_reason = null, ended_by = null where id = ?", (chain[2],))
    assert store.get(chain[2]).state == "superseded"


def test_turns_have_histories_too(store: sqlmem.MemoryStore) -> None:
    turn = store.remember("helo", session="s")
    store.correct(turn, "hello")
    assert [(memory.text, memory.turn, memory.state) for memory in store.history(turn)] == [
        ("helo", 0, "superseded"), ("hello", 0, "live"),
    ]  # fmt: skip
