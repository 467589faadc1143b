"""What survives kill -9: every acknowledged write, and never half of a verb.

`SQLMEM_KILL_ROUNDS` and `SQLMEM_KILL_CALLS` make the random part longer (50 and 1000 for a release).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.helpers_store import assert_sound, beside, broken_rules, child, run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills and forks as POSIX does")

ROUNDS = int(os.environ.get("SQLMEM_KILL_ROUNDS", "12"))
CALLS = int(os.environ.get("SQLMEM_KILL_CALLS", "60"))
HASH = sqlmem.HashEmbedder(16)


def _integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]


# -- at random moments ------------------------------------------------------------------------------------------------


def _killed_after(process: subprocess.Popen[str], lines: int) -> list[list[str]]:
    """Read so many lines, kill the child while it works on, and return the words of every whole line that it printed."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        # Not communicate(): it reads the pipe past what readline() has already buffered.
        whole = "".join(said) + process.stdout.read()
        complaints = process.stderr.read()
    assert process.returncode == -signal.SIGKILL, complaints
    return [line.split() for line in whole[: whole.rfind("\n") + 1].splitlines()]


REMEMBER_FOREVER = """
import itertools, sys, sqlmem
path, round_, embedder = sys.argv[1:]
store = sqlmem.open(path, embedder=sqlmem.HashEmbedder(16) if embedder == "vectors" else False)
print("open")
for number in itertools.count():
    id = store.remember(f"round {round_} call {number}", session="s")
    print(id, store.get(id).turn, number)
"""


