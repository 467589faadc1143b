"""Command-line words to Python values. Each function raises ValueError's kin that argparse turns into a usage error."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

NONE = "none"

# The longer operators first: ">" would match the beginning of ">=".
_OPERATORS = {"!=": "ne", ">=": "gte", "<=": "lte", "=": "eq", ">": "gt", "<": "lt", "~": "contains"}
_CONDITION = re.compile(r"(.+?)(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)


def moment(word: str) -> datetime:
    """An ISO date or time; without an offset it is UTC."""
    try:
        return datetime.fromisoformat(word)
    except ValueError:
        raise ArgumentTypeError(f"{word!r} is no ISO date or time, such as 2025-07-06 or 2025-07-06T09:30Z") from None


def age(word: str) -> float | datetime:
    """A number of days, or an ISO date or time."""
    try:
        return float(word)
    except ValueError:
        return moment(word)


def budget(word: str) -> int | None:
    """A number of tokens, or "none" for no limit."""
    if word == NONE:
        return None
    try:
        return int(word)
    except ValueError:
        raise ArgumentTypeError(f"{word!r} is neither a number of tokens nor {NONE!r}") from None


def embedder(words: list[str] | None) -> list[str] | Literal[False] | None:
    """Names of models, or "none" alone for keywords only. None: not said."""
    if words is None or NONE not in words:
        return words
    if len(words) > 1:
        raise ArgumentTypeError(f"--embedder {NONE} stands alone: it searches by keywords only")
    return False


def condition(word: str) -> tuple[str, str, Any]:
    """`key=value`, or with another operator, as (key, operator's name, value)."""
    found = _CONDITION.fullmatch(word)
    if found is None:
        raise ArgumentTypeError(f"{word!r} is not KEY=VALUE; the operators are {' '.join(_OPERATORS)}")
    return found[1], _OPERATORS[found[2]], _json(found[3])


def pair(word: str) -> tuple[str, Any]:
    """`key=value`, for metadata."""
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise ArgumentTypeError(f"{word!r} is not KEY=VALUE")
    return key, _json(value)


def where(conditions: Iterable[tuple[str, str, Any]] | None) -> dict[str, dict[str, Any]] | None:
    """Conditions as the library's `where`; several on one key must all hold."""
    if conditions is None:
        return None
    joined: dict[str, dict[str, Any]] = {}
    for key, operator, value in conditions:
        tests = joined.setdefault(key, {})
        if operator in tests:
            raise ArgumentTypeError(f"--where compares {key!r} twice in the same way")
        tests[operator] = value
    return joined


def _json(word: str) -> Any:
    # 3 is a number and true a bool, as in JSON; what is not JSON is the string that it looks like.
    try:
        return json.loads(word)
    except ValueError:
        return word
