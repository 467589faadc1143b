"""undo() takes back a user's last calls, redo() does them again, and neither goes further than it can keep whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlmem
from sqlmem.store import memories, operations
from tests.conftest import OpenStore
from tests.helpers_store import MovableClock, broken_rules

Verb = Callable[[sqlmem.MemoryStore], object]

# Turn numbers that were given stay given, and what was undone lies in the trash: both are looked at by tests of their own.
_ROWS = {
    "memory": f"select {memories.COLUMNS} from memory where held is not 'trash' order by rowid",
    "link": "select l.* from link l join memory m on m.rowid = l.src where m.held is not 'trash' order by 1, 2, 3",
    "feedback": "select * from feedback order by id",
    "category": """
        select mc.* from memory_category mc join memory m on m.rowid = mc.memory where m.held is not 'trash' order by 1, 2
    """,
    "conflict": "select * from conflict where resolution is not 'undone' order by id",
    "result": "select * from conflict_result order by 1, 2",
}


def rows(store: sqlmem.MemoryStore) -> dict[str, list[tuple[Any, ...]]]:
    """What counts of the store's rows."""
    db = store._engine.db
    return {name: [tuple(row) for row in db.rows(sql)] for name, sql in _ROWS.items()}


def contradicts(new: str, known: list[str]) -> list[sqlmem.Verdict]:
    return [sqlmem.Verdict(contradicts=old.split()[0] == new.split()[0], reason=f"not {old}") for old in known]


@pytest.fixture
def store(open_store: OpenStore, clock: MovableClock) -> sqlmem.MemoryStore:
    """One that knows something in every state, and can judge."""
    store = open_store(judge=contradicts)
    store.categories.create("drinks")
    store.remember("hello", session="s", id="turn-0")
    store.remember("good morning", session="s", id="turn-1")
    store.remember("Ana drinks tea", kind="fact", id="ana", categories=["drinks"])
    store.remember("Ana drinks milk", session="other", kind="fact", id="milk", check=False)
    store.remember("Ben drinks tea", kind="fact", id="ben-1", pinned=True)
    store.correct("ben-1", "Ben drinks rum", note="he said so")
    store.conflicts.set_mode("ask")
    clock.forward(seconds=1)
    store.remember("Ben drinks water", kind="fact", id="proposal", categories=["drinks"])
    store.conflicts.set_mode(None)
    clock.forward(seconds=1)
    return store


def _conflict(store: sqlmem.MemoryStore) -> str:
    return store.conflicts.list().items[0].id


def _ask(store: sqlmem.MemoryStore) -> object:
    store.conflicts.set_mode("ask")
    return store.remember("Ana drinks water", kind="fact")


VERBS: dict[str, tuple[str, Verb]] = {
    "a turn": ("remember", lambda store: store.remember("how are you", session="s")),
    "the first turn of a session": ("remember", lambda store: store.remember("hi", session="new")),
    "a fact": ("remember", lambda store: store.remember("Cleo drinks tea", kind="fact", categories=["drinks"], key="k")),
    "a fact that ends two": ("remember", lambda store: store.remember("Ana drinks water", kind="fact")),
    "a fact said again": ("remember", lambda store: store.remember("Ana drinks tea", kind="fact")),
    "a fact said again as a pin": ("remember", lambda store: store.remember("Ana drinks tea", pinned=True)),
    "a turn that is judged": ("remember", lambda store: store.remember("Ana drinks water", session="s", check=True)),
    "a fact that waits": ("remember", _ask),
    "several batches": ("remember_many", lambda store: store.remember_many([f"message {n}" for n in range(300)])),
    "a correction": ("correct", lambda store: store.correct("ana", "Ana drinks water", categories=[], note="she said so")),
    "a corrected turn": ("correct", lambda store: store.correct("turn-0", "hallo")),
    "a grade": ("feedback", lambda store: store.feedback("ana", "useful")),
    "a grade with a correction": ("feedback", lambda store: store.feedback("ana", "corrected", "Ana drinks nothing")),
    "an invalidation": ("invalidate", lambda store: store.invalidate("ana", note="she does not")),
    "a rollback": ("rollback", lambda store: store.rollback("ben-1", 1)),
    "keep_old": ("resolve", lambda store: store.conflicts.resolve(_conflict(store), "keep_old")),
    "take_new": ("resolve", lambda store: store.conflicts.resolve(_conflict(store), "take_new")),
    "keep_both": ("resolve", lambda store: store.conflicts.resolve(_conflict(store), "keep_both")),
    "an own text": ("resolve", lambda store: store.conflicts.resolve(_conflict(store), text="Ben drinks all")),
    "a recheck": ("recheck", lambda store: store.recheck()),
    "a consolidation": (
        "consolidate",
        lambda store: store.consolidate("s", lambda turns: ["Ana drinks rum", "hello"], keep_recent=0, trash_days=5),
    ),
    "facts in the trash": ("forget", lambda store: store.forget(ids=["ana", "ben-1"], trash_days=5)),
    "turns in the trash": ("forget", lambda store: store.forget(session="s", trash_days=5)),
    "a head in the trash": ("forget", lambda store: store.forget(ids=[_head(store)], trash_days=5, resurrect=True)),
}


