"""Every exception that sqlmem raises.

    SqlmemError
    ├── InvalidArgument (ValueError, TypeError)   an argument makes no sense; nothing was written
    ├── NotFound (KeyError)                       no such memory, session, user, category
    ├── AlreadyExists                             the id, key or category is taken
    ├── ConflictError                             a conflict is resolved already, or the answers do not fit it
    ├── StoreClosed                               the store was closed
    ├── StorageError                              SQLite could not do it: .path, .code, .retry
    │   ├── Busy                                  another process holds the lock: retry
    │   ├── ReadOnly                              the file or the store cannot be written
    │   ├── DiskFull                              no room left; the verb was undone
    │   └── Corrupt                               the file is damaged
    ├── FileFormatError                           the file is not one this version can use: .path
    │   ├── NotASqlmemFile                        another program's file; left untouched
    │   ├── NewerFile                             written by a newer sqlmem; readable, not writable
    │   └── MigrationFailed                       the upgrade was undone; the backup is named
    ├── EmbeddingError                            the model failed or answered nonsense
    │   ├── ModelMissing                          the model, or a package it needs, is not installed
    │   └── ModelMismatch                         the file's vectors come from another model
    └── CallbackError                             a callable of the caller's raised or answered wrongly; nothing lost

A message says what happened, what is true of the file now, and what to do.
"""

from __future__ import annotations


class SqlmemError(Exception):
    """Root of all exceptions raised by sqlmem."""


class InvalidArgument(SqlmemError, ValueError, TypeError):
    """An argument makes no sense. Nothing was written."""


class NotFound(SqlmemError, KeyError):
    """The named memory, session, user or category is not in the store."""

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class AlreadyExists(SqlmemError):
    """The id, key or category is already taken. Nothing was written."""


class ConflictError(SqlmemError):
    """A conflict is resolved already, has changed, or the answers do not fit its questions. Nothing was written."""


class StoreClosed(SqlmemError):
    """The store was used after `close()`."""


class StorageError(SqlmemError):
    """SQLite could not carry out the operation; the transaction was rolled back.

    `path` is the file, `code` SQLite's extended result code (0 if none), `retry` whether the same call may succeed later.
    """

    retry = False

    def __init__(self, message: str, *, path: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.code = code


class Busy(StorageError):
    """Another process held the write lock for longer than the busy timeout. Nothing was written; retry."""

    retry = True


class ReadOnly(StorageError):
    """The file, its folder or the store does not allow writing. Nothing was written."""


class DiskFull(StorageError):
    """There is no room left on the disk. The transaction was rolled back."""


class Corrupt(StorageError):
    """SQLite found the file damaged."""


class FileFormatError(SqlmemError):
    """The file is not one that this version of sqlmem can use. `path` is the file."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NotASqlmemFile(FileFormatError):
    """The file belongs to something else. It was not touched."""


class NewerFile(FileFormatError):
    """The file was written by a newer sqlmem. It can be read with `read_only=True`, not written."""


class MigrationFailed(FileFormatError):
    """Upgrading an older file failed and was undone; the message names the backup."""


class EmbeddingError(SqlmemError):
    """The embedder failed, or returned vectors of the wrong number or width."""


class ModelMissing(EmbeddingError):
    """The embedding model, or a package that it needs, is not available here."""


class ModelMismatch(EmbeddingError):
    """The file's vectors were made by another model than the one given."""


class CallbackError(SqlmemError):
    """A callable that the caller passed in raised, or returned what it must not. Nothing was lost.

    Raised `from` the original exception, if there was one.
    """
