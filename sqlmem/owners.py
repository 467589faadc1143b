"""Users and sessions: who and what there is in a store, and how all of it goes."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlmem import arguments, asking, extraction, forgetting, pages
from sqlmem.clock import from_ms
from sqlmem.engine import Engine, LanguageModel
from sqlmem.errors import AlreadyExists, CallbackError, InvalidArgument, NotFound
from sqlmem.lifecycle import changing
from sqlmem.records import ExtractionReport, Page, Session, SessionStatus, User
from sqlmem.search import filters
from sqlmem.store import operations, scopes
from sqlmem.store.scopes import Scope

_LIVE = "m.ended_at is null and m.held is null and (m.expires_at is null or m.expires_at > :now)"
_SESSIONS = """
select s.id, s.user, s.session, s.created_at, s.extracted_to,
       (select count(*) from memory m where m.scope = s.id and m.kind = 'turn' and {live}),
       (select count(*) from memory m where m.scope = s.id and m.kind <> 'turn' and {live}),
       (select max(m.at) from memory m where m.scope = s.id and m.kind = 'turn' and {live}),
       (select m.id from memory m where m.chain = s.summary and {live}), s.status, s.metadata, s.processed_at
  from scope s
 where s.session is not null and (:status is null or s.status = :status) and (:user is null or s.user = :user)
   and (:session is null or s.session = :session)
   and (:before is null or s.id < :before){where}
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
STATUSES: tuple[SessionStatus, ...] = ("pending", "processing", "processed", "failed")
# After so long without an end, who processes a session is taken to be gone.
LEASE_SECONDS = 900


