"""Opening: what is created, what is refused, and that what is refused stays as it was."""

from __future__ import annotations

import inspect
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import sqlmem
import sqlmem.db
from sqlmem import schema
from sqlmem.store import bit_index
from tests.helpers_store import MovableClock, assert_sound, beside, contents, run, together

HASH = sqlmem.HashEmbedder(16)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "chat.db"


@pytest.fixture
def filled(path: Path) -> Path:
    """A store's file with a turn, a fact of two versions and a pin, closed."""
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("I moved to Lisbon", session="s", id="turn-0")
        store.remember("Ana likes tea", session="s", kind="fact", id="fact-1")
        store.correct("fact-1", "Ana likes coffee")
        store.remember("Answer in Portuguese", session="s", pinned=True, id="pin-1")
    return path


# -- new, again, in memory --------------------------------------------------------------------------------------------


def test_a_new_file_is_a_marked_sqlite_database_in_wal_mode(path: Path) -> None:
    sqlmem.open(path, embedder=False).close()
    header = path.read_bytes()[:100]
    assert header[:16] == b"SQLite format 3\0"
    assert struct.unpack(">H", header[16:18]) == (4096,)
    assert header[18:20] == b"\2\2"
    assert struct.unpack(">I", header[60:64]) == (schema.FORMAT_VERSION,)
    assert header[68:72] == b"smem"


def test_closing_leaves_one_file(path: Path) -> None:
    store = sqlmem.open(path, embedder=HASH)
    store.remember("hello", session="s")
    assert beside(path) == ["chat.db", "chat.db-shm", "chat.db-wal"]
    store.close()
    assert beside(path) == ["chat.db"]


def test_the_last_of_several_connections_removes_the_sidecars(path: Path) -> None:
    first, second = sqlmem.open(path, embedder=False), sqlmem.open(path, embedder=False)
    first.remember("hello", session="s")
    first.close()
    assert beside(path) == ["chat.db", "chat.db-shm", "chat.db-wal"]
    second.close()
    assert beside(path) == ["chat.db"]


def test_what_was_remembered_is_there_after_reopening(filled: Path) -> None:
    with sqlmem.open(filled) as store:
        assert [(turn.id, turn.turn, turn.text) for turn in store.turns("s")] == [("turn-0", 0, "I moved to Lisbon")]
        assert [memory.text for memory in store.history("fact-1")] == ["Ana likes tea", "Ana likes coffee"]
        assert store.get(store.remember("next", session="s")).turn == 1
        assert_sound(store)


def test_reopening_without_a_change_leaves_the_bytes_alone(filled: Path) -> None:
    before = filled.read_bytes()
    with sqlmem.open(filled) as store:
        assert store.recall("coffee", session="s").top is not None
    assert filled.read_bytes() == before


