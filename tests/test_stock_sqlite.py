"""The file as any SQLite sees it, without sqlmem and without an extension: here the one of Python's standard library."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import assert_sound

STORED = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
SAID = datetime(2024, 2, 29, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.fixture(params=["vectors", "keywords"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A closed file with a memory in every state that can be reached."""
    path = tmp_path / "chat.db"
    now = [STORED]

    class Centred(sqlmem.HashEmbedder):  # so that there is a vec0 table as well
        centre = [0.0] * 16

    embedder: Any = Centred(16, "centred") if request.param == "vectors" else False
    with sqlmem.open(path, embedder=embedder, clock=lambda: now[0]) as store:
        store.categories.create("food")
        store.remember("first", session="s", user="ana", role="Ben", timestamp=SAID, id="turn-0", metadata={"a": 1})
        store.remember("second", session="s", user="ana", id="turn-1")
        store.remember("elsewhere", session="t", id="turn-2")
        store.remember("no session", id="turn-3")
        store.remember("expired", session="s", user="ana", timestamp=SAID, ttl_days=1, id="expired")
        store.remember("lasting", session="s", user="ana", turn=9, ttl_days=900_000, id="lasting")
        store.remember("Ana drinks tea", kind="fact", id="fact-1", categories=["food"], timestamp=SAID)
        store.remember("Ana drinks tea", kind="fact")
        store.remember("speak Portuguese", pinned=True, id="pin-1")
        now[0] += timedelta(hours=1)
        store.correct("fact-1", "Ana drinks rum")
        store.forget(ids=[store.correct("pin-1", "speak French")])
        store.forget(ids=["turn-2"])
    return path


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def ids(db: sqlite3.Connection, view: str) -> list[str]:
    return [row["id"] for row in db.execute(f"select * from {view} order by id")]


def test_the_views_sort_memories_by_their_state(db: sqlite3.Connection) -> None:
    (new,) = db.execute("select id from live_memory where kind = 'fact'").fetchone()
    assert ids(db, "live_memory") == sorted([new, "lasting", "turn-0", "turn-1", "turn-3"])
    assert ids(db, "superseded_memory") == ["fact-1", "pin-1"]
    assert ids(db, "expired_memory") == ["expired"]
    assert ids(db, "memory_history") == sorted([new, "lasting", "turn-0", "turn-1", "turn-3", "fact-1", "pin-1", "expired"])


def test_a_memory_is_readable_in_every_column(db: sqlite3.Connection) -> None:
    assert dict(db.execute("select * from memory_history where id = 'turn-0'").fetchone()) == {
        "id": "turn-0", "user": "ana", "session": "s", "kind": "turn", "role": "Ben", "turn": 0, "text": "first",
        "state": "live",
        "time": "2024-02-29T23:59:59.999Z", "created": "2024-05-06T07:08:09.123Z", "expires": None, "first_id": "turn-0",
        "valid_from": None, "valid_to": None,
        "version": 1, "ended": None, "end_reason": None, "end_note": None, "replaced_by": None, "seen": 1, "categories": "[]",
        "metadata": '{"a":1}', "number": 1,
    }  # fmt: skip


def test_a_chain_is_readable(db: sqlite3.Connection) -> None:
    rows = db.execute("select * from memory_history where first_id = 'fact-1' order by version").fetchall()
    assert [
        (row["version"], row["text"], row["state"], row["time"], row["created"], row["ended"], row["end_reason"], row["seen"])
        for row in rows
    ] == [
        (1, "Ana drinks tea", "superseded", "2024-02-29T23:59:59.999Z", "2024-05-06T07:08:09.123Z", "2024-05-06T08:08:09.123Z",
         "updated", 2),
        (2, "Ana drinks rum", "live", "2024-05-06T08:08:09.123Z", "2024-05-06T08:08:09.123Z", None, None, 1),
    ]  # fmt: skip
    assert rows[0]["replaced_by"] == rows[1]["id"]
    assert [json.loads(row["categories"]) for row in rows] == [["food"], ["food"]]


def test_a_forgotten_successor_is_still_named(db: sqlite3.Connection) -> None:
    (replaced_by,) = db.execute("select replaced_by from superseded_memory where id = 'pin-1'").fetchone()
    tombstones = {row["id"]: (row["version"], row["chain"]) for row in db.execute("select * from tombstone")}
    (number,) = db.execute("select number from memory_history where id = 'pin-1'").fetchone()
    assert tombstones.keys() == {"turn-2", replaced_by}
    assert tombstones[replaced_by] == (2, number)


def test_expiry_is_shown(db: sqlite3.Connection) -> None:
    rows = db.execute("select state, expires from memory_history where expires is not null order by id")
    assert [tuple(row) for row in rows] == [
        ("expired", "2024-03-01T23:59:59.999Z"), ("live", "4488-06-17T07:08:09.123Z"),
    ]  # fmt: skip


