"""Repeated calls and their medians, on the clock and in CPU time. Standard library only."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Call = Callable[[], object]
Spent = Callable[[], tuple[float, float]]
"""Seconds (CPU, clock) spent so far on what is not to be counted."""

WARM_UP = 5


def nothing() -> tuple[float, float]:
    """Nothing is taken out."""
    return 0.0, 0.0


@dataclass(frozen=True)
class Sample:
    """What each of several calls took, in milliseconds."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median CPU time."""
        return statistics.median(self.cpu)

    @property
    def median_wall(self) -> float:
        """The median time on the clock."""
        return statistics.median(self.wall)

    @property
    def p95(self) -> float:
        """The CPU time that 19 of 20 calls stay within."""
        return sorted(self.cpu)[math.ceil(0.95 * len(self.cpu)) - 1]


def timed(calls: Sequence[Call], *, less: Spent = nothing, warm_up: int = WARM_UP) -> Sample:
    """Run the first `warm_up` calls untimed, then all the others; `less` is taken out of each."""
    for call in calls[:warm_up]:
        call()
    cpu, wall = [], []
    for call in calls[warm_up:]:
        own = _one(call, less)
        cpu.append(own[0] * 1000)
        wall.append(own[1] * 1000)
    return Sample(tuple(cpu), tuple(wall))


def once(call: Call, *, less: Spent = nothing) -> Sample:
    """One call, timed."""
    return timed([call], less=less, warm_up=0)


def _one(call: Call, less: Spent) -> tuple[float, float]:
    outside = less()
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    inside = less()
    return cpu - (inside[0] - outside[0]), wall - (inside[1] - outside[1])
