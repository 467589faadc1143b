"""From candidates to one order: fusing keyword and vector scores, and the small signals beside them. Pure arithmetic.

Every constant was chosen on the tuning half of LoCoMo only (bench/README.md) and holds on the other half too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlmem import text as texts
from sqlmem.clock import from_ms
from sqlmem.store.memories import Stored
from sqlmem.tokens import estimate

# Vector and keyword score count about the same: each is anchored, 0 for ordinary text and 1 for the best candidate.
VECTOR_SHARE = 0.55
# … but the best keyword score counts 1 only if it is this part of what a memory with all of the question's words would have.
EXPECTED_SHARE = 0.7
# A session that holds one good answer often holds the rest of it: its best score lifts all of its memories.
SESSION_WEIGHT = 0.3
# "What did Ana say about …" is mostly answered by Ana herself.
SPEAKER_BONUS = 0.2
# What follows a question that matches well, asked by another speaker, is probably its answer.
ANSWER_SHARE = 0.15
# What is replied tells what a turn was about: a good match lifts the turn that led to it.
REPLY_SHARE = 0.1
# A question seldom answers a question.
QUESTION_PENALTY = 0.1
# A long text matches more words and costs more of the budget: each doubling above 96 tokens costs this much.
LENGTH_PENALTY = 0.2
LENGTH_FREE_TOKENS = 96
# Of two texts of a length, the one with more different words says more.
DENSITY_WEIGHT = 0.1
# A memory from the month (or on the day) that a question names.
DATE_BONUS = 0.2
MOST_DAYS = 16
# A text that says when something was tells an event, which is what most questions are about.
TIME_BONUS = 0.05

# Codes of 8 bits tell cosines apart to about this much: below it a difference is rounding.
_ROUNDING = 1e-3

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = "|".join(f"{month}|{month[:3]}" for month in _MONTHS)
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b", re.IGNORECASE | re.ASCII)
_MONTH_DAY = re.compile(rf"\b({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)", re.IGNORECASE | re.ASCII)
_MONTH_ALONE = re.compile(rf"\b({_MONTH})\b", re.IGNORECASE | re.ASCII)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_SUBJECT = re.compile(
    r"\b(?:did|does|do|has|have|had|is|was|are|were|will|would|could|can|might|should)\s+(\w+)\b(?!['’]| and\b)", re.IGNORECASE
)
_WORD = re.compile(r"\w+")
# What findall() over lowered text does, in half the time where the text is ASCII.
_ASCII_WORDS = {code: chr(code).lower() if _WORD.match(chr(code)) else " " for code in range(128)}
_TIMES = frozenset(
    f"yesterday tonight tomorrow ago monday tuesday wednesday thursday friday saturday sunday {' '.join(_MONTHS)}".split()
) - {"may", "march"}
_WHICH = frozenset("last next this past coming".split())
_SPANS = frozenset("night week weekend month year summer winter spring fall autumn days weeks months".split())
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")


class Space(NamedTuple):
    """A kind of vectors that a question is compared in: the cosine that it has with ordinary text, and what it counts."""

    anchor: float
    weight: float


class Candidate(NamedTuple):
    """A memory that a search proposed: its cosine in each space (None without a vector) and bm25 (0 if no word matched)."""

    stored: Stored
    cosines: tuple[float | None, ...]
    bm25: float

    @property
    def seen(self) -> bool:
        """Whether it has a vector at all."""
        return self.cosines.count(None) < len(self.cosines)


@dataclass(frozen=True, slots=True)
class Day:
    """A date that a question names, as far as it names it."""

    year: int | None
    month: int | None
    day: int | None


@dataclass(frozen=True, slots=True)
class Traits:
    """What of a text bears on its rank, whatever is asked."""

    asks: bool
    tells_time: bool
    length_cost: float


def traits(text: str) -> Traits:
    """Read a text once; costs 5 µs for 150 characters."""
    words = set(text.translate(_ASCII_WORDS).split() if text.isascii() else _WORD.findall(text.lower()))
    tells_time = not words.isdisjoint(_TIMES) or not (words.isdisjoint(_WHICH) or words.isdisjoint(_SPANS))
    tokens = max(1, estimate(text))
    length = LENGTH_PENALTY * max(0.0, math.log2(tokens / LENGTH_FREE_TOKENS))
    return Traits(
        asks=text.rstrip().endswith(("?", "？")),
        tells_time=tells_time or (("19" in text or "20" in text) and _YEAR.search(text) is not None),
        length_cost=length - DENSITY_WEIGHT * math.log2((1 + len(words)) / (1 + tokens)),
    )


def joint(
    query: str, candidates: Sequence[Candidate], spaces: Sequence[Space], known: Mapping[int, Traits], *, expected: float
) -> dict[int, float]:
    """The joint score of each candidate by rowid. `known` holds the traits of their texts by rowid.

    `expected` is the bm25 of a memory that holds all that was searched; 0 if no words were.
    """
    base = _base(candidates, spaces, expected)
    sessions = _sessions(candidates, base)
    around = _neighbours(candidates, base, known)
    named = named_speaker(query, {candidate.stored.role for candidate in candidates})
    days = days_named(query)
    scores = {}
    for candidate in candidates:
        stored = candidate.stored
        trait = known[stored.rowid]
        score = base[stored.rowid] + SESSION_WEIGHT * sessions[stored.rowid] + around.get(stored.rowid, 0.0)
        score += SPEAKER_BONUS * (named is not None and stored.role == named)
        score += TIME_BONUS * trait.tells_time - QUESTION_PENALTY * trait.asks - trait.length_cost
        if days:
            score += DATE_BONUS * date_match(days, stored.at)
        scores[stored.rowid] = score
    return scores


def normalised(scores: Mapping[int, float]) -> dict[int, float]:
    """`scores` as shares of the best one, 0..1; 1.0 for all if there is nothing to tell them apart.

    Not stretched from the least: of two candidates that are nearly alike, both are then near 1.
    """
    if not scores:
        return {}
    least, most = min(scores.values()), max(scores.values())
    if most == least:
        return dict.fromkeys(scores, 1.0)
    floor = 0.0 if most > 0 else least
    return {rowid: max(0.0, score - floor) / (most - floor) for rowid, score in scores.items()}


def recency(at: int, now: int, half_life_ms: float) -> float:
    """0.5 ** (age / half-life), 1.0 for what is new or dated in the future."""
    return float(0.5 ** (max(0, now - at) / half_life_ms))


def named_speaker(query: str, roles: Iterable[str]) -> str | None:
    """The one role that the question names by all its words; of several, its subject ("What did Ana tell Ben?")."""
    asked = set(_WORD.findall(query.lower()))
    named = [role for role in roles if texts.speaker(role) and asked.issuperset(_WORD.findall(role.lower()) or [""])]
    if len(named) > 1:
        subject = _SUBJECT.search(query)
        named = [role for role in named if subject is not None and role.lower() == subject[1].lower()]
    return named[0] if len(named) == 1 else None


def days_named(query: str) -> list[Day]:
    """The dates in a question, the first few: "8 May 2023", "May 8", "in May 2023", "2023-05-08", "2023"."""
    return list(dict.fromkeys(_days(query)))[:MOST_DAYS]


def _days(query: str) -> list[Day]:
    years = [int(year) for year in _YEAR.findall(query)]
    year = years[0] if len(years) == 1 else None
    iso = [Day(int(y), int(m), int(d) if d else None) for y, m, d in _ISO.findall(query)]
    if iso:
        return iso
    pairs = [(int(day), month) for day, month in _DAY_MONTH.findall(query)]
    pairs += [(int(day), month) for month, day in _MONTH_DAY.findall(query)]
    if pairs:
        return [Day(year, _month(month), day) for day, month in pairs]
    # "may" alone is a verb more often than a month, unless it is written as a name.
    months = [month for month in _MONTH_ALONE.findall(query) if month.lower() != "may" or month == "May"]
    if months:
        return [Day(year, _month(month), None) for month in months]
    return [Day(year, None, None)] if year is not None else []


def date_match(days: Sequence[Day], at: int) -> float:
    """How well a memory's time fits the best of the named dates, 0..1: the day counts most, then the month."""
    return max((_fit(day, at) for day in days), default=0.0)


