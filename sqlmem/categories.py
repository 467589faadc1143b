"""Categories: labels that the whole store shares."""

from __future__ import annotations

import builtins
import re

from sqlmem import arguments
from sqlmem.clock import from_ms
from sqlmem.engine import Engine
from sqlmem.errors import AlreadyExists, InvalidArgument, NotFound
from sqlmem.records import Category

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LIST = """
select c.name, c.description, c.created_at,
       (select count(*) from memory_category mc join memory m on m.rowid = mc.memory
         where mc.category = c.id and m.ended_at is null and m.held is null and (m.expires_at is null or m.expires_at > :now))
  from category c order by c.name
"""


class Categories:
    """The categories of a store, as `store.categories`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, name: str, description: str = "") -> None:
        """Add a category. It is not given to memories that are already there. Raises AlreadyExists, InvalidArgument."""
        if not _NAME.fullmatch(arguments.string("name", name)):
            raise InvalidArgument(f"a category's name is lower-case letters, digits and _ after a letter, not {name!r}")
        said = arguments.string("description", description)
        now = self._engine.now()
        with self._engine.db.write():
            if self._engine.db.row("select 1 from category where name = ?", (name,)):
                raise AlreadyExists(f"the category {name!r} is already there; nothing was written")
            self._engine.db.execute("insert into category (name, description, created_at) values (?, ?, ?)", (name, said, now))

    def list(self) -> builtins.list[Category]:
        """All categories by name, with the number of live memories that carry each."""
        with self._engine.db.read():
            rows = self._engine.db.rows(_LIST, {"now": self._engine.now()})
        return [Category(name=row[0], description=row[1], created_at=from_ms(row[2]), count=row[3]) for row in rows]

    def delete(self, name: str) -> None:
        """Remove a category from the store and from its memories, which stay. Raises NotFound."""
        with self._engine.db.write():
            if not self._engine.db.execute("delete from category where name = ?", (arguments.string("name", name),)):
                raise NotFound(f"there is no category {name!r}")
