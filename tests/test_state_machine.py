"""Whatever is called in whatever order: memories are in the states that a plain model predicts; the file keeps its rules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

import sqlmem
from tests.helpers_store import MovableClock, assert_sound, broken_rules

USERS = st.sampled_from(["ana", "ben"])
SESSIONS = st.sampled_from([None, "s"])
TEXTS = st.builds("{} likes {}".format, st.sampled_from(["Kiran", "Lena"]), st.sampled_from(["tea", "milk", "rum"]))
SECOND = timedelta(seconds=1)
SHORT = st.sampled_from([False, False, True])
ANSWERS = st.sampled_from(["keep_old", "take_new", "keep_both", "own"])


@dataclass
class Version:
    """What the model knows of one version."""

    id: str
    user: str
    session: str | None
    kind: str
    text: str
    chain: str
    number: int
    created: Any
    state: str = "live"
    reason: str | None = None
    by: str | None = None
    ended: Any = None
    expires: Any = None
    seen: int = 1
    turn: int | None = None
    sources: tuple[str, ...] = ()


@dataclass
class Waiting:
    """What the model knows of an open conflict."""

    proposal: str
    members: list[str]


@dataclass
class World:
    """Everything of one user."""

    versions: dict[str, Version] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    conflicts: dict[str, Waiting] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)

    def chain(self, id_: str) -> list[Version]:
        wanted = self.versions[id_].chain
        found = [v for v in self.versions.values() if v.chain == wanted and v.state != "proposed"]
        return sorted(found, key=lambda v: v.number)

    def head(self, id_: str) -> Version | None:
        return next((v for v in self.chain(id_) if v.state == "live"), None)

    def add(self, version: Version) -> None:
        self.versions[version.id] = version
        self.highest[version.chain] = max(version.number, self.highest.get(version.chain, 0))

    def end(self, version: Version, reason: str, by: str | None, at: Any) -> None:
        version.state, version.reason, version.by, version.ended = "superseded" if by else "ended", reason, by, at


class Judge:
    """Says that two things which one person likes contradict each other, and notes what it said yes to."""

    def __init__(self) -> None:
        self.contradicted: set[str] = set()

    def __call__(self, new: str, known: list[str]) -> Sequence[bool]:
        verdicts = [new.split()[0] == old.split()[0] and new != old for old in known]
        self.contradicted = {old for old, verdict in zip(known, verdicts, strict=True) if verdict}
        return verdicts


class Machine(RuleBasedStateMachine):
    """Calls of all the verbs that change memories, beside a model of what they should do."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.judge = MovableClock(), Judge()
        self.store = sqlmem.open(":memory:", embedder=False, clock=self.clock, judge=self.judge, judge_candidates=50)
        self.worlds = {"ana": World(), "ben": World()}
        self.undoable: dict[str, list[World | None]] = {"ana": [], "ben": []}
        self.undone: dict[str, list[World]] = {"ana": [], "ben": []}
        # False while it is not known whether something can be done again.
        self.known = {"ana": True, "ben": True}
        self.batches = 0
        self.final = {"ana": False, "ben": False}

    def teardown(self) -> None:
        assert_sound(self.store)
        self.store.close()

    # -- what the model does ------------------------------------------------------------------------------------------

    def live(self, world: World, version: Version) -> bool:
        return version.state == "live" and (version.expires is None or version.expires > self.clock.now)

    def begins_call(self, user: str) -> World:
        """A copy of the user's world to change; done() puts it in its place."""
        return copy.deepcopy(self.worlds[user])

    def done(self, user: str, world: World, *, final: bool = False) -> None:
        """The call changed the user's world."""
        self.undoable[user] = [] if final else [*self.undoable[user], self.worlds[user]]
        self.final[user] = final
        self.known[user] = True
        self.drops_undone(user, world)
        self.undone[user] = []
        self.worlds[user] = world

    def drops_undone(self, user: str, world: World) -> None:
        """What was undone is gone for good: a conflict that was moved to it is about the version before it."""
        gone = {id_: version for known in self.undone[user] for id_, version in known.versions.items()}
        held = self.worlds[user].versions
        worlds = [world, *(known for known in self.undoable[user] if known is not None)]
        for conflict in (conflict for known in worlds for conflict in known.conflicts.values()):
            for place, member in enumerate(conflict.members):
                if member in gone and member not in held and member not in world.forgotten:
                    kept = [id_ for id_, version in held.items() if version.chain == gone[member].chain]
                    conflict.members[place] = max(kept)

    def owner(self, id_: str) -> str | None:
        return next((user for user, world in self.worlds.items() if id_ in world.versions), None)

    def contradicted(self, world: World, session: str | None, *, chain: str | None = None) -> list[Version]:
        """The live facts that the judge said yes to: of the session and of none, or all for a statement without one."""
        return [
            version
            for version in world.versions.values()
            if version.kind != "turn"
            and self.live(world, version)
            and version.text in self.judge.contradicted
            and version.chain != chain
            and (session is None or version.session in (None, session))
        ]

    def replace(self, world: World, new: Version, ends: list[Version], first: Version, reason: str) -> None:
        """`new` follows `first` in its chain and ends all of them, with their pin and their widest session."""
        new.chain, new.number = first.chain, world.highest[first.chain] + 1
        if any(end.kind == "pinned" for end in ends):
            new.kind = "pinned"
        if any(end.session is None for end in ends):
            new.session = None
        for end in ends:
            world.end(end, reason, new.id, self.clock.now)
        world.add(new)

    # -- rules --------------------------------------------------------------------------------------------------------

    @rule(milliseconds=st.integers(1, 5_000))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.forward(milliseconds=milliseconds)

    @rule(target=ids, user=USERS, session=SESSIONS)
    def say(self, user: str, session: str | None) -> str:
        world = self.begins_call(user)
        new = self.store.remember("ok", user=user, session=session)
        version = Version(new, user, session, "turn", "ok", new, 1, self.clock.now)
        version.turn = self.store.get(new).turn
        world.add(version)
        self.done(user, world)
        return new

    @initialize(target=ids, texts=st.lists(TEXTS, min_size=3, max_size=3))
    def what_is_known(self, texts: list[str]) -> Any:
        self.store.conflicts.set_mode("ask", "ben")
        said = [self.state(user, None, text, False, False) for user in self.worlds for text in texts]
        return multiple(*said)

    @rule(target=ids, user=USERS, session=SESSIONS, text=TEXTS, pinned=st.booleans(), short=SHORT)
    def states(self, user: str, session: str | None, text: str, pinned: bool, short: bool) -> Any:
        return self.state(user, session, text, pinned, short)

    @rule(target=ids, user=USERS, text=TEXTS)
    def states_for_all_sessions(self, user: str, text: str) -> Any:
        return self.state(user, None, text, False, False)

    def state(self, user: str, session: str | None, text: str, pinned: bool, short: bool) -> Any:
        world = self.begins_call(user)
        self.judge.contradicted = set()
        ttl_days = 1 / 86_400 if short else None
        kept = [v for v in world.versions.values() if v.kind != "turn" and self.live(world, v)]
        repeated = [v for v in kept if v.session == session and v.text == text]
        new = self.store.remember(text, user=user, session=session, kind="fact", pinned=pinned, ttl_days=ttl_days)
        if repeated:
            return self.stated_again(user, world, min(repeated, key=lambda v: list(world.versions).index(v.id)), new, pinned)
        assert new.created
        kind, expires = "pinned" if pinned else "fact", self.clock.now + SECOND if short else None
        version = Version(new, user, session, kind, text, new, 1, self.clock.now, expires=expires)
        ends = self.contradicted(world, session)
        if not ends:
            world.add(version)
        elif self.store.conflicts.mode(user) == "ask":
            version.state = "proposed"
            world.add(version)
            assert new.conflict_id is not None
            world.conflicts[new.conflict_id] = Waiting(new, [end.id for end in ends])
        else:
            assert set(new.superseded) == {end.id for end in ends}
            self.replace(world, version, ends, world.versions[new.superseded[0]], "updated")
        self.done(user, world)
        return new

    def stated_again(self, user: str, world: World, found: Version, new: sqlmem.MemoryId, pinned: bool) -> Any:
        world.versions[found.id].seen += 1
        if pinned and found.kind == "fact":
            assert new != found.id
            followed = copy.copy(found)
            followed.id, followed.seen, followed.created, followed.kind = new, 1, self.clock.now, "pinned"
            if found.expires is not None:
                followed.expires = self.clock.now + SECOND
            self.replace(world, followed, [found], found, "updated")
        else:
            assert (new, new.created) == (found.id, False)
        self.done(user, world)
        return new

    @rule(user=USERS, mode=st.sampled_from(["ask", "supersede", None]))
    def choose(self, user: str, mode: Any) -> None:
        self.store.conflicts.set_mode(mode, user)

    @rule(target=ids, id_=ids, text=TEXTS)
    def correct(self, id_: str, text: str) -> Any:
        user = self.owner(id_)
        self.judge.contradicted = set()
        if user is None:
            with pytest.raises(sqlmem.NotFound):
                self.store.correct(id_, text)
            return multiple()
        world = self.begins_call(user)
        head = world.head(id_)
        if head is None or not self.live(world, head):
            with pytest.raises(sqlmem.NotFound):
                self.store.correct(id_, text)
            return multiple()
        new = self.store.correct(id_, text)
        if head.text == text:
            assert (new, new.created) == (head.id, False)
            return multiple()
        followed = copy.copy(head)
        followed.id, followed.text, followed.seen, followed.created = new, text, 1, self.clock.now
        if head.expires is not None:
            followed.expires = self.clock.now + SECOND
        judged = head.kind != "turn" and self.store.conflicts.mode(user) != "ask"
        others = self.contradicted(world, head.session, chain=head.chain) if judged else []
        assert new.superseded[0] == head.id
        assert set(new.superseded[1:]) == {other.id for other in others}
        kind, session = head.kind, head.session
        self.replace(world, followed, [head, *others], head, "updated")
        followed.kind, followed.session = kind, session
        self.done(user, world)
        return new

    @rule(id_=ids)
    def invalidate(self, id_: str) -> None:
        user = self.owner(id_)
        world = None if user is None else self.begins_call(user)
        head = None if world is None else world.head(id_)
        if user is None or world is None or head is None:
            with pytest.raises(sqlmem.NotFound):
                self.store.invalidate(id_)
            return
        assert self.store.invalidate(id_) == head.id
        world.end(head, "invalidated", None, self.clock.now)
        self.done(user, world)

    @rule(target=ids, id_=ids, number=st.integers(1, 4))
    def roll_back(self, id_: str, number: int) -> Any:
        user = self.owner(id_)
        world = None if user is None else self.begins_call(user)
        wanted = None if world is None else next((v for v in world.chain(id_) if v.number == number), None)
        if user is None or world is None or wanted is None:
            with pytest.raises(sqlmem.NotFound):
                self.store.rollback(id_, number)
            return multiple()
        new = self.store.rollback(id_, number)
        if self.live(world, wanted):
            assert (new, new.created) == (wanted.id, False)
            return multiple()
        head = world.head(id_)
        followed = copy.copy(wanted)
        followed.id, followed.seen, followed.created = new, 1, self.clock.now
        followed.number, followed.state = world.highest[wanted.chain] + 1, "live"
        followed.reason = followed.by = followed.ended = None
        if wanted.expires is not None:
            followed.expires = self.clock.now + SECOND
        if head is not None:
            world.end(head, "updated", new, self.clock.now)
        world.add(followed)
        self.done(user, world)
        return new

    @rule(id_=ids, outcome=st.sampled_from(["useful", "dead_end", "corrected"]))
    def grade(self, id_: str, outcome: Any) -> None:
        user = self.owner(id_)
        if user is None:
            with pytest.raises(sqlmem.NotFound):
                self.store.feedback(id_, outcome)
            return
        assert self.store.feedback(id_, outcome) is None
        self.done(user, self.begins_call(user))

    @rule(target=ids, chosen=st.sets(ids, min_size=1, max_size=2), resurrect=st.booleans())
    def forget(self, chosen: set[str], resurrect: bool) -> Any:
        # What was undone lies in the trash, where no id of the model leads.
        chosen = {id_ for id_ in chosen if self.owner(id_) or any(id_ in world.forgotten for world in self.worlds.values())}
        held = {id_: user for id_ in chosen if (user := self.owner(id_)) is not None}
        worlds = {user: self.begins_call(user) for user in set(held.values())}
        headless = [
            worlds[user].versions[id_].chain for id_, user in held.items() if worlds[user].versions[id_].state == "live"
        ]
        assert self.store.forget(ids=sorted(chosen), resurrect=resurrect) == len(held)
        for id_, user in held.items():
            self.model_forgets(worlds[user], id_)
        revived = []
        if resurrect:
            for user, world in worlds.items():
                revived += [new for chain in headless if (new := self.model_resurrects(user, world, chain)) is not None]
        for user, world in worlds.items():
            self.done(user, world, final=True)
        return multiple(*revived)

    @rule(target=ids, user=USERS, session=SESSIONS, keep=st.integers(0, 2), kept=st.sampled_from(["no", "trash", "turns"]))
    def consolidate(self, user: str, session: str | None, keep: int, kept: str) -> Any:
        world = self.begins_call(user)
        self.batches += 1
        # Of nobody that is spoken about elsewhere, so that it contradicts nothing.
        text = f"Batch{self.batches} was made"
        turns = [v for v in world.versions.values() if v.kind == "turn" and v.session == session and self.live(world, v)]
        turns.sort(key=lambda version: version.turn or 0)
        old = [turn for turn in turns[: max(0, len(turns) - keep)] if turn.id not in self.made_of(world)]
        report = self.store.consolidate(
            session,
            lambda turns: [text],
            user=user,
            keep_recent=keep,
            keep_turns=kept == "turns",
            trash_days=1 if kept == "trash" else None,
        )
        assert report.turn_ids == tuple(turn.id for turn in old)
        if not old:
            return multiple()
        fact = Version(report.fact_ids[0], user, session, "fact", text, report.fact_ids[0], 1, self.clock.now)
        fact.sources = report.turn_ids
        world.add(fact)
        for turn in old if kept != "turns" else ():
            if kept == "no":
                self.model_forgets(world, turn.id)
            else:
                del world.versions[turn.id]
        self.done(user, world, final=kept == "no")
        return fact.id

    def made_of(self, world: World) -> set[str]:
        return {source for version in world.versions.values() for source in version.sources}

    @rule()
    def expire(self) -> None:
        gone = {
            version.id: user
            for user, world in self.worlds.items()
            for version in world.versions.values()
            if version.expires is not None and version.expires <= self.clock.now
        }
        self.store.expire()
        for id_, user in gone.items():
            self.model_forgets(self.worlds[user], id_)
        if gone:
            # What can be undone depends on what has gone, which tests of undo() look into.
            self.undoable = {user: [None] for user in self.worlds}
            self.undone = {user: [] for user in self.worlds}
            self.known = dict.fromkeys(self.worlds, False)

    def model_forgets(self, world: World, id_: str) -> None:
        del world.versions[id_]
        world.forgotten.add(id_)
        for name, conflict in list(world.conflicts.items()):
            if conflict.proposal == id_:
                del world.conflicts[name]

    def model_resurrects(self, user: str, world: World, chain: str) -> str | None:
        left = sorted((v for v in world.versions.values() if v.chain == chain), key=lambda v: v.number)
        if not left:
            return None
        last = left[-1]
        heads = [memory for memory in self.store.history(last.id) if memory.state in ("live", "expired")]
        if last.expires is not None and last.expires <= self.clock.now:
            return None
        followed = copy.copy(last)
        followed.id, followed.number, followed.state = heads[0].id, world.highest[chain] + 1, "live"
        followed.reason = followed.by = followed.ended = None
        followed.seen, followed.created = 1, self.clock.now
        world.add(followed)
        return followed.id

    @rule(user=USERS, answer=ANSWERS, text=TEXTS, data=st.data())
    def resolve(self, user: str, answer: str, text: str, data: st.DataObject) -> None:
        world = self.begins_call(user)
        if not world.conflicts:
            return
        name = data.draw(st.sampled_from(sorted(world.conflicts)))
        conflict = world.conflicts[name]
        heads = self.heads(world, conflict)
        if not heads:
            assert self.answer(name, answer, text).resolution == "no_longer"
            self.accepted(world, conflict.proposal)
        elif sorted(head.id for head in heads) != sorted(
            id_ for id_ in conflict.members if id_ in world.versions and self.live(world, world.versions[id_])
        ):
            with pytest.raises(sqlmem.ConflictError, match="has changed"):
                self.answer(name, answer, text)
            for known in (self.worlds[user], *self.undoable[user], *self.undone[user]):
                if known is not None and name in known.conflicts:
                    known.conflicts[name].members = [head.id for head in heads]
            self.undone[user] = []
            return
        else:
            self.settle(world, conflict, heads, self.answer(name, answer, text), text)
        del world.conflicts[name]
        self.done(user, world)

    def answer(self, name: str, answer: str, text: str) -> sqlmem.Conflict:
        if answer == "own":
            return self.store.conflicts.resolve(name, text=text)
        return self.store.conflicts.resolve(name, answer)  # type: ignore[arg-type]

    def heads(self, world: World, conflict: Waiting) -> list[Version]:
        chains = {self.chains[id_] for id_ in conflict.members if id_ in self.chains}
        return [v for v in world.versions.values() if v.chain in chains and self.live(world, v)]

    @property
    def chains(self) -> dict[str, str]:
        """The first version of every version's chain, forgotten ones too."""
        rows = self.store._engine.db.rows(
            "select v.id, coalesce(f.id, t.id) from (select id, chain from memory union select id, chain from tombstone) v"
            " left join memory f on f.rowid = v.chain left join tombstone t on t.rowid = v.chain"
        )
        return {row[0]: row[1] for row in rows}

    def accepted(self, world: World, id_: str) -> Version:
        version = world.versions[id_]
        version.state, version.created = "live", self.clock.now
        return version

    def settle(self, world: World, conflict: Waiting, heads: list[Version], now: sqlmem.Conflict, text: str) -> None:
        proposal = self.accepted(world, conflict.proposal)
        if now.resolution == "take_new":
            del world.highest[proposal.chain]
            first = min(heads, key=lambda head: self.rowid(head.id))
            self.replace(world, proposal, heads, first, "conflict_resolved")
        if now.resolution in ("keep_old", "own_text"):
            world.end(proposal, "conflict_resolved", None, self.clock.now)
        if now.resolution == "own_text":
            first = min(heads, key=lambda head: self.rowid(head.id))
            own = Version(now.results[0], proposal.user, proposal.session, proposal.kind, text, "", 0, self.clock.now)
            self.replace(world, own, heads, first, "conflict_resolved")

    def rowid(self, id_: str) -> int:
        found: int = self.store._engine.db.value("select rowid from memory where id = ?", (id_,))
        return found

    @rule(user=USERS)
    def undo(self, user: str) -> None:
        if self.undoable[user][-1:] == [None]:
            return
        if self.final[user] or not self.undoable[user]:
            with pytest.raises(sqlmem.NotFound):
                self.store.undo(user)
            return
        self.store.undo(user)
        before = self.undoable[user].pop()
        assert before is not None
        self.undone[user].append(self.worlds[user])
        self.worlds[user] = before

    @rule(user=USERS)
    def redo(self, user: str) -> None:
        if not self.known[user]:
            return
        if not self.undone[user]:
            with pytest.raises(sqlmem.NotFound):
                self.store.redo(user)
            return
        self.store.redo(user)
        self.undoable[user].append(self.worlds[user])
        self.worlds[user] = self.undone[user].pop()

    # -- what holds after each ----------------------------------------------------------------------------------------

    @invariant()
    def every_version_is_as_the_model_says(self) -> None:
        for world in self.worlds.values():
            waiting: dict[str, set[str]] = {}
            for name, conflict in world.conflicts.items():
                for id_ in (conflict.proposal, *conflict.members):
                    waiting.setdefault(id_, set()).add(name)
            for version in world.versions.values():
                memory = self.store.get(version.id)
                state = "expired" if version.state == "live" and not self.live(world, version) else version.state
                assert (memory.text, memory.kind, memory.user, memory.session, memory.seen) == (
                    version.text,
                    version.kind,
                    version.user,
                    version.session,
                    version.seen,
                )
                assert (memory.state, memory.version_number, memory.created_at) == (state, version.number, version.created)
                assert (memory.expiration_reason, memory.replaced_by, memory.expired_at) == (
                    version.reason,
                    version.by,
                    version.ended,
                )
                assert set(memory.conflicts) == waiting.get(version.id, set())

    @invariant()
    def what_is_live_is_listed_and_pins_are_shown(self) -> None:
        for user, world in self.worlds.items():
            live = [version for version in world.versions.values() if self.live(world, version)]
            assert sorted(memory.id for memory in self.store.list(user=user, limit=1000)) == sorted(v.id for v in live)
            block = self.store.context("likes", user=user)
            assert sorted(memory.id for memory in block.pinned) == sorted(v.id for v in live if v.kind == "pinned")
            shown = [memory.id for part in (block.pinned, block.recent, block.retrieved) for memory in part]
            assert len(shown) == len(set(shown))
            assert block.token_estimate == -(-len(block.text) // 4)

    @invariant()
    def the_file_keeps_its_rules(self) -> None:
        assert broken_rules(self.store) == []


TestStates = Machine.TestCase
TestStates.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
