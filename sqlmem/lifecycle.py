"""The one place that starts versions, ends them, puts them into the trash and forgets them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from sqlmem.clock import DAY_MS
from sqlmem.db import Database
from sqlmem.records import EndReason, Kind, Outcome
from sqlmem.search import filters
from sqlmem.search.filters import Filter
from sqlmem.store import feedback, keyword_index, labels, memories, operations, scopes, states, vector_index
from sqlmem.store.memories import NewMemory, Stored, array
from sqlmem.store.operations import Step
from sqlmem.store.states import Place
from sqlmem.store.vector_index import Codes

_CHECKED = "update memory set checked = 1 where rowid = :rowid"
_LINK = "insert or ignore into link (src, dst, rel) values (:src, :dst, :rel)"
_OWNERS = "select distinct scope from memory where rowid in (select value from json_each(:rowids))"
_EXPIRED = """
select rowid from memory where expires_at <= :now
union
select memory from trash where until <= :now
"""
_EMPTY_NOTES = "delete from undone_note where until <= :now"
_PURGE_BATCH = 1_000
# How long what undo() took away can be brought back by redo().
KEPT_UNDONE_MS = 30 * DAY_MS


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
        if new.held is None:
            self._note(new.scope, "begin", rowid, rowid)
        return rowid

    def succeed(self, ends: Sequence[End], new: NewMemory, codes: Codes, *, categories: Sequence[str] | None = None) -> int:
        """End versions and store `new`, which follows them in its chain, at the same moment. Returns its rowid.

        It becomes the next version of its chain, or the first one. Its categories are all that the ended versions had, unless
        given.
        """
        self.touch(new.scope)
        if new.chain is not None:
            # Only now: what was undone has gone, and its number with it.
            new = replace(new, version=memories.next_version(self.db, new.chain))
        olds = [end.stored.rowid for end in ends]
        # A turn that follows one which had ended already comes to a place where none stands.
        places = [] if new.turn is None else [keyword_index.Place(scopes.of_memory(self.db, new.scope), new.turn)]
        with keyword_index.following(self.db, olds, places) as affected:
            rowid = memories.next_rowid(self.db)
            self._end_for(ends, rowid, new.created_at)
            memories.add(self.db, new)
            affected.add(rowid)
            self._note(new.scope, "begin", rowid, rowid)
            self._link(ends, rowid)
            if categories is None:
                states.copy_categories(self.db, rowid, olds)
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
        before = Place(proposal.kind, proposal.scope, proposal.chain, proposal.version, proposal.created_at)
        place = Place(
            kind or proposal.kind,
            proposal.scope if scope is None else scope,
            proposal.rowid if chain is None else chain,
            1 if chain is None else memories.next_version(self.db, chain),
            max(self.now, *(end.stored.created_at for end in ends), proposal.created_at),
        )
        olds = [end.stored.rowid for end in ends]
        with keyword_index.following(self.db, [proposal.rowid, *olds]):
            self._end_for(ends, proposal.rowid, place.at)
            states.accept(self.db, proposal.rowid, place)
            self._link(ends, proposal.rowid)
            given = states.copy_categories(self.db, proposal.rowid, olds)
            self._note(proposal.scope, "accept", proposal.rowid, astuple(before), astuple(place), given)
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
            with keyword_index.following(self.db, batch):
                states.hold(self.db, batch, until)
            vector_index.moved(self.db, batch)
            for _, stored in sorted(memories.by_rowids(self.db, batch).items()):
                self._note(stored.scope, "trash", stored.rowid, stored.rowid, until)
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
            count += states.erase(self.db, batch, self.now, tombstones=True)
        return count

    def categorise(self, rowid: int, names: Sequence[str]) -> None:
        """Give a memory categories beside those that it has."""
        labels.give(self.db, rowid, names)

    def checked(self, rowid: int) -> None:
        """Note that a judge has compared a fact with what is known."""
        self.db.execute(_CHECKED, {"rowid": rowid})

    def seen(self, stored: Stored) -> None:
        """Note that a statement was made again."""
        self.touch(stored.scope)
        memories.see(self.db, stored.rowid, 1)
        self._note(stored.scope, "seen", stored.rowid)

    def grade(self, stored: Stored, outcome: Outcome, at: int) -> None:
        """Add a grade to a memory."""
        self.touch(stored.scope)
        self._note(stored.scope, "grade", stored.rowid, feedback.add(self.db, stored.rowid, outcome, at), outcome, at)

    def link(self, src: int, dst: Iterable[int], rel: str) -> None:
        """Note where a new memory comes from."""
        self.db.execute_many(_LINK, [{"src": src, "dst": rowid, "rel": rel} for rowid in dst])

    def extracted(self, scope: int, turn: int) -> None:
        """Note that memories were made of a session's turns up to this one."""
        self.touch(scope)
        self._note(scope, "extracted", scope, scopes.extracted_to(self.db, scope), turn)
        scopes.set_extracted_to(self.db, scope, turn)

    def touch(self, scope: int) -> None:
        """Say that memories of `scope` are about to change: what its user undid can then not be done again, and goes."""
        if scope in self._users:
            return
        user = self._users[scope] = scopes.user_of(self.db, scope)
        if user not in self._steps:
            self._steps[user] = []
            undone = operations.take_undone(self.db, user)
            states.drop_notes(self.db, [step[1] for step in undone if step[0] == "end"])
            begun = [rowid for step in undone if step[0] in ("begin", "ask") for rowid in operations.memories(step)]
            for batch in _batches(begun):
                states.erase(self.db, batch, self.now, tombstones=False)

    def asked(self, scope: int, proposal: int, conflict: int) -> None:
        """Note that a proposal was stored, which waits in a conflict."""
        self._note(scope, "ask", proposal, conflict)

    def resolved(self, scope: int, conflict: int, resolution: str, results: Sequence[int]) -> None:
        """Note that a conflict was closed."""
        self._note(scope, "resolve", conflict, resolution, results, self.now)

    def leave(self, user: str) -> None:
        """Note nothing of what was done for a user who is no more."""
        self._steps.pop(user, None)

    def write_down(self) -> None:
        """Keep the note of what was done, for each user whose memories it touched."""
        for user, steps in self._steps.items():
            final = user in self._final
            if steps or final:
                self.call = operations.add(self.db, user, self._verb, self.now, steps, call=self.call, final=final)

    def _note(self, scope: int, action: str, subject: int, *rest: Any) -> None:
        steps, step = self._steps[self._users[scope]], (action, subject, *rest)
        both = operations.extended(steps[-1] if steps else None, step)
        steps[-1:] = [both] if both else [*steps[-1:], step]

    def _end_for(self, ends: Sequence[End], by: int | None, at: int) -> None:
        for end in ends:
            self.touch(end.stored.scope)
            states.end(self.db, end.stored.rowid, at=at, reason=end.reason, by=by, note=end.note)
            self._note(end.stored.scope, "end", end.stored.rowid, at, end.reason, by)
        vector_index.moved(self.db, [end.stored.rowid for end in ends])

    def _link(self, ends: Sequence[End], by: int) -> None:
        for end in ends:
            states.link(self.db, end.stored.rowid, by)

    def _owners(self, rowids: Sequence[int]) -> list[int]:
        return [row[0] for row in self.db.rows(_OWNERS, {"rowids": array(rowids)})]


def expired(db: Database, now: int) -> list[int]:
    """The versions whose time has passed at `now`, whatever else became of them, and those whose time in the trash has."""
    return [row[0] for row in db.rows(_EXPIRED, {"now": now})]


def purge(db: Database, rowids: Iterable[int], now: int) -> int:
    """Delete versions whose time has passed: as forget(), without a note in any user's calls."""
    db.execute(_EMPTY_NOTES, {"now": now})
    return sum(states.erase(db, batch, now, tombstones=True) for batch in _batches(sorted(set(rowids))))


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


def _batches(rowids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (rowids[start : start + _PURGE_BATCH] for start in range(0, len(rowids), _PURGE_BATCH))
