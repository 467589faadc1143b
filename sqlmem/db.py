"""The connection: opening, pragmas, transactions and error translation. The only module that knows apsw."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from sqlmem.errors import Busy, Corrupt, DiskFull, ReadOnly, StorageError, StoreClosed

Row = tuple[Any, ...]
Bindings = Sequence[Any] | Mapping[str, Any]

BUSY_TIMEOUT_MS = 5_000

_BY_CODE: dict[int, tuple[type[StorageError], str]] = {
    apsw.SQLITE_BUSY: (Busy, "another connection holds the lock; nothing was written, try again"),
    apsw.SQLITE_LOCKED: (Busy, "another connection holds the lock; nothing was written, try again"),
    apsw.SQLITE_READONLY: (ReadOnly, "the file cannot be written; nothing was changed"),
    apsw.SQLITE_FULL: (DiskFull, "the disk is full; the change was undone, free some space and try again"),
    apsw.SQLITE_CORRUPT: (Corrupt, "the file is damaged; restore a backup"),
    apsw.SQLITE_NOTADB: (Corrupt, "the file is damaged or not a database; restore a backup"),
    apsw.SQLITE_CANTOPEN: (StorageError, "the file cannot be opened or created; check the path and its permissions"),
    apsw.SQLITE_IOERR: (StorageError, "the disk reported an error; the change was undone"),
}


class Database:
    """One connection to one file, shared by the threads of this process: a lock lets them in one at a time.

    Reads and writes are explicit: `with db.read():` is one snapshot, `with db.write():` one transaction that holds the write
    lock from its start. Neither nests.
    """

    def __init__(self, path: str, *, read_only: bool = False, create: bool = True, full: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None
        self._tokenizers: dict[bool, apsw.FTS5Tokenizer] = {}
        self._writing = False
        with self._translating():
            self._connection = _connect(path, read_only=read_only, create=create)
            _set_pragmas(self._connection, full=full)
        self.has_vec = _load_vec(self._connection)

    # -- statements ---------------------------------------------------------------------------------------------------

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """All rows of one statement."""
        with self._lock:
            try:
                return list(self._open().execute(sql, bindings))
            except apsw.Error as error:
                raise self._translated(error) from error

    def row(self, sql: str, bindings: Bindings = ()) -> Row | None:
        """The first row of one statement, or None."""
        with self._lock:
            try:
                found: Row | None = self._open().execute(sql, bindings).fetchone()
            except apsw.Error as error:
                raise self._translated(error) from error
            return found

    def value(self, sql: str, bindings: Bindings = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.row(sql, bindings)
        return None if row is None else row[0]

    def stream(self, sql: str, bindings: Bindings = ()) -> Iterator[Row]:
        """Rows of one statement as they are read. Use inside `read()` or `write()`, which hold the lock meanwhile."""
        try:
            yield from self._open().execute(sql, bindings)
        except apsw.Error as error:
            raise self._translated(error) from error

    def execute(self, sql: str, bindings: Bindings = ()) -> int:
        """Run one statement that changes rows; returns how many it changed. Use inside `write()`."""
        connection = self._open()
        try:
            list(connection.execute(sql, bindings))
        except apsw.Error as error:
            raise self._translated(error) from error
        return connection.changes()

    def execute_many(self, sql: str, many: Iterable[Bindings]) -> None:
        """Run one statement for each of `many`. Use inside `write()`."""
        try:
            list(self._open().executemany(sql, many))
        except apsw.Error as error:
            raise self._translated(error) from error

    def script(self, sql: str) -> None:
        """Run all statements of `sql`. Inside `write()` they are part of its transaction."""
        with self._lock, self._translating():
            # A script's rows must be drained: apsw stops at the first one and would skip the statements after it.
            for _ in self._open().execute(sql):
                pass

    def words(self, text: str, *, stemmed: bool = False) -> list[str]:
        """The words that the keyword index sees in prepared `text`; `stemmed` as it stores them."""
        with self._lock, self._translating():
            if stemmed not in self._tokenizers:
                name, arguments = ("porter", ["unicode61"]) if stemmed else ("unicode61", [])
                self._tokenizers[stemmed] = self._open().fts5_tokenizer(name, [*arguments, "remove_diacritics", "2"])
            found = self._tokenizers[stemmed](text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False)
            return [str(word) for group in found for word in group]

    # -- transactions -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """One snapshot for several reads. Inside a transaction of this thread it is that transaction."""
        with self._lock:
            if self._open().in_transaction:
                yield
                return
            self._control("begin")
            try:
                yield
            finally:
                self._end("commit")

    @contextlib.contextmanager
    def write(self, *, patient: bool = True) -> Iterator[None]:
        """One transaction: all of it is kept, or, after any exception, nothing.

        Takes the write lock at once, so that what is read inside cannot change before it ends.
        Raises ReadOnly on a store opened for reading, Busy when another process keeps the lock; at once if not `patient`.
        """
        with self._lock:
            self.require_writable()
            if self._open().in_transaction:
                raise RuntimeError("write() does not nest")
            self._begin(patient)
            self._writing = True
            try:
                yield
                self._control("commit")
            except BaseException:
                self._end("rollback")
                raise
            finally:
                self._writing = False

    def _begin(self, patient: bool) -> None:
        if patient:
            self._control("begin immediate")
            return
        connection = self._open()
        connection.set_busy_timeout(0)
        try:
            self._control("begin immediate")
        finally:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)

    def require_writable(self) -> None:
        """Raise StoreClosed or ReadOnly if nothing can be written through this connection."""
        self._open()
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened with read_only=True; nothing was changed", path=self.path)

    def copy_to(self, path: str) -> None:
        """Write a consistent copy of what was last committed to `path`, one file without sidecars. Replaces what is there."""
        partial = f"{path}.partial"
        Path(partial).unlink(missing_ok=True)
        with self._lock, self._translating():
            # A second connection: SQLite copies nothing from one that is inside its own write transaction.
            source, target = apsw.Connection(self.path), apsw.Connection(partial)
            try:
                with target.backup("main", source, "main") as backup:
                    backup.step(-1)
                target.execute("pragma journal_mode = delete").fetchall()
            finally:
                target.close()
                source.close()
        os.replace(partial, path)

    def close(self) -> None:
        """Release the file. Repeating it does nothing."""
        with self._lock:
            if self._connection is not None:
                connection, self._connection = self._connection, None
                self._tokenizers.clear()
                with self._translating():
                    connection.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._connection is None

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            raise StoreClosed(f"the store {self.path} was closed; open it again")
        return self._connection

    def _control(self, statement: str) -> None:
        try:
            self._open().execute(statement)
        except apsw.Error as error:
            raise self._translated(error) from error

    def _end(self, statement: str) -> None:
        # A full disk ends the transaction by itself; ending it again would hide the real error.
        if self._connection is not None and self._connection.in_transaction:
            self._control(statement)

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: apsw.Error) -> StorageError:
        """What apsw raised as an exception of this package, by SQLite's result code."""
        code = getattr(error, "result", 0)
        # vec0 reports a full disk as a plain error; that SQLite has ended the transaction gives it away.
        ended = self._connection is not None and self._writing and not self._connection.in_transaction
        if code == apsw.SQLITE_ERROR and ended:
            code = apsw.SQLITE_FULL
        kind, text = _BY_CODE.get(code, (StorageError, f"SQLite refused: {error}; the change was undone"))
        return kind(f"{self.path}: {text}", path=self.path, code=getattr(error, "extendedresult", 0))


