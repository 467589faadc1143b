"""Extract: what a conversation says becomes memories. A language model reads, everything else is bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlmem import arguments, asking, clock, conflicts, facts, ingest, judging, settings
from sqlmem.asking import Asker, Unread
from sqlmem.clock import from_ms
from sqlmem.engine import Engine, LanguageModel
from sqlmem.errors import Busy
from sqlmem.facts import Prepared
from sqlmem.ingest import Item
from sqlmem.lifecycle import Change, End, changing
from sqlmem.reading import Candidate, Decision, Reader, Reading
from sqlmem.records import ExtractionFailure, ExtractionReport, MemoryId, Verdict
from sqlmem.store import failures, keyword_index, memories, scopes, vector_index
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.scopes import Scope
from sqlmem.store.vector_index import Codes

# How often a session is read anew because it, or what it was compared with, has changed meanwhile.
ROUNDS = 3
# Turns from before, which the model sees so that it understands the new ones.
BEFORE = 4

_TURNS = f"""
select {memories.COLUMNS} from memory
 where scope = :scope and kind = 'turn' and ended_at is null and held is null and (expires_at is null or expires_at > :now)
   and turn > :after order by turn
"""
_BEFORE = f"""
select * from (
    select {memories.COLUMNS} from memory
     where scope = :scope and kind = 'turn' and ended_at is null and held is null
       and (expires_at is null or expires_at > :now) and turn <= :after
     order by turn desc limit :count)
 order by turn
"""


@dataclass(slots=True)
class Outcome:
    """What became of a session's candidates, as it is done."""

    ids: list[MemoryId] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    summary: str | None = None


def extract(
    engine: Engine,
    session: object,
    *,
    user: object,
    llm: object,
    tokens_a_call: object,
    close: bool = False,
) -> ExtractionReport:
    """Make memories of the turns of a session that were not read yet; `close` notes that it was processed."""
    model = asking.model(engine, llm, "extract()")
    owner = arguments.name("user", user, empty=True)
    name = None if session is None else arguments.name("session", session)
    budget = arguments.integer("tokens_a_call", tokens_a_call, least=1)
    engine.db.require_writable()
    for _ in range(ROUNDS):
        report = _round(engine, model, owner, name, budget, close)
        if report is not None:
            return report
    raise Busy(
        f"{engine.db.path}: the session or what it was compared with changed each time that it was read; nothing was written, "
        "try again",
        path=engine.db.path,
    )


def failed(engine: Engine, user: object) -> list[ExtractionFailure]:
    """The sessions that could not be read."""
    owner = None if user is None else arguments.name("user", user, empty=True)
    return [
        ExtractionFailure(user=one.user, session=one.session, error=one.error, answer=one.answer, at=from_ms(one.at))
        for one in failures.every(engine.db, owner)
    ]


def retry(engine: Engine, user: object, *, llm: object, tokens_a_call: object) -> list[ExtractionReport]:
    """Read again the sessions that could not be read."""
    engine.db.require_writable()
    return [_again(engine, one, llm, tokens_a_call) for one in failed(engine, user)]


def _again(engine: Engine, one: ExtractionFailure, llm: object, tokens_a_call: object) -> ExtractionReport:
    scope = scopes.find(engine.db, one.user, one.session)
    close = scope is not None and scopes.status(engine.db, scope.id) == "failed"
    return extract(engine, one.session, user=one.user, llm=llm, tokens_a_call=tokens_a_call, close=close)