@pytest.mark.parametrize("embedder", ["vectors", "keywords"])
def test_every_acknowledged_turn_survives(tmp_path: Path, embedder: str) -> None:
    path = tmp_path / "chat.db"
    moments = random.Random(f"turns {embedder}")
    acknowledged: dict[str, tuple[int, str]] = {}
    highest = -1
    for round_ in range(ROUNDS // 2):
        # Whole lines that were still in the pipe when it died count as well: they were acknowledged.
        said = _killed_after(child(REMEMBER_FOREVER, path, round_, embedder), 1 + moments.randrange(CALLS))
        assert said[0] == ["open"]
        for id_, turn, number in said[1:]:
            assert int(turn) > highest, "a turn's number was given again"
            acknowledged[id_] = (int(turn), f"round {round_} call {number}")
            highest = int(turn)
        _integrity(path) if round_ % 2 else None
        with sqlmem.open(path, embedder=HASH if embedder == "vectors" else False) as store:
            held = {turn.id: (turn.turn, turn.text) for turn in store.turns("s")}
            assert {id_: held.get(id_) for id_ in acknowledged} == acknowledged
            assert {turn for turn, _ in held.values()} == set(range(len(held)))
            # At most the call that was interrupted is stored without having been acknowledged.
            assert len(held) <= len(acknowledged) + round_ + 1
            highest = len(held) - 1
            assert_sound(store)
    assert len(acknowledged) > ROUNDS


CORRECT_FOREVER = """
import itertools, sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16))
for number in itertools.count():
    print(store.correct("fact", f"round {sys.argv[2]} version {number}"))
"""


def test_a_chain_survives_being_killed_while_it_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("first", kind="fact", id="fact", session="s")
    moments = random.Random("correct")
    acknowledged: list[str] = []
    for round_ in range(ROUNDS // 2):
        said = _killed_after(child(CORRECT_FOREVER, path, round_), moments.randrange(CALLS))
        acknowledged += [line[0] for line in said]
        with sqlmem.open(path, embedder=HASH) as store:
            versions = store.history("fact")
            assert [memory.version_number for memory in versions] == list(range(1, len(versions) + 1))
            assert [memory.state for memory in versions] == ["superseded"] * (len(versions) - 1) + ["live"]
            assert set(acknowledged) <= {memory.id for memory in versions}
            assert len(versions) <= 1 + len(acknowledged) + round_ + 1
            assert len(store.list(session="s")) == 1
            assert_sound(store)
        _integrity(path)


FORGET_FOREVER = """
import itertools, sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16))
for number in itertools.count():
    kept = store.remember(f"kept {sys.argv[2]} {number}", session="s")
    print("kept", kept)
    gone = store.remember(f"gone {sys.argv[2]} {number}", session="s")
    print("stored", gone)
    assert store.forget(ids=[gone]) == 1
    print("gone", gone)
"""


def test_what_was_forgotten_stays_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    moments = random.Random("forget")
    kept: set[str] = set()
    gone: set[str] = set()
    for round_ in range(ROUNDS // 2):
        said = _killed_after(child(FORGET_FOREVER, path, round_), 1 + moments.randrange(CALLS))
        kept |= {id_ for word, id_ in said if word == "kept"}
        gone |= {id_ for word, id_ in said if word == "gone"}
        with sqlmem.open(path, embedder=HASH) as store:
            held = {turn.id for turn in store.turns("s")}
            assert kept <= held
            assert not gone & held
            for id_ in gone:
                with pytest.raises(sqlmem.NotFound, match="was forgotten"):
                    store.get(id_)
            assert store.stats().forgotten >= len(gone)
            assert_sound(store)
        _integrity(path)


KEYED_IMPORT = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=False)
items = [{"text": f"message {n}", "session": "s", "key": f"k{n}"} for n in range(1500)]
store.remember_many(items, progress=lambda done, total: print(done, total))
print("complete")
sys.stdin.readline()
"""


def test_an_interrupted_import_is_resumed_by_its_keys(tmp_path: Path) -> None:
    moments = random.Random("import")
    for round_ in range(ROUNDS // 4):
        path = tmp_path / f"{round_}.db"
        done = 0
        for _ in range(2):
            said = _killed_after(child(KEYED_IMPORT, path), moments.randrange(5))
            reported = [int(line[0]) for line in said if len(line) == 2]
            done = max([done, *reported])
            if path.exists():
                with sqlmem.open(path, embedder=False) as store:
                    stored = len(store.turns("s"))
                    assert stored % 256 == 0 or stored == 1500
                    assert stored >= done
                    assert_sound(store)
        process = child(KEYED_IMPORT, path)
        said_all, complaints = process.communicate("\n")
        assert said_all.endswith("complete\n"), complaints
        with sqlmem.open(path, embedder=False) as store:
            assert [(turn.turn, turn.text) for turn in store.turns("s")] == [(n, f"message {n}") for n in range(1500)]
            assert_sound(store)
        _integrity(path)


CHANGE_FOREVER = """
import itertools, random, sys, sqlmem
path, seed = sys.argv[1:]
chance = random.Random(seed)
def judge(new, known):
    return [sqlmem.Verdict(contradicts=old.split()[0] == new.split()[0], reason=f"not {old}") for old in known]
store = sqlmem.open(path, embedder=sqlmem.HashEmbedder(16), judge=judge)
def some():
    return chance.choice([memory.id for memory in store.list(include_superseded=True, limit=100)] or ["none"])
def resolve():
    for conflict in store.conflicts.list():
        if chance.random() < 0.5:
            store.conflicts.resolve(conflict.id, chance.choice(["keep_old", "take_new", "keep_both"]))
        else:
            store.conflicts.resolve(conflict.id, text=f"{conflict.proposed.text} indeed")
calls = [
    lambda n: store.remember(f"{chance.choice('ABC')} is {chance.randrange(9)} times {n}", kind="fact"),
    lambda n: store.remember(f"turn {n}", session="s"),
    lambda n: store.correct(some(), f"{chance.choice('ABC')} is corrected {n}"),
    lambda n: store.feedback(some(), "corrected", f"{chance.choice('ABC')} is graded {n}"),
    lambda n: store.consolidate("s", lambda turns: [f"A is made of {turns[0]['text']}", "B is made"], keep_recent=2),
    lambda n: store.invalidate(some()),
    lambda n: store.rollback(some(), 1),
    lambda n: store.conflicts.set_mode(chance.choice(["ask", "supersede"])),
    lambda n: resolve(),
    lambda n: store.forget(ids=[some()], trash_days=1, resurrect=True),
    lambda n: store.forget(ids=[some()], cascade=True),
    lambda n: store.undo(),
    lambda n: store.redo(),
]
for number in itertools.count():
    try:
        chance.choice(calls)(number)
    except (sqlmem.NotFound, sqlmem.ConflictError):
        pass
    print(number)
"""


def test_whatever_is_killed_leaves_a_file_that_keeps_its_rules(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    sqlmem.open(path, embedder=HASH).close()
    moments = random.Random("change")
    for round_ in range(ROUNDS):
        said = _killed_after(child(CHANGE_FOREVER, path, round_), 1 + moments.randrange(CALLS))
        assert len(said) > 0
        with sqlmem.open(path, embedder=HASH) as store:
            assert broken_rules(store) == []
            assert_sound(store)
        _integrity(path)
    with sqlmem.open(path) as store:
        assert store.stats().superseded > 0


CONSOLIDATE = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16))
def summarize(turns):
    print("asked")
    return ["fact of " + turn["text"] for turn in turns]
store.consolidate("s", summarize, keep_recent=0, batch_turns=2)
print("done")
"""


def test_a_consolidation_that_is_killed_is_resumed_without_loss_or_double(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember_many([{"text": f"message {number}", "session": "s"} for number in range(8 * ROUNDS)])
    expected = [f"fact of message {number}" for number in range(8 * ROUNDS)]
    moments = random.Random("consolidate")
    for _ in range(ROUNDS // 2):
        _killed_after(child(CONSOLIDATE, path), 1 + moments.randrange(4))
        with sqlmem.open(path, embedder=HASH) as store:
            facts = [memory.text for memory in store.list(session="s", kinds=["fact"], limit=1_000)]
            turns = [turn.text for turn in store.turns("s")]
            assert len(facts) + len(turns) == 8 * ROUNDS
            assert sorted([*facts, *(f"fact of {turn}" for turn in turns)]) == sorted(expected)
            assert_sound(store)
    assert run(CONSOLIDATE, path).endswith("done\n")
    with sqlmem.open(path, embedder=HASH) as store:
        assert sorted(memory.text for memory in store.list(session="s", limit=1_000)) == sorted(expected)
        assert store.turns("s") == []


# -- at every single write to the disk --------------------------------------------------------------------------------

# SQLite writes through this layer, which kills the process half-way through its n-th write: n = 0, 1, 2, … each on its own
# copy of the same file, until the verb and the close get through.
KILLED_AT_EACH_WRITE = """
import os, shutil, signal, sys
from datetime import UTC, datetime
import apsw, sqlmem
import numpy

folder, task, stride = sys.argv[1], sys.argv[2], int(sys.argv[3])
left = 0
default = apsw.vfs_names()[0]

class File(apsw.VFSFile):
    def xWrite(self, data, offset):
        global left
        left -= 1
        if left < 0:
            super().xWrite(data[: len(data) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        super().xWrite(data, offset)

class Killing(apsw.VFS):
    def __init__(self):
        super().__init__("killing", default, makedefault=True)

    def xOpen(self, name, flags):
        return File(default, name, flags)

def contradicts(new, known):
    return [sqlmem.Verdict(contradicts=old.split()[0] == new.split()[0], reason="one drink") for old in known]

def summarize(turns):
    return ["they met", "they talked about tea"]

def model(prompt):
    if "Remembered:" in prompt:
        return '{"decisions": [{"statement": 0, "action": "update", "memories": [1], "reason": "read so"}]}'
    return '{"memories": [{"text": "Ana drinks coffee on turn two", "turns": [1]}], "summary": "About tea."}'

def work(store):
    if task == "remember":
        store.remember("the fourth turn", session="s")
    elif task == "state":
        store.remember("Ana has a dog", session="s", kind="fact", key="dog", categories=["pets"])
    elif task == "correct":
        store.correct("fact", "Ana drinks coffee", pinned=True, metadata={"n": 1}, categories=["pets"])
    elif task == "feedback":
        store.feedback("fact", "corrected", "Ana drinks coffee")
    elif task == "forget":
        store.forget(session="s", kinds=["turn", "fact"])
    elif task == "expire":
        store.expire(now=datetime(2100, 1, 1, tzinfo=UTC))
    elif task == "remember_many":
        store.remember_many([{"text": f"message {n}", "session": "s", "key": f"k{n}"} for n in range(300)])
    elif task == "rebuild":
        store.rebuild()
    elif task == "judge":
        store.remember("Ana drinks coffee", session="s", kind="fact")
    elif task == "ask":
        store.conflicts.set_mode("ask")
        store.remember("Ana drinks coffee", session="s", kind="fact")
    elif task == "take_new":
        store.conflicts.resolve(store.conflicts.list().items[0].id, "take_new")
    elif task == "own_text":
        store.conflicts.resolve(store.conflicts.list().items[0].id, text="Ben drinks rum with milk")
    elif task == "invalidate":
        store.invalidate("fact", note="she does not")
    elif task == "rollback":
        store.rollback("eve", 1)
    elif task == "recheck":
        store.recheck(user="zoe", limit=1)
    elif task == "trash":
        store.forget(session="s", trash_days=3, resurrect=True)
    elif task == "undo":
        store.undo("eve")
    elif task == "redo":
        store.redo("kim")
    elif task == "consolidate":
        store.consolidate("s", summarize, keep_recent=1)
    elif task == "extract":
        store.extract("s", llm=model)
    elif task == "process":
        store.sessions.process("life", "zoe", llm=model)
    elif task == "users.delete":
        store.users.delete("")
    elif task == "categories":
        store.categories.create("food")
        store.categories.delete("pets")

number = 0
while True:
    path = os.path.join(folder, f"{number}.db")
    base = os.path.join(folder, "base.db")
    if task != "open":
        shutil.copy(base, path)
    process = os.fork()
    if process == 0:
        vfs = Killing()
        left = number
        with sqlmem.open(path, embedder=sqlmem.HashEmbedder(16), judge=contradicts) as store:
            work(store)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, status
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    number += stride
print(number)
"""

_STATE = """
select text, kind, turn, state, version, replaced_by is not null, ended is not null, end_reason, categories, metadata, seen
  from memory_history order by number
"""
_COUNTS = """
feedback link memory_key memory_category tombstone scope category pending vector_hash_16 memory_fts_docsize trash operation
conflict conflict_memory conflict_result conflict_question
""".split()


def _state(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as db:
        found: dict[str, Any] = {"rows": db.execute(_STATE).fetchall()}
        for table in _COUNTS:
            found[table] = db.execute(f"select count(*) from {table}").fetchone()[0]
        found["conflicts"] = db.execute("select status, resolution from conflict order by id").fetchall()
        found["held"] = db.execute("select rowid, held from memory where held is not null order by rowid").fetchall()
        found["status"] = db.execute("select status, extracted_to from scope order by id").fetchall()
        found["calls"] = db.execute("select user, verb, state from operation order by id").fetchall()
        found["next_turn"] = db.execute("select user, session, next_turn from scope order by id").fetchall()
        return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.db"
    with sqlmem.open(path, embedder=HASH) as store:
        store.categories.create("pets")
        store.remember("the first turn", session="s", ttl_days=1)
        store.remember("the second turn, which is about tea", session="s", key="second")
        store.remember("the third turn", session="s")
        store.remember("Ana drinks tea", session="s", kind="fact", id="fact", categories=["pets"])
        store.remember("another session", session="other")
        store.feedback("fact", "useful")
        store.remember("Eve drinks milk", user="eve", kind="fact", id="eve")
        store.correct("eve", "Eve drinks water")
        store.remember("Kim drinks milk", user="kim", kind="fact", id="kim")
        store.correct("kim", "Kim drinks water")
        store.undo("kim")
        store.remember("Zoe drinks milk", user="zoe", kind="fact")
        store.remember("Zoe drinks water", user="zoe", kind="fact")
        store.remember("Ben drinks milk", kind="fact")
        store.sessions.create("life", "zoe")
        store.remember("we met on turn zero", session="life", user="zoe")
        store.remember("and again", session="life", user="zoe")
    with sqlmem.open(path, embedder=HASH, judge=lambda new, known: [True] * len(known), on_contradiction="ask") as store:
        assert store.remember("Ben drinks rum", kind="fact").conflict_id is not None
    return path


def _killed_copies(tmp_path: Path, task: str, stride: int) -> tuple[list[Path], Path]:
    """The files left by each kill, and the one of the run that got through."""
    last = int(run(KILLED_AT_EACH_WRITE, tmp_path, task, stride))
    return [tmp_path / f"{number}.db" for number in range(0, last, stride)], tmp_path / f"{last}.db"


TASKS = """
remember state correct feedback forget expire rebuild categories
judge ask take_new own_text invalidate rollback recheck trash undo redo consolidate extract process users.delete
""".split()


@pytest.mark.parametrize("task", TASKS)
def test_a_kill_at_any_write_leaves_all_of_a_verb_or_nothing(base: Path, tmp_path: Path, task: str) -> None:
    before = _state(base)
    killed, through = _killed_copies(tmp_path, task, 1)
    after = _state(through)
    assert (before != after) == (task != "rebuild")
    seen_before = seen_after = False
    allowed = [before, after]
    if task == "categories":  # two verbs
        allowed.append({**before, "category": 2})
    if task == "process":  # first it is taken on
        taken = [("processing", read) if status == "pending" else (status, read) for status, read in before["status"]]
        allowed.append({**before, "status": taken})
    for path in killed:
        with sqlmem.open(path, embedder=HASH) as store:
            assert_sound(store)
        held = _state(path)
        assert held in allowed
        seen_before |= held == before
        seen_after |= held == after
        _integrity(path)
    assert len(killed) > 3
    assert seen_before, "no kill came before the commit: the test does not test"
    assert seen_after, "no kill came after the commit: the test does not test"


def test_a_kill_at_any_write_of_an_import_loses_nothing_acknowledged(base: Path, tmp_path: Path) -> None:
    killed, through = _killed_copies(tmp_path, "remember_many", 13)
    after = _state(through)
    counts = set()
    items = [{"text": f"message {n}", "session": "s", "key": f"k{n}"} for n in range(300)]
    for path in killed:
        with sqlmem.open(path, embedder=HASH) as store:
            assert_sound(store)
            counts.add(len(store.turns("s")))
            ids = store.remember_many(items)
            assert len(set(ids)) == 300
        assert _state(path) == after
    assert counts == {3, 3 + 256, 3 + 300}


def test_a_kill_at_any_write_of_creating_a_file_can_be_started_again(tmp_path: Path) -> None:
    killed, _ = _killed_copies(tmp_path, "open", 3)
    assert len(killed) > 10
    for path in killed:
        with sqlmem.open(path, embedder=HASH) as store:
            assert store.remember("hello", session="s").created
            assert [turn.turn for turn in store.turns("s")] == [0]
            assert_sound(store)
        _integrity(path)
    assert [name for name in beside(tmp_path / "x") if re.search(r"-(wal|shm|journal)$", name)] == []


def test_a_copy_of_a_file_and_its_wal_is_a_whole_store(base: Path, tmp_path: Path) -> None:
    with sqlmem.open(base, embedder=HASH) as store:
        new = store.remember("still in the wal", session="s")
        shutil.copy(base, tmp_path / "copy.db")
        shutil.copy(f"{base}-wal", tmp_path / "copy.db-wal")
    with sqlmem.open(tmp_path / "copy.db", embedder=HASH) as store:
        assert store.get(new).text == "still in the wal"
        assert_sound(store)
