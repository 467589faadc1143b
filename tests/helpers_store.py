"""What several test files need: a clock that tests move, the contents of files, and child processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlmem

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)

# Child processes find the package that the tests run against, wherever it lies.
CHILD_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(sqlmem.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]),
    "PYTHONIOENCODING": "utf-8",
}


class MovableClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> datetime:
        """Move by a timedelta's arguments, and return the new time."""
        self.now += timedelta(**by)
        return self.now


def contents(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Everything that a file holds: its schema, its numbers in the header, and the rows of all ordinary tables."""
    with closing(sqlite3.connect(path)) as db:
        schema = db.execute("select type, name, tbl_name, sql from sqlite_schema order by type, name").fetchall()
        held: dict[str, Any] = {"schema": schema}
        for pragma in ("application_id", "user_version"):
            held[pragma] = db.execute(f"pragma {pragma}").fetchone()[0]
        for kind, name, _, sql in schema:
            if kind == "table" and not sql.lower().startswith("create virtual"):
                held[f"table {name}"] = sorted(db.execute(f'select * from "{name}"').fetchall(), key=repr)
        return held


def beside(path: Path) -> list[str]:
    """The names of all files in the folder of `path`, sorted."""
    return sorted(file.name for file in path.parent.iterdir())


def child(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start Python on `script`; its output can be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=CHILD_ENVIRONMENT,
    )


def output(process: subprocess.Popen[str]) -> str:
    """What a child printed, once it has ended well."""
    said, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    return said


def run(script: str, *arguments: object) -> str:
    """Run `script` in a child to its end and return what it printed."""
    return output(child(script, *arguments))


def together(script: str, *arguments: tuple[object, ...]) -> list[str]:
    """Run one child for each of `arguments`, all let go at once when every one has printed "ready" and waits for a line.

    Returns what they printed after that.
    """
    children = [child(script, *given) for given in arguments]
    try:
        for process in children:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first == "ready\n", first + process.communicate()[1]
        for process in children:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [output(process) for process in children]
    finally:
        for process in children:
            if process.poll() is None:
                process.kill()
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()


def assert_sound(store: sqlmem.MemoryStore) -> None:
    """The store's own check finds nothing."""
    assert store.check().problems == ()


# What every file keeps to, whatever was called and whenever a process was killed; `check()` proves the indexes.
RULES = {
    "a chain has at most one live version": """
        select chain from memory where ended_at is null and held is null group by chain having count(*) > 1
    """,
    "versions are numbered from 1 without a gap or a repetition": """
        select chain from (select chain, version from memory union all select chain, version from tombstone)
         group by chain having min(version) <> 1 or max(version) <> count(*) or count(distinct version) <> count(*)
    """,
    "a version that has not ended has no successor, reason or note": """
        select id from memory where ended_at is null and coalesce(ended_by, end_reason, end_note) is not null
    """,
    "a version ends the moment that its successor begins": """
        select old.id from memory old join memory new on new.rowid = old.ended_by
         where new.chain = old.chain and old.ended_at <> new.created_at or old.ended_at < new.created_at
    """,
    "what has a successor is linked from it, in memory or tombstone": """
        select old.id from memory old where old.ended_by is not null and not exists (
            select 1 from link where src = old.ended_by and dst = old.rowid and rel = 'supersedes'
            union select 1 from tombstone where rowid = old.ended_by)
    """,
    "a link of succession goes from a successor to what ended for it": """
        select src from link join memory old on old.rowid = dst where rel = 'supersedes' and old.ended_by is not src
    """,
    "what lies in the trash has its time there": """
        select rowid from memory where held = 'trash' and rowid not in (select memory from trash)
        union select memory from trash where memory not in (select rowid from memory where held = 'trash')
    """,
    "an open conflict has a proposal": """
        select name from conflict where status <> 'resolved'
           and memory not in (select rowid from memory where held = 'proposed')
    """,
    "a proposal waits in an open conflict": """
        select id from memory where held = 'proposed'
           and rowid not in (select memory from conflict where status <> 'resolved')
    """,
}


def broken_rules(store: sqlmem.MemoryStore) -> list[str]:
    """The rules of the format that the store's rows break, each with the first row that does."""
    found = {rule: store._engine.db.value(f"select * from ({sql}) limit 1") for rule, sql in RULES.items()}
    return [f"{rule}: {row}" for rule, row in found.items() if row is not None]
