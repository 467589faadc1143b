"""Users and sessions: who and what there is in a store, and how all of it goes."""

from __future__ import annotations

import builtins

from sqlmem import arguments, forgetting, pages
from sqlmem.clock import from_ms
from sqlmem.engine import Engine
from sqlmem.errors import NotFound
from sqlmem.lifecycle import changing
from sqlmem.records import Session, SessionPage, User, UserPage
from sqlmem.store import operations, scopes

_LIVE = "m.ended_at is null and m.held is null and (m.expires_at is null or m.expires_at > :now)"
_SESSIONS = f"""
select s.id, s.user, s.session, s.created_at, s.extracted_to,
       (select count(*) from memory m where m.scope = s.id and m.kind = 'turn' and {_LIVE}),
       (select count(*) from memory m where m.scope = s.id and m.kind <> 'turn' and {_LIVE}),
       (select max(m.at) from memory m where m.scope = s.id and m.kind = 'turn' and {_LIVE}),
       (select m.id from memory m where m.chain = s.summary and {_LIVE})
  from scope s
 where s.session is not null and (:user is null or s.user = :user) and (:session is null or s.session = :session)
   and (:before is null or s.id < :before)
 order by s.id desc limit :limit
"""
_USERS = f"""
select s.id, s.user, s.created_at, s.on_contradiction,
       (select count(*) from scope o where o.user = s.user and o.session is not null),
       (select count(*) from memory m join scope o on o.id = m.scope where o.user = s.user and {_LIVE}),
       (select max(m.at) from memory m join scope o on o.id = m.scope where o.user = s.user and {_LIVE})
  from scope s
 where s.session is null and (:user is null or s.user = :user) and (:before is null or s.id < :before)
 order by s.id desc limit :limit
"""
# All that lies in a session, in whatever state, and its summary, which lies in its user's own scope.
_OF_SESSION = """
select rowid from memory where scope = :scope
union
select m.rowid from memory m join scope s on s.summary = m.chain where s.id = :scope
"""
_OF_USER = "select m.rowid from memory m join scope s on s.id = m.scope where s.user = :user"
_CONFLICTS = "delete from conflict where user = :user"
_SCOPE = "delete from scope where id = :scope"
_SCOPES = "delete from scope where user = :user"

LONGEST_PAGE = 1_000


class Sessions:
    """The sessions of a store, as `store.sessions`. A session is there from its first memory on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self, *, user: str | None = None, limit: int = 10, cursor: str | None = None) -> SessionPage:
        """A page of sessions, of one user or all, the newest first. `limit` is at most 1,000. Raises InvalidArgument."""
        owner = None if user is None else arguments.name("user", user, empty=True)
        rows, following = pages.read(self._engine.db, _SESSIONS, self._bound(owner, None), limit, cursor, LONGEST_PAGE)
        return SessionPage(items=tuple(_session(row) for row in rows), next_cursor=following)

    def get(self, session: str, user: str = "") -> Session:
        """One session. Raises NotFound."""
        owner, name = arguments.name("user", user, empty=True), arguments.name("session", session)
        rows, _ = pages.read(self._engine.db, _SESSIONS, self._bound(owner, name), 1, None, LONGEST_PAGE)
        if not rows:
            raise NotFound(f"user {owner!r} has no session {name!r}")
        return _session(rows[0])

    def delete(self, session: str, user: str = "") -> int:
        """Forget a session for good: its turns and memories in every state, its summary, and what was made from any of them.

        Returns how many versions went. What was extracted from several sessions goes with each of them. A session of this name
        begins anew, with turn number 0. One transaction, final. Raises NotFound.
        """
        owner, name = arguments.name("user", user, empty=True), arguments.name("session", session)
        db = self._engine.db
        with changing(db, "sessions.delete", self._engine.now()) as change:
            scope = scopes.find(db, owner, name)
            if scope is None:
                raise NotFound(f"user {owner!r} has no session {name!r}; nothing was deleted")
            change.touch(scope.id)
            rowids = [row[0] for row in db.rows(_OF_SESSION, {"scope": scope.id})]
            count = change.forget(forgetting.with_derived(db, rowids))
            db.execute(_SCOPE, {"scope": scope.id})
            return count

    def _bound(self, user: str | None, session: str | None) -> dict[str, object]:
        return {"user": user, "session": session, "now": self._engine.now()}


class Users:
    """The users of a store, as `store.users`. A user is there from the first memory on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self, *, limit: int = 10, cursor: str | None = None) -> UserPage:
        """A page of users, the newest first. `limit` is at most 1,000. Raises InvalidArgument."""
        bound = {"user": None, "now": self._engine.now()}
        rows, following = pages.read(self._engine.db, _USERS, bound, limit, cursor, LONGEST_PAGE)
        return UserPage(items=tuple(_user(row) for row in rows), next_cursor=following)

    def get(self, user: str) -> User:
        """One user. Raises NotFound."""
        name = arguments.name("user", user, empty=True)
        rows, _ = pages.read(self._engine.db, _USERS, {"user": name, "now": self._engine.now()}, 1, None, LONGEST_PAGE)
        if not rows:
            raise NotFound(f"there is no user {name!r}")
        return _user(rows[0])

    def delete(self, user: str) -> int:
        """Forget a user for good, with all sessions, memories in every state, conflicts and choices; returns how many versions.

        What is left are tombstones, which hold no text and no name. One transaction, final. Raises NotFound.
        """
        name = arguments.name("user", user, empty=True)
        db = self._engine.db
        with changing(db, "users.delete", self._engine.now()) as change:
            if scopes.find(db, name, None) is None:
                raise NotFound(f"there is no user {name!r}; nothing was deleted")
            count = change.forget([row[0] for row in db.rows(_OF_USER, {"user": name})])
            for statement in (_CONFLICTS, _SCOPES):
                db.execute(statement, {"user": name})
            change.leave(name)
            operations.drop(db, name)
            return count


def _session(row: builtins.list[object] | tuple[object, ...]) -> Session:
    _, user, session, created_at, extracted_to, turns, facts, last, summary = row
    return Session(
        user=str(user),
        session=str(session),
        turns=_int(turns),
        memories=_int(facts),
        created_at=from_ms(_int(created_at)),
        last_at=None if last is None else from_ms(_int(last)),
        extracted_to=None if extracted_to == -1 else _int(extracted_to),
        summary_id=None if summary is None else str(summary),
    )


def _user(row: builtins.list[object] | tuple[object, ...]) -> User:
    _, user, created_at, mode, sessions, memories, last = row
    return User(
        user=str(user),
        sessions=_int(sessions),
        memories=_int(memories),
        created_at=from_ms(_int(created_at)),
        last_at=None if last is None else from_ms(_int(last)),
        on_contradiction="ask" if mode == "ask" else "supersede" if mode == "supersede" else None,
    )


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
