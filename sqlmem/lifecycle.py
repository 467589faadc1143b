"""The one place that starts versions, ends them, puts them into the trash and forgets them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmem.db import Database
from sqlmem.records import EndReason, Kind, Outcome
from sqlmem.search import filters
from sqlmem.search.filters import Filter
from sqlmem.store import keyword_index, memories, operations, scopes, vector_index
from sqlmem.store.memories import NewMemory, Stored, array
from sqlmem.store.operations import Step
from sqlmem.store.vector_index import Codes

_END = """
update memory set ended_at = :at, end_reason = :reason, ended_by = :by, end_note = :note
 where rowid = :rowid and ended_at is null
"""
_REVIVE = "update memory set ended_at = null, end_reason = null, ended_by = null, end_note = null where rowid = :rowid"
_HOLD = "update memory set held = 'trash' where rowid in (select value from json_each(:rowids)) and held is null"
_RELEASE = "update memory set held = null where rowid in (select value from json_each(:rowids)) and held = 'trash'"
_KEEP_UNTIL = "insert or replace into trash (memory, until) select value, :until from json_each(:rowids)"
_OUT_OF_TRASH = "delete from trash where memory in (select value from json_each(:rowids))"
_ACCEPT = """
update memory set kind = :kind, scope = :scope, chain = :chain, version = :version, created_at = :at
 where rowid = :rowid and held = 'proposed'
"""
_LET_IN = "update memory set held = null where rowid = :rowid and held = 'proposed'"
_CHECKED = "update memory set checked = 1 where rowid = :rowid"
_SEEN = "update memory set seen = seen + :change where rowid = :rowid"
_GRADE = "insert into feedback (id, memory, outcome, at) values (:id, :memory, :outcome, :at) returning id"
_LINK = "insert or ignore into link (src, dst, rel) values (:src, :dst, :rel)"
_UNLINK = "delete from link where src = :src and dst = :dst and rel = 'supersedes'"
_CATEGORISE = """
insert or ignore into memory_category (memory, category)
select :memory, id from category where name in (select value from json_each(:names))
"""
_COPY_CATEGORIES = """
insert or ignore into memory_category (memory, category)
select :new, category from memory_category where memory in (select value from json_each(:olds))
"""
_TOMBSTONES = """
insert into tombstone (rowid, id, chain, version, forgotten_at)
select rowid, id, chain, version, :now from memory
 where rowid in (select value from json_each(:rowids)) and held is not 'proposed'
