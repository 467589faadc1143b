"""Figures as Markdown: a column for each size, the bars that they are held against, and the floors beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.scaling.layout import LONG_FROM
from bench.tables import _markdown as markdown


@dataclass(frozen=True)
class Figure:
    """A row of the tables: its key, what it is called, and how many digits it is printed with."""

    key: str
    label: str
    digits: int = 2


@dataclass
class Column:
    """All figures of one size: medians, and 95th percentiles where there are any."""

    rows: int
    values: dict[str, float] = field(default_factory=dict)
    p95: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Bar:
    """What a figure must not exceed (`most`), or fall below, in a store of `rows` memories.

    None: in any of 10,000 or more; in small files SQLite's empty pages are most of a memory's bytes.
    """

    key: str
    rows: int | None
    limit: float
    most: bool = True

    def concerns(self, column: Column) -> bool:
        """Whether the column's size is one that this is about, and the figure was measured."""
        fits = column.rows >= LONG_FROM if self.rows is None else column.rows == self.rows
        return fits and self.key in column.values

    def holds(self, value: float) -> bool:
        """Whether `value` keeps to it."""
        return value <= self.limit if self.most else value >= self.limit

    def __str__(self) -> str:
        where = "" if self.rows is None else f" at {size(self.rows)}"
        return f"{'≤' if self.most else '≥'} {self.limit:,g}{where}"


FIGURES = (
    Figure("session", "recall() in a session of 200, ms"),
    Figure("scope", "recall() over all, ms", 1),
    Figure("context", "context() of 1,500 tokens in a session of 5,000, ms", 1),
    Figure("remember", "remember(), ms"),
    Figure("many", "remember_many(), ms a row", 3),
    Figure("built", "building the store, ms a row, clock", 3),
    Figure("bytes", "bytes a memory, closed file", 0),
    Figure("candidates", "of the exact top 50 among the candidates", 4),
    Figure("final", "of the exact top 50 in the search's 50", 4),
    Figure("fresh_cpu", "new process to first answer, CPU ms", 0),
    Figure("interpreter", "… of that: interpreter", 0),
    Figure("import", "… import sqlmem", 0),
    Figure("open", "… open", 1),
    Figure("model", "… model load and first embedding", 0),
    Figure("first recall", "… first recall", 0),
    Figure("fresh_wall", "the same on the clock, ms", 0),
    Figure("peak", "peak memory of that process, MB", 0),
    Figure("resident", "its memory after five questions, MB", 0),
)
FLOORS = (
    Figure("gemv", "numpy float32 product, ms", 1),
    Figure("gemv_gbs", "… GB/s", 1),
    Figure("vec0", "sqlite-vec float32, k = 50, ms", 1),
    Figure("bare", "bare INSERT of text and code, ms", 3),
    Figure("embedding", "embedding one turn, ms", 1),
    Figure("top_1", "cosine of a question's nearest row", 3),
    Figure("top_50", "cosine of its 50th", 3),
)
BARS = (
    Bar("session", 1_000_000, 3.0),
    Bar("scope", 100_000, 15.0),
    Bar("candidates", 100_000, 0.985, most=False),
    Bar("scope", 1_000_000, 90.0),
    Bar("candidates", 1_000_000, 0.96, most=False),
    Bar("remember", 100_000, 0.5),
    Bar("remember", 1_000_000, 0.8),
    Bar("context", None, 10.0),
    Bar("bytes", None, 1_300.0),
    Bar("fresh_cpu", 100_000, 600.0),
    Bar("import", None, 50.0),
    Bar("peak", 100_000, 250.0),
)
RATIOS = (
    ("scope", "gemv", "recall() over all / numpy's product"),
    ("scope", "vec0", "recall() over all / sqlite-vec"),
    ("session", "gemv", "recall() in a session / numpy's product over all"),
    ("remember", "bare", "remember() / bare INSERT"),
    ("remember", "embedding", "remember() / embedding it"),
    ("many", "embedding", "remember_many() a row / embedding it"),
)


def size(rows: int) -> str:
    """1000 as "1,000"."""
    return f"{rows:,}"


def growth(columns: Sequence[Column], figures: Sequence[Figure]) -> str:
    """The figures by size, with the bars of each."""
    table = [["median", *(size(column.rows) for column in columns), "bar"]]
    for figure in figures:
        if any(figure.key in column.values for column in columns):
            bars = "; ".join(str(bar) for bar in BARS if bar.key == figure.key)
            table.append([figure.label, *(_cell(c.values, figure) for c in columns), bars])
    return markdown(table)


def percentiles(columns: Sequence[Column]) -> str:
    """The 95th percentiles."""
    measured = [f for f in (*FIGURES, *FLOORS) if any(f.key in column.p95 for column in columns)]
    table = [["95th percentile", *(size(column.rows) for column in columns)]]
    table += [[figure.label, *(_cell(c.p95, figure) for c in columns)] for figure in measured]
    return markdown(table)


def ratios(columns: Sequence[Column]) -> str:
    """Ours over the floors of the same run."""
    table = [["ratio", *(size(column.rows) for column in columns)]]
    for ours, floor, label in RATIOS:
        cells = [_ratio(column.values, ours, floor) for column in columns]
        table.append([label, *cells])
    return markdown(table)


def verdicts(columns: Sequence[Column]) -> str:
    """Each bar with what was measured, where a store of that size was."""
    table = [["bar", "memories", "limit", "measured", "kept"]]
    labels = {figure.key: figure for figure in FIGURES}
    for bar in BARS:
        figure = labels[bar.key]
        where = [column for column in columns if bar.concerns(column)]
        for column in where:
            value = column.values[bar.key]
            sign = "≤" if bar.most else "≥"
            limit = f"{sign} {bar.limit:,g}"
            table.append([figure.label, size(column.rows), limit, _cell(column.values, figure), _word(bar.holds(value))])
        if not where:
            table.append(
                [figure.label, "any" if bar.rows is None else size(bar.rows), str(bar).split(" at ")[0], "-", "not measured"]
            )
    return markdown(table)


def missed(columns: Iterable[Column]) -> list[tuple[Bar, Column]]:
    """The bars that were not kept, and where."""
    return [
        (bar, column) for column in columns for bar in BARS if bar.concerns(column) and not bar.holds(column.values[bar.key])
    ]


def _word(kept: bool) -> str:
    return "yes" if kept else "**no**"


def _cell(values: Mapping[str, float], figure: Figure) -> str:
    return f"{values[figure.key]:,.{figure.digits}f}" if figure.key in values else "-"


def _ratio(values: Mapping[str, float], ours: str, floor: str) -> str:
    return f"{values[ours] / values[floor]:.2f}" if ours in values and floor in values else "-"
