"""Categories: labels that the whole store shares."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable

from sqlmem import arguments
from sqlmem.clock import from_ms
from sqlmem.db import Database
from sqlmem.engine import Engine
from sqlmem.errors import AlreadyExists, InvalidArgument, NotFound
from sqlmem.records import Category
from sqlmem.search import filters
from sqlmem.store import labels, memories

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LIST = """
select c.name, c.description, c.created_at,
       (select count(*) from memory_category mc join memory m on m.rowid = mc.memory
         where mc.category = c.id and m.ended_at is null and m.held is null and (m.expires_at is null or m.expires_at > :now))
  from category c order by c.name
"""
_ADD = "insert into category (name, description, created_at) values (:name, :description, :now)"
_TAKEN = "select 1 from category where name = :name"
_RENAME = "update category set name = :new where name = :name"
_DESCRIBE = "update category set description = :description where name = :name"
_DELETE = "delete from category where name = :name"


class Categories:
    """The categories of a store, as `store.categories`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, name: str, description: str = "") -> None:
        """Add a category. It is not given to memories that are already there. Raises AlreadyExists, InvalidArgument."""
        chosen, said = _name(name), arguments.string("description", description)
        now = self._engine.now()
        with self._engine.db.write():
            self._require_free(chosen)
            self._engine.db.execute(_ADD, {"name": chosen, "description": said, "now": now})

    def list(self) -> builtins.list[Category]:
        """All categories by name, with the number of live memories that carry each."""
        with self._engine.db.read():
            rows = self._engine.db.rows(_LIST, {"now": self._engine.now()})
        return [Category(name=row[0], description=row[1], created_at=from_ms(row[2]), count=row[3]) for row in rows]

    def rename(self, name: str, new_name: str) -> None:
        """Call a category something else; its memories keep it. Raises NotFound, AlreadyExists, InvalidArgument."""
        old, new = arguments.string("name", name), _name(new_name)
        with self._engine.db.write():
            filters.check_categories(self._engine.db, [old])
            if new != old:
                self._require_free(new)
                self._engine.db.execute(_RENAME, {"name": old, "new": new})

    def describe(self, name: str, description: str) -> None:
        """Say anew what a category is for. Raises NotFound, InvalidArgument."""
        known, said = arguments.string("name", name), arguments.string("description", description)
        with self._engine.db.write():
            filters.check_categories(self._engine.db, [known])
            self._engine.db.execute(_DESCRIBE, {"name": known, "description": said})

    def delete(self, name: str) -> None:
        """Remove a category from the store and from its memories, which stay. Raises NotFound."""
        with self._engine.db.write():
            filters.check_categories(self._engine.db, [arguments.string("name", name)])
            self._engine.db.execute(_DELETE, {"name": name})

    def assign(self, id: str, *names: str) -> tuple[str, ...]:
        """Give a memory categories beside those that it has; returns all that it has then.

        `id` may be any version: the live one is meant. Categories are labels, no content: there is no next version, and
        versions that ended keep theirs. Raises NotFound (a memory that is not live, a category), InvalidArgument.
        """
        return self._label(labels.give, id, names)

    def unassign(self, id: str, *names: str) -> tuple[str, ...]:
        """Take categories from a memory, as assign() gives them; those that it has not count as nothing."""
        return self._label(labels.take, id, names)

    def _label(
        self, change: Callable[[Database, int, Iterable[str]], None], id_: object, names: tuple[str, ...]
    ) -> tuple[str, ...]:
        wanted = arguments.category_names(names)
        if not wanted:
            raise InvalidArgument("name at least one category")
        db = self._engine.db
        with db.write():
            addressed = memories.required(db, id_)
            head = memories.head(db, addressed.chain)
            if head is None or memories.state(head, self._engine.now()) != "live":
                raise NotFound(f"{addressed.id} has no live version that could have a category")
            filters.check_categories(db, wanted)
            change(db, head.rowid, wanted)
            return labels.held(db, head.rowid)

    def _require_free(self, name: str) -> None:
        if self._engine.db.row(_TAKEN, {"name": name}):
            raise AlreadyExists(f"the category {name!r} is already there; nothing was written")


def _name(name: object) -> str:
    if not _NAME.fullmatch(arguments.string("name", name)):
        raise InvalidArgument(f"a category's name is lower-case letters, digits and _ after a letter, not {name!r}")
    return str(name)
