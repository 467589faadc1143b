"""The commands about users and sessions, what is read in these, and what reading is told."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlmem.cli import show, values
from sqlmem.cli.command import Command, run_program, split_program
from sqlmem.cli.parser import Usage

if TYPE_CHECKING:
    from sqlmem.memory_store import MemoryStore


def _groups_ready(options: Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        raise Usage(f"{options.command} list, {options.command} get NAME, or {options.command} delete NAME")


def _sessions_ready(options: Namespace) -> None:
    _groups_ready(options)
    if options.action != "list" and (options.status is not None or options.where):
        raise Usage(f"--status and --where belong to sessions list, not to sessions {options.action}")


def _settings_ready(options: Namespace) -> None:
    if (options.group is not None and options.name is not None) != (options.action == "set"):
        raise Usage("settings export, settings import, or settings set extraction|recall NAME VALUE…")
    if options.group not in (None, "extraction", "recall"):
        raise Usage(f"settings are those of extraction or of recall, not of {options.group!r}")


def _extract(store: MemoryStore, options: Namespace) -> object:
    model = partial(run_program, options.words)
    if options.retry_failed:
        return store.retry_failed(options.user, llm=model, tokens_a_call=options.tokens_a_call)
    return [store.extract(options.session, user=options.user, llm=model, tokens_a_call=options.tokens_a_call)]


def _sessions(store: MemoryStore, options: Namespace) -> object:
    user = options.user or ""
    if options.action == "get":
        return store.sessions.get(options.name, user)
    if options.action == "delete":
        return {"forgotten": store.sessions.delete(options.name, user)}
    where = values.where(options.where)
    return store.sessions.list(
        user=options.user, status=options.status, where=where, limit=options.limit, cursor=options.cursor
    )


def _users(store: MemoryStore, options: Namespace) -> object:
    if options.action == "get":
        return store.users.get(options.name)
    if options.action == "delete":
        return {"forgotten": store.users.delete(options.name)}
    return store.users.list(limit=options.limit, cursor=options.cursor)


def _settings(store: MemoryStore, options: Namespace) -> object:
    if options.action == "import":
        try:
            store.settings.import_(json.load(sys.stdin))
        except ValueError as error:
            raise Usage(f"standard input is no JSON: {error}; nothing was changed") from error
    elif options.action == "set":
        update = store.settings.update_extraction if options.group == "extraction" else store.settings.update_recall
        update(**{options.name: _value(store, options)})
    return store.settings.export()


def _value(store: MemoryStore, options: Namespace) -> Any:
    """A list as it was given, anything else as JSON."""
    if isinstance(store.settings.export()[options.group].get(options.name), list):
        return options.words
    try:
        return json.loads(" ".join(options.words))
    except ValueError:
        return " ".join(options.words)


EXTRACT = Command(run=_extract, lines=show.extractions, ready=split_program, embeds=True)
SETTINGS = Command(run=_settings, lines=show.settings, ready=_settings_ready)
SESSIONS = Command(run=_sessions, lines=show.groups, ready=_sessions_ready)
USERS = Command(run=_users, lines=show.groups, ready=_groups_ready)
