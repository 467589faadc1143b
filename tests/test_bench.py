"""The bench: its readers on small made-up files, and its arithmetic on examples worked out by hand."""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"

if not (ROOT / "bench").is_dir():
    pytest.skip("the bench is not part of an installed package", allow_module_level=True)
sys.path.append(str(ROOT))  # last, so that an installed sqlmem is not hidden by a checkout's

from bench import datasets, scoring, tables  # noqa: E402
from bench.scoring import Answer, Column, Measure  # noqa: E402

MADE_UP_LOCOMO: list[dict[str, Any]] = [
    {
        "sample_id": f"talk-{number}",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Bo",
            "session_2_date_time": "12:05 am on 3 February, 2023",
            "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "My boat sank."}],
            "session_1_date_time": "1:56 pm on 8 January, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a red boat"},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Nice."},
            ],
        },
        "qa": [
            {"question": "Whose boat?", "answer": "Bo's", "evidence": ["D2:1", "D1:1"], "category": 1},
            {"question": "Who fell?", "adversarial_answer": "Bo", "evidence": ["D2:1"], "category": 5},
            {"question": "Why?", "answer": "unknown", "evidence": [], "category": 3},
            {"question": "When did it sink?", "answer": "February", "evidence": ["D2:1; D1:2", "D2:1"], "category": 2},
        ],
    }
    for number in (1, 2)
]

MADE_UP_LONGMEMEVAL: list[dict[str, Any]] = [
    {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "What did I plant?",
        "answer": "beans",
        "question_date": "2023/05/30 (Tue) 08:08",
        "haystack_dates": ["2023/05/21 (Sun) 02:21", "2023-05-20T06:13:00"],
        "haystack_session_ids": ["s_late", "s_early"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "I planted beans.", "has_answer": True},
                {"role": "assistant", "content": " "},
            ],
            [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi!"}],
        ],
        "answer_session_ids": ["s_late"],
    },
    {
        "question_id": "q1_other",
        "question_type": "multi-session",
        "question": "What did I say first?",
        "answer": "Hello.",
        "question_date": "2023-06-01T00:00:00+00:00",
        "haystack_dates": [],
        "haystack_session_ids": [],
        "haystack_sessions": "same_as:q1",
        "answer_session_ids": ["s_early"],
    },
    {
        "question_id": "q2_abs",
        "question_type": "single-session-user",
        "question": "What did I sell?",
        "answer": "You did not say.",
        "question_date": "2023/05/30 (Tue) 08:08",
        "haystack_dates": ["2023/05/21 (Sun) 02:21"],
        "haystack_session_ids": ["s_only"],
        "haystack_sessions": [[{"role": "user", "content": "Good morning."}]],
        "answer_session_ids": ["s_only"],
    },
]


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def answer(question: str, *refs: str, tokens: int = 10) -> Answer:
    return Answer(question, refs, tokens, tokens, wall_ms=3.0, cpu_ms=2.0, embed_wall_ms=1.0, embed_cpu_ms=0.5)


@pytest.fixture
def locomo(tmp_path: Path) -> list[datasets.Conversation]:
    written(tmp_path / "locomo10.json", MADE_UP_LOCOMO)
    return datasets.load_locomo(tmp_path)


@pytest.fixture
def longmemeval(tmp_path: Path) -> list[datasets.Conversation]:
    return datasets.load_longmemeval(written(tmp_path / "longmemeval_s.json", MADE_UP_LONGMEMEVAL))


def test_locomo_turns_come_in_session_order_with_their_times(locomo: list[datasets.Conversation]) -> None:
    first, second, third = locomo[0].turns

    assert (first.ref, first.session, first.speaker) == ("D1:1", "session_1", "Ada")
    assert first.stored_text == "Look!"
    assert first.at == datetime(2023, 1, 8, 13, 56, tzinfo=UTC)
    assert second.at == datetime(2023, 1, 8, 13, 56, 1, tzinfo=UTC)
    assert (third.stored_text, third.at) == ("My boat sank.", datetime(2023, 2, 3, 0, 5, tzinfo=UTC))


def test_locomo_captions_are_stored_when_asked_for(tmp_path: Path) -> None:
    conversation = datasets.load_locomo(written(tmp_path / "locomo10.json", MADE_UP_LOCOMO), captions=True)[0]

    assert [t.stored_text for t in conversation.turns] == ["Look! [shares a red boat]", "Nice.", "My boat sank."]


