"""Conversation memory for LLM applications in one SQLite file.

store = sqlmem.open("chat.db")
store.remember("I'd like the report as a PDF", session="u42", role="user")
block = store.context("what format did they want", session="u42", token_budget=1200)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from sqlmem.errors import (
    AlreadyExists,
    Busy,
    CallbackError,
    ConflictError,
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

if TYPE_CHECKING:
    from sqlmem.embed.base import Embedder
    from sqlmem.embed.hashing import HashEmbedder
    from sqlmem.memory_store import MemoryStore, open
    from sqlmem.records import (
        Category,
        CheckReport,
        Conflict,
        ConsolidationReport,
        ContextBlock,
        Explanation,
        ExtractionFailure,
        ExtractionReport,
        ExtractionSettings,
        Memory,
        MemoryId,
        ModelInfo,
        Page,
        Question,
        Recall,
        RecallSettings,
        RecheckReport,
        Session,
        Stats,
        Trace,
        Undone,
        User,
        Verdict,
    )

__all__ = [
    "AlreadyExists",
    "Busy",
    "CallbackError",
    "Category",
    "CheckReport",
    "Conflict",
    "ConflictError",
    "ConsolidationReport",
    "ContextBlock",
    "Corrupt",
    "DiskFull",
    "Embedder",
    "EmbeddingError",
    "Explanation",
    "ExtractionFailure",
    "ExtractionReport",
    "ExtractionSettings",
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
    "Question",
    "ReadOnly",
    "Recall",
    "RecallSettings",
    "RecheckReport",
    "Session",
    "SqlmemError",
    "Stats",
    "StorageError",
    "StoreClosed",
    "Trace",
    "Undone",
    "User",
    "Verdict",
    "open",
]


# Where the rest is found at its first use: a program that imports sqlmem and does not open a store pays next to nothing.
_HOMES = {
    "Embedder": "sqlmem.embed.base",
    "HashEmbedder": "sqlmem.embed.hashing",
    "MemoryStore": "sqlmem.memory_store",
    "open": "sqlmem.memory_store",
    **dict.fromkeys(
        (
            "Category",
            "CheckReport",
            "Conflict",
            "ConsolidationReport",
            "ContextBlock",
            "Explanation",
            "ExtractionFailure",
            "ExtractionReport",
            "ExtractionSettings",
            "Memory",
            "MemoryId",
            "ModelInfo",
            "Page",
            "Question",
            "Recall",
            "RecallSettings",
            "RecheckReport",
            "Session",
            "Stats",
            "Trace",
            "Undone",
            "User",
            "Verdict",
        ),
        "sqlmem.records",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sqlmem' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
