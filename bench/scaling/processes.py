"""A new process with the real model: what it spends until its first answer, and what memory it then holds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scaling.layout import USER

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("interpreter", "import", "open", "model", "first recall")

# Nothing is imported before `import sqlmem` that could make it cheaper, hence no helper of ours, and json only at the end.
_PROBE = """
import time
marks = {"interpreter": time.process_time() * 1000}
def mark(name):
    marks[name] = time.process_time() * 1000 - sum(marks.values())
import sqlmem
mark("import")
store = sqlmem.open(PATH)
mark("open")
from sqlmem.embed import DEFAULT_MODEL, load
load(DEFAULT_MODEL).embed_query("a question")
mark("model")
store.recall(QUESTIONS[0], user=USER)
mark("first recall")
wall = (time.time() - STARTED) * 1000
for question in QUESTIONS[1:]:
    store.recall(question, user=USER)
from bench.scaling.layout import peak_mb, resident_mb
import json
print(json.dumps({"marks": marks, "wall": wall, "peak": peak_mb(), "resident": resident_mb()}))
store.close()
"""


@dataclass(frozen=True)
class Fresh:
    """Medians over several processes: CPU ms by step, ms on the clock until the first answer, MB after all questions."""

    steps: dict[str, float]
    wall: float
    peak: float
    resident: float

    @property
    def cpu(self) -> float:
        """CPU milliseconds from the start of the process to its first answer."""
        return sum(self.steps.values())


def fresh(path: Path, questions: Sequence[str], repeat: int) -> Fresh:
    """Open the store in `repeat` new processes, one after another, and ask over all of it. The first is not counted."""
    answers = [_one(path, questions) for _ in range(repeat + 1)][1:]
    steps = {step: statistics.median(a["marks"][step] for a in answers) for step in STEPS}
    wall, peak, resident = (statistics.median(a[key] for a in answers) for key in ("wall", "peak", "resident"))
    return Fresh(steps, wall, peak, resident)


def _one(path: Path, questions: Sequence[str]) -> dict[str, Any]:
    settings = {"PATH": str(path), "QUESTIONS": list(questions), "USER": USER, "STARTED": time.time()}
    lines = [f"{name} = {value!r}" for name, value in settings.items()]
    code = "\n".join([f"import sys; sys.path.insert(0, {str(ROOT)!r})", *lines, _PROBE])
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