def _connect(path: str, *, read_only: bool, create: bool) -> apsw.Connection:
    if path == ":memory:":
        return apsw.Connection(path)
    if not read_only:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        return apsw.Connection(path, flags=flags)
    return _connect_read_only(path)


def _connect_read_only(path: str) -> apsw.Connection:
    """Open without the ability to write, and without leaving files behind.

    In a folder that can be written an ordinary connection is used, because only that removes SQLite's sidecar files when it
    closes; `query_only` then forbids changes. Elsewhere `immutable` is the only mode that works, and it is right only while
    no sidecar holds newer rows.
    """
    if os.access(path, os.W_OK) and os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("pragma query_only = on")
        return connection
    wal = Path(path + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise ReadOnly(
            f"{path}: its folder cannot be written and {wal.name} holds changes that are not yet in the file; "
            "close it where it is being written, or copy both files to a folder that can be written",
            path=path,
        )
    if not os.path.exists(path):
        raise apsw.CantOpenError(f"no such file: {path}")
    uri = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def _set_pragmas(connection: apsw.Connection, *, full: bool) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    for option in (apsw.SQLITE_DBCONFIG_DQS_DML, apsw.SQLITE_DBCONFIG_DQS_DDL):
        connection.config(option, 0)
    for pragma in (
        "foreign_keys = on",
        "mmap_size = 0",  # a truncated mapped file kills the process on macOS
        "secure_delete = on",  # a forgotten text must not stay in free pages
        f"synchronous = {'full' if full else 'normal'}",
    ):
        for _ in connection.execute(f"pragma {pragma}"):
            pass


def use_wal(db: Database) -> None:
    """Put the file into WAL mode, which lets readers and one writer work at the same time. Raises Busy if others hold it."""
    # SQLite does not call the busy handler for this switch when another connection is about to do the same.
    for attempt in range(BUSY_TIMEOUT_MS // 20):
        try:
            mode = db.value("pragma journal_mode = wal")
        except Busy:
            if attempt == BUSY_TIMEOUT_MS // 20 - 1:
                raise
        else:
            if mode in ("wal", "memory"):
                return
        threading.Event().wait(0.02)
    raise Busy(f"{db.path}: another connection holds the file; nothing was written, try again", path=db.path)


def vec_library() -> str | None:
    """Path of the sqlite-vec library without its suffix, or None where no wheel of it exists."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        return None
    # Importing the package costs 80 ms for numpy's typing; only its library is needed.
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    library = Path(spec.origin).with_name("vec0" + suffix)
    return str(library.with_suffix("")) if library.exists() else None


def _load_vec(connection: apsw.Connection) -> bool:
    library = vec_library()
    if library is None:
        return False
    connection.enable_load_extension(True)
    try:
        connection.load_extension(library)
    except apsw.ExtensionLoadingError:
        # A library for another machine: everything works from the vector codes, only large scopes search slower.
        return False
    finally:
        connection.enable_load_extension(False)
    return True
