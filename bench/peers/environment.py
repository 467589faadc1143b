"""Another system in an environment of its own, outside the project and its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VERSIONS = {"vectrixdb": "2.2.0"}
"""Those that are asked LoCoMo's questions."""

STORES = {
    **VERSIONS,
    "chromadb": "1.5.9",
    "lancedb": "0.40.0",
    "langgraph-checkpoint-sqlite": "3.1.2",
    "sqlite-vec": "0.1.9",
}
"""Those that are compared as stores of given vectors."""

# Not every system brings numpy; Python's own sqlite3 is in many builds unable to load an extension.
_BESIDE = {"langgraph-checkpoint-sqlite": ("pysqlite3-binary==0.5.4.post2",), "sqlite-vec": ("apsw==3.54.1.0",)}


def default_cache() -> Path:
    """Where the environments are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    return Path(base) / "sqlmem-bench"


def python_of(peer: str, cache: Path) -> Path:
    """The interpreter of the peer's environment, created and filled with pip the first time."""
    folder = cache / f"{peer}-{STORES[peer]}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = folder / "installed"  # written last: an installation that was cut short is begun again
    if not done.exists():
        packages = [f"{peer}=={STORES[peer]}", "numpy", *_BESIDE.get(peer, ())]
        print(f"Installing {' '.join(packages)} into {folder} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        done.touch()
    return python


def run_peer(peer: str, cache: Path, out: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """The peer's answers: those in `out` if it exists, else from `bench/peers/<peer>_locomo.py` run now.

    One thread: its int8 vectors depend on how the texts are batched, and two systems are compared on one core.
    """
    if not out.exists():
        script = Path(__file__).with_name(f"{peer}_locomo.py")
        one_thread = {"OMP_NUM_THREADS": "1", "VECTRIXDB_BUILD_THREADS": "1"}
        command = [str(python_of(peer, cache)), str(script), "--out", str(out), *arguments]
        subprocess.run(command, check=True, env={**os.environ, **one_thread})
    answers: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return answers
