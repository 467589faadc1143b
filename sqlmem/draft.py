"""The text of a context block, put together under a token budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from sqlmem.clock import local
from sqlmem.recall import Ranked
from sqlmem.store.memories import Stored
from sqlmem.tokens import CHARACTERS_A_TOKEN, TokenCounter, estimate

PINNED = "Pinned facts:"
SUMMARIES = "Latest summaries:"
RECENT = "Recent conversation:"
RELEVANT = "Relevant memories:"

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


Day = tuple[int, str]
"""A scope and a date: what relevant turns are printed under."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A relevant memory as it is printed, under which day, and how many tokens its own lines have."""

    item: Ranked
    text: str
    day: Day | None
    tokens: int


@dataclass(slots=True)
class Draft:
    """A block in the making, which knows how much room is left.

    Token counts do not add up: a whole text may have fewer tokens than its lines. So the lines' counts are added up, one more
    for each seam; only where that sum reaches the budget is the whole text counted. The default counter counts characters,
    whose sums are exact: there the room is measured in those.
    """

    count: TokenCounter
    budget: int | None
    pins: list[Stored]
    zone: tzinfo = UTC
    summaries: list[Stored] = field(default_factory=list)
    recent: list[Stored] = field(default_factory=list)
    relevant: dict[int, Shown] = field(default_factory=dict)
    _room: int = 0
    _measure: TokenCounter = len
    _adds_up: bool = False
    _at_most: int = 0
    _exact: bool = True
    _days: Counter[Day | None] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.budget is not None:
            self._adds_up = self.count is estimate
            self._room = self.budget * (CHARACTERS_A_TOKEN if self._adds_up else 1)
            self._measure = len if self._adds_up else self.count
            self._at_most = self._start()

    def fits(self) -> bool:
        """Whether the whole text is within the budget."""
        return self.budget is None or self.count(self.text()) <= self.budget

    def add_recent(self, turn: Stored) -> bool:
        """Put a turn before the recent ones if it fits."""
        return self._prepend(turn, self.recent, RECENT)

    def add_summary(self, summary: Stored) -> bool:
        """Put a summary before the others if it fits."""
        return self._prepend(summary, self.summaries, SUMMARIES)

    def show(self, item: Ranked, text: str) -> bool:
        """Print `text` for a relevant memory, instead of what was printed of it so far, if that fits."""
        before = self.relevant.get(item.stored.rowid)
        day = _day(item.stored, self.zone) if before is None else before.day
        own = self._tokens([line(item.stored, text)])
        tokens = own - (0 if before is None else before.tokens)
        if day is not None and not self._days[day]:
            tokens += self._tokens([f"{day[1]}:"])
        if not self.relevant:
            tokens += self._tokens(self._heading(RELEVANT))
        if not self._may_fit(tokens):
            return False
        self._put(item.stored.rowid, Shown(item, text, day, own))
        if self._settled(tokens):
            return True
        self._put(item.stored.rowid, before)
        return False

    def clear(self) -> None:
        """Take all relevant memories out again."""
        self.relevant.clear()
        self._days.clear()
        self._at_most, self._exact = self._start(), True

    def trim(self, order: Iterable[int]) -> None:
        """Drop relevant memories, the last of `order` first, then the oldest summaries and turns, until the whole text fits.

        Needed only for a counter that finds more tokens in a text than in its lines.
        """
        last = [rowid for rowid in order if rowid in self.relevant]
        while (last or self.summaries or self.recent) and not self.fits():
            if last:
                del self.relevant[last.pop()]
            else:
                del (self.summaries or self.recent)[0]

    def rowids(self) -> set[int]:
        """The memories in the block."""
        return {stored.rowid for stored in (*self.pins, *self.summaries, *self.recent)} | self.relevant.keys()

    def text(self) -> str:
        """The block as it stands: sections with a blank line between them, empty ones left out."""
        sections = [
            (PINNED, [line(pin, pin.text) for pin in self.pins]),
            (SUMMARIES, [self._summary(one) for one in self.summaries]),
            (RECENT, [line(turn, turn.text) for turn in self.recent]),
            (RELEVANT, _dated(self.relevant.values())),
        ]
        return "\n\n".join("\n".join([heading, *lines]) for heading, lines in sections if lines)

    def _prepend(self, new: Stored, section: list[Stored], heading: str) -> bool:
        printed = self._summary(new) if section is self.summaries else line(new, new.text)
        tokens = self._tokens([printed, *([] if section else self._heading(heading))])
        if not self._may_fit(tokens):
            return False
        section.insert(0, new)
        if self._settled(tokens):
            return True
        del section[0]
        return False

    def _summary(self, stored: Stored) -> str:
        return line(stored, f"{_date(stored, self.zone)}: {stored.text.strip()}")

    def _start(self) -> int:
        text = self.text()
        # Each part is counted with the line break before it, which the first one has not.
        return -1 if self._adds_up and not text else self._measure(text)

    def _heading(self, heading: str) -> list[str]:
        return [f"\n{heading}" if self.rowids() else heading]

    def _tokens(self, parts: Iterable[str]) -> int:
        return 0 if self.budget is None else sum(self._measure(part) + 1 for part in parts)

    def _put(self, rowid: int, shown: Shown | None) -> None:
        before = self.relevant.pop(rowid, None)
        if before is not None:
            self._days[before.day] -= 1
        if shown is not None:
            self.relevant[rowid] = shown
            self._days[shown.day] += 1

    def _may_fit(self, tokens: int) -> bool:
        if self.budget is None or self._at_most + tokens <= self._room:
            return True
        if self._adds_up:
            return False
        if not self._exact:
            self._at_most, self._exact = self._measure(self.text()), True
        # Joining up to three parts to a text saves what the counter adds to every text, and maybe a token at each seam.
        return self._at_most + tokens - 3 * (self._measure("") + 2) <= self._room

    def _settled(self, tokens: int) -> bool:
        """Whether the block, in which `tokens` more are printed, is within the budget."""
        if self.budget is None:
            return True
        at_most = self._at_most + tokens
        exact = at_most > self._room
        if exact:
            at_most = self._measure(self.text())
        if at_most > self._room:
            return False
        self._at_most, self._exact = at_most, exact
        return True


def line(stored: Stored, text: str) -> str:
    """One memory as the block prints it. Further lines of its text are indented, so that none can pose as another memory."""
    first, *more = text.strip().splitlines()
    lead = f"{stored.role}: " if stored.kind == "turn" else "- "
    return "\n  ".join([lead + first, *more])


def _dated(shown: Iterable[Shown]) -> list[str]:
    """Lines of the relevant memories: statements first, then turns in order of time, each day of a session under its date."""
    ranked = sorted(shown, key=lambda one: (one.item.score, one.item.stored.at, one.item.stored.id), reverse=True)
    lines = [line(one.item.stored, one.text) for one in ranked if one.day is None]
    days: dict[Day, list[Shown]] = {}
    for one in sorted(ranked, key=lambda one: (one.item.stored.at, one.item.stored.turn or 0, one.item.stored.rowid)):
        if one.day is not None:
            days.setdefault(one.day, []).append(one)
    for (_, date), some in days.items():
        lines += [f"{date}:", *(line(one.item.stored, one.text) for one in some)]
    return lines


def _day(stored: Stored, zone: tzinfo) -> Day | None:
    return (stored.scope, _date(stored, zone)) if stored.kind == "turn" else None


def _date(stored: Stored, zone: tzinfo) -> str:
    moment = local(stored.at, zone)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"