"""
_OWNERS = "select distinct scope from memory where rowid in (select value from json_each(:rowids))"
# What was written about a text may quote it.
_SCRUB = (
    "update memory set end_note = null where ended_by in (select value from json_each(:rowids)) and end_note is not null",
    "update conflict_memory set reason = null where memory in (select value from json_each(:rowids))",
    """
    delete from conflict_question where conflict in (
        select id from conflict where memory in (select value from json_each(:rowids))
        union select conflict from conflict_memory where memory in (select value from json_each(:rowids)))
    """,
    """
    update conflict set status = case when status = 'resolved' then 'resolved' else 'pending' end, error = null
     where memory in (select value from json_each(:rowids))
        or id in (select conflict from conflict_memory where memory in (select value from json_each(:rowids)))
    """,
    """
    update conflict set status = 'resolved', resolution = 'forgotten', resolved_at = :now
     where status <> 'resolved' and memory in (select value from json_each(:rowids))
    """,
)
_DELETE = "delete from memory where rowid in (select value from json_each(:rowids))"
_EXPIRED = """
select rowid from memory where expires_at <= :now
union
select memory from trash where until <= :now
"""
_PURGE_BATCH = 1_000
# How long what undo() took away can be brought back by redo().
UNDONE_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class End:
    """A live version that is to end, and why; `note` in the words of who decided."""

    stored: Stored
    reason: EndReason
    note: str | None = None


@contextlib.contextmanager
def changing(db: Database, verb: str, now: int, *, call: int | None = None) -> Iterator[Change]:
    """One transaction in which a verb changes memories, with the note of it that undo() reads.

    `call` is the number of the call that this transaction goes on with, where it takes several.
    """
    with db.write():
        change = Change(db, verb, now, call)
        yield change
        change.write_down()


class Change:
    """What a verb does to memories inside its transaction. Search indexes follow, except where a method says otherwise."""

    def __init__(self, db: Database, verb: str, now: int, call: int | None = None) -> None:
        self.db, self.now, self.call = db, now, call
        self._verb = verb
        self._users: dict[int, str] = {}
        self._steps: dict[str, list[Step]] = {}
        self._final: set[str] = set()

    def begin(self, new: NewMemory, *, categories: Sequence[str] = ()) -> int:
        """Store the first version of a chain and return its rowid; the search indexes are the caller's to bring after it."""
        self.touch(new.scope)
        rowid = memories.add(self.db, new)
        if categories:
            self.categorise(rowid, categories)
        self._note(new.scope, "begin", rowid)
        return rowid

    def succeed(self, ends: Sequence[End], new: NewMemory, codes: Codes, *, categories: Sequence[str] | None = None) -> int:
        """End versions and store `new`, which follows them, at the same moment. Returns its rowid.

        Its categories are all that the ended versions had, unless given.
        """
        self.touch(new.scope)
        olds = [end.stored.rowid for end in ends]
        with keyword_index.following(self.db, olds) as affected:
            rowid = memories.next_rowid(self.db)
            self._end_for(ends, rowid, new.created_at)
            memories.add(self.db, new)
            affected.add(rowid)
            self._note(new.scope, "begin", rowid)
            self._link(ends, rowid)
            if categories is None:
                self.db.execute(_COPY_CATEGORIES, {"new": rowid, "olds": array(olds)})
            else:
                self.categorise(rowid, categories)
        vector_index.add(self.db, {rowid: codes})
        return rowid

    def accept(
        self,
        proposal: Stored,
        ends: Sequence[End],
        *,
        chain: int | None = None,
        kind: Kind | None = None,
        scope: int | None = None,
    ) -> None:
        """Let a proposal take its place now: as the next version of `chain`, or at the head of its own; `ends` end for it."""
        self.touch(proposal.scope)
        version = 1 if chain is None else memories.next_version(self.db, chain)
        at = max(self.now, *(end.stored.created_at for end in ends), proposal.created_at)
        place = {
            "rowid": proposal.rowid,
            "kind": kind or proposal.kind,
            "scope": proposal.scope if scope is None else scope,
            "chain": proposal.rowid if chain is None else chain,
            "version": version,
            "at": at,
        }
        with keyword_index.following(self.db, [proposal.rowid, *(end.stored.rowid for end in ends)]):
            self._end_for(ends, proposal.rowid, at)
            self.db.execute(_ACCEPT, place)
            self.db.execute(_LET_IN, place)
            self._note(proposal.scope, "accept", proposal.rowid, proposal.created_at, proposal.kind, proposal.scope)
            self._link(ends, proposal.rowid)
            self.db.execute(_COPY_CATEGORIES, {"new": proposal.rowid, "olds": array(end.stored.rowid for end in ends)})
        vector_index.moved(self.db, [proposal.rowid])

    def supersede(self, ends: Sequence[End], by: Stored) -> None:
        """End versions for a memory of another chain that is there already."""
        with keyword_index.following(self.db, [end.stored.rowid for end in ends]):
            self._end_for(ends, by.rowid, max(self.now, by.created_at, *(end.stored.created_at for end in ends)))
            self._link(ends, by.rowid)

    def end(self, end: End) -> None:
        """End a version without a successor."""
        self.touch(end.stored.scope)
        with keyword_index.following(self.db, [end.stored.rowid]):
            self._end_for([end], None, max(self.now, end.stored.created_at))

    def trash(self, rowids: Iterable[int], until: int) -> int:
        """Put versions out of sight until undo() brings them back or `until` comes. Returns how many."""
        chosen = sorted(set(rowids))
        for batch in _batches(chosen):
            for scope in self._owners(batch):
                self.touch(scope)
            self._hold(batch, until)
            for rowid, scope in self._scopes(batch):
                self._note(scope, "trash", rowid, until)
        return len(chosen)

    def forget(self, rowids: Iterable[int]) -> int:
        """Delete versions for good: rows, index entries, vectors, feedback and links. A tombstone without text stays of each.

        What was noted about a text by a judge, and what conflicts asked about it, goes too. Returns how many were deleted;
        unknown rowids count as nothing.
        """
        count = 0
        # In batches, so that what is held in memory does not grow with the number of rows; still one transaction.
        for batch in _batches(sorted(set(rowids))):
            for scope in self._owners(batch):
                self.touch(scope)
                self._final.add(self._users[scope])
            count += _erase(self.db, batch, self.now, tombstones=True)
        return count

    def categorise(self, rowid: int, names: Sequence[str]) -> None:
        """Give a memory categories beside those that it has."""
        self.db.execute(_CATEGORISE, {"memory": rowid, "names": array(names)})

    def checked(self, rowid: int) -> None:
        """Note that a judge has compared a fact with what is known."""
        self.db.execute(_CHECKED, {"rowid": rowid})

    def seen(self, stored: Stored) -> None:
        """Note that a statement was made again."""
        self.touch(stored.scope)
        self.db.execute(_SEEN, {"rowid": stored.rowid, "change": 1})
        self._note(stored.scope, "seen", stored.rowid)

    def grade(self, stored: Stored, outcome: Outcome, at: int) -> None:
        """Add a grade to a memory."""
        self.touch(stored.scope)
        row = self.db.row(_GRADE, {"id": None, "memory": stored.rowid, "outcome": outcome, "at": at})
        assert row is not None
        self._note(stored.scope, "grade", stored.rowid, row[0], outcome, at)

    def link(self, src: int, dst: Iterable[int], rel: str) -> None:
        """Note where a new memory comes from."""
        self.db.execute_many(_LINK, [{"src": src, "dst": rowid, "rel": rel} for rowid in dst])

    def touch(self, scope: int) -> None:
        """Say that memories of `scope` are about to change: what its user undid can then not be done again, and goes."""
        if scope in self._users:
            return
        user = self._users[scope] = scopes.user_of(self.db, scope)
        if user not in self._steps:
            self._steps[user] = []
            gone = [step[1] for steps in operations.take_undone(self.db, user) for step in steps if step[0] == "begin"]
            if gone:
                _erase(self.db, gone, self.now, tombstones=False)

    def note_conflict(self, scope: int, conflict: int, status: str) -> None:
        """Note that a conflict was closed, which stood at `status` before."""
        self._note(scope, "resolve", conflict, status)

    def write_down(self) -> None:
        """Keep the note of what was done, for each user whose memories it touched."""
        for user, steps in self._steps.items():
            final = user in self._final
            if steps or final:
                self.call = operations.add(self.db, user, self._verb, self.now, steps, call=self.call, final=final)

    def _note(self, scope: int, action: str, subject: int, *rest: Any) -> None:
        self._steps[self._users[scope]].append((action, subject, *rest))

    def _end_for(self, ends: Sequence[End], by: int | None, at: int) -> None:
        for end in ends:
            self.touch(end.stored.scope)
            bound = {"rowid": end.stored.rowid, "at": at, "reason": end.reason, "by": by, "note": end.note}
            self.db.execute(_END, bound)
            self._note(end.stored.scope, "end", end.stored.rowid, at, end.reason, by)
        vector_index.moved(self.db, [end.stored.rowid for end in ends])

    def _link(self, ends: Sequence[End], by: int) -> None:
        self.db.execute_many(_LINK, [{"src": by, "dst": end.stored.rowid, "rel": "supersedes"} for end in ends])

    def _owners(self, rowids: Sequence[int]) -> list[int]:
        return [row[0] for row in self.db.rows(_OWNERS, {"rowids": array(rowids)})]

    def _scopes(self, rowids: Sequence[int]) -> list[tuple[int, int]]:
        return [(stored.rowid, stored.scope) for stored in memories.by_rowids(self.db, rowids).values()]

    def _hold(self, rowids: Sequence[int], until: int) -> None:
        hold(self.db, rowids, until)