def _round(
    engine: Engine, model: LanguageModel, user: str, session: str | None, budget: int, close: bool
) -> ExtractionReport | None:
    scope = scopes.find(engine.db, user, session)
    if scope is None:
        return _report(session, [], Reading(), Outcome())
    with engine.db.read():
        after = scopes.extracted_to(engine.db, scope.id)
        bound = {"scope": scope.id, "now": engine.now(), "after": after}
        turns = [Stored(*row) for row in engine.db.rows(_TURNS, bound)]
        before = [Stored(*row) for row in engine.db.rows(_BEFORE, {**bound, "count": BEFORE})]
        summary = _summary(engine, scope)
    if not turns:
        if close:
            with engine.db.write():
                scopes.processed(engine.db, scope.id, engine.now())
        return _report(session, [], Reading(), Outcome())
    reader = Reader(engine, model, settings.extraction(engine.db))
    try:
        reading_ = reader.read(turns, before, "" if summary is None else summary.text, budget)
        items = [_item(one, user, turns) for one in reading_.candidates]
        prepared = _compared(engine, items, reader.settings.similarity_top_k)
        decisions = reader.decide(items, {place: one.compared.near for place, one in prepared.items()})
    except Unread as failure:
        with engine.db.write():
            failures.add(engine.db, scope.id, str(failure), _storable(failure.answer), engine.now())
        raise Unread(f"{failure}; the answer is kept, and retry_failed() asks again", failure.answer) from failure
    codes = _codes(engine, reading_.summary)
    with changing(engine.db, "extract", engine.now()) as change:
        if not _still(engine, change, scope, after, turns, items, prepared):
            return None
        outcome = _apply(engine, change, scope, reading_, items, prepared, decisions, turns)
        outcome.summary = _summarize(engine, change, scope, summary, reading_.summary, turns, codes)
        change.extracted(scope.id, turns[-1].turn or 0)
        failures.drop(engine.db, scope.id)
        if close:
            scopes.processed(engine.db, scope.id, change.now)
    for stored in outcome.ids:
        conflicts.announce(engine, stored)
    return _report(session, turns, reading_, outcome, reader.asker)


def _compared(engine: Engine, items: Sequence[Item], top_k: int) -> dict[int, Prepared]:
    """What is near to each statement that is not known word for word, the `top_k` nearest."""
    found = {}
    for place, new in enumerate(items):
        if not ingest.is_repeat(engine, new):
            one = facts.prepare(engine, new, judged=False, least=0.0)
            found[place] = replace(one, compared=replace(one.compared, near=one.compared.near[:top_k]))
    return found


def _still(
    engine: Engine,
    change: Change,
    scope: Scope,
    after: int,
    turns: Sequence[Stored],
    items: Sequence[Item],
    prepared: Mapping[int, Prepared],
) -> bool:
    """Whether nothing has changed meanwhile: the turns, what was read of them, and what is near to what they say."""
    db, now = engine.db, change.now
    if scopes.extracted_to(db, scope.id) != after or not all(judging.lives(db, turn, now) for turn in turns):
        return False
    base = scopes.of_memory(db, scope.base)
    return all(
        facts.holds(engine, prepared[place], base, now)
        if place in prepared
        else ingest.find(db, new, scope.base, now) is not None
        for place, new in enumerate(items)
    )


def _apply(
    engine: Engine,
    change: Change,
    scope: Scope,
    reading_: Reading,
    items: Sequence[Item],
    prepared: Mapping[int, Prepared],
    decisions: Mapping[int, Decision],
    turns: Sequence[Stored],
) -> Outcome:
    outcome, base = Outcome(), scopes.of_memory(engine.db, scope.base)
    change.touch(base.id)
    numbers = {turn.turn: turn.rowid for turn in turns}
    for place, (candidate, new) in enumerate(zip(reading_.candidates, items, strict=True)):
        sources = [numbers[number] for number in candidate.turns]
        known = ingest.find(engine.db, new, base.id, change.now)
        decision = decisions.get(place, Decision("new"))
        if known is not None or decision.action == "duplicate":
            _count(engine, change, known or decision.near[0].stored, sources, outcome)
        elif decision.action == "invalidate":
            _invalidate(engine, change, decision, outcome)
        else:
            stored = _store(engine, change, prepared[place], decision, base)
            change.link(memories.required(engine.db, stored).rowid, sources, "extracted_from")
            outcome.ids.append(stored)
            outcome.ended += stored.superseded
    return outcome


def _count(engine: Engine, change: Change, known: Stored, sources: Sequence[int], outcome: Outcome) -> None:
    if judging.lives(engine.db, known, change.now):
        change.seen(known)
        change.link(known.rowid, sources, "extracted_from")
        outcome.repeated.append(known.id)


