"""Keyword candidates from the FTS5 index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from sqlmem import text as texts
from sqlmem.db import Database
from sqlmem.search.filters import Condition
from sqlmem.store import keyword_index

# FTS5 accepts any number of terms; a pasted page must not become a query of thousands.
MOST_TERMS = 32
# RETRIEVAL: the neighbours' words count 0.4 of a memory's own. The scope column only selects.
WEIGHTS = "1.0, 0.4, 0.0"
# ENGINE 3: scoring long posting lists is what a keyword query costs in a large store. In smaller ones nothing is dropped.
LARGE_STORE = 20_000
COMMON_SHARE = 0.05

_SEARCH = """
select f.rowid, -bm25(memory_fts, {weights}) as score
  from memory_fts f join memory m on m.rowid = f.rowid
 where memory_fts match :match and {condition}
 order by score desc, m.at desc, f.rowid desc limit :limit
"""
_COUNT = "select count(*) from memory"
_ROUGHLY = "select coalesce((select seq from sqlite_sequence where name = 'memory'), 0)"
_FREQUENCY = "select doc from memory_word where term = :term"


class Frequencies:
    """In how many memories a word stands: kept between queries, because a look-up walks the word's whole posting list."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._total = 0

    def total(self, db: Database) -> int:
        """How many memories there are or were; forgets what it knew when that has grown by a tenth."""
        total: int = db.value(_ROUGHLY)
        if not self._total <= total <= self._total * 1.1:
            self._known.clear()
            self._total = total
        return total

    def of(self, db: Database, stem: str) -> int:
        """How many memories hold the stem."""
        if stem not in self._known:
            self._known[stem] = db.value(_FREQUENCY, {"term": stem}) or 0
        return self._known[stem]


def terms(db: Database, query: str) -> list[str]:
    """The distinct words to look for: those of the question without stopwords, or all if there are no others."""
    words: list[str] = []
    for word in db.words(texts.prepare(texts.readable(query))):
        # The last character of an unspaced run is indexed alone; in a question its bigram already stands for it.
        if len(word) == 1 and texts.SINGLE.match(word) and words and len(words[-1]) > 1 and words[-1].endswith(word):
            continue
        words.append(word)
    unique = list(dict.fromkeys(words))
    return ([word for word in unique if word not in texts.STOPWORDS] or unique)[:MOST_TERMS]


def search(
    db: Database, words: list[str], condition: Condition, frequencies: Frequencies, *, limit: int
) -> list[tuple[int, float]]:
    """The `limit` best (rowid, bm25), best first; higher is better."""
    words = _selective(db, words, frequencies)
    if not words:
        return []
    match = f"{{own ctx}} : ({' OR '.join(_quoted(word) for word in words)})"
    if condition.scope_words is not None:
        match += f" AND scope : ({' OR '.join(condition.scope_words)})"
    sql = _SEARCH.format(weights=WEIGHTS, condition=condition.sql)
    return [(row[0], row[1]) for row in db.rows(sql, {**condition.bindings, "match": match, "limit": limit})]


def coverage(db: Database, words: list[str], rowids: Iterable[int], frequencies: Frequencies) -> Mapping[int, float]:
    """For each memory the share of the question's idf that its own text holds, 0..1."""
    stems = {stem for word in words for stem in db.words(word, stemmed=True)}
    total = frequencies.total(db)
    weights = {stem: math.log(1 + (total + 0.5) / (min(frequencies.of(db, stem), total) + 0.5)) for stem in stems}
    whole = sum(weights.values())
    shares = {}
    for rowid, document in keyword_index.documents(db, rowids).items():
        held = stems.intersection(db.words(document.own, stemmed=True))
        shares[rowid] = sum(weights[stem] for stem in held) / whole if whole else 0.0
    return shares


def _selective(db: Database, words: list[str], frequencies: Frequencies) -> list[str]:
    total = frequencies.total(db)
    if total < LARGE_STORE or not words:
        return words
    counts = {word: max((frequencies.of(db, stem) for stem in db.words(word, stemmed=True)), default=0) for word in words}
    rare = [word for word in words if counts[word] <= COMMON_SHARE * total]
    return rare or sorted(words, key=lambda word: counts[word])[:2]


def _quoted(word: str) -> str:
    # A single unspaced character is found at the start of the bigrams that hold it.
    return f'"{word}" *' if len(word) == 1 and texts.SINGLE.match(word) else f'"{word}"'
