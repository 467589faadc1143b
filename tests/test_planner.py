"""Planners say what else to search for; what they find counts by its weight, and what they do wrong is done without."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, scoring
from tests.helpers_store import START, MovableClock

QUESTION = "Is Ana happy with her new home?"
Plan = dict[str, Any]


class Planner:
    """Answers with the plans that were prepared, and notes what it was shown."""

    def __init__(self, *plans: Any) -> None:
        self.shown: list[tuple[str, list[str]]] = []
        self._plans = list(plans)

    def __call__(self, query: str, found: list[str], told: sqlmem.RecallSettings, now: datetime) -> Any:
        self.shown.append((query, found))
        self.asked_at = now
        plan = self._plans.pop(0)
        if isinstance(plan, Exception):
            raise plan
        return plan


def filled(store: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    for text, id_ in (
        ("Ana moved into her new home in Porto", "home"),
        ("The neighbours on Rua das Flores are noisy", "noise"),
        ("Ana hardly sleeps", "sleep"),
        ("The ferry leaves at nine", "ferry"),
    ):
        store.remember(text, kind="fact", id=id_)
    return store


@pytest.fixture
def make(open_store: OpenStore) -> Callable[..., tuple[sqlmem.MemoryStore, Planner]]:
    def make_one(*plans: Any, **options: Any) -> tuple[sqlmem.MemoryStore, Planner]:
        planner = Planner(*plans)
        return filled(open_store(planner=planner, embedder=False, **options)), planner

    return make_one


def test_what_the_planner_asks_for_is_found_too(make: Any) -> None:
    store, planner = make({"queries": ["Are the neighbours noisy?"], "keywords": ["sleeps"]})
    found = store.recall(QUESTION)
    assert found.ids[0] == "home"
    assert {"noise", "sleep"} <= set(found.ids)
    assert planner.shown == [(QUESTION, [])]
    assert found.trace == sqlmem.Trace(
        strategy="balanced",
        queries=(QUESTION, "Are the neighbours noisy?"),
        keywords=("sleeps",),
        calls=1,
        seconds=found.trace.seconds,
    )
    assert scoring(next(m for m in found if m.id == "noise"))["found_by"] == {"subquery 1": 1}
    assert scoring(next(m for m in found if m.id == "sleep"))["found_by"].keys() == {"keyword 1", "keywords"}
    norms = [scoring(memory)["relevance_norm"] for memory in found]
    assert max(norms) == 1.0


def test_search_context_and_explain_follow_the_plan(make: Any) -> None:
    plan = {"queries": ["Are the neighbours noisy?"]}
    store, planner = make(*[plan] * 3)
    assert "noise" in store.search(QUESTION).ids
    assert "noisy" in store.context(QUESTION).text
    assert store.explain(QUESTION, "noise").recalled
    assert len(planner.shown) == 3


def test_pins_and_turns_of_a_block_are_not_repeated(make: Any) -> None:
    store, _ = make({"queries": ["Are the neighbours noisy?"]})
    store.correct("noise", pinned=True)
    block = store.context(QUESTION)
    assert block.text.count("noisy") == 1
    assert [memory.id for memory in block.retrieved if memory.text in {pin.text for pin in block.pinned}] == []


@pytest.mark.parametrize(("weight", "found"), [(0, False), (0.1, True), (1, True)])
def test_weights_say_how_much_it_counts(make: Any, weight: float, found: bool) -> None:
    store, _ = make({"queries": ["Are the neighbours noisy?"], "keywords": ["ferry"]})
    store.settings.update_recall(subquery_weight=weight, keyword_weight=0)
    recalled = store.recall(QUESTION)
    assert ("noise" in recalled.ids, "ferry" in recalled.ids) == (found, False)
    if weight == 1:
        assert recalled.ids.index("noise") < recalled.ids.index("sleep")


def test_filters_and_times_bear_on_what_is_planned(make: Any, clock: MovableClock) -> None:
    store, _ = make(
        {"queries": ["noisy neighbours"], "after": "2026-02-28"},
        {"queries": ["noisy neighbours"], "before": "2026-03-01"},
        {"queries": ["noisy neighbours"], "after": "2026-04-01", "before": "2026-01-01"},
        {"queries": ["noisy neighbours"]},
    )
    first = store.recall(QUESTION)
    assert "noise" in first.ids
    assert first.trace.after == datetime(2026, 3, 1, tzinfo=UTC) - timedelta(milliseconds=1)
    assert "noise" not in store.recall(QUESTION).ids
    senseless = store.recall(QUESTION)
    assert ("noise" in senseless.ids, senseless.trace.after, senseless.trace.before) == (True, None, None)
    assert store.recall(QUESTION, user="ben").ids == []


@pytest.mark.parametrize(
    ("bound", "zone", "kept"),
    [
        ({"after": "2026-02-28"}, None, {"morning", "evening"}),
        ({"after": "2026-03-01"}, None, set()),
        ({"before": "2026-03-01"}, None, set()),
        ({"before": "2026-03-02"}, None, {"morning", "evening"}),
        ({"after": "2026-03-01T12:00"}, None, {"evening"}),
        ({"after": date(2026, 3, 1)}, None, set()),
        ({"after": "2026-03-01"}, "Pacific/Auckland", {"evening"}),
        ({"before": "2026-03-02"}, "Pacific/Auckland", {"morning"}),
        ({"before": "2026-03-02T00:00+00:00"}, "Pacific/Auckland", {"morning", "evening"}),
        ({"after": "9999-12-31"}, None, {"morning", "evening"}),
    ],
)
def test_a_day_that_a_plan_names_is_left_out_as_a_whole(
    open_store: OpenStore, bound: dict[str, Any], zone: str | None, kept: set[str]
) -> None:
    planner = Planner({"queries": ["noise"], **bound})
    store = open_store(planner=planner, embedder=False, clock=lambda: datetime(2026, 3, 5, 20, tzinfo=UTC))
    for id_, hour in (("morning", 6), ("evening", 20)):
        store.remember("noise", session="s", id=id_, timestamp=datetime(2026, 3, 1, hour, tzinfo=UTC))
    block = store.context("quiet", session="s", recent_turns=0, timezone=zone)
    assert {memory.id for memory in block.retrieved} == kept
    assert (planner.asked_at, planner.asked_at.day) == (datetime(2026, 3, 5, 20, tzinfo=UTC), 5 if zone is None else 6)


def test_agentic_plans_again_with_what_was_found(make: Any) -> None:
    store, planner = make({"queries": ["Are the neighbours noisy?"]}, {"keywords": ["sleeps"]}, {"keywords": ["ferry"]})
    found = store.recall(QUESTION, strategy="agentic")
    assert {"noise", "sleep", "ferry"} <= set(found.ids)
    assert (found.trace.strategy, found.trace.calls) == ("agentic", 3)
    texts = [set(shown) for _, shown in planner.shown]
    assert "Ana moved into her new home in Porto" in texts[0]
    assert "The neighbours on Rua das Flores are noisy" in texts[1] - texts[0]


@pytest.mark.parametrize("second", [{"queries": ["noisy neighbours"]}, {}, {"queries": []}])
def test_agentic_ends_when_nothing_new_is_planned_or_all_was_found(make: Any, second: Plan) -> None:
    store, planner = make({"queries": ["noisy neighbours"]}, second)
    assert store.recall(QUESTION, strategy="agentic").trace.calls == 2
    store, planner = make({"queries": ["noisy neighbours"], "done": True})
    assert store.recall(QUESTION, strategy="agentic").trace.calls == 1
    assert len(planner.shown) == 1


def test_auto_plans_only_where_the_best_is_not_relevant_enough(make: Any) -> None:
    store, planner = make({"queries": ["Are the neighbours noisy?"], "done": True})
    sure = store.recall("The ferry leaves at nine", strategy="auto")
    assert (sure.trace.strategy, sure.trace.calls, planner.shown) == ("balanced", 0, [])
    unsure = store.recall("Will somebody get rest?", strategy="auto")
    assert (unsure.trace.strategy, unsure.trace.calls) == ("agentic", 1)
    assert "noise" in unsure.ids


def test_low_latency_and_blank_questions_ask_nobody(open_store: OpenStore) -> None:
    planner = Planner()
    store = filled(open_store(planner=planner))
    assert store.recall("Ana", strategy="low_latency").trace == sqlmem.Trace(strategy="low_latency", queries=("Ana",))
    assert store.recall(" ").trace.calls == 0
    assert planner.shown == []


@pytest.mark.parametrize(
    "plan",
    [ConnectionError("no answer"), None, "queries", ["queries"], 7, sqlmem.NotFound("x")],
    ids=repr,
)
def test_a_planner_that_fails_is_done_without(make: Any, open_store: OpenStore, plan: Any) -> None:
    store, _ = make(plan)
    plain = filled(open_store(embedder=False)).recall(QUESTION)
    found = store.recall(QUESTION)
    assert found.ids == plain.ids
    assert [memory.score for memory in found] == [memory.score for memory in plain]
    (note,) = found.trace.notes
    assert note.startswith("the planner failed, the search went on without it: ")


@pytest.mark.parametrize(
    "plan",
    [
        {"queries": "noisy neighbours"},
        {"queries": [7, None, " ", "\ud800"]},
        {"keywords": {"a": 1}},
        {"queries": None, "after": "yesterday", "done": "yes"},
    ],
    ids=repr,
)
def test_parts_of_a_plan_that_make_no_sense_are_left_out(make: Any, plan: Any) -> None:
    store, _ = make(plan)
    found = store.recall(QUESTION)
    assert (found.trace.queries, found.trace.keywords, found.trace.notes) == ((QUESTION,), (), ())


def test_a_plan_is_taken_in_part_if_it_is_long(make: Any) -> None:
    store, _ = make({"queries": [f"query {n}" for n in range(50)], "keywords": [f"word{n}" for n in range(50)]})
    trace = store.recall(QUESTION).trace
    assert (len(trace.queries), len(trace.keywords)) == (5, 8)


def test_the_language_model_plans_where_it_is_asked_to(open_store: OpenStore) -> None:
    prompts: list[str] = []

    def llm(prompt: str) -> str:
        prompts.append(prompt)
        return json.dumps({"queries": ["Are the neighbours noisy?"], "done": True})

    store = filled(open_store(llm=llm, embedder=False))
    store.settings.update_recall(custom_instructions=["think of the street"], example_keywords=["Porto, Gaia"])
    assert store.recall(QUESTION).trace.calls == 0
    assert prompts == []
    found = store.recall(QUESTION, strategy="agentic")
    assert "noise" in found.ids
    assert found.trace.calls == 1
    for part in ("Rules:\n- think of the street", "Good keywords are like these:\n- Porto, Gaia", json.dumps(QUESTION)):
        assert part in prompts[0]


def test_agentic_needs_somebody_who_plans(open_store: OpenStore) -> None:
    store = filled(open_store())
    with pytest.raises(sqlmem.InvalidArgument, match="strategy='agentic' needs a planner or a language model"):
        store.recall("x", strategy="agentic")
    assert store.recall(QUESTION, strategy="auto").trace.strategy == "balanced"
    assert store.recall(QUESTION, now=START, strategy="auto").ids == store.recall(QUESTION, now=START).ids
    with pytest.raises(sqlmem.InvalidArgument, match="planner must be callable"):
        open_store(planner="plan")
