"""No room left: the verb is undone, says so, and works once there is room."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import assert_sound, run

HASH = sqlmem.HashEmbedder(16)
TEXT = "a turn of some length, " * 40


def _fill(store: sqlmem.MemoryStore) -> list[str]:
    """Remember until the disk is full; returns the ids of what was acknowledged."""
    acknowledged: list[str] = []
    with pytest.raises(sqlmem.DiskFull) as raised:  # noqa: PT012
        for number in range(100_000):
            acknowledged.append(store.remember(f"{number} {TEXT}", session="s"))  # noqa: PERF401  # each as it comes
    assert raised.value.retry is False
    assert "full" in str(raised.value)
    return acknowledged


def _assert_just(store: sqlmem.MemoryStore, acknowledged: list[str]) -> None:
    turns = store.turns("s")
    assert [turn.id for turn in turns] == acknowledged
    assert [turn.turn for turn in turns] == list(range(len(acknowledged)))
    assert store.recall("7 turn", session="s").top is not None
    assert_sound(store)


# -- a page limit, wherever tests run ---------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sqlmem.MemoryStore]:
    with sqlmem.open(tmp_path / "chat.db", embedder=HASH) as opened:
        yield opened


def _limit(store: sqlmem.MemoryStore, pages: int) -> None:
    """So many pages more than the file has."""
    db = store._engine.db
    db.script(f"pragma max_page_count = {db.value('pragma page_count') + pages}")


def test_remembering_stops_with_disk_full_and_goes_on_when_there_is_room(store: sqlmem.MemoryStore) -> None:
    store.remember("a fact", kind="fact", id="fact", session="s")
    _limit(store, 40)
    acknowledged = _fill(store)
    assert len(acknowledged) > 10
    _assert_just(store, acknowledged)
    with pytest.raises(sqlmem.DiskFull):
        store.remember(TEXT * 50, session="s")
    _assert_just(store, acknowledged)
    _limit(store, 100)
    new = store.remember("after there is room", session="s")
    assert store.get(new).turn == len(acknowledged)  # nothing that failed has burnt a number
    assert_sound(store)


def test_a_bulk_write_keeps_whole_batches_and_is_resumed_by_its_keys(store: sqlmem.MemoryStore) -> None:
    items = [{"text": f"message {n}", "session": "s", "key": f"k{n}"} for n in range(1000)]
    _limit(store, 60)
    done: list[int] = []
    with pytest.raises(sqlmem.DiskFull):
        store.remember_many(items, progress=lambda count, total: done.append(count))
    assert done in ([256], [256, 512], [256, 512, 768])
    assert [turn.text for turn in store.turns("s")] == [f"message {n}" for n in range(done[-1])]
    assert_sound(store)
    _limit(store, 10_000)
    ids = store.remember_many(items)
    assert [turn.id for turn in store.turns("s")] == ids
    assert [turn.text for turn in store.turns("s")] == [f"message {n}" for n in range(1000)]
    assert_sound(store)


VERBS: dict[str, Callable[[sqlmem.MemoryStore], object]] = {
    "remember": lambda store: store.remember(TEXT * 20, session="s"),
    "remember_many": lambda store: store.remember_many([TEXT] * 100),
    "correct": lambda store: store.correct("fact", TEXT * 20),
    "feedback": lambda store: store.feedback("fact", "corrected", TEXT * 20),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_finds_no_room_changes_nothing(store: sqlmem.MemoryStore, verb: str) -> None:
    store.remember("a fact", kind="fact", id="fact", session="s")
    store.remember_many([{"text": f"{n} {TEXT}", "session": "s"} for n in range(60)])
    before, listed = store.stats(), [memory.id for memory in store.list(session="s", limit=1000)]
    _limit(store, 0)
    with pytest.raises(sqlmem.DiskFull):
        VERBS[verb](store)
    assert store.stats() == before
    assert [memory.id for memory in store.list(session="s", limit=1000)] == listed
    assert [memory.text for memory in store.history("fact")] == ["a fact"]
    assert_sound(store)
    _limit(store, 10_000)
    VERBS[verb](store)
    assert_sound(store)


# -- a disk that fails at its n-th write ------------------------------------------------------------------------------

# One store after the other on copies of one file; in each the n-th write to the disk and all after it fail during the verb.
FAILING_AT_EACH_WRITE = """
import json, os, shutil, sys
import apsw, sqlmem

folder, verb, kind = sys.argv[1:]
left = None
default = apsw.vfs_names()[0]
errors = {"full": (apsw.FullError, apsw.SQLITE_FULL), "io": (apsw.IOError, apsw.SQLITE_IOERR)}

class File(apsw.VFSFile):
    def xWrite(self, data, offset):
        global left
        if left is not None:
            left -= 1
            if left < 0:
                made_up, code = errors[kind]
                error = made_up("made up")
                error.result = error.extendedresult = code  # as if SQLite's own file layer had said so
                raise error
        super().xWrite(data, offset)

