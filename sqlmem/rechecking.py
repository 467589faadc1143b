"""Judge facts that were stored without a judge."""

from __future__ import annotations

from collections.abc import Callable

from sqlmem import arguments, judging
from sqlmem.engine import Engine
from sqlmem.errors import InvalidArgument
from sqlmem.judging import Contradiction, Statement
from sqlmem.lifecycle import Change, End, changing
from sqlmem.records import RecheckReport
from sqlmem.store import memories, scopes, vector_index
from sqlmem.store.memories import Stored

_NEXT = f"""
select {memories.COLUMNS} from memory indexed by memory_unchecked
 where kind in ('fact', 'pinned') and checked = 0 and ended_at is null and held is null and rowid > :after
   and (expires_at is null or expires_at > :now) and (valid_from is null or valid_from <= :now)
   and (valid_to is null or valid_to > :now) and (:user is null or scope in (select id from scope where user = :user))
 order by rowid limit 1
"""

Progress = Callable[[int], object]


def recheck(engine: Engine, user: object, limit: object, progress: Progress | None) -> RecheckReport:
    """Judge what no judge has seen, the oldest first, each in a transaction of its own."""
    engine.db.require_writable()
    if engine.options.judge is None:
        raise InvalidArgument("recheck() needs a judge, and this store was opened without one: open(..., judge=…)")
    owner = None if user is None else arguments.name("user", user, empty=True)
    most = None if limit is None else arguments.integer("limit", limit, least=1)
    after, checked, call = 0, 0, None
    ended: list[str] = []
    while most is None or checked < most:
        row = engine.db.row(_NEXT, {"after": after, "user": owner, "now": engine.now()})
        if row is None:
            break
        stored = Stored(*row)
        gone, call = _judge(engine, stored, call)
        if gone is None:
            continue  # what it was compared with has changed: once more
        after, checked = stored.rowid, checked + 1
        ended += gone
        if progress is not None:
            progress(checked)
    return RecheckReport(checked=checked, ended=tuple(ended))


def _judge(engine: Engine, stored: Stored, call: int | None) -> tuple[list[str] | None, int | None]:
    """Compare one fact; returns the ids that ended, or None if it is to be compared anew, and the number of the call."""
    scope = scopes.named(engine.db, stored.scope)
    said = Statement(stored.text, vector_index.of(engine.db, stored.rowid), scope[0], scope[1], stored.chain)
    compared = judging.compare(engine, said, judged=True)
    with changing(engine.db, "recheck", engine.now(), call=call) as change:
        now = memories.by_rowids(engine.db, [stored.rowid]).get(stored.rowid)
        if now is None or memories.state(now, change.now) != "live":
            return [], change.call
        if not judging.holds(engine, said, compared):
            return None, change.call
        # What will be true later ends nothing yet: it is judged when its time comes.
        present = [one for one in compared.contradicted if judging.begins(one.stored) <= change.now]
        ended = _settle(change, stored, [one for one in present if judging.meets(stored, one.stored)])
        if compared.checked:
            change.checked(stored.rowid)
    return ended, change.call


def _settle(change: Change, stored: Stored, contradicted: list[Contradiction]) -> list[str]:
    """End what is older for what is newer: the fact itself, if something that it contradicts is of a later time."""
    later = [one for one in contradicted if _order(one.stored) > _order(stored)]
    if later:
        newest = max(later, key=lambda one: _order(one.stored))
        change.supersede([End(stored, "system_correction", newest.verdict.reason)], newest.stored)
        return [stored.id]
    ends = [End(one.stored, "system_correction", one.verdict.reason) for one in contradicted]
    if ends:
        change.supersede(ends, stored)
    return [end.stored.id for end in ends]


def _order(stored: Stored) -> tuple[int, int]:
    # Of two that were said at the same moment the second one counts.
    return judging.begins(stored), stored.rowid
