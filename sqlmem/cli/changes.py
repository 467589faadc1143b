"""The commands that change what is known, or take a change back."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlmem.cli import show, values
from sqlmem.cli.command import Command, ids, metadata, pairs, read_text, run_program, split_program
from sqlmem.cli.parser import Usage

if TYPE_CHECKING:
    from sqlmem.memory_store import MemoryStore


def _feedback_ready(options: Namespace) -> None:
    read_text(options)
    # Without a new text there is nothing to embed: the model, which may be the caller's own, is not needed.
    if options.correction is None:
        options.embedder = [values.NONE]


def _correct_ready(options: Namespace) -> None:
    read_text(options)
    given = (options.text, options.pinned, options.metadata, options.categories, options.ttl_days)
    if all(value is None for value in given):
        raise Usage("nothing to correct: give a text, --pin, --unpin, --metadata, --category or --ttl-days")


def _forget_ready(options: Namespace) -> None:
    # The library refuses this too, in the words of its own arguments.
    chosen = (options.ids, options.kinds, options.where, options.superseded, options.all)
    if not any(chosen) and options.session is None and options.older_than is None:
        raise Usage("forget what? Give an ID, --session, --kind, --older-than, --where, --superseded or --all")


def _conflicts_ready(options: Namespace) -> None:
    answered = options.answer is not None or options.text is not None
    wrong = (options.subject is None) != (options.action == "list") and options.action != "mode"
    if wrong or answered != (options.action == "resolve"):
        raise Usage(
            "conflicts list, conflicts get ID, conflicts resolve ID with --keep-old, --take-new, --keep-both or --text TEXT, "
            "or conflicts mode [supersede|ask|default]"
        )
    if options.action == "mode" and options.subject not in (None, *MODES):
        raise Usage(f"the mode is one of {', '.join(MODES)}, not {options.subject!r}")
    read_text(options)
    # A text of one's own is stored; nothing else here needs the model.
    if options.text is None:
        options.embedder = [values.NONE]


def _categories_ready(options: Namespace) -> None:
    words = len(options.words)
    fitting = {"list": words == 0, "create": words < 2, "delete": words == 0, "rename": words == 1, "describe": words == 1}
    if (options.name is None) != (options.action == "list") or not fitting.get(options.action, words > 0):
        raise Usage(
            "categories list, categories create NAME [DESCRIPTION], categories rename NAME NEW, categories describe NAME "
            "DESCRIPTION, categories delete NAME, categories assign ID NAME…, or categories unassign ID NAME…"
        )


def _feedback(store: MemoryStore, options: Namespace) -> object:
    new = store.feedback(options.id, options.outcome, options.correction, options.timestamp)
    return {"id": options.id, "outcome": options.outcome, "correction_id": new}


def _correct(store: MemoryStore, options: Namespace) -> object:
    return store.correct(
        options.id,
        options.text,
        pinned=options.pinned,
        metadata=metadata(options),
        categories=options.categories,
        ttl_days=options.ttl_days,
        note=options.note,
    )


def _invalidate(store: MemoryStore, options: Namespace) -> object:
    return store.invalidate(options.id, options.reason, note=options.note)


def _forget(store: MemoryStore, options: Namespace) -> object:
    forgotten = store.forget(
        ids=options.ids or None,
        user=options.user,
        session=options.session,
        kinds=options.kinds,
        older_than=options.older_than,
        where=values.where(options.where),
        superseded=options.superseded,
        all=options.all,
        cascade=options.cascade,
        resurrect=options.resurrect,
        trash_days=options.trash_days,
    )
    return {"forgotten": forgotten}


def _consolidate(store: MemoryStore, options: Namespace) -> object:
    return store.consolidate(
        options.session,
        _summarizer(options.words),
        user=options.user,
        keep_recent=options.keep_recent,
        older_than=options.older_than,
        batch_turns=options.batch_turns,
        pinned=options.pinned,
        delete=not options.dry_run,
        keep_turns=options.keep_turns,
        drop_empty=options.drop_empty,
        trash_days=options.trash_days,
    )


def _summarizer(words: list[str]) -> Callable[[list[dict[str, str]]], Any]:
    """Runs a program for each batch. What fails here reaches the user as the summarizer's error."""

    def summarize(turns: list[dict[str, str]]) -> Any:
        return json.loads(run_program(words, json.dumps(turns, ensure_ascii=False)))

    return summarize


def _conflicts(store: MemoryStore, options: Namespace) -> object:
    match options.action:
        case "get":
            return store.conflicts.get(options.subject)
        case "resolve":
            return store.conflicts.resolve(options.subject, options.answer, text=options.text)
        case "mode":
            user = options.user or ""
            if options.subject is not None:
                store.conflicts.set_mode(MODES[options.subject], user)
            return {"user": user, "mode": store.conflicts.mode(user) or "default"}
    return store.conflicts.list(user=options.user, status=options.status, limit=options.limit, cursor=options.cursor)


def _categories(store: MemoryStore, options: Namespace) -> object:
    if options.action != "list":
        getattr(store.categories, options.action)(options.name, *options.words)
    return store.categories.list()


MODES: dict[str, Any] = {"supersede": "supersede", "ask": "ask", "default": None}

FEEDBACK = Command(run=_feedback, lines=pairs, ready=_feedback_ready, embeds=True)
CORRECT = Command(run=_correct, lines=ids, ready=_correct_ready, embeds=True)
INVALIDATE = Command(run=_invalidate, lines=ids)
ROLLBACK = Command(run=lambda store, options: store.rollback(options.id, options.version), lines=ids)
CONFLICTS = Command(run=_conflicts, lines=show.conflicts, ready=_conflicts_ready, embeds=True)
FORGET = Command(run=_forget, lines=pairs, ready=_forget_ready)
CONSOLIDATE = Command(run=_consolidate, lines=show.consolidation, ready=split_program, embeds=True)
UNDO = Command(run=lambda store, options: store.undo(options.user), lines=show.undone)
REDO = Command(run=lambda store, options: store.redo(options.user), lines=show.undone)
CATEGORIES = Command(
    run=_categories,
    lines=show.categories,
    ready=_categories_ready,
    creates=lambda options: options.action == "create",
)
