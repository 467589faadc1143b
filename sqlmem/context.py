"""The context block: text for a prompt, put together under a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlmem import encoding
from sqlmem import recall as recalling
from sqlmem.clock import from_ms
from sqlmem.engine import Engine
from sqlmem.recall import Question, Ranked
from sqlmem.records import ContextBlock
from sqlmem.search import filters
from sqlmem.search.filters import Filter
from sqlmem.store import memories, scopes
from sqlmem.store.memories import Stored
from sqlmem.tokens import TokenCounter

PINNED = "Pinned facts:"
RECENT = "Recent conversation:"
RELEVANT = "Relevant memories:"

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def context(engine: Engine, asked: Question, recent_turns: int) -> ContextBlock:
    """Pins, then recent turns, then what is relevant, as far as the budget goes."""
    encoding.embed_pending(engine.db, engine.encoder, limit=recalling.EMBED_FIRST)
    vector = recalling.encode(engine, asked)
    most = recalling.POOL if asked.limit is None and asked.token_budget is None else asked.limit
    with engine.db.read():
        pins = _pins(engine, asked)
        draft = Draft(engine.options.token_counter, asked.token_budget, pins)
        over = not draft.fits()
        turns = _last_turns(engine, asked, recent_turns)
        _add_recent(draft, turns)
        shown = {item.rowid for item in (*draft.pins, *draft.recent)}
        ranked = recalling.rank(engine, asked, vector, exclude=shown)[:most]
        for item in ranked:
            draft.add_relevant(item)
        draft.trim()
        wanted = {turn.rowid for turn in turns} | {item.stored.rowid for item in ranked}
        cut = len(wanted - draft.rowids())
        fixed = [*draft.pins, *draft.recent]
        records = memories.records(engine.db, fixed, asked.now)
        return ContextBlock(
            text=draft.text(),
            pinned=tuple(records[: len(draft.pins)]),
            recent=tuple(records[len(draft.pins) :]),
            retrieved=tuple(recalling.recalled(engine, draft.relevant, asked.now)),
            query=asked.query,
            session=asked.chosen.session,
            token_budget=asked.token_budget,
            token_estimate=engine.options.token_counter(draft.text()),
            truncated=over or cut > 0,
            cut_count=cut,
        )


@dataclass(slots=True)
class Draft:
    """A block in the making, which knows how much room is left.

    Token counts do not add up: a whole text may have fewer tokens than its lines. So lines are added up, each with the most
    that its date and heading may cost; only where that sum reaches the budget is the whole text counted.
    """

    count: TokenCounter
    budget: int | None
    pins: list[Stored]
    recent: list[Stored] = field(default_factory=list)
    relevant: list[Ranked] = field(default_factory=list)
    _at_most: int = 0
    _exact: bool = True
    _around: int = 0

    def __post_init__(self) -> None:
        self._at_most = self.count(self.text())
        self._around = self.count(f"\n\n{RELEVANT}\n") + self.count("30 Sep 2000:\n")

    def fits(self) -> bool:
        """Whether the whole text is within the budget."""
        return self.budget is None or self.count(self.text()) <= self.budget

    def add_recent(self, turn: Stored) -> bool:
        """Put a turn before the recent ones if it fits."""
        if not self._may_fit(turn):
            return False
        self.recent.insert(0, turn)
        if self._settled(turn):
            return True
        del self.recent[0]
        return False

    def add_relevant(self, item: Ranked) -> bool:
        """Put a memory after the relevant ones if it fits."""
        if not self._may_fit(item.stored):
            return False
        self.relevant.append(item)
        if self._settled(item.stored):
            return True
        self.relevant.pop()
        return False

    def trim(self) -> None:
        """Drop from the tail until the whole text fits.

        Needed only for a counter that finds more tokens in a text than in its lines.
        """
        while (self.relevant or self.recent) and not self.fits():
            del (self.relevant or self.recent)[-1 if self.relevant else 0]

    def rowids(self) -> set[int]:
        """The memories in the block."""
        return {item.rowid for item in (*self.pins, *self.recent, *(ranked.stored for ranked in self.relevant))}

    def text(self) -> str:
        """The block as it stands: sections with a blank line between them, empty ones left out."""
        sections = [
            (PINNED, [_line(pin) for pin in self.pins]),
            (RECENT, [_line(turn) for turn in self.recent]),
            (RELEVANT, _dated([item.stored for item in self.relevant])),
        ]
        return "\n\n".join("\n".join([heading, *lines]) for heading, lines in sections if lines)

    def _may_fit(self, stored: Stored) -> bool:
        if self.budget is None:
            return True
        tokens = self.count(_line(stored))
        if self._at_most + tokens + 1 + self._around <= self.budget:
            return True
        if not self._exact:
            self._at_most, self._exact = self.count(self.text()), True
        # Joining a line to a text saves what the counter adds to every text, and maybe a token at the seam.
        return self._at_most + tokens - self.count("") - 2 <= self.budget

    def _settled(self, stored: Stored) -> bool:
        """Whether the block with `stored` in it is within the budget."""
        if self.budget is None:
            return True
        at_most = self._at_most + self.count(_line(stored)) + 1 + self._around
        exact = at_most > self.budget
        if exact:
            at_most = self.count(self.text())
        if at_most > self.budget:
            return False
        self._at_most, self._exact = at_most, exact
        return True


def _pins(engine: Engine, asked: Question) -> list[Stored]:
    chosen = asked.chosen
    wanted = Filter(user=chosen.user, session=chosen.session, all_users=chosen.all_users, kinds=("pinned",))
    condition = filters.condition(engine.db, wanted, asked.now)
    if condition is None:
        return []
    sql = f"select {memories.OF_M} from memory m where {condition.sql} order by m.at, m.rowid"
    return [Stored(*row) for row in engine.db.rows(sql, condition.bindings)]


def _last_turns(engine: Engine, asked: Question, count: int) -> list[Stored]:
    """The session's last turns, newest first."""
    session = asked.chosen.session
    scope = None if session is None else scopes.find(engine.db, asked.chosen.user, session)
    if scope is None or count == 0:
        return []
    return memories.last_turns(engine.db, scope.id, asked.now, count)


def _add_recent(draft: Draft, turns: Sequence[Stored]) -> None:
    """Add turns from the newest back until one does not fit: a conversation with a hole would mislead."""
    for turn in turns:
        if not draft.add_recent(turn):
            return


def _line(stored: Stored) -> str:
    """One memory as the block prints it. Further lines of its text are indented, so that none can pose as another memory."""
    first, *more = stored.text.strip().splitlines()
    lead = f"{stored.role}: " if stored.kind == "turn" else "- "
    return "\n  ".join([lead + first, *more])


def _dated(chosen: Sequence[Stored]) -> list[str]:
    """Lines of the relevant memories: statements first, then turns in order of time, each day of a session under its date."""
    lines = [_line(stored) for stored in chosen if stored.kind != "turn"]
    days: dict[tuple[int, str], list[Stored]] = {}
    for stored in sorted((item for item in chosen if item.kind == "turn"), key=lambda item: (item.at, item.turn, item.rowid)):
        days.setdefault((stored.scope, _date(stored)), []).append(stored)
    for (_, date), turns in days.items():
        lines += [f"{date}:", *map(_line, turns)]
    return lines


def _date(stored: Stored) -> str:
    moment = from_ms(stored.at)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"
