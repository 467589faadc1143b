"""Excerpts: the passages of a memory that matter, for blocks that have no room for whole memories.

A passage is a sentence, a line or a fenced code block. Under a budget the passages of all candidates compete, the best first;
where only some of a memory's win, it is printed as whole passages in their order with "…" for what is left out. Constants: a
logistic regression on the tuning half of LoCoMo, rounded (bench/README.md). The word lists are English; in other languages
they find nothing, and the other signals decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Span = tuple[int, int]
Words = Callable[[str], Iterable[str]]  # a text's words in order, as the keyword index stores them

MARK = "…"
# Characters: a memory of up to SHORT is always whole, and no excerpt has less than LEAST.
SHORT, LEAST = 80, 48
# A passage is no longer than this.
LONGEST = 600
# What a passage is worth beside the share of the question's idf that it holds (0..1).
LENGTH, FULL_LENGTH, NAME, FIGURE, TIME, ADDRESS = 0.9, 100, 0.3, 0.5, 0.35, -0.25
# The more passages a memory has, the less each is likely to be the one.
EACH_PASSAGE, MOST_COUNTED = -0.06, 8
# What was said before in the same memory, word for word, comes last.
REPEATED = -10.0
# An excerpt grows by single passages so often; what more there is in a document comes in as many larger steps.
MOST_STEPS = 40
# What a passage takes from the budget: its characters, and some for the line it stands on.
PRICE, OVERHEAD = 0.25, 10
# What a memory's rank is worth to its passages.
SCORE, PLACE = 2.5, 0.25

# Begins with one set of characters, so that the search skips from one candidate to the next; linear in any text, as nothing is
# given back once it is taken. `inner`: a full stop with no space behind it ends nothing.
_END = re.compile(
    r"[.!?…。！？\n`](?:(?<=\n)\s*+|(?<=`)``.*?(?:```|\Z)|(?<=[。！？])[。！？]*+[」』”’）]*+"
    r"|(?<=[.!?…])[.!?…]*+[\"'”’»)\]*_]*+(?P<inner>(?=\S))?)",
    re.DOTALL,
)
# "Dr.", "J.", "e.g.", and the "1." of a list end no sentence.
_NO_END = re.compile(r"(?:\b(?:Dr|Mrs?|Ms|St|vs|[A-Z])|\.[a-z]|^[ \t]*\d\d?)\.\Z", re.MULTILINE)
_NAME = re.compile(r"(?<=[\w,;] )(?!I\b)[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]\w")
_FIGURE = re.compile(r"[\d\"“„«「『]")
_TIME = """
yesterday today tonight tomorrow ago last next since recently days weeks weekend months years morning spring summer fall winter
january february march april may june july august september october november december
monday tuesday wednesday thursday friday saturday sunday
"""
_ADDRESS = "you your"
# Texts whose passages are remembered, some 2 KB each.
REMEMBERED = 5_000
REMEMBERED_CHARACTERS = 4_000
_BREAK = "\ue000"  # a private character: a word to the tokenizer, and in no text


class Passages(NamedTuple):
    """A text taken apart: its passages, the words of each, and what each is worth whatever is asked."""

    text: str
    spans: list[Span]
    words: list[set[str]]
    worth: list[float]


class Reader:
    """Takes texts apart, and remembers the last few thousand: a stored text never changes, and is often a candidate again."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._times, self._address = frozenset(words(_TIME)), frozenset(words(_ADDRESS))
        self._read: dict[int, Passages] = {}

    def read(self, rowid: int, text: str) -> Passages:
        """The passages of the memory with this rowid; costs 40 µs for 150 characters when it is new."""
        if len(text) > REMEMBERED_CHARACTERS:
            return self.passages(text)
        found = self._read.get(rowid)
        if found is None:
            if len(self._read) >= REMEMBERED:
                self._read.clear()
            found = self._read[rowid] = self.passages(text)
        return found

    def passages(self, text: str) -> Passages:
        """Take a text apart."""
        cut = spans(text)
        passages = [text[a:b] for a, b in cut]
        held = self._words_of(passages)
        worth = [self._worth(*pair) for pair in zip(passages, held, strict=True)]
        first = {passage: number for number, passage in reversed(list(enumerate(passages)))}
        worth = [value + REPEATED * (first[passages[number]] < number) for number, value in enumerate(worth)]
        return Passages(text, cut, held, worth)

    def _words_of(self, passages: Sequence[str]) -> list[set[str]]:
        """The words of each, found in one go: the tokenizer's calls cost more than its work."""
        held: list[set[str]] = []
        for word in self._words("".join(f" {_BREAK} {passage.replace(_BREAK, ' ')}" for passage in passages)):
            if word == _BREAK:
                held.append(set())
            else:
                held[-1].add(word)
        return held

    def _worth(self, passage: str, words: set[str]) -> float:
        worth = LENGTH * min(1.0, len(passage) / FULL_LENGTH)
        worth += NAME * (_NAME.search(passage) is not None) + FIGURE * (_FIGURE.search(passage) is not None)
        return worth + TIME * (not words.isdisjoint(self._times)) + ADDRESS * (not words.isdisjoint(self._address))


