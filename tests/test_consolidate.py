"""consolidate() makes facts of old turns: nothing is lost, nothing is doubled, and both sides know of each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_store import DAY, START, MovableClock, broken_rules, contents

Turns = list[dict[str, str]]


@pytest.fixture
def chat(open_store: OpenStore, clock: MovableClock) -> sqlmem.MemoryStore:
    """Ten turns of a session, a day apart, and a turn each of another session, another user and no session."""
    return _filled(open_store(), clock)


def _filled(store: sqlmem.MemoryStore, clock: MovableClock) -> sqlmem.MemoryStore:
    for number in range(10):
        role = "assistant" if number % 2 else "user"
        store.remember(f"turn {number}", session="s", role=role, id=f"t{number}", timestamp=START + number * DAY)
    clock.forward(days=20)
    store.remember("elsewhere", session="other")
    store.remember("elsewhere", session="s", user="ben")
    store.remember("elsewhere")
    return store


class Summarizer:
    """Makes one fact of each batch, and notes what it was shown."""

    def __init__(self, make: Callable[[Turns], Any] = lambda turns: [f"{turns[0]['text']} to {turns[-1]['text']}"]) -> None:
        self.shown: list[list[str]] = []
        self.turns: Turns = []
        self._make = make

    def __call__(self, turns: Turns) -> Any:
        self.shown.append([turn["text"] for turn in turns])
        self.turns += turns
        return self._make(turns)


def numbers(store: sqlmem.MemoryStore) -> list[int | None]:
    """The numbers of the session's turns that are left."""
    return [turn.turn for turn in store.turns("s")]


# -- what it does -----------------------------------------------------------------------------------------------------


def test_old_turns_become_facts_that_know_their_sources(chat: sqlmem.MemoryStore) -> None:
    summarize = Summarizer()
    report = chat.consolidate("s", summarize)
    assert summarize.turns == [
        {"role": role, "text": f"turn {number}", "ts": (START + number * DAY).isoformat()}
        for number, role in enumerate(["user", "assistant", "user", "assistant"])
    ]
    assert (report.session, report.batches, report.empty_batches, report.turns_removed, len(report)) == ("s", 1, 0, 4, 1)
    assert report.facts == ("turn 0 to turn 3",)
    assert report.turn_ids == ("t0", "t1", "t2", "t3")
    assert numbers(chat) == [4, 5, 6, 7, 8, 9]
    fact = chat.get(report.fact_ids[0])
    assert (fact.text, fact.kind, fact.role, fact.session, fact.timestamp) == (
        "turn 0 to turn 3",
        "fact",
        "summary",
        "s",
        START + 3 * DAY,
    )
    assert fact.sources == ("t0", "t1", "t2", "t3")
    assert [len(chat.turns(*whose)) for whose in (("other",), ("s", "ben"), (None,))] == [1, 1, 1]
    assert chat.recall("turn 0 to turn 3", session="s").ids[0] == fact.id


@pytest.mark.parametrize(
    ("keep_recent", "older_than", "batch_turns", "shown"),
    [
        (0, None, 4, [4, 4, 2]),
        (0, None, 10, [10]),
        (3, None, 40, [7]),
        (9, None, 40, [1]),
        (10, None, 40, []),
        (11, None, 40, []),
        (0, 25.0, 40, [5]),  # the first turn is 29 days old, or 30 less the last ten minutes
        (6, 25, 40, [4]),
        (0, START + 5 * DAY, 40, [5]),  # its own moment is left out
        (0, START + 5 * DAY + timedelta(milliseconds=1), 40, [6]),
        (0, 1000, 40, []),
    ],
)
def test_which_turns_are_old(
    chat: sqlmem.MemoryStore, clock: MovableClock, keep_recent: int, older_than: Any, batch_turns: int, shown: list[int]
) -> None:
    clock.now = START + 30 * DAY
    summarize = Summarizer()
    report = chat.consolidate("s", summarize, keep_recent=keep_recent, older_than=older_than, batch_turns=batch_turns)
    assert [len(batch) for batch in summarize.shown] == shown
    assert (report.turns_removed, report.batches) == (sum(shown), len(shown))
    assert numbers(chat) == list(range(sum(shown), 10))


