"""Which categories a memory has."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmem.db import Database
from sqlmem.store.memories import array

_GIVE = """
insert or ignore into memory_category (memory, category)
select :memory, id from category where name in (select value from json_each(:names))
"""
_TAKE = """
delete from memory_category
 where memory = :memory and category in (select id from category where name in (select value from json_each(:names)))
"""
_HELD = """
select c.name from memory_category mc join category c on c.id = mc.category where mc.memory = :memory order by c.name
"""


def give(db: Database, memory: int, names: Iterable[str]) -> None:
    """Give a memory categories beside those that it has."""
    db.execute(_GIVE, {"memory": memory, "names": array(names)})


def take(db: Database, memory: int, names: Iterable[str]) -> None:
    """Take categories from a memory."""
    db.execute(_TAKE, {"memory": memory, "names": array(names)})


def held(db: Database, memory: int) -> tuple[str, ...]:
    """A memory's categories by name."""
    return tuple(row[0] for row in db.rows(_HELD, {"memory": memory}))
