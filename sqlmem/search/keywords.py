"""Keyword candidates from the FTS5 index."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlmem import text as texts
from sqlmem.db import Database
from sqlmem.search import filters
from sqlmem.search.filters import Condition
from sqlmem.store import keyword_index, memories

# FTS5 accepts any number of terms; a pasted page must not become a query of thousands.
MOST_TERMS = 32
# RETRIEVAL: the neighbours' words count 0.4 of a memory's own. The scope column only selects.
WEIGHTS = "1.0, 0.4, 0.0"
# What a question may cost: how many entries of its words' lists are walked through (20 ns each), and how many of the scope's
# memories are scored (1 µs each). In a larger scope its commonest words count only where two of them stand together.
MOST_WALKED = 20_000
MOST_SCORED = 3_000
# From this share of the store on, filtering what was found is quicker than searching the scope's word as well.
WIDE_SHARE = 0.25
# A word that stands in more memories than this is not counted to its end, which in a large store would take 20 ms; how
# close these first ones lie together tells the rest, within a few percent for a word that is used evenly.
COUNTED = 500

_BEST = f"""
select rowid, -bm25(memory_fts, {WEIGHTS}) as score from memory_fts
 where memory_fts match :match order by score desc, rowid desc limit :most
"""
_SEARCH = """
select f.rowid, -bm25(memory_fts, {weights}) as score
  from memory_fts f join memory m on m.rowid = f.rowid
 where memory_fts match :match and {condition}
 order by score desc, m.at desc, f.rowid desc limit :limit
"""
_SCOPE_WORD = re.compile(r"scopex[uswp]\d+x")
_FIRST = """
select count(*), min(rowid), max(rowid) from (select rowid from memory_fts where memory_fts match :word limit :counted)
"""


class Frequencies:
    """In how many memories a word stands, estimated for the common ones, which are kept between queries."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._total = 0

    def total(self, db: Database) -> int:
        """How many memories there are or were; forgets what it knew when that has grown by a tenth."""
        total = memories.count_ever(db)
        if not self._total <= total <= self._total * 1.1:
            self._known.clear()
            self._total = total
        return total

    def of(self, db: Database, words: Iterable[str]) -> dict[str, int]:
        """How many memories hold each word. Use after total(), in the same read."""
        return {word: self._known.get(word) or self._look_up(db, word) for word in words}

    def _look_up(self, db: Database, word: str) -> int:
        count, first, last = db.rows(_FIRST, {"word": _quoted(word), "counted": COUNTED})[0]
        if count == COUNTED:
            count = round(count * (self._total - first + 1) / (last - first + 1))
            self._known[word] = count
        return int(count)


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of a question, each with the number of memories that hold it, of `total`."""

    counts: Mapping[str, int]
    total: int

    @property
    def expected(self) -> float:
        """The sum of the words' idf as bm25 reckons it: about the score of a memory of ordinary length that holds each once."""
        whole = 0.0
        for held in (min(self.total, count) for count in self.counts.values()):
            likely = math.log((self.total - held + 0.5) / (held + 0.5)) if held else math.log(max(2, self.total))
            whole += max(1e-6, likely)
        return whole


def asked(db: Database, query: str, frequencies: Frequencies) -> Asked:
    """Read a question for search(). Use it inside a read."""
    total = frequencies.total(db)
    return Asked(frequencies.of(db, terms(db, query)), total)


def terms(db: Database, query: str) -> list[str]:
    """The distinct words to look for: those of the question without stopwords, or all if there are no others."""
    words: list[str] = []
    for word in db.words(texts.prepare(texts.readable(query))):
        # The last character of an unspaced run is indexed alone; in a question its bigram already stands for it.
        if _SCOPE_WORD.fullmatch(word):
            continue
        if len(word) == 1 and texts.SINGLE.match(word) and words and len(words[-1]) > 1 and words[-1].endswith(word):
            continue
        words.append(word)
    unique = list(dict.fromkeys(words))
    return ([word for word in unique if word not in texts.STOPWORDS] or unique)[:MOST_TERMS]


