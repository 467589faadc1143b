"""Lists in pages: rows by descending number, with a cursor that names the last one shown."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from sqlmem import arguments
from sqlmem.db import Database
from sqlmem.errors import InvalidArgument


def read(
    db: Database, sql: str, bound: Mapping[str, object], limit: object, cursor: object, longest: int
) -> tuple[list[tuple[Any, ...]], str | None]:
    """Rows of `sql`, which has `:before` and `:limit` and its number first, and the cursor for those after them.

    Raises InvalidArgument.
    """
    size = arguments.integer("limit", limit, least=1)
    if size > longest:
        raise InvalidArgument(f"limit must be at most {longest:,}, not {size}; use cursor for the rest")
    before = None if cursor is None else _number(cursor)
    with db.read():
        rows = [tuple(row) for row in db.rows(sql, {**bound, "before": before, "limit": size + 1})]
    return rows[:size], _cursor(rows[size - 1][0]) if len(rows) > size else None


def _cursor(number: int) -> str:
    return base64.urlsafe_b64encode(str(number).encode()).decode()


def _number(cursor: object) -> int:
    try:
        if not isinstance(cursor, str):
            raise ValueError("not a string")
        number = int(base64.urlsafe_b64decode(cursor))
        if not 0 <= number < 2**63:
            raise ValueError("not a row's number")
    except ValueError as error:
        raise InvalidArgument(f"cursor must be a page's next_cursor, not {cursor!r}") from error
    return number
