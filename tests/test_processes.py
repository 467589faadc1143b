"""Several processes, threads and stores on one file."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import sqlmem
import sqlmem.db
from tests.helpers_store import assert_sound, child, output, run, together

HASH = sqlmem.HashEmbedder(16)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def _at_once(work: Callable[[int], None], count: int) -> None:
    """Run `work(0)`, `work(1)`, … on as many threads, started together; the first exception is raised here."""
    barrier = threading.Barrier(count)

    def start(number: int) -> None:
        barrier.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(start, number) for number in range(count)]:
            future.result()


def _other_program(path: Path) -> apsw.Connection:
    """A connection that is not a store's. It must use the store's copy of SQLite: POSIX locks do not hold between two copies
    in one process, so the standard library's sqlite3 would walk right through them.
    """
    return apsw.Connection(str(path))


# -- processes --------------------------------------------------------------------------------------------------------

WRITE_200 = """
import sys, sqlmem
path, worker, embedder = sys.argv[1:]
store = sqlmem.open(path, embedder=sqlmem.HashEmbedder(16) if embedder == "vectors" else False)
print("ready"); sys.stdin.readline()
for number in range(200):
    print(store.remember(f"{worker} says {number}", session="s"))
store.close()
"""


@pytest.mark.parametrize("embedder", ["vectors", "keywords"])
def test_four_processes_write_one_session(path: Path, embedder: str) -> None:
    said = together(WRITE_200, *[(path, worker, embedder) for worker in range(4)])
    with sqlmem.open(path, embedder=HASH if embedder == "vectors" else False) as store:
        turns = store.turns("s")
        assert [turn.turn for turn in turns] == list(range(800))
        assert {turn.text for turn in turns} == {f"{worker} says {number}" for worker in range(4) for number in range(200)}
        assert {turn.id for turn in turns} == {id_ for part in said for id_ in part.split()}
        for worker, part in enumerate(said):  # each worker's own turns stand in the order it said them
            assert [turn.id for turn in turns if turn.text.startswith(f"{worker} ")] == part.split()
        assert_sound(store)


CORRECT_100 = """
import sys, sqlmem
path, worker = sys.argv[1:]
store = sqlmem.open(path, embedder=sqlmem.HashEmbedder(16))
print("ready"); sys.stdin.readline()
for number in range(100):
    new = store.correct("fact", f"worker {worker} says {number}")
    print(new, *new.superseded)
"""


def test_four_processes_correct_one_memory(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("the beginning", session="s", kind="fact", id="fact")
    said = together(CORRECT_100, *[(path, worker) for worker in range(4)])
    steps = dict(line.split() for part in said for line in part.splitlines())
    with sqlmem.open(path) as store:
        versions = store.history("fact")
        assert [memory.version_number for memory in versions] == list(range(1, 402))
        assert [memory.state for memory in versions] == ["superseded"] * 400 + ["live"]
        assert {memory.total_versions for memory in versions} == {401}
        for old, new in itertools.pairwise(versions):
            assert (old.replaced_by, old.expired_at, old.expiration_reason) == (new.id, new.created_at, "updated")
            assert steps[new.id] == old.id  # what the call said it had replaced
        assert len({memory.text for memory in versions}) == 401
        assert [memory.id for memory in store.list(session="s")] == [versions[-1].id]
        assert_sound(store)


UNDO_10 = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16))
print("ready"); sys.stdin.readline()
for _ in range(10):
    print(*store.undo().ids)
"""


def test_four_processes_undo_each_call_once(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        ids = [store.remember(f"turn {number}", session="s") for number in range(45)]
    said = together(UNDO_10, *[(path,) for _ in range(4)])
    assert sorted(id_ for part in said for id_ in part.split()) == sorted(ids[5:])
    with sqlmem.open(path) as store:
        assert [turn.id for turn in store.turns("s")] == ids[:5]
        assert_sound(store)


CONSOLIDATE = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16))
print("ready"); sys.stdin.readline()
report = store.consolidate("s", lambda turns: [f"fact of {turn['text']}" for turn in turns], keep_recent=0, batch_turns=3)
print(report.turns_removed)
"""


def test_processes_that_consolidate_one_session_share_its_turns(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember_many([{"text": f"turn {number}", "session": "s"} for number in range(60)])
    said = together(CONSOLIDATE, *[(path,) for _ in range(3)])
    assert sum(map(int, said)) == 60
    with sqlmem.open(path) as store:
        facts = [memory.text for memory in store.list(session="s", limit=100)]
        assert sorted(facts) == sorted(f"fact of turn {number}" for number in range(60))
        assert store.turns("s") == []
        assert_sound(store)


SAY_THE_SAME = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(16))
print("ready"); sys.stdin.readline()
for number in range(30):
    for new in (store.remember(f"fact {number}", session="s", kind="fact"), store.remember(f"turn {number}", session="s", key=f"k{number}")):
        print(new, new.created)
"""  # noqa: E501