class Failing(apsw.VFS):
    def __init__(self):
        super().__init__("failing", default, makedefault=True)

    def xOpen(self, name, flags):
        return File(default, name, flags)

sys.unraisablehook = sys.excepthook = lambda *problem: None  # apsw reports what our file layer raises there as well
vfs = Failing()
verbs = {
    "remember": lambda store: store.remember("one more", session="s", key="one"),
    "remember_many": lambda store: store.remember_many([{"text": f"more {n}", "key": f"k{n}"} for n in range(20)]),
    "correct": lambda store: store.correct("fact", "another fact"),
    "forget": lambda store: store.forget(session="s"),
    "expire": lambda store: store.expire(),
}

def state(store):
    held = store.list(all_users=True, include_superseded=True, limit=1000)
    return [(m.id, m.text, m.state) for m in held], str(store.stats())

results = []
for number in range(10_000):
    path = os.path.join(folder, f"{number}.db")
    shutil.copy(os.path.join(folder, "base.db"), path)
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(16)) as store:
        before = state(store)
        left = number
        try:
            verbs[verb](store)
            error = None
        except sqlmem.SqlmemError as caught:
            error = type(caught).__name__
        failed = left < 0
        left = None
        after = state(store)
        if error is not None:
            same = after == before
            verbs[verb](store)
        else:
            same = None
        results.append([number, failed, error, same, list(store.check().problems)])
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(16)) as store:
        results[-1].append(list(store.check().problems))
    if not failed:
        break
print(json.dumps(results))
"""


@pytest.mark.parametrize("verb", ["remember", "remember_many", "correct", "forget", "expire"])
@pytest.mark.parametrize(("kind", "error"), [("full", "DiskFull"), ("io", "StorageError")])
def test_a_disk_that_fails_at_any_write_undoes_the_verb(tmp_path: Path, verb: str, kind: str, error: str) -> None:
    with sqlmem.open(tmp_path / "base.db", embedder=HASH) as store:
        store.remember_many([{"text": f"turn {n}", "session": "s", "ttl_days": 1e-6} for n in range(8)])
        store.remember("a fact", kind="fact", id="fact")
    results: list[list[Any]] = json.loads(run(FAILING_AT_EACH_WRITE, tmp_path, verb, kind))
    assert [problems for result in results for problems in result[4:] if problems] == []
    *failing, last = results
    assert len(failing) > 5
    assert last[1:4] == [False, None, None]
    assert {(result[2], result[3]) for result in failing} == {(error, True)}


# -- a small disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False, capture_output=True
    ).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_keeps_what_was_acknowledged(small_disk: Path) -> None:
    path = small_disk / "chat.db"
    with sqlmem.open(path, embedder=HASH) as store:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * 100_000)
        acknowledged = _fill(store)
        assert len(acknowledged) > 5
        _assert_just(store, acknowledged)
        with pytest.raises(sqlmem.DiskFull):
            store.remember_many([{"text": TEXT, "session": "s"}] * 300)
        _assert_just(store, acknowledged)
        ballast.unlink()
        acknowledged.append(store.remember("after there is room", session="s"))
        _assert_just(store, acknowledged)
    with sqlmem.open(path, embedder=HASH) as store:
        _assert_just(store, acknowledged)


def test_forgetting_on_a_full_disk_happens_or_says_so(small_disk: Path) -> None:
    path = small_disk / "chat.db"
    with sqlmem.open(path, embedder=HASH) as store:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * 500_000)
        acknowledged = _fill(store)
        with open(ballast, "ab", buffering=0) as file:
            _take_the_rest(file)
        try:
            assert store.forget(ids=acknowledged[:1]) == 1
            acknowledged = acknowledged[1:]
        except sqlmem.DiskFull:
            pass
        assert [turn.id for turn in store.turns("s")] == acknowledged
        assert_sound(store)
        ballast.unlink()
        assert store.forget(ids=acknowledged) == len(acknowledged)
        assert store.turns("s") == []
        assert_sound(store)


def test_a_new_file_on_a_full_disk_is_a_typed_error_and_can_be_made_later(small_disk: Path) -> None:
    with open(small_disk / "ballast", "wb", buffering=0) as file:
        _take_the_rest(file)
    with pytest.raises(sqlmem.StorageError):
        sqlmem.open(small_disk / "chat.db", embedder=HASH)
    (small_disk / "ballast").unlink()
    with sqlmem.open(small_disk / "chat.db", embedder=HASH) as store:
        assert store.get(store.remember("hello", session="s")).turn == 0
        assert_sound(store)


def _take_the_rest(file: FileIO) -> None:
    """Write until there is no room."""
    with contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
