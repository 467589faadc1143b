"""Correct and grade: the versions that follow, and what callers say about those that are there."""

from __future__ import annotations

from dataclasses import dataclass

from sqlmem import arguments, clock
from sqlmem.clock import Ttl, expiry, moment_ms, ttl
from sqlmem.engine import Engine
from sqlmem.errors import InvalidArgument, NotFound
from sqlmem.lifecycle import Change, End, changing
from sqlmem.records import OUTCOMES, EndReason, MemoryId
from sqlmem.search import filters
from sqlmem.store import memories, vector_index
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.vector_index import Codes

_CATEGORY_NAMES = """
select c.name from memory_category mc join category c on c.id = mc.category where mc.memory = :rowid order by c.name
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a next version has that its predecessor has not; None keeps what was."""

    text: str | None
    pinned: bool | None
    metadata: str | None
    categories: tuple[str, ...] | None
    ttl: Ttl


def correct(
    engine: Engine,
    id_: object,
    *,
    text: object = None,
    pinned: object = None,
    metadata: object = None,
    categories: object = None,
    ttl_days: object = None,
    reason: object = "updated",
) -> MemoryId:
    """Store the next version of a memory."""
    why = _reason(reason)
    wanted = change(text=text, pinned=pinned, metadata=metadata, categories=categories, ttl_days=ttl_days)
    addressed = memories.required(engine.db, id_)
    codes = _codes_of_text(engine, addressed, wanted.text)
    with changing(engine.db, "correct", engine.now()) as change_:
        filters.check_categories(engine.db, wanted.categories or ())
        return apply(change_, addressed, wanted, codes, reason=why, at=None)


def feedback(engine: Engine, id_: object, outcome: object, correction: object, timestamp: object) -> MemoryId | None:
    """Grade a memory, and with a correction store its next version."""
    if outcome not in OUTCOMES:
        raise InvalidArgument(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
    if correction == "":
        correction = None
    if correction is not None and outcome != "corrected":
        raise InvalidArgument(f"a correction goes with the outcome 'corrected', not with {outcome!r}")
    wanted = None if correction is None else change(text=correction)
    at = engine.now() if timestamp is None else moment_ms("timestamp", timestamp)
    addressed = memories.required(engine.db, id_)
    codes = {} if wanted is None else _codes_of_text(engine, addressed, wanted.text)
    with changing(engine.db, "feedback", engine.now()) as change_:
        memories.required(engine.db, addressed.id)  # it may have been forgotten meanwhile
        change_.grade(addressed, outcome, at)
        return None if wanted is None else apply(change_, addressed, wanted, codes, reason="updated", at=at)


def change(
    *,
    text: object = None,
    pinned: object = None,
    metadata: object = None,
    categories: object = None,
    ttl_days: object = None,
) -> Wanted:
    """Check the parts of a next version. Raises InvalidArgument."""
    return Wanted(
        text=None if text is None else arguments.text(text),
        pinned=None if pinned is None else arguments.boolean("pinned", pinned),
        metadata=None if metadata is None else arguments.metadata(metadata),
        categories=None if categories is None else arguments.category_names(categories),
        ttl=ttl(ttl_days),
    )


def apply(change: Change, addressed: Stored, wanted: Wanted, codes: Codes, *, reason: EndReason, at: int | None) -> MemoryId:
    """Store the version that follows the chain's head, or return the head if nothing would differ."""
    db, now = change.db, change.now
    head = memories.head(db, addressed.chain)
    if head is None or memories.state(head, now) == "expired":
        raise NotFound(f"{addressed.id} has no live version that could be corrected; remember() the statement anew")
    new = _successor(head, wanted, memories.next_version(db, head.chain), now, now if at is None else at)
    held = tuple(row[0] for row in db.rows(_CATEGORY_NAMES, {"rowid": head.rowid}))
    same_categories = wanted.categories is None or set(wanted.categories) == set(held)
    unchanged = (new.text, new.kind, new.metadata) == (head.text, head.kind, head.metadata)
    same_ttl = wanted.ttl is None or (wanted.ttl == "forever" and head.expires_at is None)
    if unchanged and same_categories and same_ttl:
        return MemoryId(head.id, created=False)
    if new.text == head.text:
        codes = vector_index.of(db, head.rowid)
    change.succeed([End(head, reason)], new, codes, categories=wanted.categories)
    return MemoryId(new.id, superseded=(head.id,))


def _successor(head: Stored, wanted: Wanted, version: int, now: int, at: int) -> NewMemory:
    kind = head.kind
    if wanted.pinned is not None:
        if kind not in ("fact", "pinned"):
            raise InvalidArgument(f"{head.id} is a {kind}; only facts can be pinned, so remember() it as one")
        kind = "pinned" if wanted.pinned else "fact"
    # A turn keeps the time at which it was said, so that the conversation reads in order.
    moment = head.at if kind == "turn" else at
    lifetime = None if head.expires_at is None else head.expires_at - head.at
    return NewMemory(
        id=clock.new_id(now),
        scope=head.scope,
        kind=kind,
        role=head.role,
        turn=head.turn,
        text=head.text if wanted.text is None else wanted.text,
        at=moment,
        # Never before its predecessor: a clock that was set back must not make a history run backwards.
        created_at=max(now, head.created_at),
        expires_at=expiry(moment, wanted.ttl, otherwise=lifetime),
        valid_from=head.valid_from,
        valid_to=head.valid_to,
        metadata=head.metadata if wanted.metadata is None else wanted.metadata,
        chain=head.chain,
        version=version,
    )


def _codes_of_text(engine: Engine, addressed: Stored, text: str | None) -> Codes:
    if text is None or engine.encoder is None or engine.options.deferred:
        return {}
    return engine.encoder.documents(engine.db, [(addressed.role, text)])[0]


def _reason(reason: object) -> EndReason:
    # The other reasons belong to verbs of their own, which do what the reason says.
    if reason == "updated":
        return "updated"
    if reason == "system_correction":
        return "system_correction"
    raise InvalidArgument(f"reason must be 'updated' or 'system_correction', not {reason!r}")