def _invalidate(engine: Engine, change: Change, decision: Decision, outcome: Outcome) -> None:
    for near in decision.near:
        if judging.lives(engine.db, near.stored, change.now):
            change.end(End(near.stored, "invalidated", decision.reason))
            outcome.ended.append(near.stored.id)


def _store(engine: Engine, change: Change, prepared: Prepared, decision: Decision, base: Scope) -> MemoryId:
    verdict = Verdict(contradicts=True, reason=decision.reason, question=decision.question, options=decision.options)
    compared = replace(
        prepared.compared,
        shown=decision.near,
        verdicts=[verdict for _ in decision.near] if decision.action != "new" else [],
        checked=True,
    )
    stored = facts.store(
        engine,
        change,
        replace(prepared, compared=compared),
        base,
        reason="merged" if decision.action == "merge" else "updated",
        mode=decision.mode,
    )
    if decision.action == "merge" and stored.superseded:
        merged = [near.stored.rowid for near in decision.near if near.stored.id in stored.superseded]
        change.link(memories.required(engine.db, stored).rowid, merged, "merged_from")
    return stored


def _item(candidate: Candidate, user: str, turns: Sequence[Stored]) -> Item:
    """A statement of the user's own, of the time of the last turn that says it."""
    said = [turn for turn in turns if turn.turn in candidate.turns]
    item = ingest.item(candidate.text, user=user, kind="fact", metadata=candidate.metadata, categories=candidate.categories)
    return replace(item, at=max(turn.at for turn in said))


def _summary(engine: Engine, scope: Scope) -> Stored | None:
    chain = scopes.summary(engine.db, scope.id)
    return None if chain is None else memories.head(engine.db, chain)


def _codes(engine: Engine, text: str) -> Codes:
    if not text or engine.encoder is None or engine.options.deferred:
        return {}
    return engine.encoder.documents(engine.db, [("summary", text)])[0]


def _summarize(
    engine: Engine, change: Change, scope: Scope, known: Stored | None, text: str, turns: Sequence[Stored], codes: Codes
) -> str | None:
    """Store the session's summary, seen from all of the user's sessions, or its next version. Returns its id."""
    present = None if known is None else memories.head(engine.db, known.chain)
    if not text or (present is not None and present.text == text):
        return None if present is None else present.id
    _, session = scopes.named(engine.db, scope.id)
    new = NewMemory(
        id=clock.new_id(change.now),
        scope=scope.base,
        kind="summary",
        role="summary",
        turn=None,
        text=text,
        at=max(turn.at for turn in turns),
        created_at=change.now if present is None else max(change.now, present.created_at),
        expires_at=ingest.lifetime(engine, "summary", max(turn.at for turn in turns), change.now),
        metadata=arguments.metadata({} if session is None else {"session": session}),
        checked=1,
    )
    if present is not None:
        rowid = change.succeed([End(present, "updated")], replace(new, chain=present.chain), codes)
    else:
        with keyword_index.following(engine.db) as affected:
            rowid = change.begin(new)
            affected.add(rowid)
        vector_index.add(engine.db, {rowid: codes})
        scopes.set_summary(engine.db, scope.id, rowid)
    change.link(rowid, (turn.rowid for turn in turns), "extracted_from")
    return new.id


def _storable(answer: str) -> str:
    return answer.encode("utf-8", "replace").decode().replace("\0", "")


def _report(
    session: str | None, turns: Sequence[Stored], reading_: Reading, outcome: Outcome, asker: Asker | None = None
) -> ExtractionReport:
    return ExtractionReport(
        session=session,
        turns=len(turns),
        memory_ids=tuple(outcome.ids),
        repeated=tuple(outcome.repeated),
        ended=tuple(outcome.ended),
        dropped=tuple(reading_.dropped),
        summary_id=outcome.summary,
        calls=0 if asker is None else asker.calls,
        mended=0 if asker is None else asker.mended,
        retried=0 if asker is None else asker.retried,
    )
