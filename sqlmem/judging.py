"""The judge: which of the facts that are known a new one contradicts. Called outside of transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlmem import arguments, candidates
from sqlmem.candidates import Encoded
from sqlmem.db import Database
from sqlmem.engine import Engine
from sqlmem.errors import CallbackError, InvalidArgument, SqlmemError
from sqlmem.records import ContradictionMode, Verdict
from sqlmem.search import filters
from sqlmem.store import memories, scopes
from sqlmem.store.memories import NewMemory, Stored
from sqlmem.store.vector_index import Codes

# Of texts about the same thing e5-small-v2 has .3 and more between passages, of others mostly less (see tests/test_judge.py):
# what is less near is not shown to a judge, who might end it by mistake.
PLAUSIBLE = 0.3
# By words alone, a shared subject is all that many contradictions have in common.
PLAUSIBLE_BY_WORDS = 0.15
# Two ways to say one thing have .66 and more.
SIMILAR = 0.65
# How many candidates the searches propose; the judge sees `judge_candidates` of them.
_POOL = 50


class Near(NamedTuple):
    """A live fact and how near it is to another text, 0..1."""

    stored: Stored
    relevance: float


class Contradiction(NamedTuple):
    """A live fact that a statement contradicts, and what the judge said of it."""

    stored: Stored
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Compared:
    """A text beside what was known when it was compared; `verdicts` belong to `shown`, none if no judge was asked."""

    shown: Sequence[Near]
    verdicts: Sequence[Verdict]
    near: Sequence[Near]
    count_ever: int
    checked: bool

    @property
    def contradicted(self) -> list[Contradiction]:
        """The facts that the text contradicts, the nearest first."""
        pairs = zip(self.shown, self.verdicts, strict=False)
        return [Contradiction(near.stored, verdict) for near, verdict in pairs if verdict.contradicts]

    @property
    def similar(self) -> tuple[str, ...]:
        """The ids of facts that say nearly the same and are not contradicted."""
        ended = {stored.rowid for stored, _ in self.contradicted}
        return tuple(n.stored.id for n in self.near if n.relevance >= SIMILAR and n.stored.rowid not in ended)


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact that is compared with others: its text and its codes, and where it belongs."""

    text: str
    codes: Codes
    user: str
    session: str | None
    chain: int | None = None  # of which it is, or will be, a version


def compare(engine: Engine, said: Statement, *, judged: bool, least: float | None = None) -> Compared:
    """Find what is near to a statement and, if `judged`, ask the judge about it.

    Raises CallbackError if the judge raises or answers nonsense, unless the store was opened with on_judge_error="store": then
    nothing is contradicted and the statement counts as unchecked. `least` replaces the relevance that a fact must have.
    """
    with engine.db.read():
        count_ever = memories.count_ever(engine.db)
        near = nearest(engine, said, least=least)
    shown = near[: engine.options.judge_candidates] if judged else []
    verdicts: Sequence[Verdict] = []
    checked = judged
    if shown:
        try:
            verdicts = ask(engine, said.text, [item.stored.text for item in shown])
        except CallbackError:
            if engine.options.on_judge_error == "raise":
                raise
            checked = False
    return Compared(shown, verdicts, near, count_ever, checked)


def nearest(engine: Engine, said: Statement, *, least: float | None = None) -> list[Near]:
    """The live facts and pins that a statement may be about, nearest first, without those that say the very same.

    Of the statement's session and the user's own; of all the user's for one without a session. Use it inside a read.
    """
    chosen = filters.build(user=said.user, session=said.session, kinds=("fact", "pinned"))
    condition = filters.condition(engine.db, chosen, engine.now())
    if condition is None:
        return []
    pool = candidates.gather(engine, said.text, "balanced", _encoded(engine, said.codes), condition, _POOL)
    found = candidates.relevant(engine, said.text, pool, {}).values()
    if least is None:
        least = PLAUSIBLE if pool.spaces else PLAUSIBLE_BY_WORDS
    near = [
        Near(item.stored, item.relevance)
        for item in found
        if item.relevance >= least and item.stored.text != said.text and item.stored.chain != said.chain
    ]
    return sorted(near, key=lambda item: (item.relevance, item.stored.at, item.stored.rowid), reverse=True)


