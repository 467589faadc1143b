"""Compute a model's centre and write it into its manifest.

    python tools/compute_centre.py [--sample FILE] [--check] [name]

The centre is the mean of the model's unit vectors over the turns of the sample conversation that ships with the
package, each embedded as a document, as a store embeds it. Relevance is measured from it, and the sign bits of the
vector index are taken around it. Five decimals are kept: 8-bit kernels of different processors agree no further.

Run it once for a new model. A changed centre makes other bits than those in existing files (which keep their own).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout, installed or not

import numpy as np  # noqa: E402

from sqlmem.embed import Embedder, embed_documents, load  # noqa: E402
from sqlmem.text import spoken  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE = ROOT / "sqlmem" / "sample" / "conversation.json"
DECIMALS = 5
PER_LINE = 12


def centre_of(embedder: Embedder, sample: Path) -> NDArray[np.float64]:
    """The mean unit vector of the sample's turns, float64[dim], rounded."""
    turns = json.loads(sample.read_text(encoding="utf-8"))["turns"]
    vectors, usable = embed_documents(embedder, [spoken(turn["role"], turn["text"]) for turn in turns])
    mean: NDArray[np.float64] = vectors[usable].mean(axis=0, dtype=np.float64)
    return np.round(mean, DECIMALS)


def with_centre(manifest: str, centre: NDArray[np.float64]) -> str:
    """The manifest's text with `centre` in it, a dozen numbers a line."""
    numbers = [format(number, f".{DECIMALS}f") for number in centre]
    lines = [", ".join(numbers[i : i + PER_LINE]) for i in range(0, len(numbers), PER_LINE)]
    data = json.loads(manifest)
    data.pop("centre", None)
    data["centre"] = "CENTRE"
    block = "[\n    " + ",\n    ".join(lines) + "\n  ]"
    return json.dumps(data, indent=2, ensure_ascii=False).replace('"CENTRE"', block) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compute a model's centre.")
    parser.add_argument("name", nargs="?", default="e5-small-v2", help="folder under sqlmem/models or tools/models")
    parser.add_argument("--sample", type=Path, default=SAMPLE, help="JSON with turns: role, text")
    parser.add_argument("--check", action="store_true", help="write nothing; say how near the manifest's centre is")
    options = parser.parse_args()
    folders = [ROOT / "sqlmem" / "models", ROOT / "tools" / "models"]
    path = next(folder / options.name / "manifest.json" for folder in folders if (folder / options.name).is_dir())
    centre = centre_of(load(options.name), options.sample)
    text = path.read_text(encoding="utf-8")
    old = json.loads(text).get("centre")
    if old is not None:
        cosine = float(np.dot(old, centre) / np.linalg.norm(old) / np.linalg.norm(centre))
        print(f"the manifest's centre has cosine {cosine:.5f} to the one computed here")
    if not options.check:
        path.write_text(with_centre(text, centre), encoding="utf-8")
        print(f"wrote the centre (length {np.linalg.norm(centre):.4f}) into {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