def search(db: Database, words: Asked, condition: Condition, *, limit: int, alone: bool) -> list[tuple[int, float]]:
    """The `limit` best (rowid, bm25), best first; higher is better. Filters hold inside.

    What holds only words that are too common in the store is found if words are searched `alone` and fewer than `limit` others
    are; beside vectors it is left to those.
    """
    if not words.counts:
        return []
    share = filters.share(db, condition)
    scope = ""
    if condition.scope_words is not None and share < WIDE_SHARE:
        scope = f" AND ({' OR '.join(condition.scope_words)})"
    chosen = _expression(words, share)
    match = f"({chosen}){scope}"
    # Most of what is found passes the filters: looking up the best alone saves as much as scoring all of it costs.
    most = 2 * limit
    best: list[tuple[int, float]] = [(row[0], row[1]) for row in db.rows(_BEST, {"match": match, "most": most})]
    passing = filters.passing(db, condition.sql, condition.bindings, best, limit)
    every = _any_of(words.counts)
    if len(passing) == limit or (len(best) < most and (chosen == every or not alone)):
        return passing
    # Filters kept most of it out, or the scope holds little of the words that were chosen by the whole store.
    match = f"({every}){scope}" if alone else match
    sql = _SEARCH.format(weights=WEIGHTS, condition=condition.sql)
    return [(row[0], row[1]) for row in db.rows(sql, {**condition.bindings, "match": match, "limit": limit})]


def stems(db: Database, text: str) -> list[str]:
    """The words of a text in order, as the index stores them."""
    return db.words(texts.prepare(text), stemmed=True)


def weights(db: Database, query: str, frequencies: Frequencies) -> dict[str, float]:
    """The question's words as the index stores them, each with its share of their idf; 1.0 together."""
    read = asked(db, query, frequencies)
    counts = {stem: count for word, count in read.counts.items() for stem in db.words(word, stemmed=True)}
    idf = {stem: math.log(1 + (read.total + 0.5) / (min(count, read.total) + 0.5)) for stem, count in counts.items()}
    whole = math.fsum(idf.values())
    return {stem: weight / whole for stem, weight in idf.items()} if whole else {}


def coverage(db: Database, query: str, rowids: Iterable[int], frequencies: Frequencies) -> Mapping[int, float]:
    """For each memory the share of the question's idf that its own text holds, 0..1."""
    rowids = list(rowids)
    if not rowids:
        return {}
    shares = weights(db, query, frequencies)
    held = {rowid: set(db.words(said, stemmed=True)) for rowid, said in keyword_index.own(db, rowids).items()}
    return {rowid: math.fsum(share for stem, share in shares.items() if stem in words) for rowid, words in held.items()}


def _expression(words: Asked, share: float) -> str:
    """The words, or as many of the rarest as may be scored one by one, and of the others each two together."""
    counts, total = words.counts, words.total
    if total * len(counts) <= MOST_SCORED:
        return _any_of(counts)
    rarest = sorted(counts, key=counts.__getitem__)
    sums = list(itertools.accumulate(counts[word] for word in rarest))
    alone = max(1, sum(walked <= MOST_WALKED and walked * share <= MOST_SCORED for walked in sums))
    if alone == len(counts):
        return _any_of(counts)
    parts = [_quoted(word) for word in rarest[:alone]]
    walked = scored = float(sums[alone - 1])
    for first, second in itertools.combinations(rarest[alone:], 2):
        walked += counts[first] + counts[second]
        scored += counts[first] * counts[second] / total
        if walked > MOST_WALKED or scored * share > MOST_SCORED:
            break
        parts.append(f"({_quoted(first)} AND {_quoted(second)})")
    return " OR ".join(parts)


def _any_of(words: Iterable[str]) -> str:
    return " OR ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    # A single unspaced character is found at the start of the bigrams that hold it.
    return f'"{word}" *' if len(word) == 1 and texts.SINGLE.match(word) else f'"{word}"'