def test_turns_without_a_session_and_those_of_another_user(chat: sqlmem.MemoryStore) -> None:
    assert chat.consolidate(None, Summarizer(), keep_recent=0).turns_removed == 1
    report = chat.consolidate("s", Summarizer(), user="ben", keep_recent=0)
    assert [(m.session, m.user) for m in (chat.get(report.fact_ids[0]),)] == [("s", "ben")]
    assert len(chat.turns("s")) == 10
    assert chat.consolidate("never", Summarizer()).batches == 0


def test_facts_can_be_pinned_and_live_from_now_on(open_store: OpenStore, clock: MovableClock) -> None:
    chat = _filled(open_store(ttl_days={"pinned": 3}), clock)
    pin = chat.get(chat.consolidate("s", Summarizer(), pinned=True).fact_ids[0])
    assert (pin.kind, pin.expires_at) == ("pinned", clock.now + 3 * DAY)
    assert [memory.id for memory in chat.context("", session="s").pinned] == [pin.id]


def test_numbers_of_consolidated_turns_are_not_given_again(chat: sqlmem.MemoryStore) -> None:
    chat.consolidate("s", Summarizer(), keep_recent=0)
    assert chat.get(chat.remember("next", session="s")).turn == 10


def test_texts_are_stripped_and_doubles_fall_together(chat: sqlmem.MemoryStore) -> None:
    report = chat.consolidate("s", lambda turns: ["  Ana has a dog ", "Ana has a dog", " ", "Ben has a cat"])
    assert report.facts == ("Ana has a dog", "Ben has a cat")
    assert [chat.get(id_).text for id_ in report.fact_ids] == ["Ana has a dog", "Ben has a cat"]


def test_a_fact_that_is_known_is_seen_again_and_gets_the_sources(chat: sqlmem.MemoryStore) -> None:
    known = chat.remember("Ana has a dog", session="s", kind="fact")
    report = chat.consolidate("s", lambda turns: ["Ana has a dog"], batch_turns=2)
    assert report.fact_ids == (known, known)
    assert [id_.created for id_ in report.fact_ids] == [False, False]
    assert (chat.get(known).seen, chat.get(known).sources) == (3, ("t0", "t1", "t2", "t3"))
    assert chat.stats().live["fact"] == 1


def test_a_superseded_turn_is_shown_as_it_was_corrected(chat: sqlmem.MemoryStore) -> None:
    chat.correct("t1", "turn one")
    chat.forget(ids=["t2"])
    summarize = Summarizer()
    chat.consolidate("s", summarize, keep_recent=7)
    assert summarize.shown == [["turn 0", "turn one"]]


def test_expired_turns_are_not_summarized(open_store: OpenStore, clock: MovableClock) -> None:
    chat = _filled(open_store(ttl_days={"turn": 15}), clock)  # at day 20, those of the first five days are gone
    summarize = Summarizer()
    chat.consolidate("s", summarize, keep_recent=0)
    assert summarize.shown == [[f"turn {number}" for number in range(6, 10)]]


