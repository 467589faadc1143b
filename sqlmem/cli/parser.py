"""The command line: what can be said to `sqlmem`."""

from __future__ import annotations

import argparse
from typing import NoReturn

from sqlmem import __version__
from sqlmem.cli import commands

DESCRIPTION = """Conversation memory in one SQLite file.

    sqlmem chat.db remember "I'd like the report as a PDF" --session u42
    sqlmem chat.db recall "which format" --session u42 --budget 300
    sqlmem demo
"""
EPILOG = """`sqlmem FILE COMMAND --help` explains a command. `sqlmem demo [--keep PATH]` shows them on a sample conversation.
Only `remember` and `categories create` make a missing file. A text of - is read from standard input, as UTF-8. Times are UTC.
Exit codes: 0 done, 1 an error, 2 the command line makes no sense, 3 not found, 4 busy (try again)."""


class Usage(Exception):
    """The command line makes no sense; the message says why."""


class Parser(argparse.ArgumentParser):
    """Raises Usage instead of printing several lines and leaving."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse."""
        raise Usage(f"{message} (see: {self.prog} --help)")


def build() -> Parser:
    """The parser of `sqlmem FILE COMMAND …`."""
    parser = Parser(
        prog="sqlmem",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sqlmem {__version__}")
    parser.add_argument("file", metavar="FILE", help="the store's file")
    names = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="sqlmem FILE")
    for name, (text, *groups) in commands.ARGUMENTS.items():
        command = names.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        for add in groups:
            add(command)
        command.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def build_demo() -> Parser:
    """The parser of `sqlmem demo`."""
    parser = Parser(prog="sqlmem demo", description="Show what sqlmem does, on a sample conversation.", allow_abbrev=False)
    parser.add_argument("--keep", metavar="PATH", help="keep the store in this new file")
    commands.embedder(parser)
    return parser
