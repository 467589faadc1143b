"""Conflicts: statements that wait because they contradict what is known, until someone says what is true."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from sqlmem import arguments, clock, engine, revise
from sqlmem.asking import Asker
from sqlmem.clock import from_ms
from sqlmem.engine import Engine, Resolver
from sqlmem.errors import CallbackError, ConflictError, InvalidArgument, NotFound
from sqlmem.judging import Contradiction
from sqlmem.lifecycle import Change, End, changing
from sqlmem.records import Conflict, ConflictStatus, ContradictionMode, Memory, MemoryId, Page, Question
from sqlmem.store import conflicts as rows
from sqlmem.store import memories, scopes
from sqlmem.store.conflicts import Row
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.vector_index import Codes

Answer = Literal["keep_old", "take_new", "keep_both"]
ANSWERS: tuple[Answer, ...] = ("keep_old", "take_new", "keep_both")
STATUSES: tuple[ConflictStatus, ...] = ("pending", "failed", "resolved")
READY = Question(question="Which of these is true?", options=ANSWERS)
LONGEST_PAGE = 100


class Answered(NamedTuple):
    """Checked arguments of resolve(): a ready answer, or texts that are true, and what was answered to which question."""

    resolution: str
    texts: tuple[str, ...]
    codes: tuple[Codes, ...]
    answers: tuple[tuple[str, str], ...]


class Conflicts:
    """The conflicts of a store, as `store.conflicts`."""

    def __init__(self, engine_: Engine) -> None:
        self._engine = engine_

    def list(
        self,
        *,
        user: str | None = None,
        status: ConflictStatus | None = None,
        limit: int = 10,
        cursor: str | None = None,
    ) -> Page[Conflict]:
        """A page of conflicts, the newest first: of one user or all, those that wait unless `status` says otherwise.

        Those that wait are "pending" or "failed". `limit` is at most 100. Raises InvalidArgument.
        """
        owner = None if user is None else arguments.name("user", user, empty=True)
        statuses = ("pending", "failed") if status is None else (_status(status),)
        with self._engine.db.read():
            found, following = rows.page(self._engine.db, owner, statuses, limit=limit, cursor=cursor, longest=LONGEST_PAGE)
            items = tuple(_conflict(self._engine, row) for row in found)
        return Page(items=items, next_cursor=following)

    def get(self, id: str) -> Conflict:
        """One conflict, open or resolved. Raises NotFound."""
        with self._engine.db.read():
            return _conflict(self._engine, _required(self._engine, id))

    def resolve(self, id: str, answers: Answer | Mapping[str, str] | None = None, *, text: str | None = None) -> Conflict:
        """Say what is true, and return the conflict, resolved.

        answers: "keep_old" drops the new statement, which stays in the history; "take_new" lets it take the place of what it
            contradicts; "keep_both" lets it live beside. A mapping answers the conflict's questions, each by one of its
            options: the store's resolver makes texts of them, which take the place of all.
        text: instead, your own text, which takes the place of all.

        One transaction. Raises ConflictError if the conflict is resolved already, if answers are missing or not among the
        options, or if what it contradicts has changed since it was opened: it is then about the versions of now, look at it
        again. If nothing that it contradicts is live any more, the statement is stored as new, whatever was answered.
        CallbackError if the resolver fails: nothing was changed, the conflict is "failed" and can be resolved still.
        """
        return _resolve(self._engine, id, answers, text)

    def mode(self, user: str = "") -> ContradictionMode | None:
        """What becomes of this user's facts that contradict what is known: None for the store's own rule."""
        return scopes.contradiction_mode(self._engine.db, arguments.name("user", user, empty=True))

    def set_mode(self, mode: ContradictionMode | None, user: str = "") -> None:
        """Let this user be asked, or not, whatever the store was opened with; None for its rule. Kept in the file."""
        name = arguments.name("user", user, empty=True)
        chosen = None if mode is None else engine.contradiction_mode(mode)
        now = self._engine.now()
        with self._engine.db.write():
            scopes.set_contradiction_mode(self._engine.db, name, chosen, now)


def begin(change: Change, user: str, proposal: Stored, contradicted: Sequence[Contradiction]) -> str:
    """Open a conflict about a proposal, and return its name."""
    name = clock.new_id(change.now)
    asked = [
        Question(question=verdict.question, options=verdict.options or ANSWERS)
        for _, verdict in contradicted
        if verdict.question is not None
    ]
    members = [(stored.rowid, verdict.reason) for stored, verdict in contradicted]
    number = rows.add(change.db, name=name, user=user, memory=proposal.rowid, members=members, questions=asked, now=change.now)
    change.asked(proposal.scope, proposal.rowid, number)
    return name


def announce(engine_: Engine, stored: MemoryId) -> None:
    """Tell the app of a conflict that was opened and stored. Raises CallbackError if its callback raises."""
    told = engine_.options.on_conflict
    if told is None or stored.conflict_id is None:
        return
    with engine_.db.read():
        conflict = _conflict(engine_, _required(engine_, stored.conflict_id))
    try:
        told(conflict)
    except Exception as error:
        raise CallbackError(
            f"on_conflict raised {type(error).__name__}: {error}; the memory {stored} is stored and waits, "
            f"in the conflict {stored.conflict_id}"
        ) from error


def _resolve(engine_: Engine, id_: object, answers: object, text: object) -> Conflict:
    engine_.db.require_writable()
    row = _required(engine_, id_)
    answered = _answered(engine_, row, answers, text)
    with changing(engine_.db, "resolve", engine_.now()) as change:
        row = _required(engine_, id_)
        _require_open(row)
        moved = not _settle(engine_, change, row, answered)
    if moved:
        raise ConflictError(
            f"what the conflict {row.name} is about has changed since it was opened; nothing was resolved, it is now about the "
            "versions of now: look at it again"
        )
    with engine_.db.read():
        return _conflict(engine_, _required(engine_, id_))


def _settle(engine_: Engine, change: Change, row: Row, answered: Answered) -> bool:
    """Resolve inside the transaction; False if the conflict is about other versions now, which is noted."""
    db = change.db
    proposal = memories.by_rowids(db, [row.memory])[row.memory]
    members = rows.members(db, row.id)
    heads = _heads(engine_, [rowid for rowid, _ in members])
    change.touch(proposal.scope)
    if not heads:
        change.accept(proposal, [])
        _close(change, row, proposal, "no_longer", [proposal.rowid], ())
        return True
    if [head.rowid for head in heads] != sorted(rowid for rowid, _ in members if _is_live(engine_, rowid)):
        rows.replace_members(db, row.id, [head.rowid for head in heads])
        return False
    reasons = dict(members)
    ends = [End(head, "conflict_resolved", reasons.get(head.rowid)) for head in heads]
    results = _apply(engine_, change, proposal, ends, answered)
    _close(change, row, proposal, answered.resolution, results, answered.answers)
    return True


def _apply(engine_: Engine, change: Change, proposal: Stored, ends: Sequence[End], answered: Answered) -> list[int]:
    """What the answer says, done. Returns the rowids of what is true now."""
    olds = [end.stored for end in ends]
    if answered.resolution == "keep_both":
        change.accept(proposal, [])
        return [*(old.rowid for old in olds), proposal.rowid]
    place = revise.heir(olds, proposal.kind, scopes.of_memory(change.db, proposal.scope))
    if answered.resolution == "take_new":
        change.accept(proposal, ends, chain=place.chain, kind=place.kind, scope=place.scope)
        return [proposal.rowid]
    # The statement itself turned out not to be true: it stays in the history, as one that never was believed.
    change.accept(proposal, [])
    change.end(End(memories.by_rowids(change.db, [proposal.rowid])[proposal.rowid], "conflict_resolved"))
    if answered.resolution == "keep_old":
        return [old.rowid for old in olds]
    results = []
    for number, (text, codes) in enumerate(zip(answered.texts, answered.codes, strict=True)):
        new = NewMemory(
            id=clock.new_id(change.now),
            scope=place.scope,
            kind=place.kind,
            role=proposal.role,
            turn=None,
            text=text,
            at=change.now,
            created_at=max(change.now, *(old.created_at for old in olds)),
            expires_at=None,
            metadata=proposal.metadata,
            checked=1,
        )
        if number == 0:
            results.append(change.succeed(ends, replace(new, chain=place.chain), codes))
        else:
            results.append(change.succeed([], new, codes))
    return results


def _close(
    change: Change, row: Row, proposal: Stored, resolution: str, results: Sequence[int], answers: Sequence[tuple[str, str]]
) -> None:
    change.resolved(proposal.scope, row.id, resolution, results)
    rows.close(change.db, row.id, resolution, results, answers, change.now)


def _answered(engine_: Engine, row: Row, answers: object, text: object) -> Answered:
    """Check the answers and make texts of them, outside of any transaction. Raises ConflictError, CallbackError."""
    _require_open(row)
    if (answers is None) == (text is None):
        raise InvalidArgument("resolve() takes either answers or a text of your own")
    if text is not None:
        own = arguments.text(text)
        return Answered("own_text", (own,), _codes(engine_, [own]), ())
    if isinstance(answers, str):
        if answers not in ANSWERS:
            raise ConflictError(f"the answer must be one of {', '.join(ANSWERS)}, not {answers!r}; nothing was resolved")
        return Answered(answers, (), (), ())
    with engine_.db.read():
        conflict = _conflict(engine_, row)
    given = _fitting(conflict, answers)
    if conflict.questions == (READY,):
        return Answered(given[READY.question], (), (), tuple(given.items()))
    texts = _resolved(engine_, row, conflict, given)
    return Answered("answers", texts, _codes(engine_, texts), tuple(given.items()))


def _fitting(conflict: Conflict, answers: object) -> dict[str, str]:
    if not isinstance(answers, Mapping):
        raise InvalidArgument(f"answers must be one of {', '.join(ANSWERS)} or map questions to answers, not {answers!r}")
    options = {one.question: one.options for one in conflict.questions}
    unknown = [question for question in answers if question not in options]
    missing = [question for question in options if question not in answers]
    if unknown or missing:
        wrong = f"{unknown[0]!r} is none of its questions" if unknown else f"{missing[0]!r} is not answered"
        raise ConflictError(f"the answers do not fit the conflict {conflict.id}: {wrong}; nothing was resolved")
    for question, answer in answers.items():
        if answer not in options[question]:
            raise ConflictError(
                f"{answer!r} is no answer to {question!r}; possible are {', '.join(options[question])}; nothing was resolved"
            )
    return dict(answers)


def _resolved(engine_: Engine, row: Row, conflict: Conflict, given: Mapping[str, str]) -> tuple[str, ...]:
    """The texts that the resolver makes of the answers; if it fails, the conflict says so."""
    resolver = engine_.options.resolver or _by_model(engine_)
    if resolver is None:
        raise InvalidArgument(
            "answers to questions need a resolver or a language model, and this store was opened without one; answer "
            f"{', '.join(ANSWERS)}, or give a text of your own"
        )
    try:
        made = resolver(conflict, given)
        if isinstance(made, str | bytes | Mapping) or not isinstance(made, Sequence) or not made:
            raise CallbackError(f"the resolver must return a list of at least one text, it returned {arguments.shown(made)}")
        return tuple(dict.fromkeys(arguments.text(text) for text in made))
    except Exception as error:
        said = str(error) if isinstance(error, CallbackError) else f"{type(error).__name__}: {error}"
        with engine_.db.write():
            rows.fail(engine_.db, row.id, said)
        raise CallbackError(f"the resolver failed: {said}; the conflict {row.name} can be resolved still") from error


def _by_model(engine_: Engine) -> Resolver | None:
    """A resolver that asks the store's language model, if it has one."""
    if engine_.options.llm is None:
        return None
    asker = Asker(engine_, engine_.options.llm)

    def resolve(conflict: Conflict, answers: Mapping[str, str]) -> Any:
        said = [{"question": question, "answer": answer} for question, answer in answers.items()]
        return asker.ask(
            "resolve",
            "texts",
            remembered="\n".join(_quoted(memory.text) for memory in conflict.conflicting),
            new=_quoted("" if conflict.proposed is None else conflict.proposed.text),
            answers="\n".join(json.dumps(one, ensure_ascii=False) for one in said),
        )["texts"]

    return resolve


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _codes(engine_: Engine, texts: Sequence[str]) -> tuple[Codes, ...]:
    if engine_.encoder is None or engine_.options.deferred:
        return tuple({} for _ in texts)
    return tuple(engine_.encoder.documents(engine_.db, [("user", text) for text in texts]))


