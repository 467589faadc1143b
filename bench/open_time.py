"""What a new process pays until its first answer, and what `import sqlmem` costs. Each figure from fresh interpreters.

    python bench/open_time.py [--turns 5000] [--repeat 15]

The store is made up: its vectors are random and bear the bundled model's name, so that making it takes a second and not
a minute. What a vector holds changes no time measured here.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from numpy.typing import NDArray

import sqlmem
from sqlmem.embed import DEFAULT_MODEL, load

ROOT = Path(__file__).resolve().parent.parent
WORDS = 4_000
TURNS_A_SESSION = 25
HEAVY = (
    "apsw",
    "asyncio",
    "importlib.metadata",
    "numpy",
    "onnxruntime",
    "sqlite3",
    "sqlite_vec",
    "tokenizers",
    "typing",
)

# Runs in the new process, behind a line for each of its settings. It imports nothing before the measured import that
# could make that one cheaper, hence no helper of ours, and json only at the end.
PROBE = """
import time
began = time.perf_counter()
marks = {}
def mark(name):
    global began
    marks[name] = (time.perf_counter() - began) * 1000
    began = time.perf_counter()
exec(IMPORTING)
mark("import")
modules = sorted(name for name in HEAVY if name in sys.modules)
count = len(sys.modules)
if PATH:
    options = {"embedder": False} if KEYWORDS else {}
    store = sqlmem.open(PATH, **options)
    mark("open")
    if STAGED:
        from sqlmem.embed import DEFAULT_MODEL, load
        load(DEFAULT_MODEL).embed_query("a question")
        mark("model load and first embedding")
    store.recall("which word12 did they say about word7", user="u")
    mark("first recall")
    store.recall("was word99 ever mentioned with word3", user="u")
    mark("second recall")
    store.close()
import json
try:
    import resource
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
except ImportError:  # Windows
    rss = None
print(json.dumps({"marks": marks, "modules": modules, "count": count, "rss": rss}))
"""


class RandomVectors:
    """Random unit vectors under the bundled model's name."""

    def __init__(self) -> None:
        real: Any = load(DEFAULT_MODEL)
        self.name, self.dim, self.fingerprint, self.centre = real.name, real.dim, real.fingerprint, real.centre
        self._random = np.random.default_rng(1)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Random vectors around the model's centre, as real ones are."""
        noise = self._random.normal(size=(len(texts), self.dim)).astype(np.float32)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        return noise if self.centre is None else (noise * 0.5 + self.centre).astype(np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """A random vector."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector


def make_store(path: Path, turns: int) -> None:
    """A store of made-up turns: sessions of 25, 20 words each from a vocabulary with a long tail."""
    chance = random.Random(1)
    weights = [1 / (rank + 1) for rank in range(WORDS)]
    vocabulary = [f"word{rank}" for rank in range(WORDS)]
    items = [
        {
            "text": " ".join(chance.choices(vocabulary, weights, k=20)),
            "user": "u",
            "session": f"session_{number // TURNS_A_SESSION}",
            "role": ("user", "assistant")[number % 2],
        }
        for number in range(turns)
    ]
    with sqlmem.open(path, embedder=RandomVectors()) as store:
        store.remember_many(items)


def probe(importing: str, path: str = "", *, staged: bool = False, keywords: bool = False) -> dict[str, Any]:
    """One fresh interpreter: its marks in ms, among them what the parent saw from start to exit."""
    settings = {"IMPORTING": importing, "PATH": path, "STAGED": staged, "KEYWORDS": keywords, "HEAVY": HEAVY}
    lines = [f"{name} = {value!r}" for name, value in settings.items()]
    code = "\n".join([f"import sys; sys.path.insert(0, {str(ROOT)!r})", *lines, PROBE])
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    total = (time.perf_counter() - began) * 1000
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["marks"]["whole process"] = total
    return answer


def cases(path: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is measured, by name."""
    return {
        "bare interpreter": lambda: probe("pass"),
        "import apsw": lambda: probe("import apsw"),
        "import numpy": lambda: probe("import numpy"),
        "import sqlmem": lambda: probe("import sqlmem"),
        "open, recall (keywords only)": lambda: probe("import sqlmem", path, keywords=True),
        "open, recall": lambda: probe("import sqlmem", path),
        "open, load the model, recall": lambda: probe("import sqlmem", path, staged=True),
    }


def line(name: str, answers: Sequence[dict[str, Any]]) -> str:
    """One case's medians as a list item."""
    marks = answers[0]["marks"]
    times = ", ".join(f"{mark} {statistics.median(a['marks'][mark] for a in answers):.1f}" for mark in marks)
    last = answers[-1]
    memory = "" if last["rss"] is None else f"; peak {last['rss']:.0f} MB"
    heavy = ", ".join(last["modules"]) or "none"
    return f"- **{name}**: {times}{memory}; {last['count']} modules after the import, heavy ones: {heavy}"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=15, help="fresh interpreters for each figure")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as scratch:
        path = str(Path(scratch) / "chat.db")
        make_store(Path(path), options.turns)
        measured = cases(path)
        for case in measured.values():
            case()  # once for the disk cache and the .pyc files
        # Round by round, so that whatever else the machine does falls on all cases alike.
        rounds = [{name: case() for name, case in measured.items()} for _ in range(options.repeat)]
    print(f"sqlmem {sqlmem.__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    print(f"{options.turns:,} turns, medians of {options.repeat} fresh interpreters, ms\n")
    for name in measured:
        print(line(name, [one[name] for one in rounds]))


if __name__ == "__main__":
    main()
