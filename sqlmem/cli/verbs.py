"""Commands as calls of the store: what each runs, and how its result is shown."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlmem.cli import show, values
from sqlmem.cli.parser import Usage
from sqlmem.records import CheckReport, ContextBlock

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


def exit_code(result: object) -> int:
    """0, unless the result says that something is wrong."""
    return 1 if isinstance(result, CheckReport) and not result.ok else 0


# -- reading arguments ------------------------------------------------------------------------------------------------


def _read_text(options: Namespace) -> None:
    for name in ("text", "correction"):
        if getattr(options, name, None) == "-":
            setattr(options, name, _standard_input())


def _standard_input() -> str:
    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise Usage(f"standard input is not UTF-8: {error}; nothing was written") from error


def _remember_ready(options: Namespace) -> None:
    _read_text(options)
    if options.defer and options.embedder == [values.NONE]:
        raise Usage(f"--defer leaves the vectors for later; with --embedder {values.NONE} there are none")
    if options.lines and any(value is not None for value in (options.id, options.key, options.turn)):
        raise Usage("--lines makes several memories; --id, --key and --turn name one")


def _feedback_ready(options: Namespace) -> None:
    _read_text(options)
    # Without a new text there is nothing to embed: the model, which may be the caller's own, is not needed.
    if options.correction is None:
        options.embedder = [values.NONE]


def _correct_ready(options: Namespace) -> None:
    _read_text(options)
    given = (options.text, options.pinned, options.metadata, options.categories, options.ttl_days)
    if all(value is None for value in given):
        raise Usage("nothing to correct: give a text, --pin, --unpin, --metadata, --category or --ttl-days")


def _forget_ready(options: Namespace) -> None:
    # The library refuses this too, in the words of its own arguments.
    chosen = (options.ids, options.kinds, options.where, options.superseded, options.all)
    if not any(chosen) and options.session is None and options.older_than is None:
        raise Usage("forget what? Give an ID, --session, --kind, --older-than, --where, --superseded or --all")


def _reembed_ready(options: Namespace) -> None:
    if options.embedder is not None and values.NONE in options.embedder:
        raise Usage(f"reembed computes vectors; --embedder {values.NONE} has none")
    options.models = options.embedder
    # The store is opened with the models that it has, or with none where others replace them.
    options.embedder = None if options.models is None else [values.NONE]


def _categories_ready(options: Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        raise Usage("categories list, categories create NAME [DESCRIPTION], or categories delete NAME")


def _metadata(options: Namespace) -> dict[str, Any] | None:
    return None if options.metadata is None else dict(options.metadata)


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
    }


def _query(options: Namespace) -> dict[str, Any]:
    return {
        **_filters(options),
        "limit": options.limit,
        "token_budget": options.budget,
        "min_relevance": options.min_relevance,
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
        "metadata": _metadata(options),
        "id": options.id,
        "key": options.key,
        "ttl_days": options.ttl_days,
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
    return store.context(options.query, **_query(options), **_ranking(options), recent_turns=options.recent)


def _explain(store: MemoryStore, options: Namespace) -> object:
    return store.explain(options.query, options.id, **_query(options), **_ranking(options), score_gap=options.score_gap)


def _turns(store: MemoryStore, options: Namespace) -> object:
    return store.turns(options.session, options.user, last=options.last)


def _list(store: MemoryStore, options: Namespace) -> object:
    return store.list(**_filters(options), limit=options.limit, cursor=options.cursor, include_previous_versions=False)


def _feedback(store: MemoryStore, options: Namespace) -> object:
    new = store.feedback(options.id, options.outcome, options.correction, options.timestamp)
    return {"id": options.id, "outcome": options.outcome, "correction_id": new}


def _correct(store: MemoryStore, options: Namespace) -> object:
    return store.correct(
        options.id,
        options.text,
        pinned=options.pinned,
        metadata=_metadata(options),
        categories=options.categories,
        ttl_days=options.ttl_days,
    )


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
    )
    return {"forgotten": forgotten}


def _reembed(store: MemoryStore, options: Namespace) -> object:
    if options.models is None and not store.stats().models:
        raise Usage("the file has no vectors yet, so name a model: reembed --embedder NAME")
    progress = _progress if sys.stderr.isatty() else None
    return {"vectors": store.reembed(options.models, context_vectors=options.context_vectors, progress=progress)}


def _categories(store: MemoryStore, options: Namespace) -> object:
    if options.action == "create":
        store.categories.create(options.name, options.description)
    elif options.action == "delete":
        store.categories.delete(options.name)
    return store.categories.list()


# -- showing results --------------------------------------------------------------------------------------------------


def _ids(result: object) -> Iterator[str]:
    yield from map(str, result if isinstance(result, list) else [result])


def _block(result: ContextBlock) -> Iterator[str]:
    if result.text:
        yield show.visible(result.text) if sys.stdout.isatty() else result.text


def _progress(done: int, total: int) -> None:
    # The next line overwrites this one, the last one stays.
    print(f"{done:,} of {total:,} vectors", end="\n" if done >= total else "\r", file=sys.stderr, flush=True)


def _pairs(result: dict[str, object]) -> Iterator[str]:
    yield from (f"{name.replace('_', ' ')}: {value}" for name, value in result.items() if value is not None)


COMMANDS = {
    "remember": Command(run=_remember, lines=_ids, ready=_remember_ready, embeds=True, creates=lambda options: True),
    "recall": Command(run=_recall, lines=show.recall, embeds=True),
    "context": Command(run=_context, lines=_block, embeds=True),
    "search": Command(run=_search, lines=show.recall, embeds=True),
    "explain": Command(run=_explain, lines=show.explanation, embeds=True),
    "turns": Command(run=_turns, lines=show.conversation),
    "list": Command(run=_list, lines=show.page),
    "get": Command(run=lambda store, options: store.get(options.id), lines=show.one),
    "history": Command(run=lambda store, options: store.history(options.id), lines=show.versions),
    "feedback": Command(run=_feedback, lines=_pairs, ready=_feedback_ready, embeds=True),
    "correct": Command(run=_correct, lines=_ids, ready=_correct_ready, embeds=True),
    "forget": Command(run=_forget, lines=_pairs, ready=_forget_ready),
    "categories": Command(
        run=_categories,
        lines=show.categories,
        ready=_categories_ready,
        creates=lambda options: options.action == "create",
    ),
    "expire": Command(run=lambda store, options: {"forgotten": store.expire()}, lines=_pairs),
    "stats": Command(run=lambda store, options: store.stats(), lines=show.stats),
    "check": Command(run=lambda store, options: store.check(), lines=show.check),
    "rebuild": Command(run=lambda store, options: {"indexed": store.rebuild()}, lines=_pairs),
    "reembed": Command(run=_reembed, lines=_pairs, ready=_reembed_ready, embeds=True),
    "flush": Command(run=lambda store, options: {"embedded": store.flush()}, lines=_pairs, embeds=True),
}