def _heads(engine_: Engine, rowids: Sequence[int]) -> builtins.list[Stored]:
    """The live heads of the chains that these versions, forgotten ones too, belong to, by rowid."""
    chains = dict.fromkeys(memories.chains_of(engine_.db, rowids))
    heads = [memories.head(engine_.db, chain) for chain in chains]
    now = engine_.now()
    return sorted((head for head in heads if head is not None and memories.state(head, now) == "live"), key=lambda h: h.rowid)


def _is_live(engine_: Engine, rowid: int) -> bool:
    stored = memories.by_rowids(engine_.db, [rowid]).get(rowid)
    return stored is not None and memories.state(stored, engine_.now()) == "live"


def _conflict(engine_: Engine, row: Row) -> Conflict:
    db, now = engine_.db, engine_.now()
    members = rows.members(db, row.id)
    reasons = dict(members)
    proposal = memories.by_rowids(db, [row.memory])
    if row.status == "resolved":
        about = list(memories.by_rowids(db, [rowid for rowid, _ in members]).values())
    else:
        about = _heads(engine_, [rowid for rowid, _ in members])
    own = tuple(
        question if row.status == "resolved" else replace(question, answer=None) for question in rows.questions(db, row.id)
    )
    proposed: list[Memory] = memories.records(db, list(proposal.values()), now)
    return Conflict(
        id=row.name,
        user=row.user,
        proposed=proposed[0] if proposed else None,
        conflicting=tuple(memories.records(db, about, now)),
        reasons=tuple(reasons.get(stored.rowid) for stored in about),
        questions=own or (READY,),
        status=row.status,
        error=row.error,
        resolution=row.resolution,
        results=rows.results(db, row.id),
        created_at=from_ms(row.created_at),
        resolved_at=None if row.resolved_at is None else from_ms(row.resolved_at),
    )


def _required(engine_: Engine, id_: object) -> Row:
    row = rows.by_name(engine_.db, arguments.string("id", id_))
    if row is None:
        raise NotFound(f"there is no conflict {id_!r}")
    return row


def _require_open(row: Row) -> None:
    if row.status == "resolved":
        raise ConflictError(f"the conflict {row.name} is resolved already: {row.resolution}; nothing was changed")


def _status(value: object) -> ConflictStatus:
    for known in STATUSES:
        if value == known:
            return known
    raise InvalidArgument(f"status must be one of {', '.join(STATUSES)}, not {value!r}")
