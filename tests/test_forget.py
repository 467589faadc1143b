"""Forgetting: what is chosen, what is counted, and that the text is really gone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock, assert_sound


def left(store: sqlmem.MemoryStore) -> list[str]:
    """The texts of all versions that are still there, sorted."""
    return sorted(memory.text for memory in store.list(all_users=True, include_superseded=True, limit=1000))


@pytest.fixture
def mixed(store: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    """Two users, two sessions, every kind, and superseded versions of a fact, a pin and a turn."""
    for user in ("", "ana"):
        for session in (None, "s", "t"):
            name = f"{user or '-'}/{session or '-'}"
            store.remember(f"turn {name}", user=user, session=session)
            store.remember(f"fact {name}", user=user, session=session, kind="fact")
            store.remember(f"pin {name}", user=user, session=session, pinned=True)
    for kind in ("fact", "pin", "turn"):
        (found,) = (memory for memory in store.list(session="s") if memory.text == f"{kind} -/s")
        store.correct(found.id, f"new {kind} -/s")
    return store


ALL_21 = sorted(
    [f"{kind} {user}/{session}" for kind in ("turn", "fact", "pin") for user in ("-", "ana") for session in ("-", "s", "t")]
    + [f"new {kind} -/s" for kind in ("turn", "fact", "pin")]
)


@pytest.mark.parametrize(
    ("selection", "gone"),
    [
        ({"all": True}, ["turn -/-", "turn -/s", "new turn -/s", "turn -/t"]),
        ({"all": True, "user": "ana"}, ["turn ana/-", "turn ana/s", "turn ana/t"]),
        ({"session": "s"}, ["turn -/s", "new turn -/s"]),
        ({"session": "s", "user": "ana"}, ["turn ana/s"]),
        ({"session": "s", "all": True}, ["turn -/s", "new turn -/s"]),
        ({"session": "unknown"}, []),
        ({"session": "s", "user": "unknown"}, []),
        ({"kinds": ["fact"]}, ["fact -/-", "fact -/s", "new fact -/s", "fact -/t"]),
        ({"kinds": ("fact", "pinned"), "session": "t"}, ["fact -/t", "pin -/t"]),
        ({"kinds": ["turn"], "user": "ana"}, ["turn ana/-", "turn ana/s", "turn ana/t"]),
        ({"kinds": ["summary"]}, []),
        ({"superseded": True}, ["fact -/s", "pin -/s"]),
        ({"superseded": True, "session": "s"}, ["fact -/s", "pin -/s"]),
        ({"superseded": True, "session": "t"}, []),
        ({"superseded": True, "user": "ana"}, []),
        ({"superseded": True, "kinds": ["fact"], "session": "s"}, ["fact -/s"]),
        ({"superseded": True, "kinds": ["turn"]}, ["turn -/s"]),
        ({"superseded": True, "all": True}, ["fact -/s", "pin -/s"]),
        ({"older_than": 0}, []),
    ],
)
def test_forget_takes_exactly_what_is_selected(mixed: sqlmem.MemoryStore, selection: dict[str, Any], gone: list[str]) -> None:
    assert left(mixed) == ALL_21
    assert mixed.forget(**selection) == len(gone)
    assert left(mixed) == sorted(set(ALL_21) - set(gone))
    assert mixed.stats().forgotten == len(gone)
    assert mixed.forget(**selection) == 0


@pytest.mark.parametrize("selection", [{}, {"user": "ana"}, {"superseded": False, "all": False}])
def test_forget_without_a_selector_is_refused(mixed: sqlmem.MemoryStore, selection: dict[str, Any]) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match="all=True"):
        mixed.forget(**selection)
    assert left(mixed) == ALL_21


@pytest.mark.parametrize(
    "selection",
    [
        {"ids": "abc"}, {"ids": b"abc"}, {"ids": 5}, {"ids": [5]}, {"ids": [None]}, {"ids": ["\ud800"]},
        {"session": ""}, {"session": 5}, {"user": None, "session": "s"}, {"user": 5, "all": True},
        {"kinds": "fact"}, {"kinds": []}, {"kinds": ["facts"]}, {"kinds": [None]},
        {"older_than": True}, {"older_than": False}, {"older_than": -1}, {"older_than": -0.001}, {"older_than": "90"},
        {"older_than": float("nan")}, {"older_than": float("inf")}, {"older_than": timedelta(days=1)},
        {"all": 1}, {"all": "yes"}, {"superseded": 1}, {"superseded": "yes", "session": "s"}, {"all": None, "session": "s"},
        {"where": "x"}, {"where": {"k": {"like": 1}}}, {"where": {5: 1}},
    ],
)  # fmt: skip
def test_a_selection_that_makes_no_sense_is_refused_and_deletes_nothing(
    mixed: sqlmem.MemoryStore, selection: dict[str, Any]
) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        mixed.forget(**selection)
    assert left(mixed) == ALL_21


# -- by id ------------------------------------------------------------------------------------------------------------


def test_ids_name_memories_of_any_kind_and_user(mixed: sqlmem.MemoryStore) -> None:
    chosen = [memory.id for memory in mixed.list(all_users=True, limit=100) if memory.text.endswith("ana/s")]
    assert len(chosen) == 3
    assert mixed.forget(ids=[*chosen, *chosen, "unknown", ""]) == 3
    assert left(mixed) == [text for text in ALL_21 if not text.endswith("ana/s")]
    assert mixed.forget(ids=chosen) == 0


def test_no_ids_is_nothing(mixed: sqlmem.MemoryStore) -> None:
    none: list[Any] = [[], (), set()]
    for nothing in none:
        assert mixed.forget(ids=nothing) == 0
    assert mixed.forget(ids=[], session="s", all=True) == 0
    assert left(mixed) == ALL_21


@pytest.mark.parametrize(
    ("also", "gone"),
    [
        ({"kinds": ["fact"]}, ["fact -/t"]),
        ({"session": "t"}, ["fact -/t", "pin -/t", "turn -/t"]),
        ({"session": "s"}, []),
        ({"superseded": True}, []),
        ({"older_than": 1}, []),
    ],
)
def test_what_stands_beside_ids_must_hold_as_well(mixed: sqlmem.MemoryStore, also: dict[str, Any], gone: list[str]) -> None:
    ids = [memory.id for memory in mixed.list(session="t", limit=100) if memory.text.endswith("-/t")]
    assert mixed.forget(ids=ids, **also) == len(gone)
    assert left(mixed) == sorted(set(ALL_21) - set(gone))


def test_ids_may_be_more_than_sqlite_takes_parameters(store: sqlmem.MemoryStore) -> None:
    ids = store.remember_many([f"number {n}" for n in range(2500)])
    assert store.forget(ids=[*ids[:2400], *(f"unknown {n}" for n in range(40_000))]) == 2400
    assert [turn.text for turn in store.turns(None)] == [f"number {n}" for n in range(2400, 2500)]


@pytest.mark.parametrize("id_", ["a-b", "a_b", "a%", "o'hara", "*", '"', "é🍕", "' or 1=1 --", "[1]", "a,b", "\\"])
def test_an_id_means_itself_only(store: sqlmem.MemoryStore, id_: str) -> None:
    store.remember("kept", id="kept")
    store.remember("gone", id=id_)
    assert store.forget(ids=[id_]) == 1
    assert left(store) == ["kept"]


@pytest.mark.parametrize("name", ["a-b", "a_b", "a%", "o'hara", "*", '"', "é🍕", "null", "[]", "A", "a b"])
def test_a_session_means_itself_only(store: sqlmem.MemoryStore, name: str) -> None:
    for session in ("a", "axb", name):
        store.remember(f"in {session}", session=session)
    assert store.forget(session=name) == 1
    assert left(store) == ["in a", "in axb"]


# -- by age -----------------------------------------------------------------------------------------------------------


def test_older_than_is_exact_to_the_millisecond_and_exclusive(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    for offset in (-1, 0, 1):
        store.remember(f"{offset}", session="s", timestamp=START - 90 * DAY + offset * MILLISECOND)
    assert store.forget(session="s", older_than=90) == 1
    assert left(store) == ["0", "1"]
    clock.now += MILLISECOND
    assert store.forget(session="s", older_than=90) == 1
    assert store.forget(session="s", older_than=START - 90 * DAY + MILLISECOND) == 0
    assert store.forget(session="s", older_than=START - 90 * DAY + 2 * MILLISECOND) == 1
    assert left(store) == []


def test_older_than_takes_fractions_of_days(store: sqlmem.MemoryStore) -> None:
    store.remember("an hour old", timestamp=START - timedelta(hours=1))
    assert store.forget(older_than=1.5 / 24) == 0
    assert store.forget(older_than=0.5 / 24) == 1


def test_older_than_a_datetime_reads_naive_as_utc_and_converts_the_rest(store: sqlmem.MemoryStore) -> None:
    store.remember("noon", timestamp=datetime(2025, 1, 1, 12, tzinfo=UTC))
    assert store.forget(older_than=datetime(2025, 1, 1, 12)) == 0  # noqa: DTZ001
    assert store.forget(older_than=datetime(2025, 1, 1, 12, 1, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert store.forget(older_than=datetime(2025, 1, 1, 7, 1, tzinfo=timezone(timedelta(hours=-5)))) == 1


def test_age_is_that_of_what_was_said_not_of_when_it_was_stored(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.remember("imported", timestamp=START - 400 * DAY)
    store.remember("said now")
    clock.forward(days=10)
    assert store.forget(older_than=90) == 1
    assert left(store) == ["said now"]


def test_facts_and_pins_outlive_an_age_limit_for_turns(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.remember("turn", session="s")
    store.remember("fact", session="s", kind="fact")
    store.remember("pin", session="s", pinned=True)
    clock.forward(days=91)
    assert store.forget(session="s", older_than=90) == 1
    assert left(store) == ["fact", "pin"]
    assert store.forget(session="s", older_than=90, kinds=["turn", "fact", "pinned"]) == 2


def test_zero_days_means_everything_before_now(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.remember("earlier")
    clock.now += MILLISECOND
    store.remember("now")
    assert store.forget(older_than=0) == 1
    assert left(store) == ["now"]


# -- by metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ({"n": 1}, ["1"]), ({"n": {"gte": 2}}, ["2", "3"]), ({"n": {"in": [1, 3]}}, ["1", "3"]),
        ({"n": {"ne": 1}}, ["2", "3", "none"]),
        ({"n": {"gt": 1, "lt": 3}}, ["2"]), ({"tags": {"contains": "x"}}, ["2"]), ({"n": "1"}, []), ({"missing": None}, []),
        ({"n": {"in": []}}, []), ({'quo"te': True}, ["3"]), ({}, ["1", "2", "3", "none"]),
    ],
)  # fmt: skip
def test_metadata_selects(store: sqlmem.MemoryStore, where: dict[str, Any], gone: list[str]) -> None:
    store.remember("1", metadata={"n": 1})
    store.remember("2", metadata={"n": 2, "tags": ["x", "y"]})
    store.remember("3", metadata={"n": 3, "tags": ["y"], 'quo"te': True})
    store.remember("none")
    assert store.forget(where=where) == len(gone)
    assert left(store) == sorted({"1", "2", "3", "none"} - set(gone))


# -- states -----------------------------------------------------------------------------------------------------------


def test_expired_memories_can_be_forgotten_too(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.remember("expired", session="s", ttl_days=1)
    clock.forward(days=2)
    assert store.forget(session="s") == 1
    assert store.expire() == 0


def test_a_superseded_memory_that_expired_counts_as_superseded(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    old = store.remember("old", kind="fact", ttl_days=1)
    store.correct(old, "new", ttl_days=float("inf"))
    clock.forward(days=2)
    assert store.get(old).state == "superseded"
    assert store.forget(superseded=True) == 1
    assert left(store) == ["new"]


def test_superseded_leaves_facts_that_were_never_replaced(store: sqlmem.MemoryStore) -> None:
    store.remember("alone", kind="fact")
    old = store.remember("v1", kind="fact")
    store.correct(store.correct(old, "v2"), "v3")
    assert store.forget(superseded=True) == 2
    assert left(store) == ["alone", "v3"]
    (only,) = store.history(store.list(kinds=["fact"]).items[0].id)
    assert only.text in ("alone", "v3")


# -- numbers, ids and keys of the forgotten ---------------------------------------------------------------------------


@pytest.mark.parametrize("reopen", [False, True])
def test_a_forgotten_turn_s_number_is_not_given_again(tmp_path: Path, reopen: bool) -> None:
    path = tmp_path / "chat.db"
    store = sqlmem.open(path, embedder=False)
    ids = [store.remember(f"{n}", session="s") for n in range(3)]
    assert store.forget(ids=[ids[2]]) == 1
    if reopen:
        store.close()
        store = sqlmem.open(path, embedder=False)
    assert store.get(store.remember("next", session="s")).turn == 3
    assert store.forget(session="s") == 3
    if reopen:
        store.close()
        store = sqlmem.open(path, embedder=False)
    assert store.get(store.remember("after all", session="s")).turn == 4
    store.close()


def test_a_forgotten_id_is_not_taken_again(store: sqlmem.MemoryStore) -> None:
    store.remember("gone", id="mine")
    store.forget(ids=["mine"])
    with pytest.raises(sqlmem.AlreadyExists, match="mine"):
        store.remember("new", id="mine")
    assert left(store) == []


def test_a_key_of_a_forgotten_memory_is_free(store: sqlmem.MemoryStore) -> None:
    first = store.remember("said", session="s", key="k")
    store.forget(ids=[first])
    again = store.remember("said", session="s", key="k")
    assert again.created
    assert again != first
    assert store.remember("said", session="s", key="k") == again


def test_a_forgotten_fact_said_again_is_new(store: sqlmem.MemoryStore) -> None:
    first = store.remember("Ana drinks tea", kind="fact")
    store.forget(ids=[first])
    again = store.remember("Ana drinks tea", kind="fact")
    assert again.created
    assert store.get(again).version_number == 1
    assert store.get(again).seen == 1


def test_grades_categories_and_links_go_with_a_memory(store: sqlmem.MemoryStore) -> None:
    store.categories.create("food")
    old = store.remember("tea", kind="fact", categories=["food"], key="k")
    new = store.correct(old, "rum")
    store.feedback(new, "useful")
    assert store.forget(ids=[old, new]) == 2
    db = store._engine.db
    for table in (
        "memory", "feedback", "link", "memory_category", "memory_key", "pending", "vector_hash_64", "memory_fts_docsize",
    ):  # fmt: skip
        assert db.value(f"select count(*) from {table}") == 0, table
    assert [category.count for category in store.categories.list()] == [0]
    assert store.stats().forgotten == 2


def test_a_forgotten_memory_is_in_no_answer(store: sqlmem.MemoryStore) -> None:
    gone = store.remember("the secret is xyzzy", session="s", pinned=True)
    turn = store.remember("xyzzy again", session="s")
    kept = store.remember("a turn beside it", session="s")
    store.forget(ids=[gone, turn])
    assert store.recall("xyzzy secret", session="s", include_superseded=True).ids == [kept]
    assert store.search("xyzzy", session="s").ids == [kept]
    assert store.turns("s")[0].id == kept
    assert [memory.id for memory in store.list(session="s", include_superseded=True)] == [kept]
    assert "xyzzy" not in store.context("xyzzy", session="s").text
    for verb in (store.get, store.history):
        with pytest.raises(sqlmem.NotFound, match="was forgotten"):
            verb(gone)


# -- the bytes --------------------------------------------------------------------------------------------------------


def _bytes_hold(path: Path, word: str) -> list[str]:
    return [file.name for file in path.parent.iterdir() if word.encode() in file.read_bytes()]


@pytest.mark.parametrize("embedder", [sqlmem.HashEmbedder(16), False], ids=["vectors", "keywords"])
def test_a_forgotten_text_is_gone_from_the_file_once_it_is_closed(tmp_path: Path, embedder: Any) -> None:
    path = tmp_path / "chat.db"
    secret = "Quetzalcoatl keeps the Vault-Code 7734"
    with sqlmem.open(path, embedder=embedder) as store:
        store.remember_many([{"text": f"turn {n} about nothing", "session": "s"} for n in range(40)])
        ids = [
            store.remember(secret, session="s"),
            store.remember(f"Fact: {secret}", kind="fact", metadata={"note": "Xochimilco"}),
            store.remember(f"{secret} " * 400, session="s"),
        ]
        store.remember_many([{"text": f"turn {n} about nothing", "session": "s"} for n in range(40)])
    assert _bytes_hold(path, secret) == ["chat.db"]
    assert _bytes_hold(path, "Xochimilco") == ["chat.db"]
    with sqlmem.open(path, embedder=embedder) as store:
        assert store.forget(ids=ids) == 3
        assert_sound(store)
    assert _bytes_hold(path, secret) == []
    assert _bytes_hold(path, "Quetzalcoatl") == []
    assert _bytes_hold(path, "Xochimilco") == []


@pytest.mark.parametrize("embedder", [sqlmem.HashEmbedder(16), False], ids=["vectors", "keywords"])
def test_a_forgotten_version_leaves_nothing_that_vacuum_does_not_take(tmp_path: Path, embedder: Any) -> None:
    """SQLite leaves copies in the free part of a page when a row in it grows, as one does that ends."""
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=embedder) as store:
        store.remember_many([{"text": f"turn {n} about nothing", "session": "s"} for n in range(40)])
        old = store.remember("Pin: Quetzalcoatl keeps the Vault-Code 7734", pinned=True)
        new = store.correct(old, "Newer: Quetzalcoatl keeps the Vault-Code 7735")
        store.remember_many([{"text": f"turn {n} about nothing", "session": "s"} for n in range(40)])
        assert store.forget(ids=[old, new]) == 2
        assert_sound(store)
    with closing(sqlite3.connect(path)) as db:
        db.execute("vacuum")
    assert _bytes_hold(path, "Quetzalcoatl") == []


def test_a_forgotten_word_is_in_no_row_of_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False) as store:
        before, gone, after = (store.remember(text, session="s") for text in ("one", "zanzibar", "two"))
        store.remember("three", session="s")
        db = store._engine.db
        assert db.value("select doc from memory_word where term = 'zanzibar'") == 4  # its own row and its neighbours'
        store.forget(ids=[gone])
        assert db.value("select count(*) from memory_word where term = 'zanzibar'") == 0
        assert db.value("select count(*) from memory_word_place where term = 'zanzibar'") == 0
        assert [turn.id for turn in store.turns("s")][:2] == [before, after]


def test_a_forgotten_word_may_stay_in_the_index_s_pages_until_it_is_merged(tmp_path: Path) -> None:
    """FTS5 marks a word as deleted; only merging drops it. This holds what forget() does not promise yet."""
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False) as store:
        for n in range(3):
            store.remember(f"turn {n}", session="s")
        store.forget(ids=[store.remember("Quetzalcoatl", session="s")])
    assert _bytes_hold(path, "Quetzalcoatl") == []  # as it was written
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma secure_delete = on")
        db.execute("insert into memory_fts (memory_fts) values ('optimize')")
        db.commit()
        db.execute("pragma wal_checkpoint(truncate)")
    assert _bytes_hold(path, "quetzalcoatl") == []  # and as the index wrote it
    with sqlmem.open(path, embedder=False) as store:
        assert_sound(store)


def test_a_tombstone_holds_no_text(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False, clock=MovableClock()) as store:
        store.remember("secret", id="the id", session="s")
        store.forget(session="s")
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("select rowid, id, chain, version, forgotten_at from tombstone").fetchall()
        assert rows == [(1, "the id", 1, 1, int(START.timestamp() * 1000))]
        assert db.execute("select * from tombstone").description[4][0] == "forgotten_at"
        assert len(db.execute("select * from tombstone").description) == 5
