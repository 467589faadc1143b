"""Commands as calls of the store: what each runs, and how its result is shown."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlmem.cli import changes, owners, show, values
from sqlmem.cli.command import Command, ids, metadata, pairs, read_text
from sqlmem.cli.parser import Usage
from sqlmem.records import CheckReport, ContextBlock

if TYPE_CHECKING:
    from sqlmem.memory_store import MemoryStore


def exit_code(result: object) -> int:
    """0, unless the result says that something is wrong."""
    return 1 if isinstance(result, CheckReport) and not result.ok else 0


# -- reading arguments ------------------------------------------------------------------------------------------------


def _remember_ready(options: Namespace) -> None:
    read_text(options)
    if options.defer and options.embedder == [values.NONE]:
        raise Usage(f"--defer leaves the vectors for later; with --embedder {values.NONE} there are none")
    if options.lines and any(value is not None for value in (options.id, options.key, options.turn)):
        raise Usage("--lines makes several memories; --id, --key and --turn name one")


def _reembed_ready(options: Namespace) -> None:
    if options.embedder is not None and values.NONE in options.embedder:
        raise Usage(f"reembed computes vectors; --embedder {values.NONE} has none")
    options.models = options.embedder
    # The store is opened with the models that it has, or with none where others replace them.
    options.embedder = None if options.models is None else [values.NONE]


def _filters(options: Namespace) -> dict[str, Any]:
    return {
        "session": options.session,
        "user": options.user,
        "all_users": options.all_users,
        "kinds": options.kinds,
        "categories": options.categories,
        "where": values.where(options.where),
        "include_superseded": options.superseded,
        "after": options.after,
        "before": options.before,
        "as_of": options.as_of,
        "valid_on": options.valid_on,
    }


def _query(options: Namespace) -> dict[str, Any]:
    return {
        **_filters(options),
        "limit": options.limit,
        "token_budget": options.budget,
        "at_least": options.at_least,
        "min_relevance": options.min_relevance,
        "min_summary_relevance": options.min_summary_relevance,
        "now": options.now,
        "strategy": options.strategy,
    }


def _ranking(options: Namespace) -> dict[str, Any]:
    return {"half_life_days": options.half_life_days, "recency_weight": options.recency_weight}


# -- calling the store ------------------------------------------------------------------------------------------------


def _remember(store: MemoryStore, options: Namespace) -> object:
    given = {
        "session": options.session,
        "user": options.user,
        "role": options.role,
        "kind": options.kind,
        "pinned": options.pinned,
        "turn": options.turn,
        "timestamp": options.timestamp,
        "metadata": metadata(options),
        "id": options.id,
        "key": options.key,
        "ttl_days": options.ttl_days,
        "valid_from": options.valid_from,
        "valid_to": options.valid_to,
        "categories": options.categories or (),
    }
    if not options.lines:
        return store.remember(options.text, **given)
    lines = [line for line in options.text.splitlines() if line.strip()]
    return store.remember_many([{"text": line, **given} for line in lines])


def _recall(store: MemoryStore, options: Namespace) -> object:
    return store.recall(options.query, **_query(options), **_ranking(options), score_gap=options.score_gap)


def _search(store: MemoryStore, options: Namespace) -> object:
    return store.search(options.query, **_query(options), score_gap=options.score_gap)


def _context(store: MemoryStore, options: Namespace) -> object:
    return store.context(
        options.query,
        **_query(options),
        **_ranking(options),
        recent_turns=options.recent,
        recent_summaries=options.summaries,
        timezone=options.timezone,
    )


def _explain(store: MemoryStore, options: Namespace) -> object:
    return store.explain(options.query, options.id, **_query(options), **_ranking(options), score_gap=options.score_gap)


def _turns(store: MemoryStore, options: Namespace) -> object:
    return store.turns(options.session, options.user, last=options.last)


def _list(store: MemoryStore, options: Namespace) -> object:
    return store.list(**_filters(options), limit=options.limit, cursor=options.cursor, include_previous_versions=False)


def _reembed(store: MemoryStore, options: Namespace) -> object:
    if options.models is None and not store.stats().models:
        raise Usage("the file has no vectors yet, so name a model: reembed --embedder NAME")
    progress = _progress if sys.stderr.isatty() else None
    return {"vectors": store.reembed(options.models, context_vectors=options.context_vectors, progress=progress)}


# -- showing results --------------------------------------------------------------------------------------------------


def _block(result: ContextBlock) -> Iterator[str]:
    if result.text:
        yield show.visible(result.text) if sys.stdout.isatty() else result.text


def _progress(done: int, total: int) -> None:
    # The next line overwrites this one, the last one stays.
    print(f"{done:,} of {total:,} vectors", end="\n" if done >= total else "\r", file=sys.stderr, flush=True)


COMMANDS = {
    "remember": Command(run=_remember, lines=ids, ready=_remember_ready, embeds=True, creates=lambda options: True),
    "recall": Command(run=_recall, lines=show.recall, embeds=True),
    "context": Command(run=_context, lines=_block, embeds=True),
    "search": Command(run=_search, lines=show.recall, embeds=True),
    "explain": Command(run=_explain, lines=show.explanation, embeds=True),
    "turns": Command(run=_turns, lines=show.conversation),
    "list": Command(run=_list, lines=show.page),
    "get": Command(run=lambda store, options: store.get(options.id), lines=show.one),
    "history": Command(run=lambda store, options: store.history(options.id), lines=show.versions),
    "feedback": changes.FEEDBACK,
    "correct": changes.CORRECT,
    "invalidate": changes.INVALIDATE,
    "rollback": changes.ROLLBACK,
    "conflicts": changes.CONFLICTS,
    "forget": changes.FORGET,
    "consolidate": changes.CONSOLIDATE,
    "extract": owners.EXTRACT,
    "settings": owners.SETTINGS,
    "sessions": owners.SESSIONS,
    "users": owners.USERS,
    "undo": changes.UNDO,
    "redo": changes.REDO,
    "categories": changes.CATEGORIES,
    "expire": Command(run=lambda store, options: {"forgotten": store.expire()}, lines=pairs),
    "stats": Command(run=lambda store, options: store.stats(), lines=show.stats),
    "check": Command(run=lambda store, options: store.check(), lines=show.check),
    "rebuild": Command(run=lambda store, options: {"indexed": store.rebuild()}, lines=pairs),
    "reembed": Command(run=_reembed, lines=pairs, ready=_reembed_ready, embeds=True),
    "flush": Command(run=lambda store, options: {"embedded": store.flush()}, lines=pairs, embeds=True),
}
