"""What one turn's embedding takes, alone and in bulk, with one thread and with all. Each setting in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("embed_probe.py")
ALONE = 100


def run(python: Path, system: str, texts: Path, *, threads: int | None) -> dict[str, Any]:
    """One system's times per turn in ms, run by `python` on the texts of the JSON file `texts`."""
    command = [str(python), str(SCRIPT), "--system", system, "--texts", str(texts), "--alone", str(ALONE)]
    limits = {} if threads is None else {"OMP_NUM_THREADS": str(threads), "SQLMEM_BENCH_CORES": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **limits})
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def rows(answers: Mapping[tuple[str, str], Mapping[str, float]]) -> Sequence[Sequence[str]]:
    """A Markdown table's cells, by (system, cores)."""
    heads = ["ms a turn", "alone, CPU", "alone, clock", "bulk, CPU", "bulk, clock"]
    keys = ("alone_cpu", "alone_wall", "bulk_cpu", "bulk_wall")
    return [heads, *([f"{system}, {cores}", *(f"{found[k]:.1f}" for k in keys)] for (system, cores), found in answers.items())]