def test_four_processes_say_the_same_facts_and_keyed_turns(path: Path) -> None:
    lines = [line.split() for part in together(SAY_THE_SAME, *[(path,)] * 4) for line in part.splitlines()]
    assert len(lines) == 4 * 60
    created = [id_ for id_, new in lines if new == "True"]
    assert len(created) == len(set(created)) == 60
    assert {id_ for id_, _ in lines} == set(created)
    with sqlmem.open(path) as store:
        assert [(turn.turn, turn.text) for turn in store.turns("s")] == [(n, f"turn {n}") for n in range(30)]
        facts = store.list(session="s", kinds=["fact"], limit=100)
        assert sorted((fact.text, fact.seen) for fact in facts) == sorted((f"fact {n}", 4) for n in range(30))
        assert_sound(store)


FEEDBACK_25 = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=False)
print("ready"); sys.stdin.readline()
for number in range(25):
    store.feedback("fact", "useful")
"""


def test_no_grade_of_several_processes_is_lost(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as store:
        store.remember("graded", kind="fact", id="fact")
    together(FEEDBACK_25, *[(path,)] * 4)
    with sqlmem.open(path) as store:
        assert store.stats().feedback == 100


FORGET_AND_WRITE = """
import sys, sqlmem
path, worker = sys.argv[1:]
store = sqlmem.open(path, embedder=sqlmem.HashEmbedder(16))
print("ready"); sys.stdin.readline()
total = 0
for number in range(40):
    if worker == "0":
        total += store.forget(session="s")
    elif worker == "1":
        store.recall(f"says {number}", session="s")
        store.context(f"says {number}", session="s")
    else:
        store.remember(f"{worker} says {number}", session="s")
        total += 1
print(total)
"""


def test_forgetting_reading_and_writing_processes_get_along(path: Path) -> None:
    forgotten, _, *written = (int(part) for part in together(FORGET_AND_WRITE, *[(path, worker) for worker in range(4)]))
    assert written == [40, 40]
    with sqlmem.open(path) as store:
        left = store.turns("s")
        assert len(left) + forgotten == 80
        numbers = [turn.turn for turn in left]
        assert len(set(numbers)) == len(numbers)
        assert store.get(store.remember("last", session="s")).turn == 80  # no number was lost or given twice
        assert_sound(store)


def test_two_stores_in_one_process_see_each_others_writes(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as one, sqlmem.open(path, embedder=HASH) as other:
        first = one.remember("we met in Porto", session="s")
        assert other.get(first).turn == 0
        second = other.remember("then in Lisbon", session="s")
        assert one.get(second).turn == 1
        assert one.recall("Lisbon", session="s").ids[0] == second
        assert other.recall("Porto", session="s").ids[0] == first
        one.forget(ids=[second])
        assert other.recall("Lisbon", session="s").ids == [first]
        with pytest.raises(sqlmem.NotFound):
            other.get(second)
        third = other.correct(first, "we met in Faro")
        assert one.history(first)[-1].id == third
        one.close()
        assert other.remember("alone", session="s").created
        assert_sound(other)


SEE_IT = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=False)
print("ready")
for line in sys.stdin:
    print([turn.text for turn in store.turns("s")])
    store.remember("reply to " + line.strip(), session="s")
    print("done")
"""