def holds(engine: Engine, said: Statement, compared: Compared) -> bool:
    """Whether, inside the transaction, the comparison still says all: what it ends lives, and nothing new is near."""
    db, now = engine.db, engine.now()
    if not all(lives(db, stored, now) for stored, _ in compared.contradicted):
        return False
    if not compared.checked or memories.count_ever(db) == compared.count_ever:
        return True
    known = {item.stored.rowid for item in compared.near}
    return all(item.stored.rowid in known for item in nearest(engine, said)[: engine.options.judge_candidates])


def lives(db: Database, stored: Stored, now: int) -> bool:
    """Whether a version that was read before still lives."""
    present = memories.by_rowids(db, [stored.rowid]).get(stored.rowid)
    return present is not None and memories.state(present, now) == "live"


def begins(one: NewMemory | Stored) -> int:
    """From when a statement holds: what it says of that, or its own time."""
    return one.at if one.valid_from is None else one.valid_from


def meets(one: NewMemory | Stored, other: Stored) -> bool:
    """Whether two statements say something of a same time: what was over before the other began contradicts nothing."""
    return (other.valid_to is None or other.valid_to > begins(one)) and (one.valid_to is None or one.valid_to > begins(other))


def mode(engine: Engine, user: str) -> ContradictionMode:
    """What becomes of a fact of the user that contradicts what is known."""
    return scopes.contradiction_mode(engine.db, user) or engine.options.on_contradiction


def ask(engine: Engine, text: str, shown: Sequence[str]) -> list[Verdict]:
    """The judge's verdicts on facts that are known. Raises CallbackError for anything but one verdict each."""
    judge = engine.options.judge
    assert judge is not None, "asked only where there is one"
    try:
        answer = judge(text, list(shown))
    except SqlmemError:
        raise
    except Exception as error:
        raise CallbackError(f"the judge raised {type(error).__name__}: {error}; nothing was changed") from error
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Sequence) or len(answer) != len(shown):
        raise CallbackError(
            f"the judge must return {len(shown)} verdicts, one for each fact, and returned {arguments.shown(answer)}; "
            "nothing was changed"
        )
    return [_verdict(one) for one in answer]


def wanted(engine: Engine, kind: str, check: object) -> bool:
    """Whether a memory is judged: facts where there is a judge, or as `check` says. Raises InvalidArgument."""
    if check is None:
        return engine.options.judge is not None and kind != "turn"
    if arguments.boolean("check", check) and engine.options.judge is None:
        raise InvalidArgument("check=True needs a judge, and this store was opened without one: open(..., judge=…)")
    return bool(check)


def _verdict(given: object) -> Verdict:
    # Not by its truth: "no" is a true string.
    if isinstance(given, Verdict):
        return _sound(given)
    if isinstance(given, bool) or (isinstance(given, int) and given in (0, 1)):
        return Verdict(contradicts=bool(given))
    raise CallbackError(f"a verdict must be True, False, 0, 1 or a Verdict, not {arguments.shown(given)}; nothing was changed")


def _sound(given: Verdict) -> Verdict:
    """A verdict whose parts can be stored. Raises CallbackError."""
    try:
        options = tuple(arguments.text(option) for option in arguments.several("its options", given.options))
        return Verdict(
            contradicts=arguments.boolean("contradicts", given.contradicts),
            reason=None if given.reason is None else arguments.string("its reason", given.reason),
            question=None if given.question is None else arguments.text(given.question),
            options=tuple(dict.fromkeys(options)),
        )
    except InvalidArgument as error:
        raise CallbackError(f"the judge returned {arguments.shown(given)}: {error}; nothing was changed") from error


def _encoded(engine: Engine, codes: Codes) -> Encoded:
    """The statement's own vectors, in place of a question's."""
    if engine.encoder is None:
        return Encoded(None, {})
    from sqlmem.store import bit_index, models

    names = {model.id: model.name for model in models.held(engine.db)}
    held = {names[id_]: bit_index.units([code])[0] for id_, code in codes.items() if code is not None and id_ in names}
    return Encoded(engine.encoder, held)
