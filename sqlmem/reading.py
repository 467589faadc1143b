"""What a language model reads in turns, and what it says becomes of it, checked part by part."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sqlmem import arguments
from sqlmem import text as texts
from sqlmem.asking import Asker
from sqlmem.clock import from_ms
from sqlmem.engine import Engine, LanguageModel
from sqlmem.errors import InvalidArgument
from sqlmem.ingest import Item
from sqlmem.judging import Near
from sqlmem.records import Action, ContradictionMode, ExtractionSettings
from sqlmem.search import keywords
from sqlmem.store.memories import Stored

ACTIONS: tuple[Action, ...] = ("new", "duplicate", "update", "merge", "invalidate", "conflict")
# Turns of the batch before, which the next one begins with, for context.
OVERLAP = 3
_CATEGORIES = "select name, description from category order by name"
# A context block that was pasted into a turn: what it says is remembered already.
_BLOCK = re.compile(r"^(?:Pinned facts|Latest summaries|Recent conversation|Relevant memories):\n(?:.+\n?)*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a model read: a statement, and the numbers of the turns that say it."""

    text: str
    turns: tuple[int, ...]
    categories: tuple[str, ...]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a statement beside the known memories `near`."""

    action: Action
    near: tuple[Near, ...] = ()
    reason: str | None = None
    question: str | None = None
    options: tuple[str, ...] = ()
    mode: ContradictionMode | None = None


@dataclass(slots=True)
class Reading:
    """What was read of a session. `dropped` are statements that no turn bears out."""

    candidates: list[Candidate] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    summary: str = ""


class Reader:
    """Asks one model about one session, outside of transactions."""

    def __init__(self, engine: Engine, model: LanguageModel, settings: ExtractionSettings) -> None:
        self.settings = settings
        self.asker = Asker(engine, model)
        self._engine = engine
        self._reading = Reading()
        self._categories = {row[0]: row[1] for row in engine.db.rows(_CATEGORIES)}

    def read(self, turns: Sequence[Stored], before: Sequence[Stored], summary: str, budget: int) -> Reading:
        """What the turns say, in as many calls as the budget of tokens for the turns of one demands."""
        self._reading.summary = summary
        for batch in self._batches(turns, budget):
            answer = self.asker.ask("extract", "memories", **self._question(batch, before))
            self._take(answer, {turn.turn: turn for turn in batch if turn.turn is not None})
            before = batch[-OVERLAP:]
        return self._reading

    def decide(self, items: Sequence[Item], near: Mapping[int, Sequence[Near]]) -> dict[int, Decision]:
        """What becomes of each statement, by its place; none where nothing is known that is near to it."""
        asked = {place: list(found) for place, found in near.items() if found}
        if not asked:
            return {}
        cases = "\n\n".join(_case(place, items[place].text, found) for place, found in asked.items())
        answer = self.asker.ask("decide", "decisions", cases=cases)
        decisions: dict[int, Decision] = {}
        for given in _list(answer.get("decisions")):
            place = _number(given.get("statement"))
            if place in asked and place not in decisions:
                decisions[place] = self._decision(given, asked[place])
        return decisions

    def _batches(self, turns: Sequence[Stored], budget: int) -> Iterator[list[Stored]]:
        batch: list[Stored] = []
        total = 0
        for turn in turns:
            tokens = self._engine.options.token_counter(turn.text)
            if batch and total + tokens > budget:
                yield batch
                batch, total = [], 0
            batch.append(turn)
            total += tokens
        yield batch

    def _question(self, turns: Sequence[Stored], before: Sequence[Stored]) -> dict[str, str]:
        categories = "\n".join(f"- {name}: {said}" if said else f"- {name}" for name, said in self._categories.items())
        return {
            "categories": categories or "(none)",
            "instructions": _instructions(self.settings),
            "summary": self._reading.summary or "(none)",
            "before": _lines(before) or "(none)",
            "turns": _lines(turns),
        }

    def _take(self, answer: Mapping[str, Any], turns: Mapping[int, Stored]) -> None:
        for given in _list(answer.get("memories")):
            candidate = self._candidate(given, turns)
            if candidate is None:
                self._reading.dropped.append(str(given.get("text"))[:200])
            elif candidate.text not in [known.text for known in self._reading.candidates]:
                self._reading.candidates.append(candidate)
        summary = answer.get("summary")
        if isinstance(summary, str) and summary.strip() and not _unstorable(summary):
            self._reading.summary = summary.strip()

    def _candidate(self, given: Mapping[str, Any], turns: Mapping[int, Stored]) -> Candidate | None:
        """A statement that some of the turns bear out: they are named, and share a word with it that means something."""
        text = given.get("text")
        named = given.get("turns")
        given_numbers = [_number(number) for number in (named if isinstance(named, list) else [named])]
        numbers = {number for number in given_numbers if number is not None and number in turns}
        if not isinstance(text, str) or not text.strip() or _unstorable(text) or not numbers:
            return None
        words = self._words([text])
        if not words & self._words(_without_blocks(turns[number].text) for number in numbers):
            return None
        wanted = given.get("categories")
        known = [name for name in (wanted if isinstance(wanted, list) else []) if name in self._categories]
        return Candidate(text.strip(), tuple(sorted(numbers)), tuple(dict.fromkeys(known)), _event(given))

    def _words(self, said: Iterable[str]) -> set[str]:
        """The words that mean something, as the keyword index stores them."""
        words = [word for text in said for word in texts.prepare(text).split() if word.lower() not in texts.STOPWORDS]
        return set(keywords.stems(self._engine.db, " ".join(words)))

    def _decision(self, given: Mapping[str, Any], near: Sequence[Near]) -> Decision:
        """A decision that can be carried out; what makes no sense leaves everything as it is, and the statement new."""
        action: Action = next((known for known in ACTIONS if known == given.get("action")), "new")
        named = [_number(number) for number in _any_list(given.get("memories"))]
        chosen = tuple(near[number - 1] for number in dict.fromkeys(named) if number is not None and 0 < number <= len(near))
        if action == "new" or not chosen:
            return Decision("new")
        mode: ContradictionMode | None = "supersede" if action in ("update", "merge") else None
        if action == "conflict" and self.settings.raise_merge_conflicts is not None:
            mode = "ask" if self.settings.raise_merge_conflicts else "supersede"
        options = tuple(dict.fromkeys(option for option in _any_list(given.get("options")) if _is_text(option)))
        question, reason = given.get("question"), given.get("reason")
        return Decision(
            action=action,
            near=chosen,
            reason=reason if _is_text(reason) else None,
            question=question if _is_text(question) else None,
            options=options,
            mode=mode,
        )


def _case(place: int, text: str, near: Sequence[Near]) -> str:
    known = "\n".join(f"  {number}. {json.dumps(one.stored.text, ensure_ascii=False)}" for number, one in enumerate(near, 1))
    return f"Statement {place}: {json.dumps(text, ensure_ascii=False)}\nRemembered:\n{known}"


def _lines(turns: Sequence[Stored]) -> str:
    """Turns as JSON strings, one a line, so that none can pose as another or as part of the prompt."""
    return "\n".join(
        f"[{turn.turn}] {from_ms(turn.at):%A %Y-%m-%d %H:%M} UTC, "
        f"{turn.role}: {json.dumps(_without_blocks(turn.text), ensure_ascii=False)}"
        for turn in turns
    )


def _without_blocks(text: str) -> str:
    return _BLOCK.sub("", text)


def _instructions(settings: ExtractionSettings) -> str:
    parts = (
        ("Remember also", settings.inclusion_instructions),
        ("Do not remember", settings.exclusion_instructions),
        ("Texts like these hold something to remember", settings.positive_examples),
        ("Texts like these hold nothing", settings.negative_examples),
        ("These should not have been remembered", settings.false_positive_examples),
        ("These were missed", settings.false_negative_examples),
        ("Besides", settings.custom_instructions),
    )
    return "".join(f"{head}:\n" + "".join(f"- {line}\n" for line in lines) for head, lines in parts if lines)


def _event(given: Mapping[str, Any]) -> dict[str, str]:
    """The days of what happened, where they are days."""
    found = {}
    for name in ("event_start", "event_end"):
        try:
            found[name] = date.fromisoformat(str(given.get(name))).isoformat()
        except ValueError:
            continue
    return found


def _list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in _any_list(value) if isinstance(item, Mapping)]


def _any_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not _unstorable(value)


def _unstorable(text: str) -> bool:
    try:
        arguments.string("text", text)
    except InvalidArgument:
        return True
    return False
