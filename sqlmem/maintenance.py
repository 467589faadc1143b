"""Proof that the indexes match the rows, and their repair."""

from __future__ import annotations

from sqlmem.engine import Engine
from sqlmem.records import CheckReport
from sqlmem.store import bit_index, keyword_index, models
from sqlmem.store.models import Model

_CHAINS = """
select chain from memory where ended_at is null and held is null group by chain having count(*) > 1
union
select chain from (select chain, version from memory union all select chain, version from tombstone)
 group by chain having max(version) <> count(*) or min(version) <> 1
"""
_SUCCESSORS = """
select m.rowid from memory m
 where m.ended_by is not null
   and not exists (select 1 from memory n where n.rowid = m.ended_by)
   and not exists (select 1 from tombstone t where t.rowid = m.ended_by)
"""
_MOMENTS = """
select old.rowid from memory old join memory new on new.rowid = old.ended_by
 where old.chain = new.chain and old.ended_at <> new.created_at or old.ended_at < new.created_at
    or not exists (select 1 from link l where l.src = new.rowid and l.dst = old.rowid)
"""
_CODES = """
select v.id, m.ended_at is null and m.held is null, v.code from {table} v join memory m on m.rowid = v.id
 where v.code is not null
"""
_TRASH = """
select rowid from memory where held = 'trash' and rowid not in (select memory from trash)
union all
select t.memory from trash t join memory m on m.rowid = t.memory where m.held is not 'trash'
"""
_TURNS = """
select s.id from scope s join memory m on m.scope = s.id where m.turn >= s.next_turn limit 1
"""


def check(engine: Engine) -> CheckReport:
    """Compare every index with the rows; reads everything and changes nothing."""
    db = engine.db
    with db.read():
        problems = [f"SQLite: {row[0]}" for row in db.rows("pragma integrity_check") if row[0] != "ok"]
        problems += [f"foreign key broken in {row[0]}, row {row[1]}" for row in db.rows("pragma foreign_key_check")]
        for text, sql in (
            ("a chain has two heads or lacks a version", _CHAINS),
            ("an ended version names a successor that never was", _SUCCESSORS),
            ("a version did not end when its successor began, or is not linked to it", _MOMENTS),
            ("what lies in the trash has no time there, or is not in it", _TRASH),
            ("a turn's number could be given again", _TURNS),
        ):
            problems += [f"{text} ({row[0]})" for row in db.rows(sql)]
        if keyword_index.differs(db):
            problems.append("the keyword index does not match the memories; rebuild() repairs it")
        for model in models.every(db):
            problems += _vectors(engine, model)
    return CheckReport(problems=tuple(problems))


def rebuild(engine: Engine) -> int:
    """Write all indexes again from the rows, in one transaction. Returns how many memories were indexed."""
    db = engine.db
    with db.write():
        count = keyword_index.rebuild(db)
        for model in models.every(db):
            if db.has_vec and model.indexed_to is not None:
                bit_index.rebuild(db, model)
    return count


def _vectors(engine: Engine, model: Model) -> list[str]:
    db = engine.db
    # Only live turns have something before them.
    whose = "true" if model.input == "own" else "m.kind = 'turn' and m.ended_at is null and m.held is null"
    lost = db.value(
        f"select count(*) from memory m where {whose} and not exists (select 1 from {model.table} v where v.id = m.rowid)"
        " and not exists (select 1 from pending p where p.memory = m.rowid and p.model = ?)",
        (model.id,),
    )
    extra = db.value(
        f"select count(*) from {model.table} v where not exists (select 1 from memory m where m.rowid = v.id)"
        f" or v.code is not null and not exists (select 1 from memory m where m.rowid = v.id and {whose})"
    )
    name = model.name if model.input == "own" else f"{model.name} in context"
    problems = [f"{lost} memories have no vector of {name}"] if lost else []
    if extra:
        problems.append(f"{extra} vectors of {name} belong to no memory")
    if db.has_vec and bit_index.usable(db, model) and _bits_differ(engine, model):
        problems.append(f"the bit index of {model.name} does not match its vectors; rebuild() repairs it")
    return problems


def _bits_differ(engine: Engine, model: Model) -> bool:
    """Whether the bit index holds anything but what it should as of the change that it follows."""
    assert model.centre is not None, "the bit index exists only for a model with a centre"
    assert model.indexed_to is not None, "asked only where there is one"
    later = bit_index.since(engine.db, model.indexed_to) or {}
    held = {
        rowid: (live, bytes(bit), bytes(fine))
        for rowid, live, bit, fine in engine.db.rows(f"select id, live, bit, fine from {model.table}_bits")
        if rowid not in later
    }
    rows = [row for row in engine.db.rows(_CODES.format(table=model.table)) if row[0] not in later]
    if not rows:
        return bool(held)
    signs, large = bit_index.planes(bit_index.units([code for _, _, code in rows]), model.centre)
    right = {rowid: (live, signs[place].tobytes(), large[place].tobytes()) for place, (rowid, live, _) in enumerate(rows)}
    return held != right
