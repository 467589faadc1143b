"""Which session a row belongs to, and how a corpus is read back from its files. Standard library only.

Also used by the peers' scripts, which run in environments that hold neither sqlmem nor, some of them, numpy.
"""

from __future__ import annotations

import array
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

USER = "u"
SESSION_ROWS = 200
LONG = "long"
LONG_ROWS = 5_000
# From here on a store also holds one session of 5,000 turns.
LONG_FROM = 10_000
# So many sessions grow at the same time, turn by turn, as they do in a service: a session's rows do not lie side by side.
_AT_ONCE = 5


@dataclass(frozen=True)
class Row:
    """One memory: what was said by whom, in which session. `vector` is float32[dim] as bytes."""

    place: int
    text: str
    role: str
    session: str
    vector: bytes

    @property
    def spoken(self) -> str:
        """The text that the vector stands for, as systems without roles get it."""
        return f"{self.role}: {self.text}"

    @property
    def numbers(self) -> array.array[float]:
        """The vector's numbers."""
        return array.array("f", self.vector)


def session_of(place: int, rows: int) -> str:
    """The session of the row at `place` in a store of `rows` rows."""
    if rows >= LONG_FROM:
        if place < LONG_ROWS:
            return LONG
        place -= LONG_ROWS
    group, within = divmod(place, _AT_ONCE * SESSION_ROWS)
    return f"s{group * _AT_ONCE + within % _AT_ONCE}"


def probe_sessions(rows: int, count: int) -> list[str]:
    """`count` sessions of 200 rows from all over the store; the same one several times where there are fewer."""
    left = rows - LONG_ROWS if rows >= LONG_FROM else rows
    full = left // (_AT_ONCE * SESSION_ROWS) * _AT_ONCE
    if full == 0:
        return [session_of(rows - 1, rows)] * count
    return [f"s{number * full // count}" for number in range(count)]


@dataclass(frozen=True)
class Files:
    """A corpus on disk: float32 vectors without a header, one JSON object a line for the texts, and the questions."""

    vectors: Path
    texts: Path
    questions: Path
    dim: int

    def rows(self, total: int, start: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Rows `start` to `stop` (default: `total`) of a store of `total` rows, read as they are needed."""
        size = 4 * self.dim
        stop = total if stop is None else stop
        with self.vectors.open("rb") as vectors, self.texts.open(encoding="utf-8") as texts:
            vectors.seek(start * size)
            for place, line in enumerate(islice(texts, start, stop), start):
                said = json.loads(line)
                yield Row(place, said["text"], said["role"], session_of(place, total), vectors.read(size))

    def batches(self, total: int, size: int, start: int = 0, stop: int | None = None) -> Iterator[list[Row]]:
        """The same rows, `size` at a time."""
        rows = self.rows(total, start, stop)
        while batch := list(islice(rows, size)):
            yield batch

    def asked(self) -> list[tuple[str, bytes]]:
        """The questions and their vectors."""
        return [(q["text"], array.array("f", q["vector"]).tobytes()) for q in json.loads(self.questions.read_text("utf-8"))]


def peak_mb() -> float:
    """The most memory that this process held so far, in MB."""
    return _status("VmHWM")


def resident_mb() -> float:
    """The memory that this process holds now, in MB; off Linux the most that it held."""
    return _status("VmRSS")


def _status(field: str) -> float:
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: there a new process begins with the peak of the one that started it.
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024
    import resource

    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
