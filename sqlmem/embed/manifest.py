"""What a model's folder says about the model: `manifest.json`, read into a plain record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlmem.errors import EmbeddingError

MANIFEST_FILE = "manifest.json"
MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"

_FEWEST_TOKENS = 128  # windows hold the prefix, an overlap of 32 tokens and something new


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Size and sha256 (hex) of one of the model's files, as they must be."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """One sentence encoder: what it is, where it is from and how its input and output are treated.

    `max_tokens` counts prefix and special tokens too. `centre` is the mean of the model's unit vectors over ordinary
    conversation, `dim` numbers, or None where it was never computed. `upstream` and `revision` are for people.
    """

    name: str
    dim: int
    max_tokens: int
    pooling: Literal["mean", "cls"]
    query_prefix: str
    passage_prefix: str
    licence: str
    upstream: str
    revision: str
    model: ModelFile
    tokenizer: ModelFile
    centre: tuple[float, ...] | None


def read_manifest(folder: Path) -> ModelManifest:
    """The manifest in `folder`. Raises `EmbeddingError`, naming the file, if it is not one that we understand."""
    path = folder / MANIFEST_FILE
    try:
        manifest = _parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EmbeddingError(f"{path} is not a usable model manifest: {error!r}") from error
    if manifest.name != folder.name:
        raise EmbeddingError(f"{path} describes the model {manifest.name!r}; its folder must have the same name")
    return manifest


def _parse(data: dict[str, Any]) -> ModelManifest:
    manifest = ModelManifest(
        name=data["name"],
        dim=int(data["dim"]),
        max_tokens=int(data["max_tokens"]),
        pooling=data["pooling"],
        query_prefix=data["query_prefix"],
        passage_prefix=data["passage_prefix"],
        licence=data["licence"],
        upstream=data["upstream"],
        revision=data["revision"],
        model=ModelFile(**data["files"][MODEL_FILE]),
        tokenizer=ModelFile(**data["files"][TOKENIZER_FILE]),
        centre=None if data.get("centre") is None else tuple(map(float, data["centre"])),
    )
    if manifest.pooling not in ("mean", "cls"):
        raise ValueError(f"pooling {manifest.pooling!r} is neither 'mean' nor 'cls'")
    if manifest.max_tokens < _FEWEST_TOKENS:
        raise ValueError(f"max_tokens {manifest.max_tokens} leaves no room for a text; at least {_FEWEST_TOKENS}")
    if manifest.centre is not None and len(manifest.centre) != manifest.dim:
        raise ValueError(f"the centre has {len(manifest.centre)} numbers, dim is {manifest.dim}")
    return manifest
