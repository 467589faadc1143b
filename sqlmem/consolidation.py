"""Consolidate: the old turns of a session become facts, batch by batch, each in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlmem import arguments, conflicts, facts, ingest
from sqlmem.asking import Asker
from sqlmem.clock import cutoff_ms, days_ms, from_ms
from sqlmem.engine import Engine, Summarize
from sqlmem.errors import Busy, CallbackError, InvalidArgument, SqlmemError
from sqlmem.facts import Prepared
from sqlmem.ingest import Item
from sqlmem.lifecycle import Change, changing
from sqlmem.records import ConsolidationReport, MemoryId
from sqlmem.store import memories, scopes
from sqlmem.store.memories import Stored, array
from sqlmem.store.scopes import Scope

# How often a batch is summarized anew because its turns, or what its facts were compared with, have changed meanwhile.
ROUNDS = 10

_LIVE = """
 scope = :scope and kind = 'turn' and ended_at is null and held is null and (expires_at is null or expires_at > :now)
"""
_LAST = f"select turn from memory where {_LIVE} order by turn desc limit 1 offset :keep"
_OLD = f"""
 {_LIVE} and turn > :after and turn <= :last and (:cutoff is null or at < :cutoff)
 and not exists (select 1 from link join memory fact on fact.rowid = link.src
                  where link.dst = memory.rowid and link.rel = 'consolidated_from' and fact.held is not 'trash')
"""
_BATCH = f"select {memories.COLUMNS} from memory where {_OLD} order by turn limit :size"
_COUNT = f"select count(*) from memory where {_OLD}"
_STILL = f"select count(*) from memory where {_OLD} and rowid in (select value from json_each(:rowids))"

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Checked arguments. `cutoff` is a moment and `trash` a time, in milliseconds; `pinned` is about the facts."""

    user: str
    session: str | None
    keep_recent: int
    cutoff: int | None
    batch_turns: int
    pinned: bool
    delete: bool
    keep_turns: bool
    drop_empty: bool
    trash: int | None


def plan(
    engine: Engine,
    session: object,
    *,
    user: object,
    keep_recent: object,
    older_than: object,
    batch_turns: object,
    pinned: object,
    delete: object,
    keep_turns: object,
    drop_empty: object,
    trash_days: object,
) -> Plan:
    """Check the arguments of consolidate(). Raises InvalidArgument."""
    chosen = Plan(
        user=arguments.name("user", user, empty=True),
        session=None if session is None else arguments.name("session", session),
        keep_recent=arguments.integer("keep_recent", keep_recent, least=0),
        cutoff=None if older_than is None else cutoff_ms("older_than", older_than, engine.now()),
        batch_turns=arguments.integer("batch_turns", batch_turns, least=1),
        pinned=arguments.boolean("pinned", pinned),
        delete=arguments.boolean("delete", delete),
        keep_turns=arguments.boolean("keep_turns", keep_turns),
        drop_empty=arguments.boolean("drop_empty", drop_empty),
        trash=None if trash_days is None else days_ms("trash_days", trash_days, positive=True),
    )
    if chosen.keep_turns and (chosen.trash is not None or chosen.drop_empty):
        raise InvalidArgument("keep_turns=True keeps the turns; leave trash_days and drop_empty out")
    return chosen


def consolidate(engine: Engine, chosen: Plan, summarize: Summarize | None, progress: Progress | None) -> ConsolidationReport:
    """Make facts of a session's old turns, the oldest first."""
    if summarize is None:
        summarize = _by_model(engine)
    if not callable(summarize):
        raise InvalidArgument(f"summarize must be a callable that makes facts of turns, not {summarize!r}")
    if progress is not None and not callable(progress):
        raise InvalidArgument(f"progress must be callable, not {progress!r}")
    if chosen.delete:
        engine.db.require_writable()
    run = _Run(engine, chosen, summarize)
    for turns in run.batches():
        run.take(turns)
        if progress is not None:
            progress(len(run.turn_ids) + run.passed, run.total)
    return run.report()


