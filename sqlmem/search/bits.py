"""Arithmetic on the bit index's bits. Pure functions of numpy arrays.

Bits are held in words of 64, transposed: uint64[words, n], so that one operation works on the same word of all vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sqlmem.store.bit_index import FAR, NEAR, spread

Words = NDArray[np.uint64]

_BLOCK = 32_768  # vectors at a time: what fits into the processor's cache
_GROUP = 3  # words whose bits can be counted in 8 bits: 192
# Into how many bits the question is cut: more give hardly a better order.
_QUESTION_BITS = 4

# What numpy 1 counts with.
_TABLE = np.array([number.bit_count() for number in range(1 << 16)], dtype=np.uint8)


def words(packed: NDArray[np.uint8]) -> Words:
    """Packed bits, uint8[n, bytes], as uint64[words, n], padded with zeros."""
    count, width = packed.shape
    padded = np.zeros((count, -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = packed
    return np.ascontiguousarray(padded.view(np.uint64).T)


def hamming(held: Words, asked: Words) -> NDArray[np.uint16]:
    """In how many bits each of `held`, [words, n], differs from `asked`, [words]."""
    distances = np.empty(held.shape[1], dtype=np.uint16)
    for start in range(0, held.shape[1], _BLOCK):
        block = held[:, start : start + _BLOCK]
        distances[start : start + _BLOCK] = _count(block[place] ^ word for place, word in enumerate(asked))
    return distances


def norms(signs: Words, large: Words, centre: NDArray[np.float32]) -> NDArray[np.float32]:
    """The lengths of what the bits stand for: centre + spread * value, float32[n]."""
    lengths = np.empty(signs.shape[1], dtype=np.float32)
    width = spread(centre)
    for start in range(0, signs.shape[1], _BLOCK):
        sign, size = signs[:, start : start + _BLOCK], large[:, start : start + _BLOCK]
        squares = len(centre) * NEAR**2 + _count(iter(size)) * (FAR**2 - NEAR**2)
        lengths[start : start + _BLOCK] = centre @ centre + 2 * width * _dots(sign, size, centre) + width**2 * squares
    np.sqrt(lengths, out=lengths)
    return lengths


def cosines(
    signs: Words, large: Words, lengths: NDArray[np.float32], query: NDArray[np.float32], centre: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The cosines of the unit vector `query` with what the bits stand for, to about 0.01."""
    near = (centre @ query + spread(centre) * _dots(signs, large, query)) / lengths
    return near.astype(np.float32, copy=False)


def _dots(signs: Words, large: Words, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The dot products of `vector` with the values ±NEAR and ±FAR, from counts of bits.

    With s and l the two bits of a component, its value is (2s - 1) * (NEAR + (FAR - NEAR) * l). The vector is cut into whole
    numbers, whose bits are taken one after another.
    """
    low, high = float(vector.min()), float(vector.max())
    step = (high - low) / (2**_QUESTION_BITS - 1) or 1.0
    whole = np.rint((vector - low) / step).astype(np.uint8)
    masks = [words(np.packbits((whole >> bit) & 1)[None, :])[:, 0] for bit in range(_QUESTION_BITS)]

    def total(plane: Words) -> NDArray[np.float32]:
        sums = np.zeros(plane.shape[1], dtype=np.uint32)
        for bit, mask in enumerate(masks):
            sums += _count(plane[place] & word for place, word in enumerate(mask)).astype(np.uint32) << bit
        dots: NDArray[np.float32] = np.float32(step) * sums + np.float32(low) * _count(iter(plane))
        return dots

    positive, large_positive, large_all = total(signs), total(signs & large), total(large)
    dots: NDArray[np.float32] = NEAR * (2 * positive - vector.sum()) + (FAR - NEAR) * (2 * large_positive - large_all)
    return dots.astype(np.float32)


def _ones(numbers: Words) -> NDArray[np.uint8]:
    """How many bits are set in each of `numbers`."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(numbers)
    parts = np.ascontiguousarray(numbers).view(np.uint16).reshape(*numbers.shape, 4)
    counts: NDArray[np.uint8] = _TABLE[parts].sum(axis=-1, dtype=np.uint8)
    return counts


def _count(parts: Iterator[Words]) -> NDArray[np.uint16]:
    """How many bits are set in each column, over all `parts`."""
    total: NDArray[np.uint16] | None = None
    while group := list(itertools.islice(parts, _GROUP)):
        ones = _ones(group[0])
        for part in group[1:]:
            ones += _ones(part)
        total = ones.astype(np.uint16) if total is None else total + ones
    assert total is not None, "a vector has at least one word"
    return total
