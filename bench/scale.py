"""How sqlmem grows: what its verbs take, find and hold in stores of a thousand to a million memories.

    python bench/scale.py --data locomo10.json --rows 1000,10000,100000,1000000 --keep FOLDER
    python bench/scale.py --data locomo10.json --embedding --peer

Memories are made from LoCoMo's turns and the bundled model's vectors of them (scaling/corpus.py). One store holds them all
as one user's, in sessions of 200 and, from 10,000 on, one of 5,000. Verbs are given their vectors and the time of that is
taken out; figures are medians of CPU time, single-threaded, unless they say otherwise. Beside them stand floors of the same
run. A million rows take some 2.5 GB in FOLDER, and minutes to build the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
# Before numpy: floors and verbs alike on one core, so that CPU time is time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sqlmem
from bench.datasets import Conversation, load_locomo
from bench.peers.environment import default_cache, python_of
from bench.scaling import corpus, embedding, files, floors, processes, quality, report, verbs
from bench.scaling.layout import Files
from bench.scaling.prepared import Prepared, prepared, real_source
from bench.scaling.report import Column
from bench.scaling.timing import Sample
from bench.tables import _markdown as markdown

PEER = "vectrixdb"
FRESH_QUESTIONS = 5  # what a new process is asked before its memory is read
SLOW_FROM = 1_000_000  # from here on floors of half a second are repeated less often


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json, or the folder that holds it")
    parser.add_argument("--rows", default="1000,10000,100000", help="sizes, comma-separated")
    parser.add_argument("--keep", type=Path, help="keep corpus and stores here, and reuse them")
    parser.add_argument("--repeat", type=int, default=40, help="timed calls for each figure, at least 20")
    parser.add_argument("--processes", type=int, default=5, help="new processes for each figure of one")
    parser.add_argument("--embedding", action="store_true", help="only the embedder's own times, on the first turns")
    parser.add_argument("--turns", type=int, default=500, help="how many turns --embedding takes")
    parser.add_argument("--peer", action="store_true", help=f"with --embedding: {PEER}'s embedder as well")
    parser.add_argument("--peer-cache", type=Path, default=default_cache(), help="where its environment is kept")
    parser.add_argument("--json", type=Path, help="write every figure here")
    return parser.parse_args(argv)


def measure(built: files.Built, data: Files, embedder: Prepared, source: corpus.Source, options: argparse.Namespace) -> Column:
    """Every figure of one size."""
    rows, column = built.rows, Column(built.rows)
    held = corpus.matrix(data, rows)
    with sqlmem.open(built.path, embedder=embedder) as store:
        samples = verbs.reading(store, embedder, rows, source.questions, options.repeat)
        found = quality.measure(store, held, source.asked)
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-", dir=built.path.parent) as folder:
        scratch = Path(folder)
        samples |= verbs.writing(built.path, embedder, data, rows, scratch, options.repeat)
        samples |= beside(data, rows, scratch, source, options)
    fresh = processes.fresh(built.path, source.questions[:FRESH_QUESTIONS], options.processes)
    column.values = {name: sample.median for name, sample in samples.items()}
    column.p95 = {name: sample.p95 for name, sample in samples.items()}
    column.values |= {"gemv_gbs": held.nbytes / column.values["gemv"] / 1e6, "bytes": built.bytes / rows}
    column.values |= {"built": 1000 * built.wall_s / rows, "final": found.final, "top_1": found.top_1, "top_50": found.top_50}
    column.values |= {"candidates": 1.0 if found.candidates is None else found.candidates}
    column.values |= {"fresh_cpu": fresh.cpu, "fresh_wall": fresh.wall, "peak": fresh.peak, "resident": fresh.resident}
    column.values |= fresh.steps
    return column


def beside(data: Files, rows: int, scratch: Path, source: corpus.Source, options: argparse.Namespace) -> dict[str, Sample]:
    """The floors of one size."""
    few = 20 if rows >= SLOW_FROM else options.repeat
    return {
        "gemv": floors.gemv(corpus.matrix(data, rows), source.asked, few),
        "vec0": floors.vec0(data, rows, options.keep or scratch, source.asked, few),
        "bare": floors.bare_insert(data, rows, scratch, options.repeat),
        "embedding": floors.embedding(data, rows, options.repeat),
    }


def grow(conversations: Sequence[Conversation], folder: Path, options: argparse.Namespace) -> list[Column]:
    """Build and measure every size, the smallest first."""
    sizes = sorted(int(number) for number in options.rows.split(","))
    source = real_source(conversations, folder)
    data = corpus.write(source, folder, sizes[-1])
    embedder = prepared(data)
    columns = []
    for rows in sizes:
        began = time.perf_counter()
        built = files.build(data, embedder, folder, rows)
        columns.append(measure(built, data, embedder, source, options))
        if options.json:  # after each size: a long run that is stopped leaves what it has
            options.json.write_text(json.dumps([vars(column) for column in columns]), encoding="utf-8")
        print(f"{rows:,} rows measured in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return columns


def tables(columns: Sequence[Column]) -> str:
    """All tables, one below the other."""
    parts = [
        report.verdicts(columns),
        report.growth(columns, report.FIGURES),
        report.growth(columns, report.FLOORS),
        report.ratios(columns),
        report.percentiles(columns),
    ]
    return "\n\n".join(parts)


def embeddings(conversations: Sequence[Conversation], folder: Path, options: argparse.Namespace) -> str:
    """The embedders' table."""
    turns = [f"{turn.speaker}: {turn.stored_text}" for c in conversations for turn in c.turns][: options.turns]
    texts = folder / "turns.json"
    texts.write_text(json.dumps(turns), encoding="utf-8")
    systems = {"sqlmem": Path(sys.executable)}
    if options.peer:
        systems[PEER] = python_of(PEER, options.peer_cache)
    cores = {"1 core": 1, "all cores": None}
    # Core by core, so that whatever else the machine does falls on both systems alike.
    found = {
        (system, label): embedding.run(python, system, texts, threads=threads)
        for label, threads in cores.items()
        for system, python in systems.items()
    }
    return markdown([list(cells) for cells in embedding.rows(found)])


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the command line asks for and print it as Markdown."""
    options = parse_arguments(argv)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    conversations = load_locomo(options.data)
    system = f"sqlmem {sqlmem.__version__}, Python {platform.python_version()}, {platform.machine()}"
    print(f"{system}, {time.strftime('%Y-%m-%d')}\n")
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as scratch:
        folder = options.keep or Path(scratch)
        if options.embedding:
            print(embeddings(conversations, folder, options))
            return
        columns = grow(conversations, folder, options)
    print(tables(columns))


if __name__ == "__main__":
    main()
