"""What commands print: lines for people, or one JSON document."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any

from sqlmem.records import (
    Category,
    CheckReport,
    Conflict,
    ConsolidationReport,
    Explanation,
    ExtractionReport,
    Memory,
    MemoryId,
    ModelInfo,
    Page,
    Recall,
    Session,
    Stats,
    Undone,
    User,
)

_INDENT = " " * 7


def to_json(result: object) -> str:
    """One JSON document; datetimes are ISO, UTC."""
    return json.dumps(_plain(result), ensure_ascii=False, indent=2, default=_scalar)


def _plain(result: object) -> Any:
    if isinstance(result, MemoryId):
        return {"id": str(result), **{name: _plain(value) for name, value in vars(result).items()}}
    if isinstance(result, list):
        return [_plain(item) for item in result]
    if isinstance(result, Explanation):
        return {"recalled": result.recalled, **asdict(result)}
    if is_dataclass(result) and not isinstance(result, type):
        return asdict(result)
    return result


def _scalar(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# -- memories ---------------------------------------------------------------------------------------------------------


def recall(result: Recall) -> Iterator[str]:
    """Recalled memories, each with the parts of its score."""
    for memory in result:
        lead = f"{memory.score:5.2f}  " if memory.score is not None else _INDENT
        yield from _text(memory, lead)
        yield _INDENT + _facts(memory)
        yield _INDENT + scoring(memory.scoring)
    yield summary(result)


def summary(result: Recall) -> str:
    """One line on how many memories there are, and what was cut."""
    count = f"{len(result)} {'memory' if len(result) == 1 else 'memories'}"
    limit = "" if result.token_budget is None else f" of {result.token_budget}"
    cut = f", truncated: {result.cut_count} left out" if result.truncated else ""
    return f"{count}, {result.token_estimate}{limit} tokens{cut}"


def scoring(given: Mapping[str, Any] | None) -> str:
    """The parts of a recalled memory's score."""
    parts = given or {}
    shown = [f"relevance {parts['relevance_norm']:.2f} ({parts['relevance']:.2f} absolute)"] if parts else []
    shown += [f"{name} {parts[name]:.2f}" for name in ("recency", "feedback") if name in parts]
    found = [f"{signal} #{place}" for signal, place in parts.get("found_by", {}).items()]
    return ", ".join([*shown, *(["found by " + " and ".join(found)] if found else [])])


def explanation(result: Explanation) -> Iterator[str]:
    """Whether a memory is recalled, why, and how it scores."""
    yield ("recalled: " if result.recalled else f"not recalled ({result.kept_out_by}): ") + visible(result.reason)
    if result.scoring is not None:
        place = "" if result.recalled else f"number {result.rank} of {result.candidates} candidates, "
        yield f"{result.scoring['score']:5.2f}  {place}{scoring(result.scoring)}"


def memories(result: Iterable[Memory]) -> Iterator[str]:
    """Memories, two lines each."""
    for memory in result:
        yield from _text(memory, "")
        yield _INDENT + _facts(memory)


def page(result: Page[Memory]) -> Iterator[str]:
    """A page of memories, and how to get the next."""
    yield from memories(result.items)
    if result.next_cursor is not None:
        yield f"more: --cursor {result.next_cursor}"


def conversation(result: Iterable[Memory]) -> Iterator[str]:
    """Turns, as they were spoken."""
    for memory in result:
        yield from _text(memory, "")


def versions(result: Iterable[Memory]) -> Iterator[str]:
    """The versions of one memory."""
    for memory in result:
        ended = f" {memory.expired_at:%Y-%m-%d %H:%M}, {memory.expiration_reason}" if memory.expired_at else ""
        yield f"{memory.version_number}. {memory.state}{ended}, {memory.id}"
        yield from _text(memory, "   ")


def one(memory: Memory) -> Iterator[str]:
    """One memory, all that is known of it."""
    yield from _text(memory, "")
    known = asdict(memory)
    for name in ("text", "role", "score", "scoring", "previous_versions"):
        del known[name]
    for name, value in known.items():
        if value not in (None, "", (), {}):
            yield from _lines(_word(value), f"  {name:<18}")
    for old in memory.previous_versions:
        yield f"  {'previous version':<18}{old.id}"


def _text(memory: Memory, lead: str) -> Iterator[str]:
    """The text after `lead`, as its speaker's if it is a turn."""
    speaker = f"{memory.role}: " if memory.kind == "turn" else ""
    yield from _lines(speaker + memory.text.strip(), lead)


def _lines(text: str, lead: str = "") -> Iterator[str]:
    """`text` after `lead`; further lines are indented, so that none looks like another memory or field."""
    first, *more = visible(text).splitlines() or [""]
    yield lead + first
    for line in more:
        yield _INDENT + line


def _facts(memory: Memory) -> str:
    """Where a memory belongs, in one line."""
    parts = [memory.kind, f"{memory.timestamp:%Y-%m-%d %H:%M}"]
    parts += [f"user {memory.user}"] if memory.user else []
    parts += [f"session {memory.session}"] if memory.session is not None else []
    parts += [memory.state] if memory.state != "live" else []
    return visible(", ".join([*parts, memory.id]))


# -- the rest ---------------------------------------------------------------------------------------------------------


