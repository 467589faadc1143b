"""Undo and redo: a user's last calls, taken back and done again step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlmem import arguments
from sqlmem.clock import from_ms
from sqlmem.db import Database
from sqlmem.engine import Engine
from sqlmem.errors import NotFound
from sqlmem.lifecycle import KEPT_UNDONE_MS
from sqlmem.records import EndReason, Undone
from sqlmem.store import conflicts, feedback, keyword_index, memories, operations, scopes, states, vector_index
from sqlmem.store.operations import Call, Step
from sqlmem.store.states import Place


def undo(engine: Engine, user: object) -> Undone:
    """Take back the user's last call, with all its steps, the last one first."""
    owner = arguments.name("user", user, empty=True)
    until = engine.now() + KEPT_UNDONE_MS
    with engine.db.write():
        call = operations.newest(engine.db, owner)
        if call is None:
            raise NotFound(f"there is nothing to undo for user {owner!r}; the last {operations.KEPT} calls are kept")
        if call.state == "final":
            raise NotFound(f"the last call of user {owner!r}, {_named(call)}, was final; it cannot be undone")
        steps = operations.steps(engine.db, owner, call)
        _require_held(engine.db, _memories(steps, "trash"), f"{_named(call)} cannot be undone: what it put into the trash")
        return _run(engine.db, owner, call, steps[::-1], lambda step: _back(engine.db, step, until))


def redo(engine: Engine, user: object) -> Undone:
    """Do again what the user undid last."""
    owner = arguments.name("user", user, empty=True)
    with engine.db.write():
        call = operations.first_undone(engine.db, owner)
        if call is None:
            raise NotFound(f"there is nothing to redo for user {owner!r}: a call after undo() makes it final")
        steps = operations.steps(engine.db, owner, call)
        _require_held(engine.db, _memories(steps, "begin", "ask"), f"{_named(call)} cannot be done again: what it had stored")
        return _run(engine.db, owner, call, steps, lambda step: _forth(engine.db, step))


def _run(db: Database, user: str, call: Call, steps: Sequence[Step], take: Callable[[Step], None]) -> Undone:
    rowids = sorted({rowid for step in steps for rowid in operations.memories(step)})
    with keyword_index.following(db, rowids):
        for step in steps:
            take(step)
    vector_index.moved(db, rowids)
    operations.mark(db, user, call, "undone" if call.state == "done" else "done")
    known = memories.by_rowids(db, rowids)
    return Undone(verb=call.verb, at=from_ms(call.at), ids=tuple(known[rowid].id for rowid in sorted(known)))


def _back(db: Database, step: Step, until: int) -> None:
    """Take back one step."""
    match step:
        case ("begin", first, last):
            states.hold(db, range(first, last + 1), until)
        case ("ask", rowid, conflict):
            states.hold(db, [rowid], until)
            conflicts.withdraw(db, conflict, until - KEPT_UNDONE_MS)
        case ("end", rowid, _, _, _):
            states.revive(db, rowid, until)
        case ("trash", first, last, _):
            states.release(db, range(first, last + 1))
        case ("seen", rowid):
            memories.see(db, rowid, -1)
        case ("grade", _, id_, _, _):
            feedback.remove(db, id_)
        case ("accept", rowid, before, _, categories):
            states.take_categories(db, rowid, categories)
            states.propose(db, rowid, Place(*before))
        case ("resolve", conflict, _, _, _):
            conflicts.reopen(db, conflict)
        case ("extracted", scope, before, _):
            scopes.set_extracted_to(db, scope, before)


def _forth(db: Database, step: Step) -> None:
    """Take one step again, as it was taken the first time."""
    match step:
        case ("begin", first, last):
            states.release(db, range(first, last + 1))
        case ("ask", rowid, conflict):
            states.release(db, [rowid], held="proposed")
            conflicts.reopen(db, conflict)
        case ("end", rowid, at, reason, by):
            _end(db, rowid, at, reason, by)
        case ("trash", first, last, until):
            states.hold(db, range(first, last + 1), until)
        case ("seen", rowid):
            memories.see(db, rowid, 1)
        case ("grade", rowid, id_, outcome, at):
            feedback.add(db, rowid, outcome, at, id_=id_)
        case ("accept", rowid, _, after, categories):
            states.accept(db, rowid, Place(*after))
            states.give_categories(db, rowid, categories)
        case ("resolve", conflict, resolution, results, at):
            conflicts.close(db, conflict, resolution, results, (), at)
        case ("extracted", scope, _, after):
            scopes.set_extracted_to(db, scope, after)


def _end(db: Database, rowid: int, at: int, reason: EndReason, by: int | None) -> None:
    states.end(db, rowid, at=at, reason=reason, by=by, note=states.kept_note(db, rowid))
    states.drop_notes(db, [rowid])
    if by is not None:
        states.link(db, rowid, by)


def _memories(steps: Sequence[Step], *actions: str) -> list[int]:
    return [rowid for step in steps if step[0] in actions for rowid in operations.memories(step)]


def _require_held(db: Database, rowids: Sequence[int], what: str) -> None:
    known = memories.by_rowids(db, rowids)
    if any(rowid not in known or known[rowid].held != "trash" for rowid in rowids):
        raise NotFound(f"{what} was emptied from there meanwhile; nothing was changed")


def _named(call: Call) -> str:
    return f"{call.verb}() of {from_ms(call.at):%Y-%m-%d %H:%M:%S} UTC"
