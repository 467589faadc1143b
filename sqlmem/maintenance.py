"""Proof that the indexes match the rows, and their repair."""

from __future__ import annotations

from sqlmem.engine import Engine
from sqlmem.records import CheckReport
from sqlmem.store import keyword_index, models, vector_index
from sqlmem.store.models import Model

_CHAINS = """
select chain from memory where ended_at is null and proposed = 0 group by chain having count(*) > 1
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
 where old.ended_at <> new.created_at or not exists (select 1 from link l where l.src = new.rowid and l.dst = old.rowid)
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
            ("a turn's number could be given again", _TURNS),
        ):
            problems += [f"{text} ({row[0]})" for row in db.rows(sql)]
        if keyword_index.differs(db):
            problems.append("the keyword index does not match the memories; rebuild() repairs it")
        for model in models.held(db):
            problems += _vectors(engine, model)
    return CheckReport(problems=tuple(problems))


def rebuild(engine: Engine) -> int:
    """Write all indexes again from the rows, in one transaction. Returns how many memories were indexed."""
    db = engine.db
    with db.write():
        count = keyword_index.rebuild(db)
        for model in models.held(db):
            if db.has_vec and model.centre is not None:
                vector_index.rebuild_bits(db, model)
    return count


def _vectors(engine: Engine, model: Model) -> list[str]:
    db = engine.db
    lost = db.value(
        f"select count(*) from memory m where not exists (select 1 from {model.table} v where v.id = m.rowid)"
        " and not exists (select 1 from pending p where p.memory = m.rowid and p.model = ?)",
        (model.id,),
    )
    extra = db.value(f"select count(*) from {model.table} v where not exists (select 1 from memory m where m.rowid = v.id)")
    problems = [f"{lost} memories have no vector of {model.name}"] if lost else []
    if extra:
        problems.append(f"{extra} vectors of {model.name} belong to no memory")
    if db.has_vec and model.bits == "current" and _bits_differ(engine, model):
        problems.append(f"the bit index of {model.name} does not match its vectors; rebuild() repairs it")
    return problems


def _bits_differ(engine: Engine, model: Model) -> bool:
    assert model.centre is not None, "the bit index exists only for a model with a centre"
    held = {row[0]: (row[1], bytes(row[2])) for row in engine.db.rows(f"select id, live, bit from {model.table}_bits")}
    rows = engine.db.rows(
        f"select v.id, m.ended_at is null and m.proposed = 0, v.code from {model.table} v join memory m on m.rowid = v.id"
        " where v.code is not null"
    )
    return held != {rowid: (live, vector_index.bits_of(code, model.centre)) for rowid, live, code in rows}
