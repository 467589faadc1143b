"""Older files: they still open with what they held, and upgrading one is all or nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from sqlmem import schema
from tests.fixtures import make
from tests.helpers_store import assert_sound, beside, contents, together

FIXTURES = Path(make.__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "chat.db"


# -- files of released formats ----------------------------------------------------------------------------------------


def test_there_is_a_file_of_every_format() -> None:
    names = sorted(file.name for file in FIXTURES.glob("*.db"))
    assert names == [f"format-{version}.db" for version in range(1, schema.FORMAT_VERSION + 1)]


def test_a_file_of_format_1_holds_what_it_held(path: Path) -> None:
    shutil.copy(FIXTURES / "format-1.db", path)
    with sqlmem.open(path, clock=lambda: make.STORED + timedelta(days=2)) as store:
        assert_sound(store)
        assert [(turn.turn, turn.role, turn.text, turn.timestamp) for turn in store.turns("s")] == [
            (0, "user", "Shall we meet in Lisbon?", make.SAID),
            (1, "assistant", "Yes, at the harbour.", make.SAID + timedelta(minutes=1)),
            (2, "user", "部署 is done 🍕", make.SAID + timedelta(minutes=2)),
            (3, "Ben", "I prefer C++ to C#.", make.SAID + timedelta(minutes=3)),
            (4, "user", "ok", make.SAID + timedelta(minutes=4)),
            (5, "user", "ok", make.SAID + timedelta(minutes=5)),
            (9, "user", "numbered", make.SAID + timedelta(hours=1)),
            (11, "user", "lives long", make.SAID),
            (13, "user", "still without a vector", make.SAID + timedelta(hours=2)),
        ]
        assert [
            (memory.text, memory.state, memory.expiration_reason, memory.categories) for memory in store.history("fact-1")
        ] == [
            ("Ben drinks tea", "superseded", "updated", ("food",)),
            ("Ben drinks coffee", "superseded", "system_correction", ("food",)),
            ("Ben drinks rum", "live", None, ("food", "work")),
        ]
        first, _, last = store.history("fact-1")
        assert (first.seen, first.expires_at, first.created_at) == (2, None, make.STORED)
        assert (last.metadata, last.created_at) == ({"source": "mail"}, make.STORED + timedelta(days=1))
        assert [(memory.text, memory.kind) for memory in store.history("pin-1")] == [
            ("Answer in English", "pinned"), ("Answer in Portuguese", "pinned"),
        ]  # fmt: skip
        assert store.get("hers").metadata == {"n": 1, "tags": ["a", None], 'q"': 2.5}
        assert store.get("expired").state == "expired"
        assert store.get("long").expires_at == make.SAID + timedelta(hours=2_000_000)
        with pytest.raises(sqlmem.NotFound, match="was forgotten"):
            store.get("forgotten")
        assert [(category.name, category.description, category.count) for category in store.categories.list()] == [
            ("food", "what is eaten and drunk", 1), ("work", "", 1),
        ]  # fmt: skip
        stats = store.stats()
        assert dict(stats.live) == {"turn": 11, "fact": 1, "pinned": 1, "summary": 0}
        assert (stats.superseded, stats.expired, stats.forgotten, stats.feedback, stats.users, stats.sessions) == (
            4,
            1,
            1,
            2,
            2,
            2,
        )
        (model,) = stats.models
        assert (model.name, model.dim, model.vectors, model.pending) == ("hash-16", 16, 17, 1)


def test_a_file_of_format_1_is_searched_and_goes_on(path: Path) -> None:
    shutil.copy(FIXTURES / "format-1.db", path)
    with sqlmem.open(path) as store:
        for query, text in (
            ("部署", "部署 is done 🍕"), ("🍕", "部署 is done 🍕"), ("C++", "I prefer C++ to C#."),
            ("harbour", "Yes, at the harbour."),
            ("without vector", "still without a vector"),
        ):  # fmt: skip
            assert store.recall(query, session="s", recency_weight=0).texts[0] == text
        assert store.remember("Shall we meet in Lisbon?", session="s", key="message 0") == "turn-0"
        assert store.get(store.remember("next", session="s")).turn == 14
        assert store.expire() == 1
        assert store.get(store.correct("fact-1", "Ben drinks gin")).version_number == 4
        assert store.forget(session="s") == 11
        assert_sound(store)


def test_a_file_of_format_1_is_read_without_being_touched(path: Path) -> None:
    shutil.copy(FIXTURES / "format-1.db", path)
    if schema.FORMAT_VERSION == 1:
        with sqlmem.open(path, read_only=True) as store:
            assert store.get("turn-0").text == "Shall we meet in Lisbon?"
    assert path.read_bytes() == (FIXTURES / "format-1.db").read_bytes()


def test_a_new_file_has_the_schema_of_the_present_format_s_fixture(path: Path) -> None:
    """A released .sql never changes; a format that was upgraded equals one that was created."""
    make.fill(path)
    new, old = contents(path), contents(FIXTURES / f"format-{schema.FORMAT_VERSION}.db")
    assert new["schema"] == old["schema"]
    assert {table: len(rows) for table, rows in new.items() if table.startswith("table ")} == {
        table: len(rows) for table, rows in old.items() if table.startswith("table ")
    }


# -- the machinery ----------------------------------------------------------------------------------------------------

STEP_2 = [
    "create table mood (memory integer primary key references memory (rowid), word text not null) strict",
    "insert into mood (memory, word) select rowid, 'calm' from memory",
    "create index mood_word on mood (word)",
    "drop view session_turns",
    "create view session_turns as select text from memory where kind = 'turn'",
    "alter table category add column colour text",
    "update category set colour = 'red'",
    "delete from feedback",
    "insert into setting (name, value) values ('mood', '1')",
]
STEP_3 = ["update mood set word = 'merry'", "drop index mood_word"]


@pytest.fixture
def old(path: Path) -> Path:
    """A file of format 1."""
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(16)) as store:
        store.categories.create("food")
        store.remember_many([{"text": f"turn {n}", "session": "s"} for n in range(20)])
        store.feedback(store.remember("a fact", kind="fact"), "useful")
    return path


def _newer_library(patch: pytest.MonkeyPatch, *steps: list[str]) -> None:
    """Pretend that this is a later version, which upgrades files with these statements."""
    scripts = {number: "; ".join(statements) for number, statements in enumerate(steps, schema.FORMAT_VERSION + 1)}
    patch.setattr(schema, "migrations", lambda: scripts)
    patch.setattr(schema, "FORMAT_VERSION", schema.FORMAT_VERSION + len(steps))


def _backups(path: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(path.parent.glob(f"{path.name}.*")):
        yield contents(file)


def test_an_old_file_is_upgraded_when_it_is_opened(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(old)
    _newer_library(monkeypatch, STEP_2, STEP_3)
    with sqlmem.open(old) as store:
        assert len(store.turns("s")) == 20
        assert store.stats().format_version == 3
        assert_sound(store)
    after = contents(old)
    assert after["user_version"] == 3
    assert after["table mood"] == [(rowid, "merry") for rowid in sorted(range(1, 22), key=lambda n: repr((n, "merry")))]
    assert after["table memory"] == before["table memory"]
    assert list(_backups(old)) == [before]
    assert beside(old) == ["chat.db", "chat.db.format-1.bak"]


def test_an_upgraded_file_is_not_upgraded_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _newer_library(monkeypatch, STEP_2)
    sqlmem.open(old).close()
    after = contents(old)
    sqlmem.open(old).close()
    assert contents(old) == after


def test_the_backup_is_a_store_of_the_old_format(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _newer_library(patch, STEP_2)
        sqlmem.open(old).close()
    with pytest.raises(sqlmem.NewerFile):
        sqlmem.open(old)
    with sqlmem.open(old.with_name("chat.db.format-1.bak")) as store:
        assert len(store.turns("s")) == 20
        assert_sound(store)


PLACES = [(2, at) for at in range(len(STEP_2) + 1)] + [(3, at) for at in range(len(STEP_3) + 1)]


@pytest.mark.parametrize(("step", "at"), PLACES)
def test_a_failure_at_any_statement_leaves_the_file_as_it_was(
    old: Path, at: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(old)
    steps = [list(STEP_2), list(STEP_3)]
    steps[step - 2].insert(at, "insert into no_such_table values (1)")
    with monkeypatch.context() as patch:
        _newer_library(patch, *steps)
        with pytest.raises(sqlmem.MigrationFailed) as raised:
            sqlmem.open(old)
        assert raised.value.path == str(old)
        assert "chat.db.format-1.bak" in str(raised.value)
    assert contents(old) == before
    assert list(_backups(old)) == [before]
    assert beside(old) == ["chat.db", "chat.db.format-1.bak"]
    with sqlmem.open(old) as store:  # the old version goes on with it
        assert_sound(store)
    _newer_library(monkeypatch, STEP_2, STEP_3)
    with sqlmem.open(old) as store:  # and a repaired new one upgrades it
        assert store.stats().format_version == 3
        assert_sound(store)


def test_a_step_that_is_missing_is_an_error_of_ours_and_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(old)
    _newer_library(monkeypatch, STEP_2)
    monkeypatch.setattr(schema, "FORMAT_VERSION", 3)
    with pytest.raises(sqlmem.SqlmemError):
        sqlmem.open(old)
    assert contents(old) == before


def test_the_backup_is_of_this_upgrade_not_of_an_earlier_attempt(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _newer_library(patch, ["insert into no_such_table values (1)"])
        with pytest.raises(sqlmem.MigrationFailed):
            sqlmem.open(old)
    with sqlmem.open(old) as store:
        store.remember("said after the failed upgrade", session="s")
    before = contents(old)
    _newer_library(monkeypatch, STEP_2)
    sqlmem.open(old).close()
    assert before in list(_backups(old))


@pytest.mark.parametrize("left", [b"", b"SQLite format 3\0 and then the process was killed"])
def test_a_backup_that_was_cut_short_is_not_taken_for_one(old: Path, left: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(old)
    old.with_name("chat.db.format-1.bak").write_bytes(left)
    _newer_library(monkeypatch, STEP_2)
    sqlmem.open(old).close()
    held = [contents(file) for file in old.parent.glob("chat.db.*") if file.read_bytes() != left]
    assert before in held


def test_no_upgrade_without_a_backup(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, path: str) -> None:
        raise sqlmem.DiskFull("no room for the copy", path=path)

    before = contents(old)
    _newer_library(monkeypatch, STEP_2)
    monkeypatch.setattr("sqlmem.db.Database.copy_to", fail)
    with pytest.raises(sqlmem.DiskFull):
        sqlmem.open(old)
    assert contents(old) == before


def test_an_older_file_opened_for_reading_is_not_upgraded(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = old.read_bytes()
    _newer_library(monkeypatch, STEP_2)
    with pytest.raises(sqlmem.FileFormatError, match="open it once for writing"):
        sqlmem.open(old, read_only=True)
    assert old.read_bytes() == before
    assert beside(old) == ["chat.db"]


def test_a_refused_embedder_still_leaves_an_upgraded_file_whole(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _newer_library(monkeypatch, STEP_2)
    with pytest.raises(sqlmem.ModelMismatch):
        sqlmem.open(old, embedder=sqlmem.HashEmbedder(32))
    with sqlmem.open(old) as store:
        assert_sound(store)


UPGRADE = """
import sys, sqlmem
from sqlmem import schema
script = "create table step (n); insert into step values (1); alter table category add column colour text"
schema.migrations = lambda: {2: script}
schema.FORMAT_VERSION = 2
print("ready"); sys.stdin.readline()
with sqlmem.open(sys.argv[1], embedder=False) as store:
    store.remember("by " + sys.argv[2], session="s")
    print(store.stats().format_version)
"""


def test_several_processes_upgrade_a_file_once(old: Path) -> None:
    before = contents(old)
    assert together(UPGRADE, *[(old, number) for number in range(6)]) == ["2\n"] * 6
    after = contents(old)
    assert after["table step"] == [(1,)]
    assert len(after["table memory"]) == 27
    assert list(_backups(old)) == [before]


def test_scripts_are_numbered_without_a_gap() -> None:
    assert sorted(schema.migrations()) == list(range(2, schema.FORMAT_VERSION + 1))