def test_locomo_sessions_may_stand_beside_the_questions(tmp_path: Path, locomo: list[datasets.Conversation]) -> None:
    flat = [{**record["conversation"], "sample_id": record["sample_id"], "qa": record["qa"]} for record in MADE_UP_LOCOMO]

    assert datasets.load_locomo(written(tmp_path / "flat.json", flat)) == locomo


def test_locomo_skips_adversarial_questions_and_those_without_evidence(locomo: list[datasets.Conversation]) -> None:
    questions = locomo[1].questions

    assert [q.text for q in questions] == ["Whose boat?", "When did it sink?"]
    assert [q.ref for q in questions] == ["locomo_1_qa0", "locomo_1_qa3"]
    assert questions[1].evidence == ("D2:1; D1:2", "D2:1")  # malformed as published
    assert [q.category for q in questions] == ["1 multi-hop", "2 temporal"]


def test_halves_are_every_other_conversation(locomo: list[datasets.Conversation]) -> None:
    def names(half: str) -> list[str]:
        return [c.name for c in datasets.select(locomo, half=half)]

    assert [datasets.half_of(position) for position in range(4)] == ["tune", "test", "tune", "test"]
    assert (names("tune"), names("test"), names("both")) == (["talk-1"], ["talk-2"], ["talk-1", "talk-2"])


def test_selection_by_name_number_and_count(locomo: list[datasets.Conversation]) -> None:
    def counts(**chosen: Any) -> dict[str, int]:
        return {c.name: len(c.questions) for c in datasets.select(locomo, **chosen)}

    assert counts(names=["talk-2"]) == counts(names=["2"]) == {"talk-2": 2}
    assert counts(limit=3) == {"talk-1": 2, "talk-2": 1}
    assert counts(limit=2) == {"talk-1": 2}


def test_the_audit_corrects_wrong_citations_only(tmp_path: Path, locomo: list[datasets.Conversation]) -> None:
    entries = [
        {"question_id": "locomo_0_qa0", "error_type": "WRONG_CITATION", "correct_evidence": ["D1:2"]},
        {"question_id": "locomo_0_qa3", "error_type": "HALLUCINATION", "correct_evidence": ["D1:1"]},
        {"question_id": "locomo_9_qa0", "error_type": "WRONG_CITATION", "correct_evidence": ["D1:1"]},
    ]
    gold = scoring.turn_gold(locomo, datasets.load_audit(written(tmp_path / "audit.json", entries)))

    assert gold["locomo_0_qa0"] == ("D1:2",)
    assert gold["locomo_0_qa3"] == ("D2:1; D1:2", "D2:1")
    assert len(gold) == 4


def test_longmemeval_haystacks_are_shared_and_in_time_order(longmemeval: list[datasets.Conversation]) -> None:
    shared, alone = longmemeval

    assert [t.ref for t in shared.turns] == ["s_early:0", "s_early:1", "s_late:0"]  # the blank turn says nothing
    assert shared.turns[0].at == datetime(2023, 5, 20, 6, 13, tzinfo=UTC)
    assert shared.turns[2].at == datetime(2023, 5, 21, 2, 21, tzinfo=UTC)
    assert [q.ref for q in shared.questions] == ["q1", "q1_other"]
    assert shared.questions[0].asked_at == datetime(2023, 5, 30, 8, 8, tzinfo=UTC)
    assert [q.ref for q in alone.questions] == ["q2_abs"]


def test_longmemeval_flags_belong_to_the_question_they_were_set_for(longmemeval: list[datasets.Conversation]) -> None:
    assert scoring.turn_gold(longmemeval) == {"q1": ("s_late:0",)}


def test_longmemeval_gold_leaves_out_abstention_and_all_gold_haystacks(
    longmemeval: list[datasets.Conversation],
) -> None:
    gold = scoring.session_gold(longmemeval)
    found = scoring.recalls([answer("q1", "s_late:0", "s_late:1"), answer("q1_other", "s_late:0")], gold, scoring.sessions_of)

    assert gold == {"q1": ("s_late",), "q1_other": ("s_early",)}
    assert found == {"q1": 1.0, "q1_other": 0.0}
    assert scoring.ceiling(longmemeval, Measure("", gold, scoring.sessions_of)) == 1.0


