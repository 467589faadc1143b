"""What stands before a turn: the context in which it is embedded a second time."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmem.db import Database
from sqlmem.store.memories import array
from sqlmem.text import spoken

# As much as it lends to the keyword index: after a long answer a short remark would else be drowned.
LEAD_CHARACTERS = 200

_LEADS = """
select m.rowid,
       (select p.role || char(0) || p.text from memory p
         where p.scope = m.scope and p.kind = 'turn' and p.ended_at is null and p.held is null and p.turn < m.turn
         order by p.turn desc limit 1)
  from memory m
 where m.rowid in (select value from json_each(:rowids)) and m.kind = 'turn' and m.ended_at is null and m.held is null
"""


def of(db: Database, rowids: Iterable[int]) -> dict[int, str]:
    """The live turn before each of these live turns, as it is embedded; those that have none are missing."""
    found = {}
    for rowid, before in db.rows(_LEADS, {"rowids": array(rowids)}):
        if before is not None:
            role, _, text = before.partition("\0")
            found[rowid] = spoken(role, text[:LEAD_CHARACTERS])
    return found


def joined(lead: str | None, role: str, text: str) -> str:
    """A turn as it is embedded in its context."""
    said = spoken(role, text)
    return said if lead is None else f"{lead}\n{said}"
