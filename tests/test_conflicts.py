"""Conflicts: a contradiction waits for an answer, and nothing is lost while it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_judge import resolver, rows, same_subject, with_question, with_reason
from tests.helpers_store import DAY, START, MovableClock, broken_rules

READY = ("keep_old", "take_new", "keep_both")


class Asked:
    """A store that asks, in which Kim drinks tea and is said to drink rum."""

    def __init__(self, store: sqlmem.MemoryStore, clock: MovableClock, **new: Any) -> None:
        self.store = store
        store.categories.create("drinks")
        self.old = store.remember("Kim drinks tea", pinned=True, categories=["drinks"], metadata={"n": 1})
        clock.forward(days=1)
        self.new = store.remember("Kim drinks rum", kind="fact", session="s", metadata={"n": 2}, **new)
        assert self.new.conflict_id is not None
        self.id = self.new.conflict_id
        clock.forward(days=1)


@pytest.fixture
def asked(open_store: OpenStore, clock: MovableClock) -> Asked:
    return Asked(open_store(judge=with_reason, on_contradiction="ask"), clock)


def live(store: sqlmem.MemoryStore) -> list[str]:
    return sorted(memory.text for memory in store.list())


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_the_new_statement_waits_and_what_it_contradicts_lives(asked: Asked, clock: MovableClock) -> None:
    store = asked.store
    assert (asked.new.created, asked.new.superseded) == (True, ())
    proposed, old = store.get(asked.new), store.get(asked.old)
    assert (proposed.state, proposed.conflicts, old.state, old.conflicts) == ("proposed", (asked.id,), "live", (asked.id,))
    conflict = store.conflicts.get(asked.id)
    assert conflict == sqlmem.Conflict(
        id=asked.id,
        user="",
        proposed=proposed,
        conflicting=(old,),
        reasons=("Kim drinks rum, not Kim drinks tea",),
        questions=(sqlmem.Question(question=conflict.questions[0].question, options=READY),),
        status="pending",
        error=None,
        resolution=None,
        results=(),
        created_at=START + DAY,
        resolved_at=None,
    )


def test_what_waits_is_in_no_answer(asked: Asked) -> None:
    store = asked.store
    assert store.recall("What does Kim drink?", session="s").ids == [asked.old]
    assert store.search("rum", include_superseded=True).ids == [asked.old]
    assert "rum" not in store.context("rum", session="s").text
    assert live(store) == ["Kim drinks tea"]
    assert [memory.id for memory in store.history(asked.old)] == [asked.old]
    assert (store.stats().proposed, store.stats().live["fact"]) == (1, 0)
    assert store.explain("rum", asked.new, session="s").reason == "it is proposed, not live"
    assert broken_rules(store) == []


def test_the_app_is_told_once_it_is_stored(open_store: OpenStore, clock: MovableClock) -> None:
    told: list[tuple[str, sqlmem.State]] = []

    def tell(conflict: sqlmem.Conflict) -> None:
        assert conflict.proposed is not None
        told.append((conflict.id, store.get(conflict.proposed.id).state))

    store = open_store(judge=same_subject, on_contradiction="ask", on_conflict=tell)
    asked = Asked(store, clock)
    assert told == [(asked.id, "proposed")]


def test_an_app_that_fails_to_listen_loses_nothing(open_store: OpenStore) -> None:
    def tell(conflict: sqlmem.Conflict) -> None:
        raise ValueError("not now")

    store = open_store(judge=same_subject, on_contradiction="ask", on_conflict=tell)
    store.remember("Kim drinks tea", kind="fact")
    with pytest.raises(
        sqlmem.CallbackError, match=r"on_conflict raised ValueError: not now; the memory .* is stored and waits"
    ):
        store.remember("Kim drinks rum", kind="fact")
    assert len(store.conflicts.list()) == 1


def test_each_user_may_choose(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject)
    assert store.conflicts.mode("ana") is None
    store.conflicts.set_mode("ask", "ana")
    for user in ("ana", "ben"):
        store.remember("Kim drinks tea", kind="fact", user=user)
    assert store.remember("Kim drinks rum", kind="fact", user="ana").conflict_id is not None
    assert store.remember("Kim drinks rum", kind="fact", user="ben").conflict_id is None
    assert (store.conflicts.mode("ana"), store.conflicts.mode("ben")) == ("ask", None)
    store.conflicts.set_mode(None, "ana")
    assert store.remember("Kim drinks gin", kind="fact", user="ana").conflict_id is None
    with pytest.raises(sqlmem.InvalidArgument, match="on_contradiction must be 'supersede' or 'ask'"):
        store.conflicts.set_mode("never", "ana")  # type: ignore[arg-type]


def test_who_corrects_says_what_is_true_and_is_not_asked(asked: Asked) -> None:
    other = asked.store.remember("Ben drinks rum", kind="fact")
    new = asked.store.correct(other, "Kim drinks gin")
    assert new.superseded == (other,)
    assert live(asked.store) == ["Kim drinks gin", "Kim drinks tea"]


def test_a_second_contradiction_waits_beside_the_first(asked: Asked) -> None:
    second = asked.store.remember("Kim drinks gin", kind="fact")
    assert second.conflict_id is not None
    assert sorted(asked.store.get(asked.old).conflicts) == sorted([asked.id, second.conflict_id])
    asked.store.conflicts.resolve(asked.id, "take_new")
    with pytest.raises(sqlmem.ConflictError, match="has changed since it was opened"):
        asked.store.conflicts.resolve(second.conflict_id, "take_new")
    assert [memory.id for memory in asked.store.conflicts.get(second.conflict_id).conflicting] == [asked.new]
    asked.store.conflicts.resolve(second.conflict_id, "take_new")
    assert live(asked.store) == ["Kim drinks gin"]
    assert [memory.text for memory in asked.store.history(asked.old)] == ["Kim drinks tea", "Kim drinks rum", "Kim drinks gin"]


def test_conflicts_are_listed_newest_first_in_pages(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=same_subject, on_contradiction="ask")
    for user in ("ana", "ben"):
        store.remember("Kim drinks tea", kind="fact", user=user)
    ids = []
    for number in range(5):
        new = store.remember(f"Kim drinks {number} rums", kind="fact", user="ana" if number < 3 else "ben")
        ids.append(str(new.conflict_id))
    listed = store.conflicts
    assert [conflict.id for conflict in listed.list()] == ids[::-1]
    assert [conflict.id for conflict in listed.list(user="ana")] == ids[2::-1]
    first = listed.list(limit=2)
    assert (len(first), [conflict.id for conflict in first.items]) == (2, ids[:2:-1])
    second = listed.list(limit=2, cursor=first.next_cursor)
    third = listed.list(limit=2, cursor=second.next_cursor)
    assert [conflict.id for conflict in (*second, *third)] == ids[2::-1]
    assert third.next_cursor is None
    store.conflicts.resolve(ids[0], "keep_both")
    assert [conflict.id for conflict in listed.list(status="resolved")] == [ids[0]]
    assert ids[0] not in [conflict.id for conflict in listed.list()]
    assert len(listed.list(user="nobody")) == 0
    for wrong in ({"limit": 0}, {"limit": 101}, {"status": "open"}, {"cursor": "x"}, {"cursor": 7}, {"user": 7}):
        with pytest.raises(sqlmem.InvalidArgument):
            listed.list(**wrong)


# -- ready answers ----------------------------------------------------------------------------------------------------


def test_keep_old_leaves_the_new_statement_to_the_history(asked: Asked, clock: MovableClock) -> None:
    resolved = asked.store.conflicts.resolve(asked.id, "keep_old")
    assert (resolved.status, resolved.resolution, resolved.results, resolved.resolved_at) == (
        "resolved",
        "keep_old",
        (asked.old,),
        clock.now,
    )
    new = asked.store.get(asked.new)
    assert (new.state, new.expiration_reason, new.replaced_by, new.version_number) == ("ended", "conflict_resolved", None, 1)
    assert asked.store.get(asked.old).conflicts == ()
    assert live(asked.store) == ["Kim drinks tea"]


def test_take_new_puts_it_into_the_place_of_the_old(asked: Asked, clock: MovableClock) -> None:
    resolved = asked.store.conflicts.resolve(asked.id, "take_new")
    assert (resolved.resolution, resolved.results) == ("take_new", (asked.new,))
    old, new = asked.store.history(asked.old)
    assert (old.state, old.replaced_by, old.expired_at, old.expiration_reason, old.expiration_note) == (
        "superseded",
        asked.new,
        clock.now,
        "conflict_resolved",
        "Kim drinks rum, not Kim drinks tea",
    )
    assert (new.id, new.state, new.kind, new.session, new.version_number, new.created_at) == (
        asked.new,
        "live",
        "pinned",
        None,
        2,
        clock.now,
    )
    assert (new.categories, new.metadata) == (("drinks",), {"n": 2})
    assert asked.store.recall("What does Kim drink?", session="other").ids == [asked.new]


def test_keep_both_lets_it_live_beside(asked: Asked, clock: MovableClock) -> None:
    resolved = asked.store.conflicts.resolve(asked.id, "keep_both")
    assert (resolved.resolution, resolved.results) == ("keep_both", (asked.old, asked.new))
    new = asked.store.get(asked.new)
    assert (new.state, new.kind, new.session, new.version_number, new.created_at) == ("live", "fact", "s", 1, clock.now)
    assert asked.store.get(asked.old).state == "live"


def test_an_own_text_takes_the_place_of_all(asked: Asked) -> None:
    resolved = asked.store.conflicts.resolve(asked.id, text="Kim drinks tea with rum")
    assert resolved.resolution == "own_text"
    old, own = asked.store.history(asked.old)
    assert (own.id, own.text, own.kind, own.version_number) == (resolved.results[0], "Kim drinks tea with rum", "pinned", 2)
    assert (old.expiration_reason, old.replaced_by) == ("conflict_resolved", own.id)
    assert asked.store.get(asked.new).state == "ended"
    assert asked.store.recall("tea with rum").ids == [own.id]


def test_several_contradicted_memories_end_for_the_new_one(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject)
    for text in ("Kim drinks tea", "Kim drinks milk"):
        store.remember(text, kind="fact", check=False)
    store.conflicts.set_mode("ask")
    new = store.remember("Kim drinks rum", kind="fact")
    resolved = store.conflicts.resolve(str(new.conflict_id), "take_new")
    assert len(resolved.conflicting) == 2
    assert {memory.replaced_by for memory in resolved.conflicting} == {new}
    assert live(store) == ["Kim drinks rum"]


@pytest.mark.parametrize("again", READY)
def test_a_conflict_is_resolved_once(asked: Asked, again: Any) -> None:
    asked.store.conflicts.resolve(asked.id, "take_new")
    before = rows(asked.store)
    with pytest.raises(sqlmem.ConflictError, match=f"the conflict {asked.id} is resolved already: take_new"):
        asked.store.conflicts.resolve(asked.id, again)
    assert rows(asked.store) == before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, sqlmem.InvalidArgument),
        ({"answers": "take_new", "text": "both"}, sqlmem.InvalidArgument),
        ({"answers": "take"}, sqlmem.ConflictError),
        ({"answers": 7}, sqlmem.InvalidArgument),
        ({"answers": ["take_new"]}, sqlmem.InvalidArgument),
        ({"text": " "}, sqlmem.InvalidArgument),
        ({"text": 7}, sqlmem.InvalidArgument),
        ({"answers": {"what?": "take_new"}}, sqlmem.ConflictError),
        ({"answers": {}}, sqlmem.ConflictError),
    ],
)
def test_answers_that_do_not_fit_change_nothing(asked: Asked, arguments: Any, error: type[Exception]) -> None:
    before = rows(asked.store)
    with pytest.raises(error):
        asked.store.conflicts.resolve(asked.id, **arguments)
    assert rows(asked.store) == before


def test_unknown_conflicts_are_named(asked: Asked) -> None:
    for call in (asked.store.conflicts.get, lambda id_: asked.store.conflicts.resolve(id_, "keep_old")):
        with pytest.raises(sqlmem.NotFound, match="there is no conflict 'x'"):
            call("x")


# -- questions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def questioned(open_store: OpenStore, clock: MovableClock) -> Asked:
    return Asked(open_store(judge=with_question, on_contradiction="ask", resolver=resolver), clock)


QUESTION = "Kim drinks tea or Kim drinks rum?"


def test_answers_to_questions_become_what_is_true(questioned: Asked) -> None:
    store = questioned.store
    options = ("the first", "the second", "neither")
    assert store.conflicts.get(questioned.id).questions == (sqlmem.Question(question=QUESTION, options=options),)
    resolved = store.conflicts.resolve(questioned.id, {QUESTION: "neither"})
    assert (resolved.resolution, resolved.status) == ("answers", "resolved")
    assert resolved.questions == (sqlmem.Question(question=QUESTION, options=options, answer="neither"),)
    assert [memory.text for memory in store.history(questioned.old)] == ["Kim drinks tea", "Kim drinks rum: neither"]
    assert store.get(resolved.results[0]).kind == "pinned"


def test_ready_answers_serve_for_questions_too(questioned: Asked) -> None:
    questioned.store.conflicts.resolve(questioned.id, "take_new")
    assert live(questioned.store) == ["Kim drinks rum"]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "is not answered"),
        ({QUESTION: "the third"}, "'the third' is no answer to 'Kim drinks tea or Kim drinks rum\\?'; possible are the first"),
        ({QUESTION: "neither", "why?": "x"}, "'why\\?' is none of its questions"),
    ],
)
def test_answers_must_fit_the_questions(questioned: Asked, answers: Mapping[str, str], message: str) -> None:
    with pytest.raises(sqlmem.ConflictError, match=message):
        questioned.store.conflicts.resolve(questioned.id, answers)
    assert questioned.store.conflicts.get(questioned.id).status == "pending"


@pytest.mark.parametrize("made", ["text", [], None, [7], ["fine", " "], {"a": "b"}, ValueError("no")], ids=repr)
def test_a_resolver_that_fails_leaves_the_conflict_to_be_resolved_still(
    open_store: OpenStore, clock: MovableClock, made: Any
) -> None:
    def resolve(conflict: sqlmem.Conflict, answers: Mapping[str, str]) -> Any:
        if isinstance(made, Exception):
            raise made
        return made

    asked = Asked(open_store(judge=with_question, on_contradiction="ask", resolver=resolve), clock)
    with pytest.raises(sqlmem.CallbackError, match=f"the resolver failed: .*; the conflict {asked.id} can be resolved still"):
        asked.store.conflicts.resolve(asked.id, {QUESTION: "neither"})
    failed = asked.store.conflicts.get(asked.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert [conflict.id for conflict in asked.store.conflicts.list(status="failed")] == [asked.id]
    assert live(asked.store) == ["Kim drinks tea"]
    resolved = asked.store.conflicts.resolve(asked.id, "keep_old")
    assert (resolved.status, resolved.error) == ("resolved", None)


def test_questions_need_a_resolver(open_store: OpenStore, clock: MovableClock) -> None:
    asked = Asked(open_store(judge=with_question, on_contradiction="ask"), clock)
    with pytest.raises(sqlmem.InvalidArgument, match="opened without one; answer keep_old"):
        asked.store.conflicts.resolve(asked.id, {QUESTION: "neither"})


def test_several_texts_of_a_resolver_all_live(open_store: OpenStore, clock: MovableClock) -> None:
    store = open_store(judge=with_question, on_contradiction="ask", resolver=lambda conflict, answers: ["Tea", "Rum"])
    asked = Asked(store, clock)
    resolved = store.conflicts.resolve(asked.id, {QUESTION: "neither"})
    assert [store.get(id_).text for id_ in resolved.results] == ["Tea", "Rum"]
    assert [(store.get(id_).version_number, store.get(id_).state) for id_ in resolved.results] == [(2, "live"), (1, "live")]
    assert broken_rules(store) == []


# -- what changes while it waits --------------------------------------------------------------------------------------


def test_a_conflict_follows_what_was_corrected_meanwhile(asked: Asked) -> None:
    corrected = asked.store.correct(asked.old, "Kim drinks green tea")
    assert [memory.id for memory in asked.store.conflicts.get(asked.id).conflicting] == [corrected]
    with pytest.raises(sqlmem.ConflictError, match="it is now about the versions of now: look at it again"):
        asked.store.conflicts.resolve(asked.id, "take_new")
    assert asked.store.get(corrected).conflicts == (asked.id,)
    assert asked.store.conflicts.resolve(asked.id, "take_new").results == (asked.new,)
    assert asked.store.get(corrected).replaced_by == asked.new


@pytest.mark.parametrize("way", ["invalidate", "forget", "expire", "trash"])
def test_a_conflict_with_nothing_left_stores_the_statement(open_store: OpenStore, clock: MovableClock, way: str) -> None:
    store = open_store(judge=same_subject, on_contradiction="ask", ttl_days={"pinned": 5})
    asked = Asked(store, clock)
    if way == "invalidate":
        store.invalidate(asked.old)
    elif way == "expire":
        clock.forward(days=9)
    else:
        store.forget(ids=[asked.old], trash_days=3 if way == "trash" else None)
    resolved = store.conflicts.resolve(asked.id, "keep_old")
    assert (resolved.status, resolved.resolution, resolved.results) == ("resolved", "no_longer", (asked.new,))
    assert (store.get(asked.new).state, store.get(asked.new).kind, store.get(asked.new).session) == ("live", "fact", "s")
    assert broken_rules(store) == []


def test_forgetting_the_statement_closes_its_conflict(asked: Asked) -> None:
    assert asked.store.forget(ids=[asked.new]) == 1
    closed = asked.store.conflicts.get(asked.id)
    assert (closed.status, closed.resolution, closed.proposed) == ("resolved", "forgotten", None)
    assert asked.store.get(asked.old).conflicts == ()
    with pytest.raises(sqlmem.ConflictError):
        asked.store.conflicts.resolve(asked.id, "take_new")


@pytest.mark.parametrize("forgotten", ["old", "new"])
def test_a_forgotten_text_is_in_no_note_or_question(open_store: OpenStore, clock: MovableClock, forgotten: str) -> None:
    def judge(new: str, known: list[str]) -> list[sqlmem.Verdict]:
        quoted = [f"{old}? {new}?" for old in known]
        return [sqlmem.Verdict(contradicts=True, reason=text, question=text, options=(text, "none")) for text in quoted]

    store = open_store(judge=judge, on_contradiction="ask", resolver=resolver)
    asked = Asked(store, clock)
    quoted = "Kim drinks tea? Kim drinks rum?"
    assert store.conflicts.get(asked.id).reasons == (quoted,)
    store.forget(ids=[asked.old if forgotten == "old" else asked.new])
    db = store._engine.db
    tables = [row[0] for row in db.rows("select name from sqlite_schema where type = 'table' and name not like '%fts%'")]
    everything = json.dumps([[str(value) for value in row] for table in tables for row in db.rows(f'select * from "{table}"')])
    assert quoted not in everything
    assert ("drinks tea" if forgotten == "old" else "drinks rum") not in everything
    assert broken_rules(store) == []


def test_conflicts_can_be_read_but_not_resolved_in_a_read_only_store(tmp_path: Path, clock: MovableClock) -> None:
    with sqlmem.open(tmp_path / "chat.db", embedder=False, judge=same_subject, on_contradiction="ask", clock=clock) as store:
        asked = Asked(store, clock)
    with sqlmem.open(tmp_path / "chat.db", read_only=True) as store:
        assert [conflict.id for conflict in store.conflicts.list()] == [asked.id]
        with pytest.raises(sqlmem.ReadOnly):
            store.conflicts.resolve(asked.id, "keep_old")


def test_a_resolver_may_use_the_store(open_store: OpenStore, clock: MovableClock) -> None:
    def resolve(conflict: sqlmem.Conflict, answers: Mapping[str, str]) -> list[str]:
        store.correct(asked.old, "Kim drinks cold tea")
        return ["never stored"]

    store = open_store(judge=with_question, on_contradiction="ask", resolver=resolve)
    asked = Asked(store, clock)
    with pytest.raises(sqlmem.ConflictError, match="has changed"):
        store.conflicts.resolve(asked.id, {QUESTION: "neither"})
    assert live(store) == ["Kim drinks cold tea"]


def test_the_store_s_language_model_serves_as_resolver(open_store: OpenStore, clock: MovableClock) -> None:
    prompts: list[str] = []

    def llm(prompt: str) -> str:
        prompts.append(prompt)
        return '```json\n{"texts": ["Kim drinks water"]}\n```'

    asked = Asked(open_store(judge=with_question, on_contradiction="ask", llm=llm), clock)
    asked.store.conflicts.resolve(asked.id, {QUESTION: "neither"})
    assert live(asked.store) == ["Kim drinks water"]
    for part in (
        'Remembered:\n"Kim drinks tea"',
        'New:\n"Kim drinks rum"',
        f'{{"question": "{QUESTION}", "answer": "neither"}}',
    ):
        assert part in prompts[0]
