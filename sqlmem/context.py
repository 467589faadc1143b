"""The context block: text for a prompt, put together under a token budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlmem import excerpts
from sqlmem import recall as recalling
from sqlmem.candidates import Encoded
from sqlmem.draft import Draft
from sqlmem.engine import Engine
from sqlmem.excerpts import Passages, Step
from sqlmem.recall import Question, Ranked
from sqlmem.records import ContextBlock, Memory
from sqlmem.search import filters, keywords
from sqlmem.search.filters import Filter
from sqlmem.store import memories, scopes
from sqlmem.store.memories import Stored

# Pins are few: their own index is read, whatever the scope.
_PINS = f"""
select {memories.OF_M} from memory m {{index}}
 where m.kind = 'pinned' and {{condition}} order by m.at, m.rowid
"""
# Summaries are few as well. The latest come first.
_SUMMARIES = f"""
select {memories.OF_M} from memory m {{index}}
 where m.kind = 'summary' and {{condition}} order by m.at desc, m.rowid desc limit :count
"""
# A memory whose best passages do not fit is passed over; after so many in a row what is left of the budget is too little.
FAILURES = 24
# No more memories are taken apart than could be printed in a budget, counted by their number and by their text.
TOKENS_A_MEMORY = 16
TAKEN_APART = 8


def context(engine: Engine, asked: Question, recent_turns: int, recent_summaries: int) -> ContextBlock:
    """Pins, then recent turns, then the latest summaries, then what is relevant, as far as the budget goes."""
    most = recalling.POOL if asked.limit is None and asked.token_budget is None else asked.limit

    def answer(encoded: Encoded, bonus: Mapping[int, float]) -> ContextBlock:
        pins = _pins(engine, asked)
        draft = Draft(engine.options.token_counter, asked.token_budget, pins, asked.zone)
        over = not draft.fits()
        turns = _last_turns(engine, asked, recent_turns)
        summaries = _latest_summaries(engine, asked, recent_summaries)
        _from_newest(turns, draft.add_recent)
        _from_newest(summaries, draft.add_summary)
        shown = {item.rowid for item in (*draft.pins, *draft.recent, *draft.summaries)}
        ranked = recalling.rank(engine, asked, encoded, bonus, exclude=shown)[:most]
        _fill(engine, draft, asked, ranked)
        draft.trim(item.stored.rowid for item in ranked)
        wanted = {item.rowid for item in (*turns, *summaries)} | {item.stored.rowid for item in ranked}
        cut = len(wanted - draft.rowids())
        retrieved = tuple(_retrieved(engine, draft, ranked, asked))

        def records(fixed: Sequence[Stored]) -> tuple[Memory, ...]:
            return tuple(memories.records(engine.db, fixed, asked.now, as_of=asked.chosen.as_of))

        return ContextBlock(
            text=draft.text(),
            pinned=records(draft.pins),
            summaries=records(draft.summaries),
            recent=records(draft.recent),
            retrieved=retrieved,
            query=asked.query,
            session=asked.chosen.session,
            token_budget=asked.token_budget,
            token_estimate=engine.options.token_counter(draft.text()),
            truncated=over or cut > 0 or any(memory.excerpt is not None for memory in retrieved),
            cut_count=cut,
        )

    return recalling.answered(engine, asked, answer)


def _fill(engine: Engine, draft: Draft, asked: Question, ranked: Sequence[Ranked]) -> None:
    """Print the relevant memories: whole where there is room for all, else those passages that are worth the most."""
    if draft.budget is None or not asked.query or _fit_whole(draft, ranked):
        for item in ranked:
            draft.show(item, item.stored.text)
        return
    _compete(engine, draft, asked, ranked)
    failures = 0
    for item in ranked:
        # What was not taken apart, or is nearly all there, may fit whole into what is left.
        shown = draft.relevant.get(item.stored.rowid)
        if shown is not None and shown.text == item.stored.text:
            continue
        failures = 0 if draft.show(item, item.stored.text) else failures + 1
        if failures == FAILURES:
            return


def _compete(engine: Engine, draft: Draft, asked: Question, ranked: Sequence[Ranked]) -> None:
    """Print the best passages of the best memories, as far as the budget goes."""
    assert draft.budget is not None, "without a budget everything fits"
    kept: dict[int, set[int]] = {}
    refused: set[int] = set()
    failures = 0
    for item, read, step in _steps(engine, draft.budget, asked, ranked):
        rowid = item.stored.rowid
        if rowid in refused:
            continue
        text = excerpts.excerpt(read, wanted := kept.get(rowid, set()) | set(step.passages))
        if draft.show(item, text):
            failures = 0
            kept[rowid] = wanted if text != read.text else set(range(len(read.spans)))
            continue
        failures += 1
        if failures == FAILURES:
            return
        if rowid not in kept:
            refused.add(rowid)


def _fit_whole(draft: Draft, ranked: Sequence[Ranked]) -> bool:
    """Whether there is room for all of the memories; tried only as long as their texts alone do not show the contrary."""
    assert draft.budget is not None, "without a budget everything fits"
    total, empty = 0, draft.count("")
    for item in ranked:
        # Without what the counter adds to every text, and the token that a seam may save.
        total += max(0, draft.count(item.stored.text) - empty - 1)
        if total > draft.budget:
            return False
    whole = all(draft.show(item, item.stored.text) for item in ranked)
    draft.clear()
    return whole


def _steps(engine: Engine, budget: int, asked: Question, ranked: Sequence[Ranked]) -> list[tuple[Ranked, Passages, Step]]:
    """What may be printed, the best first: passages of the best memories, by their own worth and by that of the memory."""
    shares = keywords.weights(engine.db, asked.query, engine.frequencies)
    found: list[tuple[float, int, int, Step]] = []
    read: list[Passages] = []
    characters = 0
    for place, item in enumerate(ranked[: max(1, budget // TOKENS_A_MEMORY)]):
        read.append(engine.reader.read(item.stored.rowid, item.stored.text))
        standing = excerpts.standing(item.score, ranked[0].score, place)
        # Of equal steps the earlier one of a memory first: it begins with the one that makes an excerpt long enough.
        steps = enumerate(excerpts.steps(read[-1], shares))
        found += [(-standing - step.value, place, number, step) for number, step in steps]
        characters += len(item.stored.text)
        if characters > TAKEN_APART * 4 * budget:
            break
    found.sort(key=lambda entry: entry[:3])
    return [(ranked[place], read[place], step) for _, place, _, step in found]


def _retrieved(engine: Engine, draft: Draft, ranked: Sequence[Ranked], asked: Question) -> list[Memory]:
    """The relevant memories of the block in rank order, each with what is printed of it where that is not all."""
    shown = [item for item in ranked if item.stored.rowid in draft.relevant]
    printed = [draft.relevant[item.stored.rowid].text for item in shown]
    return [
        memory if text == memory.text else replace(memory, excerpt=text)
        for memory, text in zip(recalling.recalled(engine, shown, asked), printed, strict=True)
    ]


def _pins(engine: Engine, asked: Question) -> list[Stored]:
    return _standing(engine, asked, _PINS, "memory_pin")


def _latest_summaries(engine: Engine, asked: Question, count: int) -> list[Stored]:
    """The latest summaries of sessions, the newest first."""
    return _standing(engine, asked, _SUMMARIES, "memory_summary", count=count) if count else []


def _standing(engine: Engine, asked: Question, sql: str, index: str, **bound: int) -> list[Stored]:
    """What is shown whatever the question is, from an index of its own, which holds what lives now."""
    chosen = asked.chosen
    wanted = Filter(
        user=chosen.user,
        session=chosen.session,
        all_users=chosen.all_users,
        as_of=chosen.as_of,
        valid_on=chosen.valid_on,
    )
    condition = filters.condition(engine.db, wanted, asked.now)
    if condition is None:
        return []
    statement = sql.format(index=f"indexed by {index}" if condition.live_only else "", condition=condition.sql)
    return [Stored(*row) for row in engine.db.rows(statement, {**condition.bindings, **bound})]


def _last_turns(engine: Engine, asked: Question, count: int) -> list[Stored]:
    """The session's last turns, newest first."""
    session = asked.chosen.session
    scope = None if session is None else scopes.find(engine.db, asked.chosen.user, session)
    if scope is None or count == 0:
        return []
    return memories.last_turns(engine.db, scope.id, asked.now, count, as_of=asked.chosen.as_of)


def _from_newest(given: Sequence[Stored], add: Callable[[Stored], bool]) -> None:
    """Add what happened, from the newest back, until one does not fit: a conversation with a hole would mislead."""
    for one in given:
        if not add(one):
            return
