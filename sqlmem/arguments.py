"""Checks of what callers pass in. Everything here raises InvalidArgument, before anything is written."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, tzinfo
from typing import Any

from sqlmem.errors import InvalidArgument
from sqlmem.records import KINDS, Kind
from sqlmem.text import unstorable

LONGEST_NAME = 1_000
DEEPEST_METADATA = 900  # SQLite's JSON stops at 1,000
_LARGEST = 1e300  # beyond it, whole numbers do not become floats


def string(name: str, value: object) -> str:
    """`value` if SQLite can keep it as text."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a string, not {type(value).__name__}")
    where = unstorable(value)
    if where is not None:
        what = "a NUL character" if value[where] == "\0" else "half a surrogate pair"
        raise InvalidArgument(f"{name} holds {what} at position {where}, which cannot be stored; remove or replace it")
    return value


def text(value: object) -> str:
    """The text of a memory: a string with something in it."""
    checked = string("text", value)
    if not checked.strip():
        raise InvalidArgument("text is blank; there is nothing to remember")
    return checked


def name(argument: str, value: object, *, empty: bool = False) -> str:
    """A user, session, role, id or key: one line of at most 1,000 characters."""
    checked = string(argument, value)
    if not checked and not empty:
        raise InvalidArgument(f"{argument} must not be empty")
    if len(checked) > LONGEST_NAME:
        raise InvalidArgument(f"{argument} has {len(checked):,} characters; at most {LONGEST_NAME:,} are allowed")
    return checked


def role(value: object) -> str:
    """Who spoke: one line, so that it cannot break out of its place in a context block."""
    checked = name("role", value)
    if len(checked.splitlines()) > 1 or checked != checked.strip():
        raise InvalidArgument(f"role must be a single line without space around it, not {checked!r}")
    if checked.startswith("- "):
        raise InvalidArgument(f"role must not begin as the facts of a context block do, with '- ': {checked!r}")
    return checked


def boolean(argument: str, value: object) -> bool:
    """True or False, nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{argument} must be True or False, not {value!r}")
    return value


def integer(argument: str, value: object, *, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{argument} must be a whole number, not {value!r}")
    if not least <= value < 2**53:
        raise InvalidArgument(f"{argument} must be at least {least}, not {value}")
    return value


def number(argument: str, value: object, *, least: float, most: float = math.inf, above: bool = False) -> float:
    """A finite number within the bounds; `above` leaves the lower bound itself out."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        raise InvalidArgument(f"{argument} must be a finite number, not {value!r}")
    if not (least < value if above else least <= value) or value > most:
        bounds = f"{'above' if above else 'at least'} {least:g}" + ("" if most == math.inf else f" and at most {most:g}")
        raise InvalidArgument(f"{argument} must be {bounds}, not {value!r}")
    return float(value)


def budget(value: object) -> int | None:
    """A token budget: a whole number of at least 0, or None for no limit."""
    return None if value is None else integer("token_budget", value, least=0)


def timezone(value: object) -> tzinfo:
    """A time zone, given as such or by its IANA name; None is UTC."""
    if value is None:
        return UTC
    if isinstance(value, tzinfo):
        return value
    from zoneinfo import ZoneInfo  # the machine's zones, which most calls do without

    try:
        return ZoneInfo(name("timezone", value))
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"timezone must be a tzinfo or the name of a zone that this machine knows, such as 'Europe/Lisbon', not {value!r} "
            "(where it knows none at all, the package tzdata brings them)"
        ) from error


def kind(value: object) -> Kind:
    """One kind of memory."""
    for known in KINDS:
        if value == known:
            return known
    raise InvalidArgument(f"kind must be one of {', '.join(KINDS)}, not {value!r}")


def several(argument: str, value: object) -> list[Any]:
    """A collection of values; a bare string or mapping is refused, because iterating it yields its letters or keys."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{argument} must be a list or tuple, not {value!r}")
    return list(value)


def kinds(value: object) -> tuple[Kind, ...]:
    """At least one kind."""
    chosen = tuple(dict.fromkeys(kind(item) for item in several("kinds", value)))
    if not chosen:
        raise InvalidArgument(f"kinds must name at least one of {', '.join(KINDS)}")
    return chosen


def metadata(value: object) -> str:
    """A mapping of strings to JSON values, as JSON text."""
    if value is None:
        return "{}"
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidArgument(f"metadata must be a mapping with string keys, not {value!r}")
    if _deeper(value, DEEPEST_METADATA):
        raise InvalidArgument(f"metadata is nested more than {DEEPEST_METADATA} levels deep")
    try:
        encoded = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"metadata must hold JSON values only: {error}") from error
    if unstorable(encoded) is not None:
        raise InvalidArgument("metadata holds half a surrogate pair, which cannot be stored; remove or replace it")
    return encoded


def shown(value: object) -> str:
    """What a callable returned, for the message of an error: at most 200 characters, and never an error of its own."""
    try:
        return f"{value!r:.200}"
    except Exception:  # noqa: BLE001 - whatever its repr raises, the message is about the value
        return f"a {type(value).__name__}"


def _deeper(value: object, levels: int) -> bool:
    """Whether lists and mappings are nested more than `levels` deep."""
    layer = [value]
    for _ in range(levels + 1):
        nested = [item for item in layer if isinstance(item, Mapping | list | tuple)]
        if not nested:
            return False
        layer = [part for item in nested for part in (item.values() if isinstance(item, Mapping) else item)]
    return True


def category_names(value: object) -> tuple[str, ...]:
    """Names of categories, each once. Whether the store knows them is for the caller to check."""
    return tuple(dict.fromkeys(string("a category", item) for item in several("categories", value)))
