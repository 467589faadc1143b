"""The commands, and what each takes."""

from __future__ import annotations

import argparse
from typing import Any

from sqlmem.cli import values
from sqlmem.records import KINDS, OUTCOMES

# As in the library, which --help does not wait for.
STRATEGIES = ("balanced", "low_latency")


def embedder(command: argparse.ArgumentParser) -> None:
    """Which models to use."""
    _models(command, "a model's name; several: their mean; or none: keywords only; repeatable (default: the file's)")


def _models(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--embedder", action="append", metavar="NAME", help=text)


def _owner(command: argparse.ArgumentParser) -> None:
    command.add_argument("--user", default="", help="whose memories (default: the one without a name)")
    command.add_argument("--session", help="the conversation")


def _read_only(command: argparse.ArgumentParser) -> None:
    command.add_argument("--read-only", action="store_true", help="write nothing at all, not even an upgrade of the file")


def _filters(command: argparse.ArgumentParser) -> None:
    _owner(command)
    _read_only(command)
    command.add_argument("--all-users", action="store_true", help="everybody's memories")
    _kinds(command)
    command.add_argument("--category", action="append", metavar="NAME", dest="categories", help="only these; repeatable")
    _where(command)
    command.add_argument("--after", type=values.moment, metavar="TIME", help="only what is later")
    command.add_argument("--before", type=values.moment, metavar="TIME", help="only what is earlier")
    command.add_argument("--superseded", action="store_true", help="also versions that a newer one replaced")
    command.add_argument("--as-of", type=values.moment, metavar="TIME", help="what was believed then")
    command.add_argument("--valid-on", type=values.moment, metavar="TIME", help="what is true then")


def _kinds(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kind", action="append", choices=KINDS, dest="kinds", help="only these; repeatable")


def _where(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--where",
        action="append",
        type=values.condition,
        metavar="KEY=VALUE",
        help="by metadata; also != < <= > >= and ~ (contains); repeatable",
    )


def _query(command: argparse.ArgumentParser) -> None:
    command.add_argument("query", metavar="QUERY", help="what to look for")
    _filters(command)
    embedder(command)
    command.add_argument("--strategy", choices=STRATEGIES, default="balanced", help="low_latency: by vectors alone (balanced)")
    command.add_argument("--reranker", metavar="FOLDER", help="a cross-encoder for a second look at the best candidates")
    command.add_argument("--min-relevance", type=float, metavar="R", help="leave out what is less relevant, 0..1")
    command.add_argument("--min-summary-relevance", type=float, metavar="R", help="the same for summaries of sessions")
    command.add_argument("--at-least", type=int, default=0, metavar="N", help="the best so many stay, relevant or not (0)")
    command.add_argument("--now", type=values.moment, metavar="TIME", help="instead of the present")


def _ranking(command: argparse.ArgumentParser) -> None:
    command.add_argument("--half-life-days", type=float, metavar="DAYS", help="age at which recency counts half (7)")
    command.add_argument(
        "--recency-weight", type=float, metavar="W", help="what a new memory gains if it is relevant, 0..1 (0.5)"
    )


def _results(command: argparse.ArgumentParser) -> None:
    command.add_argument("--limit", type=int, default=10, metavar="N", help="at most so many (10)")
    command.add_argument("--budget", type=values.budget, metavar="TOKENS", help="only as many as fit together")
    command.add_argument("--score-gap", type=float, metavar="S", help="leave out what scores below this share of the best")


def _block(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--budget", type=values.budget, default=1500, metavar="TOKENS", help="for the whole text (1500), or none"
    )
    command.add_argument("--recent", type=int, default=6, metavar="N", help="the session's last turns (6)")
    command.add_argument("--summaries", type=int, default=0, metavar="N", help="the latest summaries of sessions (0)")
    command.add_argument("--timezone", metavar="NAME", help="of the dates that are printed, such as Europe/Lisbon (UTC)")
    command.add_argument("--limit", type=int, metavar="N", help="at most so many relevant memories")


def _remember(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", metavar="TEXT", nargs="?", default="-", help="what to remember; - (the default) reads it")
    _owner(command)
    embedder(command)
    command.add_argument("--defer", action="store_true", help="store at once; a later recall or flush computes the vectors")
    command.add_argument("--lines", action="store_true", help="each line of the text is a memory")
    command.add_argument("--role", default="user", help="who said it (user)")
    command.add_argument("--kind", choices=KINDS, help="turn unless this says otherwise")
    command.add_argument("--pin", action="store_true", dest="pinned", help="show it in every context block")
    command.add_argument("--turn", type=int, metavar="N", help="its number in the session (default: the next)")
    command.add_argument("--timestamp", type=values.moment, metavar="TIME", help="when it was said (now)")
    command.add_argument("--valid-from", type=values.moment, metavar="TIME", help="from when a fact is true")
    command.add_argument("--valid-to", type=values.moment, metavar="TIME", help="until when, that moment left out")
    command.add_argument("--id", metavar="ID", help="its id (default: a new one)")
    command.add_argument("--key", help="makes the command repeatable: the same key is the same memory")
    _attributes(command)


def _attributes(command: argparse.ArgumentParser) -> None:
    command.add_argument("--metadata", action="append", type=values.pair, metavar="KEY=VALUE", help="repeatable")
    command.add_argument("--category", action="append", metavar="NAME", dest="categories", help="repeatable")
    command.add_argument("--ttl-days", type=float, metavar="DAYS", help="how long it is recalled; inf: for ever")


def _id(command: argparse.ArgumentParser) -> None:
    command.add_argument("id", metavar="ID", help="a memory's id")


def _turns(command: argparse.ArgumentParser) -> None:
    _owner(command)
    command.add_argument("--last", type=int, metavar="N", help="only the last so many")
    _read_only(command)


def _list(command: argparse.ArgumentParser) -> None:
    _filters(command)
    command.add_argument("--limit", type=int, default=20, metavar="N", help="how many a page (20)")
    command.add_argument("--cursor", help="the page's end that the last call printed")


def _feedback(command: argparse.ArgumentParser) -> None:
    _id(command)
    command.add_argument("outcome", choices=OUTCOMES)
    command.add_argument("correction", metavar="CORRECTION", nargs="?", help="with corrected: what is true; - reads it")
    command.add_argument("--timestamp", type=values.moment, metavar="TIME", help="when it was graded (now)")
    embedder(command)


def _correct(command: argparse.ArgumentParser) -> None:
    _id(command)
    command.add_argument("text", metavar="TEXT", nargs="?", help="the new text; - reads it; without it the old one stays")
    pin = command.add_mutually_exclusive_group()
    pin.add_argument("--pin", action="store_true", default=None, dest="pinned", help="show it in every context block")
    pin.add_argument("--unpin", action="store_false", default=None, dest="pinned", help="no longer")
    _note(command)
    _attributes(command)
    embedder(command)


def _note(command: argparse.ArgumentParser) -> None:
    command.add_argument("--note", metavar="TEXT", help="why, kept with the version that ends")


def _invalidate(command: argparse.ArgumentParser) -> None:
    _id(command)
    command.add_argument("--reason", choices=("invalidated", "system_correction"), default="invalidated")
    _note(command)


def _rollback(command: argparse.ArgumentParser) -> None:
    _id(command)
    command.add_argument("version", metavar="VERSION", type=int, help="the number of the version to take")


def _user(command: argparse.ArgumentParser) -> None:
    command.add_argument("--user", default="", help="whose (default: the one without a name)")


def _trash(command: argparse.ArgumentParser) -> None:
    command.add_argument("--trash-days", type=float, metavar="DAYS", help="let undo bring them back for so long")


def _program(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--command", required=True, dest="program", metavar="PROGRAM", help=text)


def _consolidate(command: argparse.ArgumentParser) -> None:
    _owner(command)
    _program(command, "gets a JSON list of turns (role, text, ts) on standard input, and prints a JSON list of facts")
    command.add_argument("--keep-recent", type=int, default=6, metavar="N", help="the last turns that stay (6)")
    command.add_argument("--older-than", type=values.age, metavar="DAYS", help="days, or a time")
    command.add_argument("--batch-turns", type=int, default=40, metavar="N", help="how many turns it gets at once (40)")
    command.add_argument("--pin", action="store_true", dest="pinned", help="make pins of the facts")
    command.add_argument("--dry-run", action="store_true", help="print what would be stored")
    command.add_argument("--keep-turns", action="store_true", help="leave the turns where they are")
    command.add_argument("--drop-empty", action="store_true", help="delete also turns of which no fact was made")
    _trash(command)
    embedder(command)


def _extract(command: argparse.ArgumentParser) -> None:
    _owner(command)
    _program(command, "a language model: gets a prompt on standard input, and prints its answer")
    command.add_argument("--tokens-a-call", type=int, default=3_000, metavar="N", help="of turns, in one prompt (3000)")
    command.add_argument("--retry-failed", action="store_true", help="read the sessions whose answers could not be used")
    embedder(command)


def _groups(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("list", "get", "delete"), nargs="?", default="list")
    command.add_argument("name", metavar="NAME", nargs="?", help="which one to print, or to delete with all that is its own")
    command.add_argument("--limit", type=int, default=10, metavar="N", help="list: how many a page (10)")
    command.add_argument("--cursor", help="list: the page's end that the last call printed")


def _sessions(command: argparse.ArgumentParser) -> None:
    _groups(command)
    command.add_argument("--user", help="whose (list: everybody's; else the one without a name)")
    command.add_argument("--status", choices=("pending", "processing", "processed", "failed"), help="list: only these")
    _where(command)


def _settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("export", "import", "set"), nargs="?", default="export")
    command.add_argument("group", metavar="GROUP", nargs="?", help="set: extraction or recall")
    command.add_argument("name", metavar="NAME", nargs="?", help="set: which setting")
    command.add_argument("words", metavar="VALUE", nargs="*", help="set: its value, or all lines of a list")


def _conflicts(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("list", "get", "resolve", "mode"), nargs="?", default="list")
    command.add_argument("subject", metavar="ID", nargs="?", help="of a conflict; with mode: supersede, ask or default")
    answer = command.add_mutually_exclusive_group()
    for name in ("keep_old", "take_new", "keep_both"):
        flag = f"--{name.replace('_', '-')}"
        answer.add_argument(flag, action="store_const", const=name, dest="answer", help="resolve: this is true")
    answer.add_argument("--text", metavar="TEXT", help="resolve: what is true instead; - reads it")
    command.add_argument("--user", help="only this user's; with mode: whose")
    command.add_argument("--status", choices=("pending", "failed", "resolved"), help="list: only these (those that wait)")
    command.add_argument("--limit", type=int, default=10, metavar="N", help="list: how many a page (10)")
    command.add_argument("--cursor", help="list: the page's end that the last call printed")
    embedder(command)


def _forget(command: argparse.ArgumentParser) -> None:
    command.add_argument("ids", metavar="ID", nargs="*", help="these memories, of any kind")
    _owner(command)
    _kinds(command)
    command.add_argument("--older-than", type=values.age, metavar="DAYS", help="days, or a time")
    _where(command)
    command.add_argument("--superseded", action="store_true", help="facts and pins that a newer version replaced")
    command.add_argument("--all", action="store_true", help="all turns of the user")
    command.add_argument("--cascade", action="store_true", help="also what was made from them")
    command.add_argument("--resurrect", action="store_true", help="let the version before live again")
    _trash(command)


def _reembed(command: argparse.ArgumentParser) -> None:
    _models(command, "the model that makes the new vectors; repeatable (default: the file's)")
    command.add_argument(
        "--context-vectors",
        action=argparse.BooleanOptionalAction,
        help="a second vector for each turn, with the turn before it",
    )


def _categories(command: argparse.ArgumentParser) -> None:
    actions = ("list", "create", "rename", "describe", "delete", "assign", "unassign")
    command.add_argument("action", choices=actions, nargs="?", default="list")
    command.add_argument("name", metavar="NAME", nargs="?", help="of the category; with assign and unassign: the memory's id")
    command.add_argument(
        "words", metavar="WORD", nargs="*", help="a description, the new name, or the categories to assign or unassign"
    )


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "remember": ("store a memory and print its id", _remember),
    "recall": ("find memories by relevance, recency and feedback", _query, _ranking, _results),
    "context": ("print text to put before a prompt: pins, last turns, relevant memories", _query, _ranking, _block),
    "search": ("find memories by relevance alone", _query, _results),
    "explain": ("say why recall, with the same arguments, finds a memory or not", _query, _id, _ranking, _results),
    "turns": ("print a session in the order spoken", _turns),
    "list": ("print memories, newest first", _list),
    "get": ("print one memory", _id, _read_only),
    "history": ("print all versions of a memory, oldest first", _id, _read_only),
    "feedback": ("grade a memory", _feedback),
    "correct": ("store the next version of a memory and print its id", _correct),
    "invalidate": ("end a memory that is wrong, and print the id of its last version", _invalidate),
    "rollback": ("let an earlier version be true again, and print the id of the new one", _rollback),
    "conflicts": ("print contradictions that wait for an answer, or resolve one", _conflicts),
    "forget": ("delete memories, for good unless --trash-days is given", _forget),
    "consolidate": ("make facts of the old turns of a session by a program of yours", _consolidate),
    "extract": ("make memories of what was said in a session, by a language model", _extract),
    "settings": ("print, set or import what extract and recall are told; import reads JSON from standard input", _settings),
    "sessions": ("print sessions, or delete one", _sessions),
    "users": ("print users, or delete one", _groups),
    "undo": ("take back the last change of a user's memories", _user),
    "redo": ("do again what was undone last", _user),
    "categories": ("print and change categories, or which memories have them", _categories),
    "expire": ("delete what has passed its time to live",),
    "stats": ("print what the store holds", _read_only),
    "check": ("compare the indexes with the memories; exit code 1 if something is wrong", _read_only),
    "rebuild": ("write all search indexes again",),
    "reembed": ("give all memories vectors of other models", _reembed),
    "flush": ("compute the vectors that memories still wait for", embedder),
}