def stats(result: Stats) -> Iterator[str]:
    """Counts, one a line."""
    for name, value in asdict(result).items():
        if name == "live":
            value = ", ".join(f"{count} {kind}" for kind, count in value.items() if count) or 0
        elif name == "models":
            value = ", ".join(map(_model, result.models)) or "none"
        yield f"{name.replace('_', ' '):<16}{_word(value)}"


def _model(model: ModelInfo) -> str:
    of_what = "context vectors" if model.input == "context" else "vectors"
    return f"{model.name} ({model.vectors} {of_what}, {model.pending} pending)"


def categories(result: Iterable[Category]) -> Iterator[str]:
    """Categories, one a line."""
    for category in result:
        yield visible(f"{category.name:<16}{category.count:>6}  {category.description}").rstrip()


def conflicts(result: Conflict | Page[Conflict] | dict[str, object]) -> Iterator[str]:
    """A conflict with all that is known of it, some of them, or what was chosen."""
    if isinstance(result, dict):
        yield visible(f"user {result['user']}: {result['mode']}" if result["user"] else str(result["mode"]))
        return
    for conflict in result.items if isinstance(result, Page) else [result]:
        yield from _conflict(conflict)
    if isinstance(result, Page) and result.next_cursor is not None:
        yield f"more: --cursor {result.next_cursor}"


def _conflict(conflict: Conflict) -> Iterator[str]:
    resolution = f": {conflict.resolution}" if conflict.resolution is not None else ""
    error = f": {conflict.error}" if conflict.error is not None else ""
    whose = f", user {conflict.user}" if conflict.user else ""
    yield from _lines(f"{conflict.id}  {conflict.status}{resolution}{error}{whose}")
    if conflict.proposed is not None:
        yield from _text(conflict.proposed, "  new: ")
    for memory, reason in zip(conflict.conflicting, conflict.reasons, strict=True):
        yield from _text(memory, "  old: ")
        if reason:
            yield from _lines(reason.strip(), "  why: ")
    for question in conflict.questions:
        answer = f"  {question.answer}" if question.answer is not None else f"  ({', '.join(question.options)})"
        yield from _lines(f"{question.question}{answer}", "  ")


def consolidation(result: ConsolidationReport) -> Iterator[str]:
    """The facts that were made, or would be, and what became of the turns."""
    for fact in result.facts:
        yield from _lines(fact)
    empty = f", {result.empty_batches} of {result.batches} batches gave none" if result.empty_batches else ""
    yield f"{len(result)} facts of {len(result.turn_ids)} turns, {result.turns_removed} turns removed{empty}"


def extractions(result: Iterable[ExtractionReport]) -> Iterator[str]:
    """What became of each session that was read."""
    for report in result:
        counts = [f"{len(report)} memories", f"{len(report.repeated)} known already", f"{len(report.ended)} ended"]
        counts += [f"{len(report.dropped)} dropped"] if report.dropped else []
        counts += [f"{report.mended} answers mended"] if report.mended else []
        counts += [f"{report.retried} asked again"] if report.retried else []
        yield f"{report.turns} turns, {report.calls} calls: {', '.join(counts)}"
        yield from (f"  {id_}" for id_ in report.memory_ids)


def settings(result: dict[str, Any]) -> Iterator[str]:
    """Settings as JSON, which import takes."""
    yield json.dumps(result, ensure_ascii=False, indent=2)


def groups(result: Session | User | Page[Session] | Page[User] | dict[str, object]) -> Iterator[str]:
    """Users or sessions, one a line; one of them with all that is known; or how much was deleted."""
    if isinstance(result, dict):
        yield from (f"{name}: {value}" for name, value in result.items())
    elif isinstance(result, Session | User):
        yield from (f"{name:<18}{_word(value)}" for name, value in asdict(result).items() if value is not None)
    else:
        yield from map(_group, result.items)
        if result.next_cursor is not None:
            yield f"more: --cursor {result.next_cursor}"


def _group(one: Session | User) -> str:
    last = "" if one.last_at is None else f", last {one.last_at:%Y-%m-%d %H:%M}"
    if isinstance(one, User):
        return visible(f"{one.user or '(without a name)'}: {one.sessions} sessions, {one.memories} memories{last}")
    owner = f" of {one.user}" if one.user else ""
    return visible(f"{one.session}{owner}: {one.turns} turns, {one.memories} memories{last}")


def undone(result: Undone) -> Iterator[str]:
    """Which call it was, and what it had touched."""
    yield f"{result.verb} of {result.at:%Y-%m-%d %H:%M:%S}"
    yield from (f"  {visible(id_)}" for id_ in result.ids)


def check(result: CheckReport) -> Iterator[str]:
    """What is wrong, one problem a line."""
    yield from map(visible, result.problems)
    if result.ok:
        yield "ok"


def visible(text: str) -> str:
    """`text` without control characters, which could move a terminal's cursor or hide what follows."""
    if text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if _controls(letter) else letter for letter in text)


def _controls(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc" and letter not in "\n\t"


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return str(_scalar(value))
    if isinstance(value, list | tuple):
        return ", ".join(map(_word, value))
    if isinstance(value, Mapping):
        return visible(json.dumps(dict(value), ensure_ascii=False))
    return visible(f"{value:,}" if isinstance(value, int) else str(value))