class Sessions:
    """The sessions of a store, as `store.sessions`.

    A session is there from its first memory on, and stays open. One that was made by create() has a life: it is pending while
    it takes turns, is processed once, by process() or process_due(), and takes no turns after that.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self,
        session: str,
        user: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        auto_process_after_seconds: float = 600.0,
    ) -> Session:
        """Make a session that is to be processed: so many seconds after its last turn, process_due() finds it.

        Raises AlreadyExists if there is one of this name, InvalidArgument.
        """
        owner, name = arguments.name("user", user, empty=True), arguments.name("session", session)
        idle = arguments.number("auto_process_after_seconds", auto_process_after_seconds, least=0, most=10 * 365 * 86_400)
        described, now = arguments.metadata(metadata), self._engine.now()
        with self._engine.db.write():
            if scopes.find(self._engine.db, owner, name) is not None:
                raise AlreadyExists(f"user {owner!r} has a session {name!r} already; nothing was written")
            scope = scopes.ensure(self._engine.db, owner, name, now)
            scopes.create(self._engine.db, scope.id, metadata=described, idle_ms=round(idle * 1_000))
        return self.get(name, owner)

    def update(self, session: str, user: str = "", *, metadata: Mapping[str, Any] | None) -> Session:
        """Replace a session's metadata as a whole. Raises NotFound, InvalidArgument."""
        described = arguments.metadata(metadata)
        with self._engine.db.write():
            scopes.describe(self._engine.db, self._required(session, user).id, described)
        return self.get(session, user)

    def process(
        self, session: str, user: str = "", *, llm: LanguageModel | None = None, tokens_a_call: int = 3_000
    ) -> ExtractionReport:
        """extract() the session and close it: what was read and its new status are one transaction.

        Only a pending session, one that failed, or one whose worker is gone (for LEASE_SECONDS) can be processed: others raise
        InvalidArgument. What the model or its answer does wrong leaves it failed, and nothing lost. Raises NotFound,
        CallbackError.
        """
        model = asking.model(self._engine, llm, "process()")
        now = self._engine.now()
        with self._engine.db.write():
            scope = self._required(session, user)
            status = scopes.status(self._engine.db, scope.id)
            if status is None or not scopes.lease(self._engine.db, scope.id, now, now + LEASE_SECONDS * 1_000):
                said = "was not made by sessions.create()" if status is None else f"is {status}"
                raise InvalidArgument(f"the session {session!r} of user {user!r} {said}; it cannot be processed")
        try:
            return extraction.extract(self._engine, session, user=user, llm=model, tokens_a_call=tokens_a_call, close=True)
        except BaseException:
            with self._engine.db.write():
                scopes.failed(self._engine.db, scope.id)
            raise

    def process_due(
        self, user: str | None = None, *, llm: LanguageModel | None = None, now: datetime | None = None
    ) -> dict[tuple[str, str], ExtractionReport | CallbackError]:
        """process() every session whose time has come, of one user or all; by (user, session) what came of it.

        A session whose model or answer fails is left failed, and the others go on: its error stands in the place of a report.
        There is no background work: call it when it suits the app. Raises InvalidArgument.
        """
        model = asking.model(self._engine, llm, "process_due()")
        owner = None if user is None else arguments.name("user", user, empty=True)
        done: dict[tuple[str, str], ExtractionReport | CallbackError] = {}
        for whose, session in scopes.due(self._engine.db, owner, self._engine.now(now)):
            try:
                done[whose, session] = self.process(session, whose, llm=model)
            except CallbackError as error:
                done[whose, session] = error
            except InvalidArgument:
                continue  # another worker was faster
        return done

    def list(
        self,
        *,
        user: str | None = None,
        status: SessionStatus | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int = 10,
        cursor: str | None = None,
    ) -> Page[Session]:
        """A page of sessions, of one user or all, the newest first. `limit` is at most 1,000.

        where: by the session's metadata, in the words of `recall()`. Raises InvalidArgument.
        """
        owner = None if user is None else arguments.name("user", user, empty=True)
        if status is not None and status not in STATUSES:
            raise InvalidArgument(f"status must be one of {', '.join(STATUSES)}, not {status!r}")
        bound = self._bound(owner, None, status)
        tests = filters.metadata_sql(filters.terms(where), bound, "s.metadata")
        sql = _sessions("".join(f" and {test}" for test in tests))
        rows, following = pages.read(self._engine.db, sql, bound, limit, cursor, LONGEST_PAGE)
        return Page(items=tuple(_session(row) for row in rows), next_cursor=following)

    def get(self, session: str, user: str = "") -> Session:
        """One session. Raises NotFound."""
        owner, name = arguments.name("user", user, empty=True), arguments.name("session", session)
        rows, _ = pages.read(self._engine.db, _sessions(""), self._bound(owner, name), 1, None, LONGEST_PAGE)
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

    def _required(self, session: object, user: object) -> Scope:
        owner, name = arguments.name("user", user, empty=True), arguments.name("session", session)
        scope = scopes.find(self._engine.db, owner, name)
        if scope is None:
            raise NotFound(f"user {owner!r} has no session {name!r}; nothing was changed")
        return scope

    def _bound(self, user: str | None, session: str | None, status: str | None = None) -> dict[str, object]:
        return {"user": user, "session": session, "status": status, "now": self._engine.now()}


class Users:
    """The users of a store, as `store.users`. A user is there from the first memory on."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list(self, *, limit: int = 10, cursor: str | None = None) -> Page[User]:
        """A page of users, the newest first. `limit` is at most 1,000. Raises InvalidArgument."""
        bound = {"user": None, "now": self._engine.now()}
        rows, following = pages.read(self._engine.db, _USERS, bound, limit, cursor, LONGEST_PAGE)
        return Page(items=tuple(_user(row) for row in rows), next_cursor=following)

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


def _sessions(where: str) -> str:
    return _SESSIONS.format(live=_LIVE, where=where)


def _session(row: builtins.list[object] | tuple[object, ...]) -> Session:
    _, user, session, created_at, extracted_to, turns, facts, last, summary, status, metadata, processed_at = row
    return Session(
        user=str(user),
        session=str(session),
        turns=_int(turns),
        memories=_int(facts),
        created_at=from_ms(_int(created_at)),
        last_at=None if last is None else from_ms(_int(last)),
        extracted_to=None if extracted_to == -1 else _int(extracted_to),
        summary_id=None if summary is None else str(summary),
        status=next((known for known in STATUSES if known == status), None),
        metadata=json.loads(str(metadata)),
        processed_at=None if processed_at is None else from_ms(_int(processed_at)),
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