def test_a_write_is_seen_by_another_process_at_once(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as store:
        process = child(SEE_IT, path)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        said: list[str] = []
        for word in ("one", "two", "three"):
            store.remember(word, session="s")
            said.append(word)
            process.stdin.write(word + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{said}\n"
            assert process.stdout.readline() == "done\n"
            said.append(f"reply to {word}")
            assert [turn.text for turn in store.turns("s")] == said
        output(process)


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embedder", [HASH, False], ids=["vectors", "keywords"])
def test_eight_threads_share_a_store(path: Path, embedder: Any) -> None:
    with sqlmem.open(path, embedder=embedder) as store:

        def work(worker: int) -> None:
            for number in range(50):
                new = store.remember(f"{worker} says {number}", session="s")
                assert store.get(new).text == f"{worker} says {number}"
                if number % 10 == 0:
                    assert len(store.recall(f"says {number}", session="s")) > 0

        _at_once(work, 8)
        turns = store.turns("s")
        assert [turn.turn for turn in turns] == list(range(400))
        assert {turn.text for turn in turns} == {f"{worker} says {number}" for worker in range(8) for number in range(50)}
        assert_sound(store)


def test_threads_of_a_store_in_memory_share_it() -> None:
    with sqlmem.open(":memory:", embedder=HASH) as store:
        _at_once(lambda worker: [store.remember(f"{worker} {n}", session="s") for n in range(20)].clear(), 4)
        assert [turn.turn for turn in store.turns("s")] == list(range(80))
        assert_sound(store)


def test_forty_grades_by_four_threads_are_forty(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        fact = store.remember("graded", kind="fact")
        _at_once(lambda _: [store.feedback(fact, "useful") for _ in range(10)].clear(), 4)
        assert store.stats().feedback == 40


def test_threads_correcting_one_memory_make_one_chain(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as store:
        fact = store.remember("v1", kind="fact")
        _at_once(lambda worker: [store.correct(fact, f"{worker}.{n}") for n in range(10)].clear(), 4)
        versions = store.history(fact)
        assert [memory.version_number for memory in versions] == list(range(1, 42))
        assert [memory.state for memory in versions].count("live") == 1
        assert_sound(store)


def test_closing_while_threads_work_ends_them_with_store_closed(path: Path) -> None:
    store = sqlmem.open(path, embedder=False)
    acknowledged: list[str] = []
    closing_time = threading.Event()

    def work(worker: int) -> None:
        if worker == 0:
            closing_time.wait(60)
            store.close()
            return
        while True:
            try:
                acknowledged.append(store.remember(f"{worker}", session="s"))
            except sqlmem.StoreClosed:
                return
            if len(acknowledged) > 40:
                closing_time.set()

    _at_once(work, 4)
    with sqlmem.open(path) as again:
        assert {turn.id for turn in again.turns("s")} == set(acknowledged)
        assert_sound(again)


# -- locks ------------------------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[sqlmem.MemoryStore], object]] = {
    "remember": lambda store: store.remember("x", session="s"),
    "remember_many": lambda store: store.remember_many(["x", "y"]),
    "correct": lambda store: store.correct("fact", "changed"),
    "feedback": lambda store: store.feedback("fact", "useful"),
    "forget": lambda store: store.forget(ids=["fact"]),
    "expire": lambda store: store.expire(),
    "rebuild": lambda store: store.rebuild(),
    "categories.create": lambda store: store.categories.create("food"),
}


@pytest.mark.parametrize("verb", WRITES)
def test_a_lock_held_past_the_timeout_is_busy_and_nothing_is_written(
    path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlmem.db, "BUSY_TIMEOUT_MS", 40)
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("a fact", kind="fact", id="fact", session="s")
        with closing(_other_program(path)) as other:
            other.execute("begin immediate")
            with pytest.raises(sqlmem.Busy) as raised:
                WRITES[verb](store)
            assert raised.value.retry is True
            assert raised.value.path == str(path)
            assert raised.value.code & 0xFF == apsw.SQLITE_BUSY
            assert [memory.text for memory in store.list(session="s")] == ["a fact"]  # reading goes on
            assert store.recall("fact", session="s").texts == ["a fact"]
            other.execute("rollback")
        WRITES[verb](store)
        assert_sound(store)


def test_opening_a_new_file_that_another_holds_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlmem.db, "BUSY_TIMEOUT_MS", 40)
    with closing(_other_program(path)) as other:
        other.execute("begin exclusive")
        with pytest.raises(sqlmem.Busy):
            sqlmem.open(path, embedder=False)
        other.execute("rollback")
    with sqlmem.open(path, embedder=False) as store:
        assert_sound(store)


def test_a_current_file_opens_and_reads_while_another_holds_the_write_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlmem.db, "BUSY_TIMEOUT_MS", 40)
    with sqlmem.open(path, embedder=HASH) as store:
        store.remember("a turn", session="s")
    with closing(_other_program(path)) as other:
        other.execute("begin immediate")
        for read_only in (False, True):
            with sqlmem.open(path, read_only=read_only) as store:
                assert [turn.text for turn in store.turns("s")] == ["a turn"]
        other.execute("rollback")


def test_a_reader_is_not_kept_waiting_and_keeps_its_snapshot(path: Path) -> None:
    with sqlmem.open(path, embedder=HASH) as writer, sqlmem.open(path, embedder=HASH) as reader:
        writer.remember("a turn", session="s")
        db = writer._engine.db
        with db.write():
            db.execute("update memory set seen = 7")
            assert [turn.seen for turn in reader.turns("s")] == [1]
            assert reader.recall("turn", session="s").texts == ["a turn"]
        assert [turn.seen for turn in reader.turns("s")] == [7]


WRITE_ONE = """
import sys, sqlmem, sqlmem.db
sqlmem.db.BUSY_TIMEOUT_MS = 40
with sqlmem.open(sys.argv[1], embedder=False) as store:
    print(store.remember("from the other process", session="s"))
"""


class Failing(sqlmem.HashEmbedder):
    """Fails while it embeds a text that asks for it."""

    def __init__(self) -> None:
        super().__init__(16)

    def embed_query(self, text: str) -> Any:
        if "explode" in text:
            raise OSError("the model exploded")
        return super().embed_query(text)


def test_an_exception_inside_a_write_leaves_the_lock_free(path: Path) -> None:
    with sqlmem.open(path, embedder=Failing()) as store:
        store.remember("a turn", session="s")
        db = store._engine.db
        for error in (ZeroDivisionError, KeyboardInterrupt, GeneratorExit):
            with pytest.raises(error), db.write():  # noqa: PT012
                db.execute("update memory set seen = 99")
                raise error
        with pytest.raises(sqlmem.EmbeddingError, match="exploded"):
            store.remember("explode", session="s")
        with pytest.raises(sqlmem.AlreadyExists):
            store.remember("x", session="s", turn=0)
        with pytest.raises(sqlmem.NotFound):
            store.remember("x", session="s", categories=["unknown"])
        other = run(WRITE_ONE, path).strip()
        assert [(turn.id, turn.turn, turn.seen) for turn in store.turns("s")][1:] == [(other, 1, 1)]
        assert store.turns("s")[0].seen == 1
        assert_sound(store)


def test_a_failing_progress_callback_keeps_the_batches_done_and_frees_the_lock(path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError(f"{done}/{total}")

    with sqlmem.open(path, embedder=False) as store:
        with pytest.raises(ZeroDivisionError, match="256/300"):
            store.remember_many([{"text": f"message {n}", "session": "s"} for n in range(300)], progress=stop)
        run(WRITE_ONE, path)
        assert [turn.turn for turn in store.turns("s")] == list(range(257))
        assert_sound(store)


def test_a_model_embeds_outside_of_the_write_lock(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as other:

        class Writing(sqlmem.HashEmbedder):
            """Another store writes while this one embeds."""

            def embed_query(self, text: str) -> Any:
                if not text.startswith("while"):
                    other.remember(f"while embedding {text!r}", session="other")
                return super().embed_query(text)

        with sqlmem.open(path, embedder=Writing(16)) as store:
            fact = store.remember("one", session="s", kind="fact")
            store.remember_many([{"text": "two", "session": "s"}])
            store.correct(fact, "uno")
            store.feedback(fact, "corrected", "eins")
            store.recall("three", session="s")
            texts = [turn.text for turn in other.turns("other")]
            assert {f"while embedding {text!r}" for text in ("one", "two", "uno", "eins", "three")} <= set(texts)
            store.flush()


def test_the_same_facts_embedded_at_once_are_stored_once(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as other:

        class Racing(sqlmem.HashEmbedder):
            """The other store says the same fact, and forgets another, between looking and locking."""

            def embed_query(self, text: str) -> Any:
                if text == "race":
                    other.remember(text, session="s", kind="fact", id="theirs")
                if text == "replacement":
                    other.forget(ids=["theirs"])
                return super().embed_query(text)

        with sqlmem.open(path, embedder=Racing(16)) as store:
            ours = store.remember("race", session="s", kind="fact")
            assert (ours, ours.created) == ("theirs", False)
            with pytest.raises(sqlmem.NotFound):
                store.correct("theirs", "replacement")
            assert store.list(session="s").items == ()
            store.flush()
            assert_sound(store)
