"""From candidates to one order: fusing keyword and vector scores, and the small signals beside them. Pure arithmetic.

Every constant was chosen on the tuning half of LoCoMo only (bench/README.md) and holds on the other half too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlmem import text as texts
from sqlmem.clock import from_ms
from sqlmem.store.memories import Stored
from sqlmem.tokens import estimate

# Vector and keyword score count about the same: each is anchored, 0 for ordinary text and 1 for the best candidate.
VECTOR_SHARE = 0.55
# A session that holds one good answer often holds the rest of it: its three best scores lift all of its memories.
SESSION_WEIGHT = 0.4
SESSION_BEST = 3
# "What did Ana say about …" is mostly answered by Ana herself.
SPEAKER_BONUS = 0.2
# A question seldom answers a question.
QUESTION_PENALTY = 0.1
# A long text matches more words and costs more of the budget: each doubling above 96 tokens costs this much.
LENGTH_PENALTY = 0.2
LENGTH_FREE_TOKENS = 96
# A memory from the month (or on the day) that a question names.
DATE_BONUS = 0.2

_ROUNDING = 1e-3

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = "|".join(f"{month}|{month[:3]}" for month in _MONTHS)
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b", re.IGNORECASE | re.ASCII)
_MONTH_DAY = re.compile(rf"\b({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)", re.IGNORECASE | re.ASCII)
_MONTH_ALONE = re.compile(rf"\b({_MONTH})\b", re.IGNORECASE | re.ASCII)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that a search proposed: cosine (None without a vector) and bm25 (0 if no word matched)."""

    stored: Stored
    cosine: float | None
    bm25: float


@dataclass(frozen=True, slots=True)
class Day:
    """A date that a question names, as far as it names it."""

    year: int | None
    month: int | None
    day: int | None


def joint(query: str, candidates: Sequence[Candidate], anchor: float, *, has_vectors: bool) -> dict[int, float]:
    """The joint score of each candidate by rowid. `anchor` is the cosine of the question with ordinary text."""
    base = _base(candidates, anchor, has_vectors)
    sessions = _sessions(candidates, base)
    named = named_speaker(query, {candidate.stored.role for candidate in candidates})
    days = days_named(query)
    scores = {}
    for candidate in candidates:
        stored = candidate.stored
        score = base[stored.rowid] + SESSION_WEIGHT * sessions[stored.rowid]
        score += SPEAKER_BONUS * (named is not None and stored.role == named)
        score += DATE_BONUS * date_match(days, stored.at)
        score -= QUESTION_PENALTY * stored.text.rstrip().endswith(("?", "？"))
        score -= LENGTH_PENALTY * max(0.0, math.log2(max(1, estimate(stored.text)) / LENGTH_FREE_TOKENS))
        scores[stored.rowid] = score
    return scores


def normalised(scores: Mapping[int, float]) -> dict[int, float]:
    """`scores` stretched to 0..1; 1.0 for all if there is nothing to tell them apart."""
    if not scores:
        return {}
    least, most = min(scores.values()), max(scores.values())
    if most == least:
        return dict.fromkeys(scores, 1.0)
    return {rowid: (score - least) / (most - least) for rowid, score in scores.items()}


def above(anchor: float, cosine: float, most: float) -> float:
    """Where `cosine` stands between `anchor` (0) and `most` (1); 0 if there is nothing between the two.

    Codes of 8 bits tell cosines apart to about a thousandth: below that a difference is rounding.
    """
    return (cosine - anchor) / (most - anchor) if most - anchor > _ROUNDING else 0.0


def recency(at: int, now: int, half_life_ms: float) -> float:
    """0.5 ** (age / half-life), 1.0 for what is new or dated in the future."""
    return float(0.5 ** (max(0, now - at) / half_life_ms))


def named_speaker(query: str, roles: Iterable[str]) -> str | None:
    """The one role that the question names by all its words, or None if it names none or several."""
    asked = set(re.findall(r"\w+", query.lower()))
    named = [role for role in roles if texts.speaker(role) and asked.issuperset(re.findall(r"\w+", role.lower()) or [""])]
    return named[0] if len(named) == 1 else None


def days_named(query: str) -> list[Day]:
    """The dates in a question: "8 May 2023", "May 8", "in May 2023", "2023-05-08", "2023"."""
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


def _base(candidates: Sequence[Candidate], anchor: float, has_vectors: bool) -> dict[int, float]:
    nearest = max((candidate.cosine for candidate in candidates if candidate.cosine is not None), default=anchor)
    strongest = max((candidate.bm25 for candidate in candidates), default=0.0)
    share = VECTOR_SHARE if has_vectors else 0.0
    base = {}
    for candidate in candidates:
        keyword = candidate.bm25 / strongest if strongest > 0 else 0.0
        near = above(anchor, candidate.cosine, nearest) if candidate.cosine is not None else 0.0
        base[candidate.stored.rowid] = share * near + (1 - share) * keyword
    return base


def _sessions(candidates: Sequence[Candidate], base: Mapping[int, float]) -> dict[int, float]:
    """The evidence of each candidate's session: a third of the sum of its three best scores.

    What stands alone (facts, pins) is its own evidence, so that it does not lose to a turn for having no session around it.
    """
    best: dict[int, list[float]] = {}
    for candidate in candidates:
        if candidate.stored.kind == "turn":
            best.setdefault(candidate.stored.scope, []).append(base[candidate.stored.rowid])
    lifts = {scope: sum(sorted(scores)[-SESSION_BEST:]) / SESSION_BEST for scope, scores in best.items()}
    return {
        candidate.stored.rowid: lifts[candidate.stored.scope]
        if candidate.stored.kind == "turn"
        else base[candidate.stored.rowid]
        for candidate in candidates
    }
