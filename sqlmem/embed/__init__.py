"""Text to vectors: the embedder protocol, the models that are installed, and safe calls of any embedder.

Importing this package imports neither numpy nor a model runtime, so that a keyword-only store never pays for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlmem.embed.base import Embedder
from sqlmem.embed.catalogue import DEFAULT_MODEL, ModelManifest, load, manifest, names, verify
from sqlmem.embed.checks import check_embedder, embed_documents, embed_query
from sqlmem.embed.cross_encoder import CrossEncoder

if TYPE_CHECKING:
    from sqlmem.embed.hashing import HashEmbedder
    from sqlmem.embed.onnx import OnnxEmbedder

__all__ = [
    "DEFAULT_MODEL",
    "CrossEncoder",
    "Embedder",
    "HashEmbedder",
    "ModelManifest",
    "OnnxEmbedder",
    "check_embedder",
    "embed_documents",
    "embed_query",
    "load",
    "manifest",
    "names",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "HashEmbedder":
        from sqlmem.embed.hashing import HashEmbedder

        return HashEmbedder
    if name == "OnnxEmbedder":
        from sqlmem.embed.onnx import OnnxEmbedder

        return OnnxEmbedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