def _head(store: sqlmem.MemoryStore) -> str:
    return store.history("ben-1")[-2].id  # the last one is the proposal's conflict partner's successor, if any


@pytest.mark.parametrize("name", VERBS)
def test_every_call_can_be_undone_and_done_again(store: sqlmem.MemoryStore, clock: MovableClock, name: str) -> None:
    verb, call = VERBS[name]
    before = rows(store)
    call(store)
    after = rows(store)
    assert before != after
    clock.forward(days=1)
    undone = store.undo()
    assert undone.verb == verb
    assert rows(store) == before
    assert broken_rules(store) == []
    clock.forward(days=1)
    assert store.redo() == undone
    assert rows(store) == after
    assert broken_rules(store) == []
    store.undo()
    assert rows(store) == before


def test_an_undone_fact_is_out_of_sight_everywhere(store: sqlmem.MemoryStore) -> None:
    new = store.remember("Cleo drinks tea", kind="fact")
    undone = store.undo()
    assert (undone.verb, undone.ids) == ("remember", (new,))
    assert "Cleo drinks tea" not in store.recall("What does Cleo drink?", limit=100).texts
    assert new not in [memory.id for memory in store.list(include_superseded=True)]
    with pytest.raises(sqlmem.NotFound, match="in the trash until 2026-03-31 12:00 UTC"):
        store.get(new)
    store.redo()
    assert store.recall("What does Cleo drink?").texts[0] == "Cleo drinks tea"


def test_what_is_undone_last_comes_back_first(store: sqlmem.MemoryStore) -> None:
    states = [rows(store)]
    for text in ("one", "two", "three"):
        store.remember(text)
        states.append(rows(store))
    for state in states[2::-1]:
        store.undo()
        assert rows(store) == state
    for state in states[1:]:
        store.redo()
        assert rows(store) == state
    with pytest.raises(sqlmem.NotFound, match="nothing to redo"):
        store.redo()


def test_two_deletions_come_back_one_after_the_other(store: sqlmem.MemoryStore) -> None:
    store.forget(ids=["ana"], trash_days=30)
    store.forget(ids=["milk"], trash_days=30)
    store.undo()
    assert store.get("milk").state == "live"
    with pytest.raises(sqlmem.NotFound):
        store.get("ana")
    store.undo()
    assert store.get("ana").state == "live"


def test_a_final_call_is_named_and_never_passed(store: sqlmem.MemoryStore) -> None:
    store.remember("one")
    store.forget(ids=["ana"])
    before = rows(store)
    with pytest.raises(sqlmem.NotFound, match=r"forget\(\) of 2026-03-01 12:00:02 UTC, was final"):
        store.undo()
    assert rows(store) == before
    store.remember("two")
    store.undo()
    with pytest.raises(sqlmem.NotFound, match="was final"):
        store.undo()


def test_there_may_be_nothing_to_undo(open_store: OpenStore) -> None:
    store = open_store()
    with pytest.raises(sqlmem.NotFound, match="nothing to undo for user ''"):
        store.undo()
    with pytest.raises(sqlmem.NotFound, match="nothing to redo for user 'ana'"):
        store.redo("ana")
    with pytest.raises(sqlmem.InvalidArgument):
        store.undo(None)  # type: ignore[arg-type]


def test_each_user_undoes_calls_of_their_own(open_store: OpenStore) -> None:
    store = open_store()
    store.remember("Ana drinks tea", user="ana", kind="fact", id="a")
    store.remember("Ben drinks tea", user="ben", kind="fact", id="b")
    store.forget(ids=["a", "b"], trash_days=1)
    assert store.undo("ana").ids == ("a",)
    assert store.get("a").state == "live"
    with pytest.raises(sqlmem.NotFound):
        store.get("b")
    store.undo("ana")
    assert store.undo("ben").ids == ("b",)
    with pytest.raises(sqlmem.NotFound):
        store.get("a")
    assert store.get("b").state == "live"


def test_a_change_makes_what_was_undone_final_and_takes_its_text(store: sqlmem.MemoryStore) -> None:
    store.remember("Cleo drinks absinthe", kind="fact", id="cleo", key="k")
    store.invalidate("ana", note="absinthe instead")
    store.undo()
    store.undo()
    new = store.remember("Cleo drinks tea", kind="fact", id="cleo", key="k")
    assert (new, new.created) == ("cleo", True)
    with pytest.raises(sqlmem.NotFound, match="nothing to redo"):
        store.redo()
    assert "absinthe" not in json.dumps(_everything(store))
    assert store.stats().trash == 0