def _fit(day: Day, at: int) -> float:
    moment = from_ms(at)
    if day.year is not None and day.year != moment.year:
        return 0.0
    if day.month is None:
        return 0.5
    if day.month != moment.month:
        return 0.0
    return 1.0 if day.day is None or day.day == moment.day else 0.5


def _month(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def means_above(candidates: Sequence[Candidate], spaces: Sequence[Space]) -> list[float]:
    """Where each stands between ordinary text (0) and the question itself (1), in the spaces where it has a vector."""
    return _means(candidates, spaces, [1.0] * len(spaces))


def _base(candidates: Sequence[Candidate], spaces: Sequence[Space], expected: float) -> dict[int, float]:
    nearest = [
        max((c.cosines[place] or space.anchor for c in candidates), default=space.anchor) for place, space in enumerate(spaces)
    ]
    strongest = max((candidate.bm25 for candidate in candidates), default=0.0)
    strongest = max(strongest, EXPECTED_SHARE * expected) or 1.0
    share = (VECTOR_SHARE if expected else 1.0) if spaces else 0.0
    means = _means(candidates, spaces, nearest)
    return {
        c.stored.rowid: share * mean + (1 - share) * max(0.0, c.bm25) / strongest
        for c, mean in zip(candidates, means, strict=True)
    }


def _neighbours(candidates: Sequence[Candidate], base: Mapping[int, float], known: Mapping[int, Traits]) -> dict[int, float]:
    """What turns gain from the turns beside them that are candidates as well."""
    turns = {(c.stored.scope, c.stored.turn): c.stored for c in candidates if c.stored.turn is not None}
    gains: dict[int, float] = {}
    for (scope, number), stored in turns.items():
        assert number is not None, "only turns were taken"
        before, after = turns.get((scope, number - 1)), turns.get((scope, number + 1))
        gain = REPLY_SHARE * base[after.rowid] if after else 0.0
        if before and before.role != stored.role and known[before.rowid].asks:
            gain += ANSWER_SHARE * base[before.rowid]
        gains[stored.rowid] = gain
    return gains


def _means(candidates: Sequence[Candidate], spaces: Sequence[Space], most: Sequence[float]) -> list[float]:
    """Where each candidate stands between each space's anchor (0) and `most` (1), by the spaces' weights."""
    totals, weights = [0.0] * len(candidates), [0.0] * len(candidates)
    for place, (space, top) in enumerate(zip(spaces, most, strict=True)):
        reach = top - space.anchor
        scale = space.weight / reach if reach > _ROUNDING else 0.0
        for number, candidate in enumerate(candidates):
            cosine = candidate.cosines[place]
            if cosine is not None:
                totals[number] += scale * (cosine - space.anchor)
                weights[number] += space.weight
    return [total / weight if weight else 0.0 for total, weight in zip(totals, weights, strict=True)]


def _sessions(candidates: Sequence[Candidate], base: Mapping[int, float]) -> dict[int, float]:
    """The best score in each candidate's session.

    What stands alone (facts, pins) is its own evidence, so that it does not lose to a turn for having no session around it.
    """
    best: dict[int, float] = {}
    for candidate in candidates:
        stored = candidate.stored
        if stored.kind == "turn":
            best[stored.scope] = max(best.get(stored.scope, 0.0), base[stored.rowid])
    return {c.stored.rowid: best[c.stored.scope] if c.stored.kind == "turn" else base[c.stored.rowid] for c in candidates}
