"""Correct and grade: the versions that follow, and what callers say about those that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlmem import arguments, clock, judging
from sqlmem.clock import Ttl, expiry, moment_ms, ttl
from sqlmem.engine import Engine
from sqlmem.errors import Busy, InvalidArgument, NotFound
from sqlmem.judging import Compared, Statement
from sqlmem.lifecycle import Change, End, changing
from sqlmem.records import OUTCOMES, EndReason, Kind, MemoryId, Outcome
from sqlmem.search import filters
from sqlmem.store import labels, memories, scopes, vector_index
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.scopes import Scope
from sqlmem.store.vector_index import Codes

# How often a correction is judged anew because others were stored meanwhile.
ROUNDS = 10


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
    note: object = None,
) -> MemoryId:
    """Store the next version of a memory."""
    why, said = _reason(reason), _note(note)
    wanted = change(text=text, pinned=pinned, metadata=metadata, categories=categories, ttl_days=ttl_days)
    addressed = memories.required(engine.db, id_)
    return _revise(engine, "correct", addressed, wanted, reason=why, at=None, note=said)


def invalidate(engine: Engine, id_: object, reason: object, note: object) -> str:
    """End a memory without a successor; returns the id of the version that ended."""
    why, said = _end_reason(reason), _note(note)
    addressed = memories.required(engine.db, id_)
    with changing(engine.db, "invalidate", engine.now()) as change_:
        head = memories.head(engine.db, addressed.chain)
        if head is None:
            raise NotFound(f"{addressed.id} has no live version that could be invalidated")
        change_.end(End(head, why, said))
        return head.id


def rollback(engine: Engine, id_: object, version: object) -> MemoryId:
    """Store an earlier version's statement as the next version."""
    number = arguments.integer("version", version, least=1)
    addressed = memories.required(engine.db, id_)
    with changing(engine.db, "rollback", engine.now()) as change_:
        held = {stored.version: stored for stored in memories.chain(engine.db, addressed.chain) if stored.held is None}
        if number not in held:
            known = ", ".join(map(str, held)) or "none"
            raise NotFound(f"{addressed.id} has no version {number} that is still held; held are: {known}")
        head = memories.head(engine.db, addressed.chain)
        wanted = held[number]
        if head is not None and head.rowid == wanted.rowid and memories.state(head, change_.now) == "live":
            return MemoryId(head.id, created=False)
        new = again(change_, wanted, change_.now)
        ends = [] if head is None else [End(head, "updated", f"rolled back to version {number}")]
        change_.succeed(ends, new, vector_index.of(engine.db, wanted.rowid), categories=labels.held(engine.db, wanted.rowid))
        return MemoryId(new.id, superseded=() if head is None else (head.id,))


def resurrect(change_: Change, chains: Iterable[int]) -> list[str]:
    """Let the last version that is left of chains without a head live again, as a new version of the same time."""
    revived = []
    for chain in chains:
        left = [stored for stored in memories.chain(change_.db, chain) if stored.held is None]
        if left and not _expired(left[-1], change_.now) and memories.head(change_.db, chain) is None:
            last = left[-1]
            new = replace(again(change_, last, last.at), expires_at=last.expires_at)
            codes = vector_index.of(change_.db, last.rowid)
            change_.succeed([], new, codes, categories=labels.held(change_.db, last.rowid))
            revived.append(new.id)
    return revived


def again(change_: Change, wanted: Stored, at: int) -> NewMemory:
    """The next version of a chain, which says what an earlier one said; a turn keeps its time."""
    moment = wanted.at if wanted.kind == "turn" else at
    lifetime = None if wanted.expires_at is None else wanted.expires_at - wanted.at
    last = memories.chain(change_.db, wanted.chain)[-1]
    return NewMemory(
        id=clock.new_id(change_.now),
        scope=wanted.scope,
        kind=wanted.kind,
        role=wanted.role,
        turn=wanted.turn,
        text=wanted.text,
        at=moment,
        created_at=max(change_.now, last.created_at, last.ended_at or 0),
        expires_at=expiry(moment, lifetime, otherwise=None),
        valid_from=wanted.valid_from,
        valid_to=wanted.valid_to,
        metadata=wanted.metadata,
        chain=wanted.chain,
    )


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
    if wanted is not None:
        return _revise(engine, "feedback", addressed, wanted, reason="updated", at=at, graded=("corrected", at))
    with changing(engine.db, "feedback", engine.now()) as change_:
        _grade(change_, addressed, (outcome, at))
    return None