def _by_model(engine: Engine) -> Summarize:
    """A summarizer that asks the store's language model."""
    if engine.options.llm is None:
        raise InvalidArgument("consolidate() needs a summarizer, or a store that was opened with llm=…")
    asker = Asker(engine, engine.options.llm)

    def summarize(turns: list[dict[str, str]]) -> Any:
        lines = "\n".join(json.dumps(turn, ensure_ascii=False) for turn in turns)
        return asker.ask("summarize", "facts", turns=lines)["facts"]

    return summarize


class _Run:
    """One call: what it has done so far."""

    def __init__(self, engine: Engine, chosen: Plan, summarize: Summarize) -> None:
        self.engine, self.chosen = engine, chosen
        self._summarize = summarize
        self._call: int | None = None
        self.total = self.passed = self._removed = self._batches = self._empty = 0
        self.turn_ids: list[str] = []
        self._facts: list[str] = []
        self._fact_ids: list[MemoryId] = []
        # Turns after this one are not consolidated, those up to it were looked at.
        self._last = self._after = -1

    def batches(self) -> Iterator[list[Stored]]:
        """The turns to consolidate, a batch at a time, each read when the one before is done."""
        scope = scopes.find(self.engine.db, self.chosen.user, self.chosen.session)
        if scope is None:
            return
        with self.engine.db.read():
            bound = {"scope": scope.id, "now": self.engine.now(), "keep": self.chosen.keep_recent}
            last = self.engine.db.value(_LAST, bound)
            self._last = -1 if last is None else last
            self.total = self.engine.db.value(_COUNT, self._bound(scope))
        while turns := self._read(scope):
            yield turns

    def take(self, turns: Sequence[Stored]) -> None:
        """Consolidate a batch. If its turns change meanwhile it is left as it is, and read again."""
        rounds = 0
        while rounds < ROUNDS:
            texts = self._summary(turns)
            done = self._keep(turns, texts) if self.chosen.delete else self._show(turns, texts)
            if done:
                self._batches += 1
                self._after = turns[-1].turn or 0
                return
            before, turns = turns[0].turn, self._again()
            if not turns:
                return
            # Where another process has taken them, the work goes on all the same.
            rounds = rounds + 1 if turns[0].turn == before else 0
        raise Busy(
            f"{self.engine.db.path}: turns or facts changed each time that they were summarized; {self._done()}",
            path=self.engine.db.path,
        )

    def report(self) -> ConsolidationReport:
        """What was done."""
        return ConsolidationReport(
            session=self.chosen.session,
            batches=self._batches,
            empty_batches=self._empty,
            facts=tuple(self._facts),
            fact_ids=tuple(self._fact_ids),
            turn_ids=tuple(self.turn_ids),
            turns_removed=self._removed,
        )

    def _bound(self, scope: Scope) -> dict[str, object]:
        now = self.engine.now()
        return {"scope": scope.id, "now": now, "after": self._after, "last": self._last, "cutoff": self.chosen.cutoff}

    def _read(self, scope: Scope) -> list[Stored]:
        rows = self.engine.db.rows(_BATCH, {**self._bound(scope), "size": self.chosen.batch_turns})
        return [Stored(*row) for row in rows]

    def _again(self) -> list[Stored]:
        scope = scopes.find(self.engine.db, self.chosen.user, self.chosen.session)
        return [] if scope is None else self._read(scope)

    def _summary(self, turns: Sequence[Stored]) -> list[str]:
        """What the summarizer makes of a batch: texts without space around them, each once. Raises CallbackError."""
        shown = [{"role": turn.role, "text": turn.text, "ts": from_ms(turn.at).isoformat()} for turn in turns]
        try:
            answer = self._summarize(shown)
        except SqlmemError:
            raise
        except Exception as error:
            raise CallbackError(f"the summarizer raised {type(error).__name__}: {error}; {self._done()}") from error
        if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Sequence):
            raise CallbackError(
                f"the summarizer must return a list of strings, it returned {arguments.shown(answer)}; {self._done()}"
            )
        try:
            texts = [arguments.string("a fact", text).strip() for text in answer]
        except InvalidArgument as error:
            raise CallbackError(f"the summarizer must return strings: {error}; {self._done()}") from error
        return list(dict.fromkeys(text for text in texts if text))

    def _done(self) -> str:
        return (
            f"{len(self._fact_ids)} facts of {len(self.turn_ids)} turns are stored, the turns after these are as they were"
            if self.chosen.delete
            else "nothing was written"
        )

    def _show(self, turns: Sequence[Stored], texts: Sequence[str]) -> bool:
        self._note(turns, texts, [])
        return True

    def _keep(self, turns: Sequence[Stored], texts: Sequence[str]) -> bool:
        """Store a batch's facts and take its turns away, in one transaction; False if something has changed meanwhile."""
        engine, db = self.engine, self.engine.db
        items = [self._item(text, turns) for text in texts]
        judged = engine.options.judge is not None
        prepared = {
            place: facts.prepare(engine, new, judged=judged)
            for place, new in enumerate(items)
            if not ingest.is_repeat(engine, new)
        }
        with changing(db, "consolidate", engine.now(), call=self._call) as change:
            scope = scopes.ensure(db, self.chosen.user, self.chosen.session, change.now)
            change.touch(scope.id)
            still = {**self._bound(scope), "rowids": array(turn.rowid for turn in turns)}
            if db.value(_STILL, still) != len(turns) or not self._hold(change, scope, items, prepared):
                return False
            ids = self._store(change, scope, items, prepared, turns)
            removed = self._take_away(change, turns) if ids or self.chosen.drop_empty else 0
        self._call = change.call
        self._removed += removed
        self._note(turns, texts, ids)
        for stored in ids:
            conflicts.announce(engine, stored)
        return True

    def _hold(self, change: Change, scope: Scope, items: Sequence[Item], prepared: Mapping[int, Prepared]) -> bool:
        return all(
            facts.holds(self.engine, prepared[place], scope, change.now)
            if place in prepared
            else ingest.find(self.engine.db, new, scope.id, change.now) is not None
            for place, new in enumerate(items)
        )

    def _store(
        self, change: Change, scope: Scope, items: Sequence[Item], prepared: Mapping[int, Prepared], turns: Sequence[Stored]
    ) -> list[MemoryId]:
        ids = []
        for place, new in enumerate(items):
            if place in prepared:
                ids.append(facts.store(self.engine, change, prepared[place], scope))
            else:
                known = ingest.find(self.engine.db, new, scope.id, change.now)
                assert known is not None, "a repeat that holds"
                change.seen(known)
                ids.append(MemoryId(known.id, created=False))
            fact = memories.required(self.engine.db, ids[-1]).rowid
            change.link(fact, (turn.rowid for turn in turns), "consolidated_from")
        return ids

    def _take_away(self, change: Change, turns: Sequence[Stored]) -> int:
        rowids = [turn.rowid for turn in turns]
        if self.chosen.keep_turns:
            return 0
        return change.forget(rowids) if self.chosen.trash is None else change.trash(rowids, change.now + self.chosen.trash)

    def _item(self, text: str, turns: Sequence[Stored]) -> Item:
        """A fact of the time of its newest turn, whose own time to live counts from now."""
        item = ingest.item(
            text,
            session=self.chosen.session,
            user=self.chosen.user,
            role="summary",
            kind="pinned" if self.chosen.pinned else "fact",
        )
        at = max(turn.at for turn in turns)
        lifetime = self.engine.options.ttl_ms.get(item.kind)
        return replace(item, at=at, ttl=None if lifetime is None else self.engine.now() - at + lifetime)

    def _note(self, turns: Sequence[Stored], texts: Sequence[str], ids: Sequence[MemoryId]) -> None:
        if texts or self.chosen.drop_empty:
            self.turn_ids += [turn.id for turn in turns]
        else:
            self.passed += len(turns)
        self._empty += not texts
        self._facts += texts
        self._fact_ids += ids
