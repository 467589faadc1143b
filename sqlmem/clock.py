"""Time: integer milliseconds since 1970 UTC inside the file, aware UTC datetimes outside."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from sqlmem.errors import CallbackError, InvalidArgument

Clock = Callable[[], datetime]

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def system_clock() -> datetime:
    """The machine's time, aware UTC."""
    return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970 UTC, rounded down; a naive datetime is taken as UTC."""
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(ms: int) -> datetime:
    """The aware UTC datetime of `ms`."""
    return _EPOCH + timedelta(milliseconds=ms)


def local(ms: int, zone: tzinfo) -> datetime:
    """The aware datetime of `ms` in a time zone; in UTC where that has no year of its own for it."""
    try:
        return from_ms(ms).astimezone(zone)
    except OverflowError:
        return from_ms(ms)


def read(clock: Clock) -> int:
    """What `clock` says, in milliseconds. Raises CallbackError if it raises or does not answer an aware datetime."""
    try:
        moment = clock()
    except Exception as error:
        raise CallbackError("the clock raised; nothing was written") from error
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise CallbackError(f"the clock must return an aware datetime, it returned {moment!r}; nothing was written")
    return to_ms(moment)


def moment_ms(name: str, value: object) -> int:
    """`value`, given for the argument `name`, as milliseconds. Raises InvalidArgument unless it is a datetime."""
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{name} must be a datetime, not {value!r}")
    ms = to_ms(value)
    if not _EARLIEST_MS <= ms <= _LATEST_MS:
        raise InvalidArgument(f"{name} must lie within the years 1 to 9999 in UTC, not {value!r}")
    return ms


def cutoff_ms(name: str, value: object, now: int) -> int:
    """The moment that `value` names: a datetime, or a number of days before `now`."""
    if isinstance(value, datetime):
        return moment_ms(name, value)
    return now - days_ms(name, value)


def days_ms(name: str, value: object, *, positive: bool = False) -> int:
    """`value` days in milliseconds. Raises InvalidArgument for what is no finite number of days, bools included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} must be a number of days, not {value!r}")
    if not 0 <= value <= _MOST_DAYS or (positive and value == 0):
        least = "above 0" if positive else "at least 0"
        raise InvalidArgument(f"{name} must be {least} and at most {_MOST_DAYS:,} days, not {value!r}")
    return max(1, round(value * DAY_MS)) if positive else round(value * DAY_MS)


Ttl = int | Literal["forever"] | None
"""A checked TTL: milliseconds, "forever", or None where the caller gave none."""


def ttl(days: object) -> Ttl:
    """The argument `ttl_days`: a number of days above 0, math.inf for ever, or None."""
    if days is None:
        return None
    return "forever" if days == float("inf") else days_ms("ttl_days", days, positive=True)


def expiry(at: int, lifetime: Ttl, *, otherwise: int | None) -> int | None:
    """When a memory of the time `at` expires; `otherwise` is the lifetime where none was given, None for ever."""
    if lifetime is None:
        lifetime = otherwise
    if lifetime is None or lifetime == "forever":
        return None
    if at + lifetime > _LATEST_MS:
        raise InvalidArgument("ttl_days reaches beyond the year 9999; leave it out to keep the memory")
    return at + lifetime


_EARLIEST_MS = -62_135_596_800_000  # the start of year 1
_LATEST_MS = 253_402_300_799_999  # the end of year 9999, the last that a datetime can hold
_MOST_DAYS = 1_000_000  # about 2,700 years, so that every sum stays a datetime

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_RANDOM_BITS = 80
_last = (0, 0, 0)  # process, time, random part of the id given last
_lock = threading.Lock()


def new_id(ms: int) -> str:
    """A new id: 26 characters that sort by time, then by order within this process; unique across machines.

    The layout is ULID's: 48 bits of time, 80 random bits, in Crockford's base 32 (lower case here).
    """
    global _last
    with _lock:
        pid, at, random = _last
        # A forked child inherits its parent's last id; counting on from it would give both the same ids.
        if (pid, at) == (os.getpid(), ms):
            random += 1
        else:
            random = int.from_bytes(os.urandom(_RANDOM_BITS // 8), "big") >> 1
        _last = (os.getpid(), ms, random)
    value = (max(ms, 0) << _RANDOM_BITS) | random
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))