def hold(db: Database, rowids: Sequence[int], until: int) -> None:
    """Put versions into the trash, without a note."""
    bound = {"rowids": array(rowids), "until": until}
    with keyword_index.following(db, rowids):
        db.execute(_HOLD, bound)
        db.execute(_KEEP_UNTIL, bound)
    vector_index.moved(db, rowids)


def release(db: Database, rowids: Sequence[int]) -> None:
    """Take versions out of the trash."""
    bound = {"rowids": array(rowids)}
    with keyword_index.following(db, rowids):
        db.execute(_RELEASE, bound)
        db.execute(_OUT_OF_TRASH, bound)
    vector_index.moved(db, rowids)


def expired(db: Database, now: int) -> list[int]:
    """The versions whose time has passed at `now`, whatever else became of them, and those whose time in the trash has."""
    return [row[0] for row in db.rows(_EXPIRED, {"now": now})]


def purge(db: Database, rowids: Iterable[int], now: int) -> int:
    """Delete versions whose time has passed: as forget(), without a note in any user's calls."""
    return sum(_erase(db, batch, now, tombstones=True) for batch in _batches(sorted(set(rowids))))


def selected(db: Database, chosen: Filter, *, ids: Sequence[str] | None, older_than: int | None, superseded: bool) -> list[int]:
    """The versions that forget()'s arguments name, in every state: a text that is to go must go from the past as well.

    `older_than` is a moment in milliseconds. An id names its memory whatever its user.
    """
    bound: dict[str, Any] = {}
    # Only who names a proposal, or what lies in the trash, means it.
    kept_back = [] if ids is not None else ["m.held is null"]
    parts = ["true", *kept_back, *_scope(chosen, bound, everywhere=ids is not None)]
    if ids is not None:
        bound["ids"] = array(ids)
        parts.append("m.id in (select value from json_each(:ids))")
    if chosen.kinds is not None:
        bound["kinds"] = array(chosen.kinds)
        parts.append("m.kind in (select value from json_each(:kinds))")
    if older_than is not None:
        bound["older_than"] = older_than
        parts.append("m.at < :older_than")
    if superseded:
        parts.append("m.ended_by is not null")
    parts.extend(filters.metadata_sql(chosen.where, bound))
    return [row[0] for row in db.rows(f"select m.rowid from memory m where {' and '.join(parts)}", bound)]


def _scope(chosen: Filter, bound: dict[str, Any], *, everywhere: bool) -> list[str]:
    if chosen.session is not None:
        bound.update(user=chosen.user, session=chosen.session)
        return ["m.scope in (select id from scope where user = :user and session = :session)"]
    if everywhere:
        return []
    bound["user"] = chosen.user
    return ["m.scope in (select id from scope where user = :user)"]


def _erase(db: Database, rowids: Sequence[int], now: int, *, tombstones: bool) -> int:
    bound = {"rowids": array(rowids), "now": now}
    with keyword_index.following(db, rowids):
        vector_index.remove(db, rowids)
        if tombstones:
            db.execute(_TOMBSTONES, bound)
        for statement in _SCRUB:
            db.execute(statement, bound)
        return db.execute(_DELETE, bound)


def _batches(rowids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (rowids[start : start + _PURGE_BATCH] for start in range(0, len(rowids), _PURGE_BATCH))
