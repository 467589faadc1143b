"""The command `sqlmem`.

Exit codes: 0 done, 1 an error, 2 the command line makes no sense, 3 not found, 4 busy (try again), 130 interrupted,
141 the reader of the output went away. Errors are one line on standard error.
"""

from __future__ import annotations

import io
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sqlmem.cli import commands, parser, show, values
from sqlmem.errors import Busy, InvalidArgument, ModelMissing, NotFound, SqlmemError

if TYPE_CHECKING:
    from sqlmem.cli.command import Command
    from sqlmem.memory_store import MemoryStore

DONE, ERROR, USAGE, NOT_FOUND, BUSY, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    _force_utf8()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except (parser.Usage, ArgumentTypeError, InvalidArgument) as error:
        return _fail(error, USAGE)
    except NotFound as error:
        return _fail(error, NOT_FOUND)
    except Busy as error:
        return _fail(error, BUSY)
    except ModelMissing as error:
        return _fail(f"{error} (here: --embedder none)", ERROR)
    except BrokenPipeError:
        # Python would complain once more when it flushes standard output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (SqlmemError, OSError) as error:
        return _fail(error, ERROR)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(argv: list[str]) -> int:
    if argv[:1] == ["demo"]:
        from sqlmem.cli import demo

        return _print(demo.run(_parse(parser.build_demo(), argv[1:])))
    if argv[:1] and argv[0] in commands.ARGUMENTS and not (argv[1:] and argv[1] in commands.ARGUMENTS):
        raise parser.Usage(f"the file comes first: sqlmem FILE {argv[0]} …")
    options = _parse(parser.build(), argv)
    from sqlmem.cli import verbs  # not before: --help and a mistyped line need no store

    command = verbs.COMMANDS[options.command]
    command.ready(options)
    with _open(command, options) as store:
        result = command.run(store, options)
        _print([show.to_json(result)] if options.json else command.lines(result))
    return verbs.exit_code(result)


def _parse(command: parser.Parser, argv: list[str]) -> Namespace:
    try:
        return command.parse_args(argv)
    except SystemExit:  # --help and --version have printed
        sys.stdout.flush()
        raise


def _open(command: Command, options: Namespace) -> MemoryStore:
    from sqlmem import memory_store

    embedder = values.embedder(options.embedder) if command.embeds else False
    if getattr(options, "defer", False):
        # A new file must know its models: what is stored without them then waits for their vectors.
        memory_store.open(options.file, embedder=embedder).close()
        embedder = False
    return memory_store.open(
        options.file,
        embedder=embedder,
        create=command.creates(options),
        read_only=getattr(options, "read_only", False),
        reranker=getattr(options, "reranker", None),
    )


def _print(lines: Iterable[str]) -> int:
    for line in lines:
        print(line)
    sys.stdout.flush()  # here, where a reader that went away is still noticed
    return DONE


def _fail(error: object, code: int) -> int:
    print("sqlmem:", show.visible(" ".join(str(error).split())), file=sys.stderr)
    return code


def _force_utf8() -> None:
    """Speak UTF-8 whatever the console's code page: a memory is never stored or shown with ? for its letters."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline=None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
