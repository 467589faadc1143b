"""The same vectors and texts in sqlmem and in other embedded stores: how long they take, and how that grows.

    python bench/peers/compare.py --data locomo10.json --rows 1000,10000,100000 --keep FOLDER
    python bench/peers/compare.py --data locomo10.json --turns

Memories are those of bench/scale.py. Every system runs in processes and an environment of its own, on one core, with its
defaults; what it calls durable stands at the head of its script here. `--turns` stores LoCoMo's turns themselves, models
included. Nothing is downloaded but the systems, from PyPI.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import sqlmem
from bench.datasets import Conversation, load_locomo
from bench.peers import contest, environment, side_by_side
from bench.scaling import corpus, quality
from bench.scaling.layout import Files
from bench.scaling.prepared import real_source


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    systems = (contest.OURS, *environment.STORES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json, or the folder that holds it")
    parser.add_argument("--rows", default="1000,10000,100000", help="sizes, comma-separated")
    parser.add_argument("--systems", default=",".join(systems), help="which, comma-separated; default: all")
    parser.add_argument("--time-limit", type=float, default=900, help="seconds for each system and size, default 900")
    parser.add_argument("--keep", type=Path, help="keep the corpus here, and reuse it")
    parser.add_argument("--peer-cache", type=Path, default=environment.default_cache(), help="where environments are kept")
    parser.add_argument("--turns", action="store_true", help="LoCoMo's own turns with each system's model instead")
    parser.add_argument("--alone", type=int, default=300, help="with --turns: how many are stored one at a time")
    parser.add_argument("--one-core", action="store_true", help="with --turns: on one core instead of all")
    parser.add_argument("--json", type=Path, help="write every figure here")
    options = parser.parse_args(argv)
    unknown = set(options.systems.split(",")) - set(systems)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(systems)}")
    return options


def compete(conversations: Sequence[Conversation], folder: Path, options: argparse.Namespace) -> list[side_by_side.Size]:
    """Every system at every size; the smallest size first, so that a run which is stopped has compared something."""
    sizes = sorted(int(number) for number in options.rows.split(","))
    source = real_source(conversations, folder)
    files = corpus.write(source, folder, sizes[-1])
    systems = options.systems.split(",")
    found = []
    for rows in sizes:
        exact, _ = quality.exact_top(corpus.matrix(files, rows), source.asked, contest.DEPTH)
        size = side_by_side.Size(rows, {system: one(system, files, rows, options) for system in systems})
        for system, figures in size.systems.items():
            # Our order counts more than the cosine; what its candidates hold of the exact top is measured by scale.py.
            if system != contest.OURS and "found" in figures:
                figures["exact"] = contest.exactness(figures["found"], exact)
        found.append(size)
        if options.json:
            options.json.write_text(json.dumps([vars(size) for size in found]), encoding="utf-8")
    return found


def one(system: str, files: Files, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """One system's figures at one size."""
    python = Path(sys.executable) if system == contest.OURS else environment.python_of(system, options.peer_cache)
    began = time.perf_counter()
    figures = contest.run(system, python, files, rows, options.time_limit)
    state = figures.get("failed", "done")
    print(f"{system}, {rows:,} rows: {state}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the command line asks for and print it as Markdown."""
    options = parse_arguments(argv)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    conversations = load_locomo(options.data)
    versions = ", ".join(f"{name} {version}" for name, version in environment.STORES.items())
    print(f"sqlmem {sqlmem.__version__}, {versions}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as scratch:
        folder = options.keep or Path(scratch)
        if options.turns:
            print(contest.store_turns(conversations, folder, options.alone, options.peer_cache, one_core=options.one_core))
            return
        found = compete(conversations, folder, options)
    print(side_by_side.report(found))


if __name__ == "__main__":
    main()
