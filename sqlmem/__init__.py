"""Conversation memory for LLM applications in one SQLite file.

store = sqlmem.open("chat.db")
store.remember("I'd like the report as a PDF", session="u42", role="user")
block = store.context("what format did they want", session="u42", token_budget=1200)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from sqlmem.embed.base import Embedder
from sqlmem.errors import (
    AlreadyExists,
    Busy,
    CallbackError,
    Corrupt,
    DiskFull,
    EmbeddingError,
    FileFormatError,
    InvalidArgument,
    MigrationFailed,
    ModelMismatch,
    ModelMissing,
    NewerFile,
    NotASqlmemFile,
    NotFound,
    ReadOnly,
    SqlmemError,
    StorageError,
    StoreClosed,
)
from sqlmem.memory_store import MemoryStore, open
from sqlmem.records import Category, CheckReport, ContextBlock, Memory, MemoryId, ModelInfo, Page, Recall, Stats

if TYPE_CHECKING:
    from sqlmem.embed.hashing import HashEmbedder

__all__ = [
    "AlreadyExists",
    "Busy",
    "CallbackError",
    "Category",
    "CheckReport",
    "ContextBlock",
    "Corrupt",
    "DiskFull",
    "Embedder",
    "EmbeddingError",
    "FileFormatError",
    "HashEmbedder",
    "InvalidArgument",
    "Memory",
    "MemoryId",
    "MemoryStore",
    "MigrationFailed",
    "ModelInfo",
    "ModelMismatch",
    "ModelMissing",
    "NewerFile",
    "NotASqlmemFile",
    "NotFound",
    "Page",
    "ReadOnly",
    "Recall",
    "SqlmemError",
    "Stats",
    "StorageError",
    "StoreClosed",
    "open",
]


def __getattr__(name: str) -> Any:
    if name == "HashEmbedder":
        from sqlmem.embed.hashing import HashEmbedder  # brings numpy

        return HashEmbedder
    raise AttributeError(f"module 'sqlmem' has no attribute {name!r}")