def test_progress_is_told_in_turns_and_can_stop(chat: sqlmem.MemoryStore) -> None:
    told: list[tuple[int, int]] = []
    chat.consolidate("s", Summarizer(), batch_turns=3, keep_recent=2, progress=lambda *done: told.append(done))
    assert told == [(3, 8), (6, 8), (8, 8)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat.consolidate("s", Summarizer(), batch_turns=1, keep_recent=0, progress=stop)
    assert numbers(chat) == [9]


# -- trying, keeping, undoing -----------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_at_all(tmp_path: Path, clock: MovableClock) -> None:
    path = tmp_path / "chat.db"
    options: dict[str, Any] = {"embedder": sqlmem.HashEmbedder(16), "clock": clock}
    with sqlmem.open(path, **options) as chat:
        _filled(chat, clock)
    before = contents(path)
    with sqlmem.open(path, **options) as chat:
        report = chat.consolidate("s", Summarizer(), delete=False, batch_turns=2)
    assert (report.facts, report.fact_ids, report.turns_removed) == (("turn 0 to turn 1", "turn 2 to turn 3"), (), 0)
    assert report.turn_ids == ("t0", "t1", "t2", "t3")
    with sqlmem.open(path, read_only=True, **options) as chat:
        assert chat.consolidate("s", Summarizer(), delete=False, batch_turns=2) == report
    assert contents(path) == before


def test_kept_turns_are_passed_over_the_next_time(chat: sqlmem.MemoryStore) -> None:
    report = chat.consolidate("s", Summarizer(), keep_turns=True)
    assert (report.turns_removed, report.turn_ids, numbers(chat)) == (0, ("t0", "t1", "t2", "t3"), list(range(10)))
    assert chat.get("t0").derived == (report.fact_ids[0],)
    again = Summarizer()
    assert len(chat.consolidate("s", again, keep_turns=True)) == 0
    assert again.shown == []
    assert len(chat.consolidate("s", again, keep_recent=5)) == 1
    assert again.shown == [["turn 4"]]
    assert numbers(chat) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_forgetting_a_kept_turn_can_take_along_what_was_made_of_it(chat: sqlmem.MemoryStore) -> None:
    report = chat.consolidate("s", Summarizer(), keep_turns=True, batch_turns=2)
    corrected = chat.correct(report.fact_ids[0], "better")
    assert chat.forget(ids=["t0"]) == 1
    assert chat.get(corrected).state == "live"
    assert chat.get(report.fact_ids[0]).sources == ("t0", "t1")
    assert chat.forget(ids=["t1"], cascade=True) == 3
    for gone in ("t1", report.fact_ids[0], corrected):
        with pytest.raises(sqlmem.NotFound, match="was forgotten"):
            chat.get(gone)
    assert chat.get(report.fact_ids[1]).state == "live"


def test_turns_in_the_trash_come_back_by_undo(chat: sqlmem.MemoryStore, clock: MovableClock) -> None:
    report = chat.consolidate("s", Summarizer(), trash_days=10, batch_turns=2)
    assert (report.turns_removed, chat.stats().trash, numbers(chat)) == (4, 4, [4, 5, 6, 7, 8, 9])
    undone = chat.undo()
    assert (undone.verb, len(undone.ids)) == ("consolidate", 6)
    assert numbers(chat) == list(range(10))
    again = Summarizer()
    chat.consolidate("s", again, trash_days=10)
    assert again.shown == [["turn 0", "turn 1", "turn 2", "turn 3"]]
    clock.forward(days=10)
    assert chat.expire() == 4


def test_without_trash_it_is_final(chat: sqlmem.MemoryStore) -> None:
    chat.consolidate("s", Summarizer())
    with pytest.raises(sqlmem.NotFound, match=r"consolidate\(\) of .*, was final"):
        chat.undo()


# -- summarizers that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [[], (), ["", "  "]])
def test_turns_of_which_nothing_was_made_stay(chat: sqlmem.MemoryStore, empty: Any) -> None:
    report = chat.consolidate("s", lambda turns: empty, batch_turns=2)
    assert (len(report), report.batches, report.empty_batches, report.turns_removed, report.turn_ids) == (0, 2, 2, 0, ())
    assert numbers(chat) == list(range(10))
    report = chat.consolidate("s", lambda turns: empty, batch_turns=2, drop_empty=True)
    assert (report.empty_batches, report.turns_removed, numbers(chat)) == (2, 4, [4, 5, 6, 7, 8, 9])


@pytest.mark.parametrize("answer", ["ab", b"ab", None, 7, {"a": "b"}, [1], ["fine", None], [["x"]], {"x"}, ["\ud800"]])
def test_an_answer_that_is_no_list_of_strings_changes_nothing(chat: sqlmem.MemoryStore, answer: Any) -> None:
    with pytest.raises(sqlmem.CallbackError, match="the summarizer must return"):
        chat.consolidate("s", lambda turns: answer)
    assert numbers(chat) == list(range(10))
    assert chat.stats().live["fact"] == 0


def test_batches_before_a_failure_are_done(chat: sqlmem.MemoryStore) -> None:
    def fail(turns: Turns) -> list[str]:
        if turns[0]["text"] == "turn 2":
            raise ConnectionError("no answer")
        return ["first"]

    with pytest.raises(sqlmem.CallbackError, match="1 facts of 2 turns are stored, the turns after these") as raised:
        chat.consolidate("s", fail, batch_turns=2)
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert numbers(chat) == list(range(2, 10))
    summarize = Summarizer()
    chat.consolidate("s", summarize, batch_turns=2)
    assert summarize.shown == [["turn 2", "turn 3"]]


def test_bad_arguments_are_refused_before_anything_is_asked(chat: sqlmem.MemoryStore) -> None:
    summarize = Summarizer()
    for wrong in (
        {"keep_recent": -1},
        {"keep_recent": True},
        {"batch_turns": 0},
        {"older_than": True},
        {"older_than": -1},
        {"trash_days": 0},
        {"keep_turns": True, "trash_days": 1},
        {"keep_turns": True, "drop_empty": True},
        {"delete": 1},
        {"progress": 7},
        {"user": None},
    ):
        with pytest.raises(sqlmem.InvalidArgument):
            chat.consolidate("s", summarize, **wrong)
    for session, maker in (("", summarize), (7, summarize), ("s", None), ("s", "print")):
        with pytest.raises(sqlmem.InvalidArgument):
            chat.consolidate(session, maker)  # type: ignore[arg-type]
    assert summarize.shown == []


# -- what changes meanwhile -------------------------------------------------------------------------------------------


def _meanwhile(chat: sqlmem.MemoryStore, change: Callable[[], object]) -> Summarizer:
    left = [change]

    def make(turns: Turns) -> list[str]:
        if left:
            left.pop()()
        return [" + ".join(turn["text"] for turn in turns)]

    return Summarizer(make)


def test_what_is_remembered_meanwhile_stays(chat: sqlmem.MemoryStore) -> None:
    new: list[str] = []
    summarize = _meanwhile(chat, lambda: new.append(chat.remember("meanwhile", session="s")))
    report = chat.consolidate("s", summarize, keep_recent=8)
    assert report.facts == ("turn 0 + turn 1",)
    assert numbers(chat) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert chat.get(new[0]).turn == 10


@pytest.mark.parametrize(
    ("change", "second"),
    [
        (lambda chat: chat.correct("t0", "turn zero"), ["turn zero", "turn 1"]),
        (lambda chat: chat.forget(ids=["t0"]), ["turn 1"]),
        (lambda chat: chat.consolidate("s", lambda turns: ["other"], keep_recent=9), ["turn 1"]),
        (lambda chat: chat.consolidate("s", lambda turns: ["other"], keep_recent=9, keep_turns=True), ["turn 1"]),
        (lambda chat: chat.consolidate("s", lambda turns: ["other"], keep_recent=8), []),
    ],
    ids=["corrected", "forgotten", "consolidated", "consolidated and kept", "all consolidated"],
)
def test_turns_that_change_meanwhile_are_summarized_anew(
    chat: sqlmem.MemoryStore, change: Callable[[sqlmem.MemoryStore], object], second: list[str]
) -> None:
    summarize = _meanwhile(chat, lambda: change(chat))
    report = chat.consolidate("s", summarize, keep_recent=8)
    assert summarize.shown == [["turn 0", "turn 1"], *([second] if second else [])]
    assert report.facts == ((" + ".join(second),) if second else ())
    assert report.batches == (1 if second else 0)
    assert broken_rules(chat) == []


def test_turns_that_change_each_time_end_in_busy(chat: sqlmem.MemoryStore) -> None:
    def change(turns: Turns) -> list[str]:
        chat.correct("t0", turns[0]["text"] + "!")
        return ["never stored"]

    with pytest.raises(sqlmem.Busy, match="0 facts of 0 turns are stored"):
        chat.consolidate("s", change)
    assert len(numbers(chat)) == 10
    assert chat.stats().live["fact"] == 0


# -- judged -----------------------------------------------------------------------------------------------------------


def contradicts(new: str, known: list[str]) -> list[bool]:
    return [old.split()[0] == new.split()[0] for old in known]


def test_facts_are_judged_and_take_the_place_of_what_they_contradict(open_store: OpenStore, clock: MovableClock) -> None:
    chat = open_store(judge=contradicts)
    old = chat.remember("Ana drinks tea", pinned=True)
    _filled(chat, clock)
    report = chat.consolidate("s", lambda turns: ["Ana drinks water now", "Ana drinks it cold", "Ben drinks"])
    first, second, third = report.fact_ids
    assert (first.superseded, second.superseded, third.superseded) == ((old,), (), ())
    new = chat.get(first)
    assert (new.kind, new.session, new.version_number, new.sources) == ("pinned", None, 2, ("t0", "t1", "t2", "t3"))
    assert (chat.get(second).kind, chat.get(second).version_number) == ("fact", 1)
    assert broken_rules(chat) == []


def test_a_fact_of_an_earlier_time_does_not_end_a_later_one(open_store: OpenStore, clock: MovableClock) -> None:
    chat = _filled(open_store(judge=contradicts), clock)
    later = chat.remember("Ana drinks tea", session="s", kind="fact")
    report = chat.consolidate("s", lambda turns: ["Ana drinks water"])
    assert report.fact_ids[0].superseded == ()
    assert chat.get(later).state == "live"
    assert chat.get(report.fact_ids[0]).valid_to == clock.now


def test_contradictions_may_wait_for_an_answer(open_store: OpenStore, clock: MovableClock) -> None:
    told: list[sqlmem.Conflict] = []
    chat = open_store(judge=contradicts, on_contradiction="ask", on_conflict=told.append)
    chat.remember("Ana drinks tea", kind="fact")
    _filled(chat, clock)
    report = chat.consolidate("s", lambda turns: ["Ana drinks water", "Ben drinks milk"])
    waiting, live = report.fact_ids
    assert (chat.get(waiting).state, chat.get(live).state) == ("proposed", "live")
    assert [conflict.id for conflict in told] == [waiting.conflict_id]
    assert numbers(chat) == [4, 5, 6, 7, 8, 9]
    chat.conflicts.resolve(told[0].id, "take_new")
    assert chat.get(waiting).sources == ("t0", "t1", "t2", "t3")


def test_a_judge_that_fails_leaves_the_batch(open_store: OpenStore, clock: MovableClock) -> None:
    def judge(new: str, known: list[str]) -> list[bool]:
        raise TimeoutError

    chat = open_store(judge=judge)
    chat.remember("Ana drinks tea", kind="fact", check=False)
    _filled(chat, clock)
    with pytest.raises(sqlmem.CallbackError, match="the judge raised TimeoutError"):
        chat.consolidate("s", lambda turns: ["Ben drinks milk", "Ana drinks water"])
    assert len(numbers(chat)) == 10
    assert chat.stats().live["fact"] == 1


def test_the_store_s_language_model_serves_as_summarizer(open_store: OpenStore, clock: MovableClock) -> None:
    prompts: list[str] = []

    def llm(prompt: str) -> str:
        prompts.append(prompt)
        return "Here you are: " + json.dumps({"facts": ["Ana has a dog", "Ana has a dog"]})

    chat = _filled(open_store(llm=llm), clock)
    report = chat.consolidate("s", keep_recent=8)
    assert (report.facts, report.turns_removed) == (("Ana has a dog",), 2)
    assert prompts[0].endswith(
        'Turns:\n{"role": "user", "text": "turn 0", "ts": "2026-03-01T12:00:00+00:00"}\n'
        '{"role": "assistant", "text": "turn 1", "ts": "2026-03-02T12:00:00+00:00"}\n'
    )


@pytest.mark.parametrize("answer", ["I cannot do that.", '{"facts": "none"}', '{"facts": [7]}', ""])
def test_a_language_model_that_fails_loses_no_turn(open_store: OpenStore, clock: MovableClock, answer: str) -> None:
    chat = _filled(open_store(llm=lambda prompt: answer), clock)
    with pytest.raises(sqlmem.CallbackError):
        chat.consolidate("s")
    assert len(numbers(chat)) == 10
    with pytest.raises(sqlmem.InvalidArgument, match=r"needs a summarizer, or a store that was opened with llm=…"):
        _filled(open_store(), clock).consolidate("s")
