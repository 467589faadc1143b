"""One system filled with given vectors and asked, in a process of its own. Standard library only.

Each `<system>_scale.py` is a `Store` and a call of `main`. A run has three processes: `fill` (bulk insert, then close),
`ask` (searches, then single inserts, on the filled folder), `first` (from the start of the process to one answer). Results
are written after each measure, so that a run which is cut short leaves what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.scaling.layout import Files, Row, peak_mb, probe_sessions
from bench.scaling.timing import WARM_UP, Sample, once, timed

LIMIT = 10
BATCH = 5_000  # about the most that every system takes at once
ASKED = 40
SINGLE = 50


class Store(Protocol):
    """A system under test. Answers are the places of rows, best first."""

    def fill(self, rows: Sequence[Row]) -> None:
        """Store a batch of a bulk insert."""

    def finish(self) -> None:
        """End the bulk insert: whatever it needs to be durable and quick to search."""

    def add(self, row: Row) -> None:
        """Store one row durably."""

    def search(self, text: str, vector: bytes) -> list[int]:
        """The nearest by vector."""

    def search_session(self, text: str, vector: bytes, session: str) -> list[int]:
        """The nearest by vector, or the system's own recall, in one session."""

    def recall(self, text: str, vector: bytes) -> list[int] | None:
        """By words and vector together; None where the system has no such search."""

    def close(self) -> None:
        """Release the folder."""


Opener = Callable[[Path, Files], Store]


class Results:
    """A JSON file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def put(self, **values: Any) -> None:
        """Add these and write the file."""
        self._held |= values
        self._path.write_text(json.dumps(self._held), encoding="utf-8")

    def sample(self, name: str, sample: Sample, scale: float = 1.0) -> None:
        """Add a sample's medians as [CPU, clock], in ms times `scale`."""
        self.put(**{name: [sample.median * scale, sample.median_wall * scale]})


def main(opener: Opener) -> None:
    """Run one phase as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("fill", "ask", "first"), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="the system's own")
    parser.add_argument("--corpus", required=True, help="vectors, texts and questions: three paths as JSON")
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--started", type=float, required=True, help="when the process was started, Unix time")
    options = parser.parse_args()
    vectors, texts, questions = (Path(path) for path in json.loads(options.corpus))
    files = Files(vectors, texts, questions, options.dim)
    results = Results(options.out)
    if options.phase == "fill":
        _fill(opener, files, options, results)
    elif options.phase == "ask":
        _ask(opener, files, options, results)
    else:
        _first(opener, files, options, results)


def _fill(opener: Opener, files: Files, options: argparse.Namespace, results: Results) -> None:
    store = opener(options.folder, files)
    parts = [once(partial(store.fill, batch)) for batch in files.batches(options.rows, BATCH)]
    parts.append(once(store.finish))
    parts.append(once(store.close))  # some write only now
    cpu, wall = (sum(total) / options.rows for total in zip(*((p.median, p.median_wall) for p in parts), strict=True))
    results.put(bulk=[cpu, wall], fill_peak=peak_mb(), bytes=_size(options.folder) / options.rows)


def _ask(opener: Opener, files: Files, options: argparse.Namespace, results: Results) -> None:
    store = opener(options.folder, files)
    # No question twice: a system that keeps its answers would only be timed giving them again.
    near, within, both = (
        files.asked()[start : start + ASKED + WARM_UP] for start in range(0, 3 * (ASKED + WARM_UP), ASKED + WARM_UP)
    )
    found: list[list[int]] = []
    results.sample("search", timed([partial(_note, found, store.search, *q) for q in near]))
    results.put(found=found)
    sessions = probe_sessions(options.rows, len(within))
    calls = [partial(store.search_session, *q, s) for q, s in zip(within, sessions, strict=True)]
    results.sample("session", timed(calls))
    if store.recall(*both[0]) is not None:
        results.sample("recall", timed([partial(store.recall, *q) for q in both[1:]]))
    results.put(ask_peak=peak_mb())
    new = [
        Row(options.rows + number, f"{row.text} Once more.", row.role, "new", row.vector)
        for number, row in enumerate(files.rows(options.rows, 0, SINGLE + WARM_UP))
    ]
    results.sample("single", timed([partial(store.add, row) for row in new]))
    store.close()


def _first(opener: Opener, files: Files, options: argparse.Namespace, results: Results) -> None:
    asked = files.asked()[-1]
    store = opener(options.folder, files)
    store.search(*asked)
    results.put(first=[time.process_time() * 1000, (time.time() - options.started) * 1000])
    store.close()


def _note(found: list[list[int]], search: Callable[[str, bytes], list[int]], text: str, vector: bytes) -> None:
    found.append(search(text, vector))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in _files(folder))


def _files(folder: Path) -> Iterable[Path]:
    return (Path(base) / name for base, _, names in os.walk(folder) for name in names)
