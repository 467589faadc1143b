"""What must not happen to a memory, tried on sqlmem and on VectrixDB: a store fails a bar, or it holds it.

    python bench/peers/bars.py

The same calls to both, with each one's own model, in processes and environments of their own; VectrixDB comes from PyPI.
The exit code is 1 if sqlmem fails one.
"""

from __future__ import annotations

# ruff: noqa: I001
# First: loading usearch's index before it kills the process.
import onnxruntime  # type: ignore[import-untyped]  # noqa: F401

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

LONG_AGO = datetime.now(UTC) - timedelta(days=40)

Bar = Callable[[Any], tuple[bool, str]]
"""From an empty store to whether the bar was held, and what was seen."""


def _behind_superseded(store: Any) -> tuple[bool, str]:
    newest = store.remember("The locker code of Ana is 1000", session="s", kind="fact")
    for number in range(1001, 1046):
        newest = store.feedback(newest, "corrected", f"The locker code of Ana is {number}")
    found = [memory.text for memory in store.recall("What is the locker code of Ana?", session="s")]
    return "The locker code of Ana is 1045" in found, f"{len(found)} recalled"


def _behind_expired(store: Any) -> tuple[bool, str]:
    for number in range(60):
        text = f"The ferry to the island leaves at pier {number}"
        store.remember(text, session="s", kind="fact", timestamp=LONG_AGO, ttl_days=1)
    store.remember("The ferry to the island leaves at pier 99", session="s", kind="fact")
    found = [memory.text for memory in store.recall("Where does the ferry to the island leave?", session="s")]
    return found == ["The ferry to the island leaves at pier 99"], f"{len(found)} recalled"


def _beside_a_large_one(store: Any) -> tuple[bool, str]:
    store.remember("The boiler is old. How old is the boiler? It is twenty. " * 12, session="s", kind="fact")
    store.remember("The boiler is from 1998", session="s", kind="fact")
    block = store.context("How old is the boiler?", session="s", token_budget=60)
    return "The boiler is from 1998" in block.text, f"{len(block.retrieved)} in the block"


def _contradicted_pin(store: Any) -> tuple[bool, str]:
    store.remember("Ana is allergic to nuts", session="s", pinned=True)
    store.remember("Ana is allergic to nuts and to milk", session="s", kind="fact")
    pinned = [memory.text for memory in store.context("dinner", session="s").pinned]
    return pinned == ["Ana is allergic to nuts and to milk"], f"{len(pinned)} pinned"


def _summary_of_nothing(store: Any) -> tuple[bool, str]:
    _conversation(store)
    store.consolidate("s", lambda turns: [], keep_recent=0)
    return len(_turns(store)) == 4, f"{len(_turns(store))} of 4 turns left"


def _summary_as_a_string(store: Any) -> tuple[bool, str]:
    _conversation(store)
    try:
        store.consolidate("s", lambda turns: "ab", keep_recent=0)
        said = "accepted"
    except Exception as error:  # noqa: BLE001 - whatever it is, the store refused
        said = f"{type(error).__name__}"
    facts = [memory.text for memory in store.recall("a b", session="s", kinds=("fact",))]
    return not facts and len(_turns(store)) == 4, f"{said}; facts {facts}, {len(_turns(store))} of 4 turns left"


def _estimate(store: Any) -> tuple[bool, str]:
    for number in range(6):
        store.remember(f"Note {number}: the garden gate is green", session="s", pinned=number == 0)
    block = store.context("the garden gate", session="s")
    real = -(-len(block.text) // 4)
    return block.token_estimate == real, f"says {block.token_estimate}, is {real}"


BARS: dict[str, Bar] = {
    "a live fact is found behind 45 superseded versions": _behind_superseded,
    "a live match is found behind 60 expired ones": _behind_expired,
    "a small memory is printed beside one that is too large": _beside_a_large_one,
    "a pin stays a pin when a fact contradicts it": _contradicted_pin,
    "a summarizer that returns [] loses no turn": _summary_of_nothing,
    "a summarizer that returns a string makes no facts of its letters": _summary_as_a_string,
    "token_estimate is the size of the text (four characters a token)": _estimate,
}


def _conversation(store: Any) -> None:
    for number in range(4):
        store.remember(f"We talked about plan {number}", session="s")


def _turns(store: Any) -> list[Any]:
    found: list[Any] = getattr(store, "memory", store).turns("s")
    return found


def _open(system: str, folder: str, *, judged: bool) -> Any:
    judge = (lambda new, known: [True] * len(known)) if judged else None
    if system == "sqlmem":
        import sqlmem

        return sqlmem.open(Path(folder) / "bar.db", judge=judge)
    from vectrixdb import Vectrix  # type: ignore[import-not-found]

    store = Vectrix("bar", path=folder, token_counter=lambda text: -(-len(text) // 4))
    store.memory.judge = judge
    return store


def _run(system: str) -> None:
    for name, bar in BARS.items():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            store = _open(system, folder, judged=bar is _contradicted_pin)
            held, seen = bar(store)
            print(json.dumps({"bar": name, "held": held, "seen": seen}), flush=True)
            store.close()


def _asked(python: str | Path, system: str) -> list[dict[str, Any]]:
    command = [str(python), __file__, "--system", system]
    answered = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    return [json.loads(line) for line in answered.stdout.splitlines() if line.startswith("{")]


def main() -> int:
    """Print a table of both."""
    from bench.peers import environment

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=["sqlmem", "vectrixdb"], help="try this one alone, and print JSON")
    parser.add_argument("--peer-cache", type=Path, default=environment.default_cache(), help="where environments are kept")
    options = parser.parse_args()
    if options.system:
        _run(options.system)
        return 0
    ours = _asked(sys.executable, "sqlmem")
    theirs = _asked(environment.python_of("vectrixdb", options.peer_cache), "vectrixdb")
    print(f"| bar | sqlmem | VectrixDB {environment.VERSIONS['vectrixdb']} |\n|---|---|---|")
    for own, other in zip(ours, theirs, strict=True):
        cells = [f"{'held' if one['held'] else 'failed'}: {one['seen']}" for one in (own, other)]
        print(f"| {own['bar']} | {cells[0]} | {cells[1]} |")
    return 0 if all(own["held"] for own in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