class Step(NamedTuple):
    """Passages (their numbers) that come into an excerpt together, and what they are worth for their price."""

    value: float
    passages: tuple[int, ...]


def spans(text: str) -> list[Span]:
    """Where each passage begins and ends, without the white space around it."""
    found: list[Span] = []
    start = 0
    ends = [match.end() for match in _END.finditer(text) if match["inner"] is None]
    for end in [*(end for end in ends if not _NO_END.search(text, max(0, end - 5), end)), len(text)]:
        piece = text[start:end]
        if piece.strip():
            found += _bounded(text, start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip()))
            start = end
    return found


def _bounded(text: str, start: int, end: int) -> Iterator[Span]:
    """A passage, in parts if it is endless: a log or a minified file has no sentences."""
    while end - start > LONGEST:
        gap = text.rfind(" ", start + LONGEST // 2, start + LONGEST)
        cut = gap if gap > 0 else start + LONGEST
        yield start, cut
        start = cut + (text[cut] == " ")
    yield start, end


def steps(read: Passages, shares: Mapping[str, float]) -> list[Step]:
    """How an excerpt grows, best step first: the first makes it long enough, all of them make it whole.

    `shares` are the question's words, each with its share of their idf (1.0 together).
    """
    values = [
        worth + math.fsum([share for word, share in shares.items() if word in words])
        for worth, words in zip(read.worth, read.words, strict=True)
    ]
    lengths = [end - start for start, end in read.spans]
    if len(lengths) < 2 or len(read.text) <= SHORT:
        return [Step(max(values, default=0.0) - _price(len(read.text)), tuple(range(len(lengths))))]
    rarity = EACH_PASSAGE * min(len(lengths) - 1, MOST_COUNTED)
    alone = [rarity + value - _price(length) for value, length in zip(values, lengths, strict=True)]
    order = sorted(range(len(lengths)), key=lambda i: (-alone[i], i))
    first, length = 1, lengths[order[0]]
    while first < len(order) and length < LEAST:
        length, first = length + lengths[order[first]], first + 1
    opening = tuple(sorted(order[:first]))
    value = rarity + max(values[i] for i in opening) - _price(length)
    singly, rest = order[first : first + MOST_STEPS], order[first + MOST_STEPS :]
    size = -(-len(rest) // MOST_STEPS) or 1
    groups = [(i,) for i in singly] + [tuple(rest[start : start + size]) for start in range(0, len(rest), size)]
    return [Step(value, opening), *(Step(min(value, alone[group[0]]), group) for group in groups)]


def standing(score: float, best: float, place: int) -> float:
    """What a memory's rank adds to the value of its steps: its score beside the best one, and its place from 0."""
    return SCORE * (score / best if best > 0 else 0.0) - PLACE * math.log(place + 1)


def excerpt(read: Passages, kept: set[int]) -> str:
    """The kept passages (at least one) as they stand in the text, with a mark wherever something is left out."""
    if len(kept) == len(read.spans):
        return read.text
    runs: list[list[int]] = []  # [first, last]
    for number in sorted(kept):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = f" {MARK} ".join(read.text[read.spans[first][0] : read.spans[last][1]] for first, last in runs)
    shown = f"{MARK} " * (runs[0][0] > 0) + shown + f" {MARK}" * (runs[-1][1] < len(read.spans) - 1)
    return shown if len(shown) < len(read.text) else read.text


def _price(length: int) -> float:
    return PRICE * math.log(length + OVERHEAD)
