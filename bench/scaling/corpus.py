"""Any number of memories that look like real ones: LoCoMo's turns with other words and vectors from their neighbourhoods.

Row by row: a turn is drawn; a fifth of its words gives way to words drawn by a Zipf law over the turns' own vocabulary and
made-up words behind it; its vector is the turn's own, drawn towards the mean of all, plus noise with the covariance that
near neighbours' differences have: a smoothed bootstrap (Silverman 1986, section 6.4.1), which keeps mean and variance. So
copies of one turn lie as far apart as neighbouring turns do, a question finds what it is about by words and by vector, and
rare words stay rare in a million texts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Conversation
from bench.scaling.layout import Files

Vectors = NDArray[np.float32]

CHUNK = 10_000
QUESTIONS = 200
NEIGHBOURS = 5
VOCABULARY = 50_000
COMMON = 100
REPLACED = 5  # one word in so many
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_WORD = re.compile(r"[A-Za-z']+")


@dataclass(frozen=True)
class Source:
    """Real turns and questions with their unit vectors, float32[n, dim]."""

    roles: Sequence[str]
    texts: Sequence[str]
    vectors: Vectors
    questions: Sequence[str]
    asked: Vectors

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return int(self.vectors.shape[1])

    def digest(self) -> str:
        """Twelve hex digits that name what rows are made from, and how."""
        found = hashlib.sha256(json.dumps([list(self.roles), list(self.texts), list(self.questions)]).encode())
        found.update(self.vectors.tobytes() + self.asked.tobytes() + Path(__file__).read_bytes())
        return found.hexdigest()[:12]


@dataclass(frozen=True)
class Chunk:
    """Some rows: who spoke, what, and unit vectors float32[n, dim]."""

    roles: list[str]
    texts: list[str]
    vectors: Vectors


def spread_questions(conversations: Sequence[Conversation], count: int = QUESTIONS) -> list[str]:
    """`count` different questions, taken evenly from all."""
    texts = list(dict.fromkeys(question.text for c in conversations for question in c.questions))
    count = min(count, len(texts))
    return [texts[number * len(texts) // count] for number in range(count)]


class Generator:
    """Chunks of 10,000 rows. A chunk depends on its number alone, so a larger corpus begins with the smaller one."""

    def __init__(self, source: Source, *, seed: int = 0) -> None:
        self.source = source
        self.vocabulary = vocabulary(source.texts)
        self._seed = seed
        self._noise = noise(source.vectors)
        self._centres = drawn_in(source.vectors, float(np.square(self._noise).sum()))
        weights = 1.0 / (np.arange(len(self.vocabulary)) + COMMON)
        self._chances = np.cumsum(weights / weights.sum())

    def chunk(self, number: int, size: int = CHUNK) -> Chunk:
        """The first `size` rows of chunk `number`."""
        chance = np.random.default_rng((self._seed, number))
        turns = chance.integers(len(self.source.texts), size=CHUNK)
        drawn = chance.standard_normal((CHUNK, self.source.dim), dtype=np.float32)
        vectors = self._centres[turns] + drawn @ self._noise
        vectors /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
        texts: dict[str, None] = {}
        for turn in turns[:size]:
            texts[self._text(self.source.texts[turn], chance, texts)] = None
        roles = [self.source.roles[turn] for turn in turns[:size]]
        return Chunk(roles, list(texts), vectors[:size])

    def _text(self, text: str, chance: np.random.Generator, taken: dict[str, None]) -> str:
        """`text` with other words: one in five, and more where the result was there before."""
        words = text.split()
        for place in chance.choice(len(words), size=max(1, len(words) // REPLACED), replace=False):
            words[place] = self._word(chance)
        while (changed := " ".join(words)) in taken:
            words.append(self._word(chance))
        return changed

    def _word(self, chance: np.random.Generator) -> str:
        place = int(np.searchsorted(self._chances, chance.random()))
        return self.vocabulary[min(place, len(self.vocabulary) - 1)]


def vocabulary(texts: Sequence[str], size: int = VOCABULARY) -> list[str]:
    """`size` words, the most frequent first: those of `texts` without the commonest hundred, then made-up ones."""
    counted = Counter(word for text in texts for word in _WORD.findall(text.lower()))
    words = [word for word, _ in counted.most_common()][COMMON:]
    return [*words, *(_made_up(number) for number in range(size - len(words)))][:size]


def _made_up(number: int) -> str:
    base = len(SYLLABLES)
    # Four syllables: no word of that shape is likely to be a real one, and each number has its own.
    places = [number // base**power % base for power in range(4)]
    return "".join(SYLLABLES[place] for place in places)


def noise(vectors: Vectors, neighbours: int = NEIGHBOURS) -> Vectors:
    """The matrix, float32[dim, dim], that turns normal numbers into half of a neighbours' difference."""
    closeness = vectors @ vectors.T
    np.fill_diagonal(closeness, -2.0)
    closeness[closeness > 0.9999] = -2.0  # the same words said twice
    nearest = np.argpartition(-closeness, neighbours, axis=1)[:, :neighbours]
    differences = (vectors[:, None, :] - vectors[nearest]).reshape(-1, vectors.shape[1])
    # A difference of two rows holds two rows' noise, hence the half.
    covariance = differences.T @ differences / len(differences) / 2
    values, axes = np.linalg.eigh(covariance.astype(np.float64))
    matrix: Vectors = (np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T).astype(np.float32)
    return matrix


def drawn_in(vectors: Vectors, added: float) -> Vectors:
    """`vectors` drawn towards their mean so far that noise of variance `added` restores the variance that they have."""
    mean = vectors.mean(axis=0)
    variance = float(np.square(vectors - mean).sum(axis=1).mean())
    moved: Vectors = mean + (vectors - mean) * np.float32(max(0.0, 1.0 - added / variance) ** 0.5)
    return moved


def write(source: Source, folder: Path, rows: int) -> Files:
    """The corpus of `rows` rows in `folder`: files kept from an earlier run if they hold as many."""
    name = source.digest()
    files = Files(folder / f"{name}.f32", folder / f"{name}.jsonl", folder / f"{name}-questions.json", source.dim)
    if held(files) >= rows:
        return files
    asked = [{"text": q, "vector": v.tolist()} for q, v in zip(source.questions, source.asked, strict=True)]
    files.questions.write_text(json.dumps(asked), encoding="utf-8")
    with files.vectors.open("wb") as vectors, files.texts.open("w", encoding="utf-8") as texts:
        for chunk in _chunks(Generator(source), rows):
            for role, text in zip(chunk.roles, chunk.texts, strict=True):
                texts.write(json.dumps({"role": role, "text": text}) + "\n")
            texts.flush()
            vectors.write(chunk.vectors.tobytes())  # after the texts: where a vector stands, its text does
    return files


def held(files: Files) -> int:
    """How many rows the files hold."""
    return files.vectors.stat().st_size // (4 * files.dim) if files.vectors.exists() else 0


def matrix(files: Files, rows: int) -> Vectors:
    """The first `rows` vectors, mapped from the file: float32[rows, dim]."""
    return np.memmap(files.vectors, dtype=np.float32, mode="r", shape=(rows, files.dim))


def _chunks(generator: Generator, rows: int) -> Iterator[Chunk]:
    for number in range(-(-rows // CHUNK)):
        yield generator.chunk(number, min(CHUNK, rows - number * CHUNK))