def test_a_store_in_memory_leaves_no_file_and_shares_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with sqlmem.open(":memory:", embedder=False) as one, sqlmem.open(":memory:", embedder=False) as other:
        one.remember("hello", session="s")
        assert [turn.text for turn in one.turns("s")] == ["hello"]
        assert other.turns("s") == []
        assert_sound(one)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "with space.db", "100%.db", "%41.db", "what?.db", "what?mode=memory", "#1.db", "résumé.db", "会話.db", "🍕.db",
        "it's.db",
        "a&b=c.db", "file:chat.db", "file:chat.db?mode=memory", ":memory", "no-suffix",
    ],
)  # fmt: skip
def test_the_file_has_exactly_the_name_given(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.name == "nt" and set(name) & set('?:*"<>|'):
        pytest.skip("Windows does not allow this name")
    monkeypatch.chdir(tmp_path)
    for given in (name, str(tmp_path / name), tmp_path / name):
        with sqlmem.open(given, embedder=False) as store:
            store.remember("hello", session="s")
        assert os.listdir(tmp_path) == [name]
        with sqlmem.open(given, embedder=False, read_only=True) as store:
            assert [turn.text for turn in store.turns("s")] == ["hello"]
        assert os.listdir(tmp_path) == [name]
        (tmp_path / name).unlink()


@pytest.mark.parametrize("given", ["", 5, None, b"chat.db"])
def test_a_path_that_is_no_path_is_refused(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sqlmem.InvalidArgument):
        sqlmem.open(given, embedder=False)
    assert os.listdir(tmp_path) == []


def test_a_symbolic_link_leads_to_the_file(filled: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    try:
        link.symlink_to(filled)
    except OSError:
        pytest.skip("links cannot be made here")
    with sqlmem.open(link) as store:
        store.remember("through the link", session="s")
    with sqlmem.open(filled) as store:
        assert [turn.text for turn in store.turns("s")] == ["I moved to Lisbon", "through the link"]
    assert sorted(os.listdir(tmp_path)) == ["folder", "link.db"]


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}, {"read_only": True, "create": True}])
def test_a_missing_file_is_not_found_and_not_made(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(sqlmem.NotFound, match=r"chat\.db"):
        sqlmem.open(path, embedder=False, **options)
    assert beside(path) == []


def test_create_false_opens_what_is_there(filled: Path) -> None:
    with sqlmem.open(filled, create=False) as store:
        assert store.get("turn-0").text == "I moved to Lisbon"


def test_a_missing_folder_is_an_error_not_a_store_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(sqlmem.StorageError) as raised:
        sqlmem.open(tmp_path / "missing" / "chat.db", embedder=False)
    assert raised.value.path == str(tmp_path / "missing" / "chat.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_refused(tmp_path: Path) -> None:
    folder_options: list[dict[str, Any]] = [{}, {"read_only": True}, {"create": False}]
    for options in folder_options:
        with pytest.raises(sqlmem.NotASqlmemFile):
            sqlmem.open(tmp_path, embedder=False, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_as_a_folder_is_a_typed_error(filled: Path) -> None:
    before = filled.read_bytes()
    with pytest.raises((sqlmem.StorageError, sqlmem.FileFormatError)):
        sqlmem.open(filled / "chat.db", embedder=False)
    assert filled.read_bytes() == before


def test_a_name_too_long_for_the_disk_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(sqlmem.StorageError):
        sqlmem.open(tmp_path / ("x" * 300), embedder=False)


REFUSED: list[dict[str, Any]] = [{}, {"read_only": True}, {"create": False}, {"embedder": False}]


def _assert_refused_untouched(path: Path, error: type[Exception]) -> None:
    files = {file: file.read_bytes() for file in path.parent.iterdir()}
    for options in REFUSED:
        with pytest.raises(error):
            sqlmem.open(path, **{"embedder": HASH, **options})
        assert {file: file.read_bytes() for file in path.parent.iterdir()} == files


@pytest.mark.parametrize(
    "data",
    [b"x", b"Dear diary,\n" * 1000, b"\0" * 99 + b"x", b"\0" * 4096 + b"x", b"SQLite format 3\0",
     b"SQLite format 3\0" + b"\0" * 50,
     b"SQLite format 2\0" + b"\0" * 4080, b"\xff" * 8192],
    ids=["one byte", "text", "zeros then a letter", "a page of zeros then a letter", "magic only", "half a header",
         "another magic", "ones"],
)  # fmt: skip
def test_a_file_that_is_no_database_stays_as_it_was(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def _foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_a_foreign_database_stays_as_it_was(path: Path) -> None:
    _foreign(path, "create table photo (id integer primary key, name text)", "insert into photo values (1, 'beach')")
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def test_a_foreign_database_with_an_application_id_stays_as_it_was(path: Path) -> None:
    _foreign(path, "pragma application_id = 252006673", "create table t (x)")
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def test_a_foreign_database_with_an_application_id_and_no_table_stays_as_it_was(path: Path) -> None:
    _foreign(path, "pragma application_id = 252006673", "create table t (x)", "drop table t")
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def test_a_foreign_database_with_our_tables_names_stays_as_it_was(path: Path) -> None:
    _foreign(path, "create table memory (id text)", "create table scope (id text)", "pragma user_version = 1")
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def _leave_wal(path: Path, tmp_path: Path, *, application_id: int = 0) -> None:
    """A foreign database as a killed program leaves it: committed rows in its -wal, none of them in the file."""
    origin = tmp_path / "origin.db"
    with closing(sqlite3.connect(origin)) as db:
        db.execute(f"pragma application_id = {application_id}")
        db.execute("pragma journal_mode = wal")
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute("create table photo (name text)")
        db.execute("insert into photo values ('beach')")
        db.commit()
        shutil.copy(origin, path)
        shutil.copy(f"{origin}-wal", f"{path}-wal")
    assert Path(f"{path}-wal").stat().st_size > 0


@pytest.mark.parametrize("application_id", [0, 252006673])
def test_a_foreign_database_with_a_leftover_wal_stays_as_it_was(path: Path, tmp_path: Path, application_id: int) -> None:
    _leave_wal(path, tmp_path, application_id=application_id)
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def test_a_foreign_database_whose_tables_are_only_in_its_wal_is_not_taken_for_an_empty_file(path: Path, tmp_path: Path) -> None:
    _leave_wal(path, tmp_path)
    with pytest.raises(sqlmem.NotASqlmemFile):
        sqlmem.open(path, embedder=False)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("select name from photo").fetchall() == [("beach",)]
        assert db.execute("select name from sqlite_schema").fetchall() == [("photo",)]


def test_a_foreign_database_with_a_hot_journal_stays_as_it_was(path: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin.db"
    with closing(sqlite3.connect(origin, isolation_level=None)) as db:
        db.execute("create table photo (name text)")
        db.execute("insert into photo select hex(randomblob(500)) from json_each('[1,2,3,4,5,6,7,8,9]')")
        db.execute("pragma cache_size = 1")  # makes SQLite write pages, and so the journal, before the commit
        db.execute("begin immediate")
        db.execute("update photo set name = hex(randomblob(2000))")
        db.execute("insert into photo select hex(randomblob(3000)) from photo a join photo b")
        shutil.copy(origin, path)
        shutil.copy(f"{origin}-journal", f"{path}-journal")
    assert Path(f"{path}-journal").stat().st_size > 0
    _assert_refused_untouched(path, sqlmem.NotASqlmemFile)


def test_a_foreign_database_in_use_is_not_disturbed(path: Path) -> None:
    # Through the store's own copy of SQLite: locks do not hold between two copies in one process.
    with closing(apsw.Connection(str(path))) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table photo (name text)")
        db.execute("begin immediate")
        db.execute("insert into photo values ('beach')")
        with pytest.raises(sqlmem.NotASqlmemFile):
            sqlmem.open(path, embedder=False)
        db.execute("commit")
        assert db.execute("select name from photo").fetchall() == [("beach",)]
        assert db.execute("pragma journal_mode").fetchall() == [("wal",)]


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with sqlmem.open(path, embedder=False) as store:
        store.remember("hello", session="s")
        assert_sound(store)
    with sqlmem.open(path, embedder=False, create=False) as store:
        assert [turn.text for turn in store.turns("s")] == ["hello"]


def test_an_empty_file_cannot_be_opened_for_reading_and_stays_empty(path: Path) -> None:
    path.touch()
    with pytest.raises(sqlmem.FileFormatError):
        sqlmem.open(path, embedder=False, read_only=True)
    assert path.read_bytes() == b""
    assert beside(path) == ["chat.db"]


def test_an_empty_database_without_tables_becomes_a_store(path: Path) -> None:
    _foreign(path, "create table t (x)", "drop table t")
    with sqlmem.open(path, embedder=False) as store:
        store.remember("hello", session="s")
        assert_sound(store)


# -- damaged ----------------------------------------------------------------------------------------------------------

DAMAGED = (sqlmem.Corrupt, sqlmem.FileFormatError)


def _use(store: sqlmem.MemoryStore) -> None:
    store.recall("Ana", session="s")
    store.turns("s")
    store.remember("more", session="s")
    if problems := store.check().problems:
        raise sqlmem.Corrupt("; ".join(problems))


@pytest.mark.parametrize("keep", [1, 15, 99, 100, 511, 4095, 4096, 8192, 3 * 4096 + 7])
def test_a_truncated_file_is_a_typed_error(filled: Path, keep: int) -> None:
    filled.write_bytes(filled.read_bytes()[:keep])
    with pytest.raises(DAMAGED), sqlmem.open(filled, embedder=HASH) as store:
        _use(store)


@pytest.mark.parametrize("seed", range(12))
def test_a_page_of_garbage_never_escapes_as_another_error(filled: Path, seed: int) -> None:
    data = bytearray(filled.read_bytes())
    page = 1 + seed * (len(data) // 4096 - 1) // 12  # never the header: that is another test
    data[page * 4096 : (page + 1) * 4096] = bytes((i * 37 + seed * 11 + 1) % 256 for i in range(4096))
    filled.write_bytes(data)
    try:
        with sqlmem.open(filled, embedder=HASH) as store:
            _use(store)
    except (sqlmem.StorageError, sqlmem.FileFormatError):
        return
    pytest.fail("a page of garbage went unnoticed")


def test_a_damaged_header_is_refused_and_left_alone(filled: Path) -> None:
    data = bytearray(filled.read_bytes())
    data[:16] = b"\0" * 16
    filled.write_bytes(data)
    _assert_refused_untouched(filled, sqlmem.NotASqlmemFile)


# -- newer ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def newer(filled: Path) -> Path:
    with closing(sqlite3.connect(filled)) as db:
        db.execute("create table from_the_future (x)")
        db.execute(f"pragma user_version = {schema.FORMAT_VERSION + 1}")
        db.commit()
    return filled


def test_a_newer_file_is_refused_for_writing_and_untouched(newer: Path) -> None:
    before = newer.read_bytes()
    with pytest.raises(sqlmem.NewerFile, match="read_only=True") as raised:
        sqlmem.open(newer, embedder=HASH)
    assert raised.value.path == str(newer)
    assert newer.read_bytes() == before
    assert beside(newer) == ["chat.db"]


def test_a_newer_file_can_be_read(newer: Path) -> None:
    before = newer.read_bytes()
    with sqlmem.open(newer, read_only=True) as store:
        assert store.get("turn-0").text == "I moved to Lisbon"
        assert store.recall("coffee", session="s").texts[0] == "Ana likes coffee"
        assert store.stats().format_version == schema.FORMAT_VERSION + 1
        with pytest.raises(sqlmem.ReadOnly):
            store.remember("x")
    assert newer.read_bytes() == before
    assert beside(newer) == ["chat.db"]


# -- every verb -------------------------------------------------------------------------------------------------------

Verb = Callable[[sqlmem.MemoryStore], object]

WRITES: dict[str, Verb] = {
    "remember": lambda store: store.remember("x", session="s"),
    "remember a stated fact": lambda store: store.remember("Ana likes coffee", session="s", kind="fact"),
    "remember_many": lambda store: store.remember_many(["x"]),
    "remember_many of nothing": lambda store: store.remember_many([]),
    "correct": lambda store: store.correct("fact-1", "Ana likes milk"),
    "correct without a change": lambda store: store.correct("fact-1", "Ana likes coffee"),
    "feedback": lambda store: store.feedback("fact-1", "useful"),
    "feedback with a correction": lambda store: store.feedback("fact-1", "corrected", "Ana likes milk"),
    "invalidate": lambda store: store.invalidate("fact-1"),
    "rollback": lambda store: store.rollback("fact-1", 1),
    "recheck": lambda store: store.recheck(),
    "forget": lambda store: store.forget(ids=["turn-0"]),
    "forget nothing": lambda store: store.forget(ids=[]),
    "expire": lambda store: store.expire(),
    "extract": lambda store: store.extract("s", llm=lambda prompt: '{"memories": []}'),
    "retry_failed": lambda store: store.retry_failed(llm=lambda prompt: '{"memories": []}'),
    "consolidate": lambda store: store.consolidate("s", lambda turns: ["x"], keep_recent=0),
    "undo": lambda store: store.undo(),
    "redo": lambda store: store.redo(),
    "rebuild": lambda store: store.rebuild(),
    "flush": lambda store: store.flush(),
    "reembed": lambda store: store.reembed(sqlmem.HashEmbedder(32)),
    "reembed without a change": lambda store: store.reembed(HASH),
    "categories.create": lambda store: store.categories.create("food"),
    "categories.delete": lambda store: store.categories.delete("food"),
    "categories.rename": lambda store: store.categories.rename("food", "meals"),
    "categories.describe": lambda store: store.categories.describe("food", "what is eaten"),
    "categories.assign": lambda store: store.categories.assign("fact-1", "food"),
    "categories.unassign": lambda store: store.categories.unassign("fact-1", "food"),
    "sessions.create": lambda store: store.sessions.create("new"),
    "sessions.update": lambda store: store.sessions.update("s", metadata={}),
    "sessions.process": lambda store: store.sessions.process("s", llm=lambda prompt: "{}"),
    "sessions.delete": lambda store: store.sessions.delete("s"),
    "users.delete": lambda store: store.users.delete(""),
    "settings.update_extraction": lambda store: store.settings.update_extraction(similarity_top_k=20),
    "settings.update_recall": lambda store: store.settings.update_recall(keyword_weight=0.1),
    "settings.import_": lambda store: store.settings.import_({"recall": {}}),
    "conflicts.resolve": lambda store: store.conflicts.resolve("none", "keep_old"),
    "conflicts.set_mode": lambda store: store.conflicts.set_mode("ask"),
}
READS: dict[str, Verb] = {
    "turns": lambda store: store.turns("s"),
    "recall": lambda store: store.recall("Ana", session="s"),
    "recall of a blank question": lambda store: store.recall("", session="s"),
    "search": lambda store: store.search("Ana", session="s"),
    "context": lambda store: store.context("Ana", session="s"),
    "explain": lambda store: store.explain("Ana", "fact-1", session="s"),
    "get": lambda store: store.get("fact-1"),
    "list": lambda store: store.list(session="s"),
    "history": lambda store: store.history("fact-1"),
    "failures": lambda store: store.failures(),
    "stats": lambda store: store.stats(),
    "check": lambda store: store.check(),
    "categories.list": lambda store: store.categories.list(),
    "sessions.process_due": lambda store: store.sessions.process_due(llm=lambda prompt: "{}"),
    "sessions.list": lambda store: store.sessions.list(),
    "sessions.get": lambda store: store.sessions.get("s"),
    "users.list": lambda store: store.users.list(),
    "users.get": lambda store: store.users.get(""),
    "settings.extraction": lambda store: store.settings.extraction,
    "settings.recall": lambda store: store.settings.recall,
    "settings.export": lambda store: store.settings.export(),
    "conflicts.list": lambda store: store.conflicts.list(),
    "conflicts.mode": lambda store: store.conflicts.mode(),
}


def test_the_lists_of_verbs_are_complete() -> None:
    public = {name for name, _ in inspect.getmembers(sqlmem.MemoryStore, inspect.isfunction) if not name.startswith("_")}
    tested = {name.split()[0] for name in (*WRITES, *READS) if "." not in name}
    assert public - {"close"} == tested


@pytest.mark.parametrize("embedder", [None, False], ids=["vectors", "keywords"])
@pytest.mark.parametrize("verb", WRITES)
def test_a_read_only_store_refuses_to_write(filled: Path, verb: str, embedder: Any) -> None:
    before = filled.read_bytes()
    with sqlmem.open(filled, read_only=True, embedder=embedder) as store, pytest.raises(sqlmem.ReadOnly) as raised:
        WRITES[verb](store)
    assert raised.value.path == str(filled)
    assert raised.value.retry is False
    assert filled.read_bytes() == before


@pytest.mark.parametrize("verb", READS)
def test_a_read_only_store_can_be_read(filled: Path, verb: str) -> None:
    before = filled.read_bytes()
    clock = MovableClock()
    with sqlmem.open(filled, read_only=True, clock=clock) as store, sqlmem.open(filled, clock=clock) as writable:
        assert str(READS[verb](store)) == str(READS[verb](writable))
    assert filled.read_bytes() == before
    assert beside(filled) == ["chat.db"]


def test_a_read_only_store_sees_what_others_write(filled: Path) -> None:
    with sqlmem.open(filled, read_only=True) as reader, sqlmem.open(filled) as writer:
        new = writer.remember("we met in Porto", session="s")
        assert reader.get(new).text == "we met in Porto"
        assert reader.recall("Porto", session="s").ids[0] == new


@pytest.mark.parametrize("embedder", [HASH, False], ids=["vectors", "keywords"])
@pytest.mark.parametrize("verb", [*WRITES, *READS])
def test_a_closed_store_says_so(filled: Path, verb: str, embedder: Any) -> None:
    store = sqlmem.open(filled, embedder=embedder)
    store.close()
    with pytest.raises(sqlmem.StoreClosed, match=r"chat\.db"):
        {**WRITES, **READS}[verb](store)


def test_closing_twice_is_harmless(filled: Path) -> None:
    store = sqlmem.open(filled)
    assert repr(store) == f"MemoryStore({str(filled)!r})"
    store.close()
    store.close()
    assert repr(store) == f"MemoryStore({str(filled)!r}, closed)"


def test_leaving_the_with_closes_even_after_an_error(filled: Path) -> None:
    with pytest.raises(ZeroDivisionError), sqlmem.open(filled) as store:
        raise ZeroDivisionError
    with pytest.raises(sqlmem.StoreClosed):
        store.turns("s")
    assert beside(filled) == ["chat.db"]


# -- folders that cannot be written -----------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
import sqlmem
with sqlmem.open(":memory:", embedder=False) as store:  # imports all that is needed: the other user may not reach it
    store.check()
os.setgid(65534)
os.setuid(65534)
path, task = sys.argv[1:]
try:
    if task == "write":
        with sqlmem.open(path, embedder=False) as store:
            store.remember("x", session="s")
    else:
        with sqlmem.open(path, embedder=False, read_only=True) as store:
            print([turn.text for turn in store.turns("s")], store.check().ok, sorted(os.listdir(os.path.dirname(path))))
except sqlmem.SqlmemError as error:
    print(type(error).__name__, sorted(os.listdir(os.path.dirname(path))) if os.access(os.path.dirname(path), os.R_OK) else "")
"""

needs_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can become another user, and permissions bind only others"
)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that any user can enter and only root can write."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@needs_root
def test_reading_in_a_read_only_folder_leaves_nothing_behind(filled: Path, shared_folder: Path) -> None:
    copy = shared_folder / "a %20?#é.db"
    shutil.copy(filled, copy)
    os.chmod(copy, 0o644)
    assert run(AS_NOBODY, copy, "read") == f"['I moved to Lisbon'] True ['{copy.name}']\n"
    assert beside(copy) == [copy.name]


@needs_root
def test_writing_in_a_read_only_folder_is_a_typed_error(filled: Path, shared_folder: Path) -> None:
    copy = shared_folder / "chat.db"
    shutil.copy(filled, copy)
    os.chmod(copy, 0o644)
    before = copy.read_bytes()
    assert run(AS_NOBODY, copy, "write") == "ReadOnly ['chat.db']\n"
    assert copy.read_bytes() == before


@needs_root
def test_creating_in_a_read_only_folder_is_a_typed_error(shared_folder: Path) -> None:
    assert run(AS_NOBODY, shared_folder / "new.db", "write") == "StorageError []\n"


@needs_root
def test_a_file_that_may_not_be_read_is_a_typed_error(filled: Path, shared_folder: Path) -> None:
    copy = shared_folder / "chat.db"
    shutil.copy(filled, copy)
    os.chmod(copy, 0o600)
    assert run(AS_NOBODY, copy, "read") == "StorageError ['chat.db']\n"
    assert run(AS_NOBODY, copy, "write") == "StorageError ['chat.db']\n"


@needs_root
def test_a_folder_that_may_not_be_entered_is_a_typed_error(filled: Path, shared_folder: Path) -> None:
    locked = shared_folder / "locked"
    locked.mkdir(mode=0o700)
    shutil.copy(filled, locked / "chat.db")
    assert run(AS_NOBODY, locked / "chat.db", "write") == "StorageError \n"


@needs_root
def test_rows_in_a_wal_beside_a_read_only_file_are_never_silently_missing(filled: Path, shared_folder: Path) -> None:
    copy = shared_folder / "chat.db"
    with sqlmem.open(filled) as store:
        store.remember("only in the wal", session="s")
        shutil.copy(filled, copy)
        shutil.copy(f"{filled}-wal", f"{copy}-wal")
    for file in shared_folder.iterdir():
        os.chmod(file, 0o644)
    before = {file: file.read_bytes() for file in shared_folder.iterdir()}
    assert run(AS_NOBODY, copy, "read") == "ReadOnly ['chat.db', 'chat.db-wal']\n"
    assert {file: file.read_bytes() for file in shared_folder.iterdir()} == before


@needs_root
def test_an_empty_wal_beside_a_read_only_file_is_no_obstacle(filled: Path, shared_folder: Path) -> None:
    copy = shared_folder / "chat.db"
    shutil.copy(filled, copy)
    Path(f"{copy}-wal").touch()
    for file in shared_folder.iterdir():
        os.chmod(file, 0o644)
    assert run(AS_NOBODY, copy, "read") == "['I moved to Lisbon'] True ['chat.db', 'chat.db-wal']\n"


def test_reading_next_to_a_leftover_wal_sees_its_rows(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "chat.db"
    copy.parent.mkdir()
    with sqlmem.open(filled) as store:
        store.remember("only in the wal", session="s")
        shutil.copy(filled, copy)
        shutil.copy(f"{filled}-wal", f"{copy}-wal")
    with sqlmem.open(copy, read_only=True) as reader:
        assert [turn.text for turn in reader.turns("s")] == ["I moved to Lisbon", "only in the wal"]


# -- at once ----------------------------------------------------------------------------------------------------------

OPEN_AND_REMEMBER = """
import sys, sqlmem
print("ready"); sys.stdin.readline()
with sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16) if sys.argv[3] == "vectors" else False) as store:
    print(store.remember("from " + sys.argv[2], session="s"))
"""


@pytest.mark.parametrize("mode", ["vectors", "keywords"])
def test_eight_processes_open_one_new_file_at_once(path: Path, mode: str) -> None:
    said = together(OPEN_AND_REMEMBER, *[(path, number, mode) for number in range(8)])
    with sqlmem.open(path, embedder=HASH if mode == "vectors" else False) as store:
        turns = store.turns("s")
        assert sorted(turn.text for turn in turns) == [f"from {number}" for number in range(8)]
        assert [turn.turn for turn in turns] == list(range(8))
        assert sorted(turn.id for turn in turns) == sorted(line.strip() for line in said)
        assert len(store.stats().models) == (1 if mode == "vectors" else 0)
        assert_sound(store)
    assert beside(path) == ["chat.db"]


# -- models -----------------------------------------------------------------------------------------------------------


class Fingerprinted(sqlmem.HashEmbedder):
    def __init__(self, fingerprint: str, dim: int = 16, name: str = "made-up") -> None:
        super().__init__(dim, name)
        self.fingerprint = fingerprint


@pytest.mark.parametrize(
    ("held", "given"),
    [
        (sqlmem.HashEmbedder(16), sqlmem.HashEmbedder(32)),
        (sqlmem.HashEmbedder(16), sqlmem.HashEmbedder(16, "other")),
        (sqlmem.HashEmbedder(16, "same"), sqlmem.HashEmbedder(32, "same")),
        (Fingerprinted("aaaa"), Fingerprinted("bbbb")),
        (sqlmem.HashEmbedder(16), "hash-32"),
    ],
    ids=["name and dim", "name", "dim", "fingerprint", "by name"],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_another_model_is_refused_and_nothing_written(path: Path, held: Any, given: Any, read_only: bool) -> None:
    with sqlmem.open(path, embedder=held) as store:
        store.remember("hello", session="s")
    before = path.read_bytes()
    with pytest.raises(sqlmem.ModelMismatch) as raised:
        sqlmem.open(path, embedder=given, read_only=read_only)
    assert repr(held.name) in str(raised.value)
    assert repr(getattr(given, "name", given)) in str(raised.value)
    assert path.read_bytes() == before
    assert beside(path) == ["chat.db"]
    with sqlmem.open(path, embedder=held) as store:
        assert store.recall("hello", session="s").texts == ["hello"]


@pytest.mark.parametrize(("held", "given"), [("", "aaaa"), ("aaaa", ""), ("aaaa", "aaaa")])
def test_an_embedder_without_a_fingerprint_fits_any_build(path: Path, held: str, given: str) -> None:
    sqlmem.open(path, embedder=Fingerprinted(held)).close()
    with sqlmem.open(path, embedder=Fingerprinted(given)) as store:
        store.remember("hello", session="s")
        assert_sound(store)


def test_a_model_that_is_not_here_is_named(path: Path) -> None:
    sqlmem.open(path, embedder=sqlmem.HashEmbedder(16, "far-away")).close()
    before = path.read_bytes()
    with pytest.raises(sqlmem.ModelMissing, match="far-away"):
        sqlmem.open(path)
    assert path.read_bytes() == before
    with sqlmem.open(path, embedder=False) as store:
        store.remember("hello", session="s")


@pytest.mark.parametrize("given", [True, 5, object(), [], ["hash-16", HASH], [HASH, None]])
def test_what_is_no_embedder_is_refused_and_nothing_is_left(path: Path, given: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        sqlmem.open(path, embedder=given)
    with sqlmem.open(path, embedder=HASH) as store:
        assert [model.name for model in store.stats().models] == ["hash-16"]


def test_what_was_stored_without_the_model_gets_its_vectors_later(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("with a vector", session="s")
    with sqlmem.open(path, embedder=False) as store:
        late = store.remember("late penguins", session="s")
        fact = store.remember("an old fact", session="s", kind="fact")
        store.correct(fact, "a new fact")
        gone = store.remember("gone", session="s")
        store.forget(ids=[gone])
        (model,) = store.stats().models
        assert (model.vectors, model.pending) == (1, 3)
        assert store.flush() == 0
        assert_sound(store)
    with sqlmem.open(path) as store:
        (model,) = store.stats().models
        assert (model.name, model.vectors, model.pending) == ("hash-16", 1, 3)
        top = store.recall("late penguins", session="s").top
        assert top is not None
        assert top.id == late
        assert top.scoring is not None
        assert top.scoring["found_by"]["vectors"] == 1
        (model,) = store.stats().models
        assert (model.vectors, model.pending) == (4, 0)
        assert store.flush() == 0
        assert_sound(store)


def test_flush_computes_the_vectors_that_are_waited_for(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("first", session="s")
    with sqlmem.open(path, embedder=False) as store:
        store.remember_many([{"text": f"number {n}", "session": "s"} for n in range(600)])
    with sqlmem.open(path, embedder=HASH) as store:
        assert store.flush() == 600
        (model,) = store.stats().models
        assert (model.vectors, model.pending, model.bits) == (601, 0, "current")
        assert_sound(store)


def test_a_keyword_only_file_stays_one_until_a_model_is_asked_for(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as store:
        store.remember("we met in Porto", session="s")
    with sqlmem.open(path) as store:
        assert store.stats().models == ()
        assert store.recall("Porto", session="s").texts == ["we met in Porto"]
    with sqlmem.open(path, embedder=HASH) as store:
        (model,) = store.stats().models
        assert (model.vectors, model.pending) == (0, 1)
        assert store.flush() == 1
        assert_sound(store)
    with sqlmem.open(path) as store:
        assert [(model.name, model.vectors) for model in store.stats().models] == [("hash-16", 1)]


def test_a_keyword_only_file_can_be_read_with_an_embedder_given(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as store:
        store.remember("we met in Porto", session="s")
    before = path.read_bytes()
    with sqlmem.open(path, embedder=HASH, read_only=True) as store:
        assert store.recall("Porto", session="s").texts == ["we met in Porto"]
    assert path.read_bytes() == before


# -- without sqlite-vec -----------------------------------------------------------------------------------------------


class Centred(sqlmem.HashEmbedder):
    """Has a centre, so that its file gets a bit index as soon as there is a batch of changes."""

    def __init__(self) -> None:
        super().__init__(16, "centred")
        self.centre: Sequence[float] = [0.01 * place for place in range(16)]


needs_vec = pytest.mark.skipif(sqlmem.db.vec_library() is None, reason="sqlite-vec has no wheel for this platform")


@needs_vec
def test_a_machine_without_sqlite_vec_works_and_leaves_the_bits_to_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bit_index, "LAG", 3)
    with sqlmem.open(path, embedder=Centred()) as store:
        store.remember("a turn about tea", session="s", id="tea")
        store.remember("Ana likes rum", session="s", kind="fact", id="rum")
        assert [model.bits for model in store.stats().models] == ["none"]
        store.remember("gone", session="s", id="gone")
        assert [model.bits for model in store.stats().models] == ["current"]
    with monkeypatch.context() as patch:
        patch.setattr(sqlmem.db, "vec_library", lambda: None)
        with sqlmem.open(path, embedder=Centred()) as store:
            assert store.recall("tea", session="s").ids[0] == "tea"
            new = store.remember("a turn about coffee", session="s")
            store.correct("rum", "Ana likes gin")
            assert [model.bits for model in store.stats().models] == ["current"]  # it lacks three changes, as it may
            store.remember("a turn about milk", session="s", id="milk")
            assert [model.bits for model in store.stats().models] == ["stale"]
            assert store.recall("coffee", session="s").ids[0] == new
            assert_sound(store)
            assert store.forget(ids=["gone"]) == 1
            assert [model.bits for model in store.stats().models] == ["none"]
            assert store.recall("a turn about milk", session="s").ids[0] == "milk"
            assert_sound(store)
            assert store.rebuild() == 5
            assert_sound(store)
    with sqlmem.open(path, embedder=Centred()) as store:
        (model,) = store.stats().models
        assert (model.bits, model.vectors) == ("current", 5)
        assert [row[0] for row in store._engine.db.rows("select id from vector_centred_bits order by id")] == [1, 2, 4, 5, 6]
        assert store.recall("gin", session="s").texts[0] == "Ana likes gin"
        assert_sound(store)


@needs_vec
@pytest.mark.parametrize("verb", ["remember", "correct", "forget", "expire"])
def test_without_sqlite_vec_only_forgetting_gives_the_bits_up(path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_index, "LAG", 1)
    with sqlmem.open(path, embedder=Centred()) as store:
        store.remember("Ana likes rum", session="s", kind="fact", id="rum", ttl_days=1)
        assert [model.bits for model in store.stats().models] == ["current"]
    with monkeypatch.context() as patch:
        patch.setattr(sqlmem.db, "vec_library", lambda: None)
        with sqlmem.open(path, embedder=Centred()) as store:
            if verb == "remember":
                store.remember_many(["milk", "tea"])
            elif verb == "correct":
                store.correct("rum", pinned=True)
            elif verb == "forget":
                assert store.forget(ids=["rum"]) == 1
            else:
                memory = store.get("rum")
                assert store.expire(now=memory.expires_at) == 1
            bits = "none" if verb in ("forget", "expire") else "stale"
            assert [model.bits for model in store.stats().models] == [bits]
            assert_sound(store)
    with sqlmem.open(path, embedder=Centred()) as store:
        assert [model.bits for model in store.stats().models] == ["current"]
        (held,) = store._engine.db.rows("select count(*) from vector_centred_bits")
        assert held == ({"remember": 3, "correct": 2}.get(verb, 0),)
        assert_sound(store)


def test_a_file_made_without_sqlite_vec_gets_its_bits_from_the_next_that_has_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sqlmem.db, "vec_library", lambda: None)
        with sqlmem.open(path, embedder=HASH) as store:
            store.remember_many([f"number {n}" for n in range(300)])
            assert store.recall("number 7").texts[0] == "number 7"
            assert [model.bits for model in store.stats().models] == ["none"]
            assert_sound(store)
    with sqlmem.open(path, embedder=HASH) as store:
        (model,) = store.stats().models
        assert (model.bits, model.vectors) == ("current" if sqlmem.db.vec_library() else "none", 300)
        assert_sound(store)


def test_a_library_that_cannot_be_loaded_counts_as_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = path.parent / "vec0.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(sqlmem.db, "vec_library", lambda: str(broken.with_suffix("")))
    with sqlmem.open(":memory:", embedder=HASH) as store:
        store.remember("hello", session="s")
        assert store.recall("hello", session="s").texts == ["hello"]


# -- the rest of open()'s arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("durability", "off"), ("durability", None), ("read_only", 1), ("create", None), ("clock", 5), ("token_counter", 5),
        ("ttl_days", 5), ("ttl_days", {"turns": 1}), ("ttl_days", {"turn": 0}), ("ttl_days", {"turn": -1}),
        ("ttl_days", {"turn": True}), ("ttl_days", {"turn": float("nan")}), ("ttl_days", {"turn": "30"}),
        ("half_life_days", 0), ("half_life_days", -1), ("half_life_days", True), ("half_life_days", float("nan")),
        ("recency_weight", -0.1), ("recency_weight", 1.1), ("feedback_weight", -0.1), ("feedback_weight", 1.1),
        ("feedback_weight", "0.25"), ("feedback_half_life_days", 0), ("feedback_half_life_days", float("inf")),
    ],
)  # fmt: skip
def test_an_option_that_makes_no_sense_is_refused_before_a_file_is_made(path: Path, name: str, value: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        sqlmem.open(path, embedder=False, **{name: value})
    assert beside(path) == []


@pytest.mark.parametrize(("durability", "level"), [("normal", 1), ("full", 2)])
def test_durability_sets_how_often_the_disk_is_waited_for(path: Path, durability: Any, level: int) -> None:
    with sqlmem.open(path, embedder=False, durability=durability) as store:
        db = store._engine.db
        wanted = {"synchronous": level, "foreign_keys": 1, "secure_delete": 1, "mmap_size": 0, "wal_autocheckpoint": 1000}
        assert {name: db.value(f"pragma {name}") for name in wanted} == wanted
        assert db.value("pragma journal_mode") == "wal"
        assert db.value("pragma busy_timeout") == 5000


def test_a_failed_open_leaves_what_another_store_holds_alone(filled: Path) -> None:
    with sqlmem.open(filled) as store:
        with pytest.raises(sqlmem.ModelMismatch):
            sqlmem.open(filled, embedder=sqlmem.HashEmbedder(32))
        store.remember("still works", session="s")
    with sqlmem.open(filled) as store:
        assert [turn.text for turn in store.turns("s")] == ["I moved to Lisbon", "still works"]
    assert contents(filled)["user_version"] == schema.FORMAT_VERSION
