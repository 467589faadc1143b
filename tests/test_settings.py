"""Settings lie in the file: checked, counted, and the same for every process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from sqlmem import ExtractionSettings, RecallSettings
from tests.conftest import OpenStore
from tests.helpers_store import run

LISTS = [
    "inclusion_instructions",
    "exclusion_instructions",
    "positive_examples",
    "negative_examples",
    "false_positive_examples",
    "false_negative_examples",
    "custom_instructions",
]


def test_a_new_store_has_the_defaults(store: sqlmem.MemoryStore) -> None:
    assert store.settings.extraction == ExtractionSettings()
    assert store.settings.recall == RecallSettings()
    assert (store.settings.extraction.similarity_top_k, store.settings.recall.keyword_weight) == (10, 0.5)


def test_every_setting_can_be_changed_alone(store: sqlmem.MemoryStore) -> None:
    expected = ExtractionSettings()
    for number, name in enumerate(LISTS, 1):
        changed = store.settings.update_extraction(**{name: [f"about {name}", "日本"]})
        assert getattr(changed, name) == (f"about {name}", "日本")
        assert changed.version == number
        expected = store.settings.extraction
        assert expected == changed
    assert store.settings.update_extraction(similarity_top_k=50, raise_merge_conflicts=True).similarity_top_k == 50
    assert store.settings.extraction.positive_examples == expected.positive_examples
    assert store.settings.update_recall(subquery_weight=1, keyword_weight=0).subquery_weight == 1.0
    for name in ("example_subqueries", "example_keywords", "example_summary_questions", "custom_instructions"):
        assert getattr(store.settings.update_recall(**{name: ("a, b",)}), name) == ("a, b",)


def test_a_change_that_changes_nothing_has_no_number(store: sqlmem.MemoryStore) -> None:
    assert store.settings.update_extraction(similarity_top_k=12).version == 1
    assert store.settings.update_extraction(similarity_top_k=12).version == 1
    assert store.settings.update_extraction().version == 1
    assert store.settings.update_recall(keyword_weight=0.5).version == 0


@pytest.mark.parametrize(
    ("group", "changes"),
    [
        ("extraction", {"similarity_top_k": 9}),
        ("extraction", {"similarity_top_k": 51}),
        ("extraction", {"similarity_top_k": 10.0}),
        ("extraction", {"similarity_top_k": True}),
        ("extraction", {"raise_merge_conflicts": 1}),
        ("extraction", {"positive_examples": "text"}),
        ("extraction", {"positive_examples": ["fine", " "]}),
        ("extraction", {"positive_examples": [7]}),
        ("extraction", {"positive_examples": ["\ud800"]}),
        ("extraction", {"version": 7}),
        ("extraction", {"keyword_weight": 0.5}),
        ("recall", {"keyword_weight": 1.1}),
        ("recall", {"keyword_weight": -0.1}),
        ("recall", {"subquery_weight": "0.5"}),
        ("recall", {"subquery_weight": float("nan")}),
        ("recall", {"example_keywords": None}),
    ],
)
def test_what_makes_no_sense_is_refused(store: sqlmem.MemoryStore, group: str, changes: dict[str, Any]) -> None:
    fine = {"custom_instructions": ["never kept"]}
    update = store.settings.update_extraction if group == "extraction" else store.settings.update_recall
    with pytest.raises(sqlmem.InvalidArgument):
        update(**fine, **changes)
    with pytest.raises(sqlmem.InvalidArgument):
        store.settings.import_({group: {**fine, **changes, "no": 1}})
    assert (store.settings.extraction, store.settings.recall) == (ExtractionSettings(), RecallSettings())


def test_every_process_has_the_same(tmp_path: Path, open_store: OpenStore) -> None:
    path = tmp_path / "chat.db"
    one, other = open_store(path), open_store(path)
    one.settings.update_extraction(inclusion_instructions=["food"])
    assert other.settings.extraction.inclusion_instructions == ("food",)
    script = "import sys, sqlmem; print(sqlmem.open(sys.argv[1], embedder=False).settings.extraction.inclusion_instructions)"
    assert run(script, path).strip() == "('food',)"


def test_they_can_be_carried_to_another_file_as_json(store: sqlmem.MemoryStore, open_store: OpenStore) -> None:
    store.settings.update_extraction(inclusion_instructions=["food"], raise_merge_conflicts=False)
    store.settings.update_recall(keyword_weight=0.25)
    carried = json.loads(json.dumps(store.settings.export()))
    other = open_store()
    other.settings.update_recall(example_keywords=["gone"])
    other.settings.import_(carried)
    assert other.settings.export() == carried
    assert (other.settings.extraction.version, other.settings.recall.version) == (1, 2)
    other.settings.import_({"recall": {}})
    assert other.settings.recall == RecallSettings(version=3)
    assert other.settings.extraction.inclusion_instructions == ("food",)


def test_the_names_of_recallrai_are_understood(store: sqlmem.MemoryStore) -> None:
    store.settings.import_(
        {
            "extraction": {"top_k_symantic_similarity_check": 30, "raise_merge_conflict": True, "positive_examples": ["a"]},
            "recall": {
                "subqueries_candidate_memories_weight": 0.7,
                "keywords_candidate_memories_weight": 0.3,
                "example_summary_search_questions": ["what?"],
            },
        }
    )
    assert store.settings.extraction == ExtractionSettings(
        version=1, similarity_top_k=30, raise_merge_conflicts=True, positive_examples=("a",)
    )
    assert store.settings.recall == RecallSettings(
        version=1, subquery_weight=0.7, keyword_weight=0.3, example_summary_questions=("what?",)
    )
    with pytest.raises(sqlmem.InvalidArgument, match="given twice"):
        store.settings.import_({"extraction": {"similarity_top_k": 10, "top_k_symantic_similarity_check": 20}})


@pytest.mark.parametrize("given", [{}, [], "x", None, {"other": {}}, {"recall": []}, {"extraction": "x"}])
def test_what_are_no_settings_is_refused(store: sqlmem.MemoryStore, given: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        store.settings.import_(given)
