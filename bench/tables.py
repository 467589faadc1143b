"""Results as Markdown tables: a column per setting, a row per group of questions, then what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from bench.datasets import Conversation
from bench.scoring import Answer, Column, Measure, ceiling, groups, mean, recalls

COSTS: tuple[tuple[str, Callable[[Answer], float], int], ...] = (
    ("tokens in the block, whole text", lambda a: a.tokens, 0),
    ("tokens by the system's own count", lambda a: a.own_tokens, 0),
    ("turns shown", lambda a: len(a.refs), 1),
    ("ms a question, clock", lambda a: a.wall_ms, 1),
    ("… beyond embedding it", lambda a: a.wall_ms - a.embed_wall_ms, 1),
    ("ms a question, CPU", lambda a: a.cpu_ms, 1),
    ("… beyond embedding it", lambda a: a.cpu_ms - a.embed_cpu_ms, 1),
)


def table(conversations: Sequence[Conversation], columns: Sequence[Column], measures: Sequence[Measure]) -> str:
    """All measures' rows, and the costs over all questions."""
    rows = [["", "n", *(column.label for column in columns)]]
    for measure in measures:
        rows += _recall_rows(conversations, columns, measure)
    for label, value, digits in COSTS:
        rows.append([label, "", *(_number(mean(map(value, c.answers)), digits) for c in columns)])
    return _markdown(rows)


def _recall_rows(conversations: Sequence[Conversation], columns: Sequence[Column], measure: Measure) -> Iterable[list[str]]:
    scores = [recalls(column.answers, measure.gold, measure.convert) for column in columns]
    for label, refs in groups(conversations, measure.gold):
        if not measure.detail and label not in ("all", "tune", "test"):
            continue
        values = [mean(score[ref] for ref in refs if ref in score) for score in scores]
        yield [f"{label}, {measure.name}" if measure.name else label, str(len(refs)), *(_number(v, 4) for v in values)]


def ceiling_line(conversations: Sequence[Conversation], measure: Measure) -> str:
    """What showing everything would score."""
    return f"Ceiling ({len(measure.gold)} questions): {ceiling(conversations, measure):.4f}"


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def _markdown(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(_pad(cell, widths[i], i) for i, cell in enumerate(row)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if i == 0 else ":") for i, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)