def test_a_session_reads_in_order(db: sqlite3.Connection) -> None:
    rows = db.execute("select user, session, turn, role, text, time, id from session_turns").fetchall()
    assert [tuple(row) for row in rows] == [
        ("", None, 0, "user", "no session", "2024-05-06T07:08:09.123Z", "turn-3"),
        ("ana", "s", 0, "Ben", "first", "2024-02-29T23:59:59.999Z", "turn-0"),
        ("ana", "s", 1, "user", "second", "2024-05-06T07:08:09.123Z", "turn-1"),
        ("ana", "s", 9, "user", "lasting", "2024-05-06T07:08:09.123Z", "lasting"),
    ]


def test_the_keyword_index_can_be_asked(db: sqlite3.Connection) -> None:
    found = db.execute(
        "select m.text from memory_fts f join memory m on m.rowid = f.rowid where memory_fts match 'own : drinks'"
        " order by m.rowid"
    ).fetchall()
    assert [row["text"] for row in found] == ["Ana drinks tea", "Ana drinks rum"]


def test_reading_changes_nothing(path: Path, db: sqlite3.Connection) -> None:
    before = path.read_bytes()
    for view in ("live_memory", "superseded_memory", "expired_memory", "memory_history", "session_turns"):
        assert db.execute(f"select * from {view}").fetchall()
    db.close()
    assert path.read_bytes() == before


def test_sqlite_finds_the_file_whole(db: sqlite3.Connection) -> None:
    assert [tuple(row) for row in db.execute("pragma integrity_check")] == [("ok",)]
    assert db.execute("pragma foreign_key_check").fetchall() == []


@pytest.mark.parametrize("statement", ["vacuum", "analyze", "reindex"])
def test_housekeeping_by_another_program_harms_nothing(path: Path, db: sqlite3.Connection, statement: str) -> None:
    before = [tuple(row) for row in db.execute("select * from memory_history order by number")]
    db.execute(statement)
    db.close()
    with closing(sqlite3.connect(path)) as again:
        assert again.execute("select * from memory_history order by number").fetchall() == before
        assert again.execute("pragma integrity_check").fetchall() == [("ok",)]
    embedder: Any = None
    held = _models(path)
    if held:
        embedder = sqlmem.HashEmbedder(16, "centred")
    with sqlmem.open(path, embedder=embedder) as store:
        assert_sound(store)
        assert store.recall("rum").texts[0] == "Ana drinks rum"
        assert store.get(store.remember("third", session="s", user="ana")).turn == 10
        assert_sound(store)


def _models(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("select name from model").fetchall()


def test_vacuum_into_makes_a_store(path: Path, db: sqlite3.Connection, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    db.execute("vacuum into ?", (str(copy),))
    with sqlmem.open(copy, embedder=False) as store:
        assert store.get("turn-0").text == "first"
        assert_sound(store)


@pytest.mark.parametrize(
    "column",
    "rowid id scope kind role turn text at created_at expires_at valid_from valid_to chain version digest metadata".split(),
)  # fmt: skip
def test_no_program_can_change_a_stored_version(db: sqlite3.Connection, column: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        db.execute(f"update memory set {column} = {column} where id = 'turn-0'")
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        db.execute("insert into memory select * from memory where id = 'turn-0' on conflict do update set text = 'forged'")


@pytest.mark.parametrize(
    "statement",
    [
        "update memory set seen = 'often'",
        "update memory set held = 'maybe'",
        "update memory set ended_at = 1",  # an end has a reason
        "update memory set end_reason = 'because', ended_at = 1",
        "update memory set ended_by = 3 where ended_at is null",
        "update memory set ended_at = null, end_reason = null, ended_by = null where id = 'fact-1'",  # two heads
        "insert into scope (user, session, created_at) values ('ana', 's', 0)",
        "insert into scope (user, session, created_at) values ('ana', null, 0)",
        "insert into scope (user, session, created_at) values ('ana', '', 0)",
        "insert into category (name, created_at) values ('Not plain', 0)",
        "insert into setting (name, value) values ('x', 'not json')",
        "insert into feedback (memory, outcome, at) values (1, 'good', 0)",
    ],
)
def test_the_schema_itself_refuses_what_makes_no_sense(db: sqlite3.Connection, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)


def test_a_second_turn_of_the_same_number_is_impossible(db: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="turn"):
        db.execute(
            "insert into memory (id, scope, kind, role, turn, text, at, created_at, chain, version)"
            " select 'forged', scope, kind, role, turn, 'forged', at, created_at, 999, 1 from memory where id = 'turn-0'"
        )