def test_the_log_holds_no_text(store: sqlmem.MemoryStore) -> None:
    for _, call in VERBS.values():
        call(store)
        noted = json.dumps([list(row) for row in store._engine.db.rows("select * from operation")]).lower()
        assert not any(word in noted for word in ("drinks", "tea", "hello", "said", "does not"))
        store.undo()


def test_the_last_hundred_calls_are_kept(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(operations.KEPT + 5):
        store.remember(f"turn {number}", session="s")
    for _ in range(operations.KEPT):
        store.undo()
    with pytest.raises(sqlmem.NotFound, match="nothing to undo"):
        store.undo()
    assert [turn.text for turn in store.turns("s")] == [f"turn {number}" for number in range(5)]


def test_a_turn_s_number_is_not_given_again(open_store: OpenStore) -> None:
    store = open_store()
    store.remember("first", session="s")
    store.remember("second", session="s")
    store.undo()
    assert store.get(store.remember("third", session="s")).turn == 2


def test_emptied_trash_ends_undo_and_redo_without_half_of_it(store: sqlmem.MemoryStore, clock: MovableClock) -> None:
    store.forget(ids=["ana", "milk"], trash_days=2)
    clock.forward(days=2)
    assert store.expire() == 2
    before = rows(store)
    with pytest.raises(sqlmem.NotFound, match="what it put into the trash was emptied"):
        store.undo()
    assert rows(store) == before
    store.correct("ben-1", "Ben drinks tea again", note="because")
    store.undo()
    clock.forward(days=30)
    assert store.expire() == 1
    assert "because" not in json.dumps(_everything(store))
    with pytest.raises(sqlmem.NotFound, match="what it had stored was emptied"):
        store.redo()


def test_a_conflict_waits_again_when_its_proposal_comes_back(store: sqlmem.MemoryStore) -> None:
    store.conflicts.set_mode("ask")
    new = store.remember("Ana drinks water", kind="fact")
    assert new.conflict_id is not None
    store.undo()
    assert (store.conflicts.get(new.conflict_id).status, store.conflicts.get(new.conflict_id).resolution) == (
        "resolved",
        "undone",
    )
    assert store.get("ana").conflicts == ()
    with pytest.raises(sqlmem.ConflictError, match="resolved already: undone"):
        store.conflicts.resolve(new.conflict_id, "take_new")
    store.redo()
    assert store.get("ana").conflicts == (new.conflict_id,)
    assert store.get(new).state == "proposed"


def test_a_conflict_outlives_the_version_that_it_was_moved_to(store: sqlmem.MemoryStore) -> None:
    name = _conflict(store)
    store.correct("ben-1", "Ben drinks rum and milk")
    with pytest.raises(sqlmem.ConflictError, match="has changed"):
        store.conflicts.resolve(name, "take_new")
    store.undo()
    store.remember("something else")
    assert [memory.text for memory in store.conflicts.get(name).conflicting] == ["Ben drinks rum"]
    assert broken_rules(store) == []


def test_grades_come_back_as_the_same_rows(store: sqlmem.MemoryStore) -> None:
    store.feedback("ana", "useful")
    store.undo()
    store.remember("x", user="other")
    store.feedback("other" and store.list(user="other").items[0].id, "useful")
    store.redo()
    store.undo()
    assert [row[0] for row in store._engine.db.rows("select memory from feedback")] == [
        store._engine.db.value("select rowid from memory where text = 'x'")
    ]


STEPS = st.lists(st.sampled_from(sorted(VERBS)), min_size=1, max_size=6)


@given(names=STEPS)
@settings(max_examples=25)
def test_all_the_way_back_and_forth(names: list[str]) -> None:
    clock = MovableClock()
    with sqlmem.open(":memory:", embedder=sqlmem.HashEmbedder(16), clock=clock, judge=contradicts) as store:
        for text in ("Ana drinks tea", "Ben drinks tea"):
            store.remember(text, kind="fact", id=f"{text[:3].lower()}{'-1' * (text[0] == 'B')}")
        store.correct("ben-1", "Ben drinks rum")
        store.remember("hello", session="s", id="turn-0")
        store.categories.create("drinks")
        states = [rows(store)]
        for name in names:
            clock.forward(seconds=1)
            try:
                VERBS[name][1](store)
            except (sqlmem.SqlmemError, IndexError):
                continue
            if rows(store) != states[-1]:
                states.append(rows(store))
        for state in states[-2::-1]:
            store.undo()
            assert rows(store) == state
        for state in states[1:]:
            store.redo()
            assert rows(store) == state
        assert store.check().problems == ()
        assert broken_rules(store) == []


def _everything(store: sqlmem.MemoryStore) -> list[Any]:
    db = store._engine.db
    tables = [
        row[0] for row in db.rows("select name from sqlite_schema where type = 'table' and sql not like 'create virtual%'")
    ]
    return [[str(value) for value in row] for table in tables for row in db.rows(f'select * from "{table}"')]
