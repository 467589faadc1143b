"""Stores LoCoMo's turns with a system's own model: one at a time, and in bulk. Runs in that system's environment."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.scaling.timing import once, timed

Turn = tuple[str, str, str]  # conversation, speaker, text


def sqlmem_verbs(folder: Path) -> tuple[Callable[[Turn], Any], Callable[[Sequence[Turn]], Any]]:
    """remember() and remember_many() of one file."""
    import sqlmem

    store = sqlmem.open(folder / "memory.db")

    def remember(turn: Turn) -> None:
        store.remember(turn[2], user=turn[0], session="alone", role=turn[1])

    def remember_many(turns: Sequence[Turn]) -> None:
        store.remember_many([{"text": text, "user": user, "session": "s", "role": role} for user, role, text in turns])

    return remember, remember_many


def vectrixdb_verbs(folder: Path) -> tuple[Callable[[Turn], Any], Callable[[Sequence[Turn]], Any]]:
    """remember() and a bulk add() of one collection in hybrid mode."""
    import onnxruntime  # type: ignore[import-untyped]  # noqa: F401 - first: loading usearch before it kills the process
    from vectrixdb import Vectrix  # type: ignore[import-not-found]

    db = Vectrix("c0", path=str(folder), mode="hybrid", embedding_cache=False)

    def remember(turn: Turn) -> None:
        db.remember(f"{turn[1]}: {turn[2]}", session=f"{turn[0]} alone", role=turn[1])

    def add(turns: Sequence[Turn]) -> None:
        metadata = [
            {"_vx_kind": "turn", "_vx_session": user, "_vx_role": role, "_vx_turn": place}
            for place, (user, role, _) in enumerate(turns)
        ]
        ids = [str(place) for place in range(len(turns))]
        db.add([f"{role}: {text}" for _, role, text in turns], ids=ids, metadata=metadata, progress=False)

    return remember, add


def main() -> None:
    """Print one JSON object: [CPU, clock] in ms a turn, alone (median) and in bulk (mean)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", choices=("sqlmem", "vectrixdb"), required=True)
    parser.add_argument("--turns", type=Path, required=True)
    parser.add_argument("--alone", type=int, required=True)
    options = parser.parse_args()
    turns: list[Turn] = [tuple(turn) for turn in json.loads(options.turns.read_text(encoding="utf-8"))]
    verbs = sqlmem_verbs if options.system == "sqlmem" else vectrixdb_verbs
    with (
        tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as one,
        tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as other,
    ):
        remember, _ = verbs(Path(one))
        _, in_bulk = verbs(Path(other))
        singly = timed([partial(remember, turn) for turn in turns[: options.alone]])
        bulk = once(partial(in_bulk, turns))
    found = {"alone": [singly.median, singly.median_wall], "bulk": [t / len(turns) for t in (bulk.median, bulk.median_wall)]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
