"""The file format: recognise, create and migrate it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sqlmem import __version__
from sqlmem.db import Database, use_wal
from sqlmem.errors import (
    Corrupt,
    FileFormatError,
    MigrationFailed,
    NewerFile,
    NotASqlmemFile,
    NotFound,
    SqlmemError,
    StorageError,
)
from sqlmem.text import TEXT_VERSION

APPLICATION_ID = 0x736D656D  # "smem"
FORMAT_VERSION = 1

_HEADER = struct.Struct(">16s44xI4xI")  # magic, user_version at 60, application_id at 68
_MAGIC = b"SQLite format 3\0"


@cache
def _folder() -> Path:
    """Where the DDL lies: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    for folder in (package / "_sql", package.parent / "schema"):
        if (folder / "tables.sql").is_file():
            return folder
    raise RuntimeError("this installation of sqlmem lacks its schema files; install it again")


def sql(name: str) -> str:
    """The text of one file of the schema folder."""
    return (_folder() / name).read_text(encoding="utf-8")


def migrations() -> dict[int, str]:
    """The scripts that lead to each format version, by that version."""
    return {int(path.name[:4]): path.read_text(encoding="utf-8") for path in _folder().glob("migrations/[0-9]*.sql")}


def open_file(path: str, *, read_only: bool = False, create: bool = True, full: bool = False) -> Database:
    """Open, and where needed create or migrate, the file at `path`.

    A current file is opened without a lock. Raises NotASqlmemFile for a foreign file, which stays untouched, NewerFile when a
    newer file is opened for writing, NotFound when the file is missing and `create` is False or `read_only` is True.
    """
    if path != ":memory:":
        _look(path, read_only=read_only, create=create)
    db = Database(path, read_only=read_only, create=create, full=full)
    try:
        _bring_up_to_date(db, create=create)
    except BaseException:
        db.close()
        raise
    return db


def _look(path: str, *, read_only: bool, create: bool) -> None:
    """Refuse what is certainly no sqlmem file by its first bytes, before SQLite opens it.

    SQLite repairs and tidies what it opens, so a foreign file with unfinished business must not even be opened. Our own files
    carry their id in the header from the first moment that they have one.
    """
    file = Path(path)
    try:
        if not file.exists():
            if read_only or not create:
                raise NotFound(f"there is no file {path}; nothing was created")
            return
        if file.is_dir():
            raise NotASqlmemFile(f"{path} is a folder; name a file in it", path=path)
        with file.open("rb") as stream:
            header = stream.read(_HEADER.size)
        sidecars = any(_size(f"{path}{suffix}") for suffix in ("-wal", "-journal"))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}; nothing was changed", path=path) from error
    if not header or (not header.strip(b"\0") and sidecars):
        return  # empty, or its creation was cut short
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise NotASqlmemFile(f"{path} is not an SQLite database; it was not touched", path=path)
    application_id = _HEADER.unpack(header)[2]
    if application_id != APPLICATION_ID and (application_id or sidecars):
        raise _foreign(path)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


def _foreign(path: str) -> NotASqlmemFile:
    return NotASqlmemFile(f"{path} is another program's SQLite database; it was not touched", path=path)


def _bring_up_to_date(db: Database, *, create: bool) -> None:
    if not _is_current(db):
        version = _version(db)
        if version == 0 and (db.read_only or not create):
            raise NotASqlmemFile(f"{db.path} is empty: there is no store in it, and none was created", path=db.path)
        if db.read_only:
            raise FileFormatError(
                f"{db.path} has the older format {version}, which cannot be read as it is; open it once for writing, "
                f"which brings it to format {FORMAT_VERSION}",
                path=db.path,
            )
        with db.write():
            # Another process may have created or migrated it while we waited for the lock.
            if not _is_current(db):
                _create(db) if _version(db) == 0 else _migrate(db, migrations())
    if db.path != ":memory:" and not db.read_only:
        use_wal(db)


def _version(db: Database) -> int:
    version: int = db.value("pragma user_version")
    return version


def _is_current(db: Database) -> bool:
    """Whether the file can be used as it is; False for one that is empty or older."""
    try:
        application_id, version = db.value("pragma application_id"), _version(db)
    except Corrupt as error:
        raise NotASqlmemFile(f"{db.path} is damaged or not an SQLite database; it was not touched", path=db.path) from error
    if application_id != APPLICATION_ID:
        if application_id != 0 or db.value("select count(*) from sqlite_schema"):
            raise _foreign(db.path)
        return False
    if version > FORMAT_VERSION and not db.read_only:
        raise NewerFile(
            f"{db.path} has format {version}, this sqlmem writes {FORMAT_VERSION}; it was not touched: "
            "upgrade sqlmem, or open it with read_only=True",
            path=db.path,
        )
    return version >= FORMAT_VERSION


def _create(db: Database) -> None:
    for name in ("tables.sql", "fts.sql", "views.sql"):
        db.script(sql(name))
    db.execute("insert into setting (name, value) values ('text_version', ?)", (str(TEXT_VERSION),))
    db.execute("insert into setting (name, value) values ('created_by', json_quote(?))", (f"sqlmem {__version__}",))
    db.script(f"pragma application_id = {APPLICATION_ID}; pragma user_version = {FORMAT_VERSION}")


def _migrate(db: Database, scripts: Mapping[int, str]) -> None:
    """Apply the missing `scripts` in order, inside the caller's transaction, after a copy of the file was put beside it."""
    version = _version(db)
    backup = f"{db.path}.format-{version}.bak"
    db.copy_to(backup)
    for step in range(version + 1, FORMAT_VERSION + 1):
        try:
            db.script(scripts[step])
        except (SqlmemError, KeyError) as error:
            raise MigrationFailed(
                f"{db.path}: the upgrade from format {version} to {step} failed and was undone; a copy is in {backup}",
                path=db.path,
            ) from error
    db.script(f"pragma user_version = {FORMAT_VERSION}")
