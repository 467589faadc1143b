"""Forget: which memories go, what goes with them, and what lives again in their place."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmem import arguments, lifecycle, revise
from sqlmem.clock import cutoff_ms, days_ms
from sqlmem.db import Database
from sqlmem.engine import Engine
from sqlmem.errors import InvalidArgument
from sqlmem.lifecycle import Change, changing
from sqlmem.search import filters
from sqlmem.store import memories
from sqlmem.store.memories import Stored

# Versions, and all of every chain of which one was made from one of them, and so on.
_WITH_DERIVED = """
with recursive found (memory) as (
    select value from json_each(:rowids)
    union
    select version.rowid
      from found
      join link on link.dst = found.memory and link.rel in ('consolidated_from', 'extracted_from', 'merged_from')
      join memory derived on derived.rowid = link.src
      join memory version on version.chain = derived.chain
)
select memory from found
"""


def forget(
    engine: Engine,
    *,
    ids: object,
    user: object,
    session: object,
    kinds: object,
    older_than: object,
    where: object,
    superseded: object,
    all_: object,
    cascade: object,
    resurrect: object,
    trash_days: object,
) -> int:
    """Delete what the arguments name, or put it into the trash; returns how many versions went."""
    given = None if ids is None else [arguments.string("an id", id_) for id_ in arguments.several("ids", ids)]
    selective = any(value is not None for value in (ids, session, kinds, older_than, where))
    flags = arguments.boolean("superseded", superseded), arguments.boolean("all", all_)
    if not (selective or any(flags)):
        raise InvalidArgument("forget() without a selector would delete all turns of the user; say all=True to do that")
    if kinds is None and ids is None:
        kinds = ("fact", "pinned") if superseded else ("turn",)
    chosen = filters.build(user=user, session=session, kinds=kinds, where=where)
    now = engine.now()
    cutoff = None if older_than is None else cutoff_ms("older_than", older_than, now)
    until = None if trash_days is None else now + days_ms("trash_days", trash_days, positive=True)
    derived_too, revived = arguments.boolean("cascade", cascade), arguments.boolean("resurrect", resurrect)
    with changing(engine.db, "forget", now) as change:
        rowids = lifecycle.selected(engine.db, chosen, ids=given, older_than=cutoff, superseded=flags[0])
        if derived_too:
            rowids = with_derived(engine.db, rowids)
        heads = _live_chains(engine, change, rowids) if revived else []
        count = change.forget(rowids) if until is None else _trash(engine, change, rowids, until)
        revise.resurrect(change, heads)
        return count


def with_derived(db: Database, rowids: Sequence[int]) -> list[int]:
    """These versions, and all of every memory that was made from one of them, and so on."""
    return [row[0] for row in db.rows(_WITH_DERIVED, {"rowids": memories.array(rowids)})]


def _trash(engine: Engine, change: Change, rowids: Sequence[int], until: int) -> int:
    present = memories.by_rowids(engine.db, rowids)
    waiting = [stored.id for stored in present.values() if stored.held == "proposed"]
    if waiting:
        raise InvalidArgument(
            f"{waiting[0]} is proposed: resolve its conflict, or forget it for good, without trash_days; nothing was changed"
        )
    return change.trash((rowid for rowid, stored in present.items() if stored.held is None), until)


def _live_chains(engine: Engine, change: Change, rowids: Sequence[int]) -> list[int]:
    """The chains whose live version is among these."""

    def is_live(stored: Stored) -> bool:
        return memories.state(stored, change.now) == "live"

    return sorted({stored.chain for stored in memories.by_rowids(engine.db, rowids).values() if is_live(stored)})