def test_longmemeval_folder_of_files(tmp_path: Path) -> None:
    written(tmp_path / "a.json", MADE_UP_LONGMEMEVAL[:2])
    written(tmp_path / "b.json", MADE_UP_LONGMEMEVAL[2:])

    assert [c.name for c in datasets.load_longmemeval(tmp_path)] == ["q1", "q2_abs"]


@pytest.mark.parametrize(
    ("evidence", "found", "recall"),
    [
        (["D1:1", "D2:1"], ["D2:1", "D9:9"], 1 / 2),
        (["D1:1"], [], 0.0),
        (["D4:5", "D4:5", "D4:6"], ["D4:5", "D4:6"], 2 / 3),  # a repeated id counts twice below the line only
        (["D8:6; D9:17", "D1:1"], ["D8:6", "D9:17", "D1:1"], 1 / 2),  # a malformed id is never found
    ],
)
def test_evidence_recall(evidence: list[str], found: list[str], recall: float) -> None:
    assert scoring.evidence_recall(evidence, found) == recall


def test_means_by_half_and_category(locomo: list[datasets.Conversation]) -> None:
    gold = scoring.turn_gold(locomo)
    found = scoring.recalls(
        [answer("locomo_0_qa0", "D1:1"), answer("locomo_0_qa3", "D2:1"), answer("locomo_1_qa0", "D1:1", "D2:1")], gold
    )
    rows = dict(scoring.groups(locomo, gold))

    assert found == {"locomo_0_qa0": 0.5, "locomo_0_qa3": 0.5, "locomo_1_qa0": 1.0}
    assert {label: len(refs) for label, refs in rows.items()} == {
        "all": 4,
        "tune": 2,
        "test": 2,
        "test: 1 multi-hop": 1,
        "test: 2 temporal": 1,
    }
    assert scoring.mean(found[ref] for ref in rows["tune"]) == 0.5
    assert math.isnan(scoring.mean([]))


def test_the_ceiling_is_what_showing_everything_scores(locomo: list[datasets.Conversation]) -> None:
    assert scoring.ceiling(locomo, Measure("", scoring.turn_gold(locomo))) == (1 + 1 / 2 + 1 + 1 / 2) / 4


def test_tokens_are_four_characters_rounded_up() -> None:
    assert [scoring.count_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]


def test_the_table_holds_recall_and_cost(locomo: list[datasets.Conversation]) -> None:
    one = locomo[:1]
    column = Column("334", [answer("locomo_0_qa0", "D1:1", tokens=3), answer("locomo_0_qa3", "D2:1", tokens=6)])
    text = tables.table(one, [column], [Measure("", scoring.turn_gold(one))])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]

    assert cells[0] == ["", "n", "334"]
    assert ["tune", "2", "0.5000"] in cells
    assert ["turns shown", "", "1.0"] in cells
    assert ["ms a question, clock", "", "3.0"] in cells
    assert ["… beyond embedding it", "", "2.0"] in cells


@pytest.mark.skipif(not (DATA / "locomo").is_dir(), reason="the LoCoMo files are not beside this checkout")
def test_the_published_question_counts_and_ceiling() -> None:
    conversations = datasets.load_locomo(DATA / "locomo")
    gold = scoring.turn_gold(conversations)
    rows = {label: len(refs) for label, refs in scoring.groups(conversations, gold)}

    assert sum(len(c.turns) for c in conversations) == 5882
    assert (rows["all"], rows["tune"], rows["test"]) == (1536, 786, 750)
    assert scoring.ceiling(conversations, Measure("", gold)) == pytest.approx(0.9959, abs=5e-5)
    assert len(datasets.load_audit(DATA / "locomo" / "citation_audit.json")) == 57


@pytest.mark.skipif(not (DATA / "longmemeval").is_dir(), reason="the LongMemEval file is not beside this checkout")
def test_the_small_longmemeval_file_is_read_whole() -> None:
    conversations = datasets.load_longmemeval(DATA / "longmemeval")

    assert sum(len(c.questions) for c in conversations) == 33
    assert len(scoring.session_gold(conversations)) == 31
