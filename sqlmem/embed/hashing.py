"""An embedder without a model, for tests and fixtures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sqlmem.errors import InvalidArgument

_WORD = re.compile(r"\w+")
_PLACES = 4


class HashEmbedder:
    """Bag of lower-cased words, hashed: deterministic on every machine and Python, and instant.

    Texts that share words have a higher cosine, texts that share none one near zero; meaning is not seen. Vectors have
    unit length; a text without words has the zero vector, which a store treats as "no vector".
    Its default name says its width (`hash-64`), and `sqlmem.embed.load` knows it by that name.
    """

    def __init__(self, dim: int = 64, name: str | None = None) -> None:
        if dim < 1:
            raise InvalidArgument(f"dim must be at least 1, got {dim}")
        self.name = name or f"hash-{dim}"
        self.dim = dim

    def __repr__(self) -> str:
        return f"HashEmbedder(dim={self.dim}, name={self.name!r})"

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of `texts`, float32[len(texts), dim]."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self.embed_query(text)
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of `text`, float32[dim]; documents and queries are treated alike."""
        sums = [0] * self.dim
        for word in _WORD.findall(text.lower()):
            for place, sign in self._places(word).items():
                sums[place] += sign
        vector = np.array(sums, dtype=np.float64)
        length = np.sqrt(np.square(vector).sum())
        return (vector / length if length else vector).astype(np.float32)

    def _places(self, word: str) -> dict[int, int]:
        # Several places a word: with one, two words on the same place would cancel out or count as equal.
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4 * _PLACES).digest()
        numbers = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, len(digest), 4)]
        return {(number >> 1) % self.dim: 1 if number & 1 else -1 for number in numbers}
