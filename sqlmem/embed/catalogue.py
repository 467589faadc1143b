"""Which models are installed here, and how one is loaded by name.

A model is a folder `<name>/` with `manifest.json`, `model.onnx` and `tokenizer.json`. Those that ship with the package
are in `sqlmem/models/`; the user's own are in the user folder (see `user_folder`). Nothing is ever downloaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sqlmem.embed.base import Embedder
from sqlmem.embed.manifest import MANIFEST_FILE, MODEL_FILE, TOKENIZER_FILE, ModelFile, ModelManifest, read_manifest
from sqlmem.errors import ModelMissing

if TYPE_CHECKING:
    from sqlmem.embed.onnx import OnnxEmbedder

__all__ = ["DEFAULT_MODEL", "ModelManifest", "load", "manifest", "names", "user_folder", "verify"]

DEFAULT_MODEL = "e5-small-v2"

_BUNDLED = Path(__file__).resolve().parent.parent / "models"
_RUNTIME = ("numpy", "onnxruntime", "tokenizers")
_KEYWORDS_ONLY = "embedder=False works without any model: search by keywords only"
_HASH_NAME = re.compile(r"hash-([1-9][0-9]{0,3})")

# A session holds some 70 MB: stores of one process share it, for the life of the process. Keyed by what was read from
# disk, so that a model replaced there is not taken for the old one.
_loaded: dict[tuple[Path, str], OnnxEmbedder] = {}
_loaded_lock = threading.Lock()


def load(name: str) -> Embedder:
    """The installed model `name`; the same object each time, safe to use from any thread.

    Costs about a millisecond: the model itself is read when it first embeds something. `hash-<dim>` is a
    `HashEmbedder`, so that a file made with one opens by the name it recorded. Raises `ModelMissing` if there is no
    such model, if one of its files is missing or cut short, or if a package that runs it is not installed.
    """
    if match := _HASH_NAME.fullmatch(name):
        from sqlmem.embed.hashing import HashEmbedder

        return HashEmbedder(int(match[1]))
    folder = _folder(name)
    missing = [package for package in _RUNTIME if find_spec(package) is None]
    if missing:
        packages = " and ".join(missing)
        raise ModelMissing(f"The model {name!r} needs {packages}, not installed here. Or: {_KEYWORDS_ONLY}.")
    record = read_manifest(folder)
    _check_sizes(record, folder)
    from sqlmem.embed.onnx import OnnxEmbedder

    with _loaded_lock:
        return _loaded.setdefault((folder, record.model.sha256), OnnxEmbedder(record, folder))


def manifest(name: str) -> ModelManifest:
    """What is known of the installed model `name`. Raises `ModelMissing` if there is no such model."""
    return read_manifest(_folder(name))


def names() -> list[str]:
    """The names of the installed models, sorted."""
    return sorted({path.parent.name for root in _roots() for path in root.glob(f"*/{MANIFEST_FILE}")})


def verify(name: str) -> list[str]:
    """Compare the model's files with their sha256 sums; returns the names of those that differ, [] if all is well.

    Reads the whole model: some 0.05 s.
    """
    folder = _folder(name)
    return [file for file, expected in _files(read_manifest(folder)) if _sha256(folder / file) != expected.sha256]


def user_folder() -> Path | None:
    """Where the user's own models are looked for: `SQLMEM_MODELS`, else the platform's usual place; never created here.

    None where the platform knows no home folder.
    """
    if chosen := os.environ.get("SQLMEM_MODELS"):
        return Path(chosen)
    try:
        home = Path.home()
    except RuntimeError:  # a container or phone without a home folder
        return None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return base / "sqlmem" / "models"


def _roots() -> list[Path]:
    # Bundled first: a user's folder must not quietly replace the model that every file was made with.
    user = user_folder()
    return [_BUNDLED] if user is None else [_BUNDLED, user]


def _folder(name: str) -> Path:
    for root in _roots():
        # A name is one folder's name: "../elsewhere" is not looked for.
        if name == Path(name).name and (root / name / MANIFEST_FILE).is_file():
            return root / name
    known = ", ".join(names()) or "none"
    raise ModelMissing(f"There is no model {name!r} here. Installed: {known}. Or: {_KEYWORDS_ONLY}.")


def _files(record: ModelManifest) -> tuple[tuple[str, ModelFile], ...]:
    return (MODEL_FILE, record.model), (TOKENIZER_FILE, record.tokenizer)


def _check_sizes(record: ModelManifest, folder: Path) -> None:
    # Sizes only: they catch what goes wrong in practice (a cut copy, a large-file pointer instead of the file) for two
    # stat calls. Hashing 34 MB at each start would add a fifth to the time to load; `verify` and the tests do that.
    for file, expected in _files(record):
        path = folder / file
        found = path.stat().st_size if path.is_file() else None
        if found != expected.bytes:
            state = "is missing" if found is None else f"has {found} bytes instead of {expected.bytes}"
            raise ModelMissing(f"{path} {state}. Install the model {record.name!r} again. Or: {_KEYWORDS_ONLY}.")


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
