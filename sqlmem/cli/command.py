"""What a command is, and what several of them share."""

from __future__ import annotations

import shlex
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlmem.cli.parser import Usage

if TYPE_CHECKING:
    from sqlmem.memory_store import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`run` calls the store; `lines` shows what came back; `ready` refuses arguments before anything is opened.

    `creates` says whether a missing file is made, `embeds` whether the model may be needed.
    """

    run: Callable[[MemoryStore, Namespace], object]
    lines: Callable[[Any], Iterable[str]]
    ready: Callable[[Namespace], None] = lambda options: None
    embeds: bool = False
    creates: Callable[[Namespace], bool] = lambda options: False


def read_text(options: Namespace) -> None:
    """Read the text that stands as - from standard input."""
    for name in ("text", "correction"):
        if getattr(options, name, None) == "-":
            setattr(options, name, _standard_input())


def _standard_input() -> str:
    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise Usage(f"standard input is not UTF-8: {error}; nothing was written") from error


def metadata(options: Namespace) -> dict[str, Any] | None:
    """What --metadata said."""
    return None if options.metadata is None else dict(options.metadata)


def ids(result: object) -> Iterator[str]:
    """One id, or several, one a line."""
    yield from map(str, result if isinstance(result, list) else [result])


def pairs(result: dict[str, object]) -> Iterator[str]:
    """Names and values, one pair a line."""
    yield from (f"{name.replace('_', ' ')}: {value}" for name, value in result.items() if value is not None)


def split_program(options: Namespace) -> None:
    """Take --command apart, as a shell would, into `options.words`."""
    try:
        options.words = shlex.split(options.program)
    except ValueError as error:
        raise Usage(f"--command {options.program!r} is no command line: {error}") from error
    if not options.words:
        raise Usage("--command names no program")


def run_program(words: list[str], given: str) -> str:
    """What a program prints that gets `given` on standard input. Raises CalledProcessError, OSError, UnicodeDecodeError."""
    return subprocess.run(words, input=given.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