def _revise(
    engine: Engine,
    verb: str,
    addressed: Stored,
    wanted: Wanted,
    *,
    reason: EndReason,
    at: int | None,
    note: str | None = None,
    graded: tuple[Outcome, int] | None = None,
) -> MemoryId:
    """Store the next version in one transaction, with the grade that came with it. A fact's new text is judged."""
    codes = _codes_of_text(engine, addressed, wanted.text)
    for _ in range(ROUNDS):
        said, compared = _compare(engine, addressed, wanted, codes)
        with changing(engine.db, verb, engine.now()) as change_:
            filters.check_categories(engine.db, wanted.categories or ())
            if compared is not None and said is not None and not judging.holds(engine, said, compared):
                continue
            if graded is not None:
                _grade(change_, addressed, graded)
            return apply(change_, addressed, wanted, codes, reason=reason, at=at, note=note, compared=compared)
    raise Busy(
        f"{engine.db.path}: other facts near to the correction were stored each time that it was compared; nothing was "
        "written, try again",
        path=engine.db.path,
    )


def _compare(engine: Engine, addressed: Stored, wanted: Wanted, codes: Codes) -> tuple[Statement | None, Compared | None]:
    """What the judge says of a fact's new text. A user who wants to be asked is not: who corrects says what is true."""
    if engine.options.judge is None or wanted.text is None or addressed.kind == "turn":
        return None, None
    user, session = scopes.named(engine.db, addressed.scope)
    said = Statement(wanted.text, codes, user, session, addressed.chain)
    return said, judging.compare(engine, said, judged=judging.mode(engine, user) == "supersede")


def _grade(change_: Change, addressed: Stored, graded: tuple[Outcome, int]) -> None:
    memories.required(change_.db, addressed.id)  # it may have been forgotten meanwhile
    change_.grade(addressed, *graded)


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


def apply(
    change: Change,
    addressed: Stored,
    wanted: Wanted,
    codes: Codes,
    *,
    reason: EndReason,
    at: int | None,
    note: str | None = None,
    compared: Compared | None = None,
) -> MemoryId:
    """Store the version that follows the chain's head, or return the head if nothing would differ.

    What the new text contradicts, as `compared` says, ends for it too.
    """
    db, now = change.db, change.now
    head = memories.head(db, addressed.chain)
    if head is None or memories.state(head, now) == "expired":
        raise NotFound(f"{addressed.id} has no live version that could be corrected; remember() the statement anew")
    new = _successor(head, wanted, now, now if at is None else at)
    held = labels.held(db, head.rowid)
    same_categories = wanted.categories is None or set(wanted.categories) == set(held)
    unchanged = (new.text, new.kind, new.metadata) == (head.text, head.kind, head.metadata)
    same_ttl = wanted.ttl is None or (wanted.ttl == "forever" and head.expires_at is None)
    if unchanged and same_categories and same_ttl:
        return MemoryId(head.id, created=False)
    if new.text == head.text:
        codes = vector_index.of(db, head.rowid)
    ends = [End(head, reason, note)]
    similar: tuple[str, ...] = ()
    if compared is not None:
        earlier = [one for one in compared.contradicted if judging.begins(one.stored) <= judging.begins(new)]
        ends += [End(stored, reason, verdict.reason) for stored, verdict in earlier if judging.meets(new, stored)]
        new = replace(new, checked=int(compared.checked), created_at=max(new.created_at, *(e.stored.created_at for e in ends)))
        similar = compared.similar
    categories = held if wanted.categories is None else wanted.categories
    change.succeed(ends, new, codes, categories=categories)
    return MemoryId(new.id, superseded=tuple(end.stored.id for end in ends), similar=similar)


@dataclass(frozen=True, slots=True)
class Heir:
    """Where a memory stands that takes the place of others."""

    chain: int
    kind: Kind
    scope: int


def heir(olds: Sequence[Stored], kind: Kind, scope: Scope) -> Heir:
    """The place of what replaces `olds`: next in the first one's chain, pinned if one was, in the widest scope of them all."""
    chain = olds[0].chain
    pinned = any(old.kind == "pinned" for old in olds)
    wide = scope.base in (scope.id, *(old.scope for old in olds))
    return Heir(chain, "pinned" if pinned else kind, scope.base if wide else scope.id)


def _successor(head: Stored, wanted: Wanted, now: int, at: int) -> NewMemory:
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
    )


def _expired(stored: Stored, now: int) -> bool:
    return stored.expires_at is not None and stored.expires_at <= now


def _codes_of_text(engine: Engine, addressed: Stored, text: str | None) -> Codes:
    if text is None or engine.encoder is None or engine.options.deferred:
        return {}
    return engine.encoder.documents(engine.db, [(addressed.role, text)])[0]


def _note(note: object) -> str | None:
    return None if note is None else arguments.string("note", note)


def _end_reason(reason: object) -> EndReason:
    if reason == "invalidated":
        return "invalidated"
    if reason == "system_correction":
        return "system_correction"
    raise InvalidArgument(f"reason must be 'invalidated' or 'system_correction', not {reason!r}")


def _reason(reason: object) -> EndReason:
    # The other reasons belong to verbs of their own, which do what the reason says.
    if reason == "updated":
        return "updated"
    if reason == "system_correction":
        return "system_correction"
    raise InvalidArgument(f"reason must be 'updated' or 'system_correction', not {reason!r}")
