"""Several systems' figures as Markdown: a table for each size, how they grow, ours over theirs, and where we are beaten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.peers.contest import OURS, OVER
from bench.tables import _markdown as markdown

Figures = dict[str, Any]

# key, label, scale, digits
TIMES = (
    ("bulk", "bulk insert, µs a row", 1000, 0),
    ("single", "one durable insert, ms", 1, 2),
    ("search", "top 10 by vector, ms", 1, 2),
    ("session", "top 10 in a session of 200, ms", 1, 2),
    ("recall", "by words and vector, ms", 1, 2),
    ("first", "new process to first answer, ms", 1, 0),
)
SIZES = (
    ("bytes", "bytes a memory", 0),
    ("fill_peak", "peak memory while filling, MB", 0),
    ("ask_peak", "peak memory while asking, MB", 0),
    ("exact", "share of the exact top 10", 3),
)
_LESS_IS_BETTER = ("bytes", "fill_peak", "ask_peak")


@dataclass
class Size:
    """All systems' figures at one size. Times are [CPU, clock] in ms."""

    rows: int
    systems: dict[str, Figures]


def report(sizes: Sequence[Size]) -> str:
    """All tables, one below the other."""
    parts = [f"### {size.rows:,} memories, CPU / clock\n\n{of_size(size)}" for size in sizes]
    if len(sizes) > 1:
        parts.append(f"### Growth from {sizes[0].rows:,} to {sizes[-1].rows:,} memories, times\n\n{growth(sizes)}")
    parts += [f"### {OURS} over the others at {size.rows:,}, CPU\n\n{ratios(size)}" for size in sizes]
    lost = [f"- {line}" for size in sizes for line in beaten(size)]
    parts.append("### Where another system is better\n\n" + ("\n".join(lost) or "Nowhere."))
    notes = [f"- {s}, {size.rows:,}: {f['failed']}" for size in sizes for s, f in size.systems.items() if "failed" in f]
    return "\n\n".join([*parts, *(["### Not finished\n\n" + "\n".join(notes)] if notes else [])])


def of_size(size: Size) -> str:
    """Every figure of every system."""
    table = [["", *size.systems]]
    for key, label, scale, digits in TIMES:
        table.append([label, *(_times(f, key, scale, digits) for f in size.systems.values())])
    for key, label, digits in SIZES:
        table.append([label, *(_number(f, key, digits) for f in size.systems.values())])
    return markdown(table)


def growth(sizes: Sequence[Size]) -> str:
    """What each CPU time became from the smallest size to the largest, as a factor."""
    small, large = sizes[0].systems, sizes[-1].systems
    table = [["", *large]]
    for key, label, *_ in TIMES:
        table.append([label, *(_factor(large[system], small[system], key) for system in large)])
    return markdown(table)


def ratios(size: Size) -> str:
    """Our figure over each other system's: below 1 is better."""
    others = [system for system in size.systems if system != OURS]
    ours = size.systems.get(OURS, {})
    table = [["", *others]]
    for key, label, *_ in (*TIMES, *SIZES[:3]):
        table.append([label, *(_factor(ours, size.systems[system], key) for system in others)])
    return markdown(table)


def beaten(size: Size) -> Iterator[str]:
    """What another system does in less."""
    ours = size.systems.get(OURS, {})
    labels = {key: label for key, label, *_ in (*TIMES, *SIZES)}
    for key in (*(time[0] for time in TIMES), *_LESS_IS_BETTER):
        for system, figures in size.systems.items():
            if system != OURS and key in figures and key in ours and _value(figures, key) < _value(ours, key):
                share = _value(ours, key) / _value(figures, key)
                yield f"{size.rows:,}: {labels[key]}: {system} ({share:.2f} of theirs)"


def _value(figures: Figures, key: str) -> float:
    """A time's CPU part, or the number itself."""
    value = figures[key]
    return float(value[0] if isinstance(value, list) else value)


def _times(figures: Figures, key: str, scale: float, digits: int) -> str:
    if key not in figures:
        return _absent(figures, key)
    cpu, wall = figures[key]
    return f"{cpu * scale:,.{digits}f} / {wall * scale:,.{digits}f}"


def _number(figures: Figures, key: str, digits: int) -> str:
    return f"{figures[key]:,.{digits}f}" if key in figures else _absent(figures, key)


def _absent(figures: Figures, key: str) -> str:
    """Why a figure is missing: it was not reached, or the system has no such thing."""
    failed = str(figures.get("failed", ""))
    return OVER if failed == OVER else "failed" if failed else "-"


def _factor(above: Figures, below: Figures, key: str) -> str:
    if key not in above or key not in below:
        return "-"
    return f"{_value(above, key) / max(_value(below, key), 1e-9):.2f}"
