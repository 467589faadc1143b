"""The running model: tokens, windows, session and pooling. Imported by the first embedding, see `onnx`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
from numpy.typing import NDArray
from tokenizers import Tokenizer

from sqlmem.embed.manifest import MODEL_FILE, TOKENIZER_FILE, ModelManifest
from sqlmem.embed.session import inference_session
from sqlmem.errors import EmbeddingError

# What two neighbouring windows of a long text share, so that a sentence cut by one is whole in the other.
_OVERLAP_TOKENS = 32
# Texts tokenised at a time: bounds what waits for the session.
_TEXTS_AT_ONCE = 256
# A run of 512 tokens takes some 50 MB while it lasts.
_MAX_THREADS = 8
# From here on a run returns its memory, which costs it a tenth of its time; else the session would hold it for good.
_SHRINK_TOKENS = 256


class Encoder:
    """`encode` a list of texts. Construction reads the model: about 0.2 s. Raises `EmbeddingError` if it cannot."""

    def __init__(self, manifest: ModelManifest, folder: Path) -> None:
        self._manifest = manifest
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._session = inference_session(folder / MODEL_FILE)
        except Exception as error:  # both libraries raise their own types, without a common root
            raise EmbeddingError(f"The model in {folder} cannot be loaded: {error}") from error
        self._shrinking = onnxruntime.RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        output = self._session.get_outputs()[0]
        self._output = output.name
        if len(output.shape) != 3 or output.shape[2] != manifest.dim:
            raise EmbeddingError(
                f"The model in {folder} yields {output.shape}; expected a vector of {manifest.dim} numbers per token"
            )

    def encode(self, prefix: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of `texts`, each behind `prefix`: float32[len(texts), dim]."""
        vectors = np.zeros((len(texts), self._manifest.dim), dtype=np.float32)
        try:
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                self._encode_some(prefix, texts[start : start + _TEXTS_AT_ONCE], vectors[start:])
        except Exception as error:
            raise EmbeddingError(f"The model {self._manifest.name!r} failed: {error}") from error
        return vectors

    def _encode_some(self, prefix: str, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        windows = [(row, window) for row, text in enumerate(texts) for window in self._windows(prefix, text)]
        for (row, window), vector in zip(windows, self._run_all([window for _, window in windows]), strict=True):
            vectors[row] += len(window) * vector
        for row in range(len(texts)):
            vectors[row] = _unit(vectors[row])

    def _windows(self, prefix: str, text: str) -> list[list[int]]:
        """The token ids of prefix and text: one list if the model takes it whole, else equal overlapping windows."""
        ids: list[int] = self._tokenizer.encode(prefix + text).ids
        if len(ids) <= self._manifest.max_tokens:
            return [ids]
        head, tail = self._frame(prefix)
        opening, body, closing = ids[:head], ids[head : len(ids) - tail], ids[len(ids) - tail :]
        room = self._manifest.max_tokens - head - tail - _OVERLAP_TOKENS
        new = len(body) - _OVERLAP_TOKENS
        count = -(-new // room)
        # Equal shares: a last window of three tokens would be noise with a vote.
        spans = [(i * new // count, (i + 1) * new // count + _OVERLAP_TOKENS) for i in range(count)]
        return [opening + body[start:end] + closing for start, end in spans]

    def _frame(self, prefix: str) -> tuple[int, int]:
        """How many tokens stand before (special ones and the prefix) and after a text's own."""
        special = self._tokenizer.encode("a").special_tokens_mask
        before = special.index(0)
        after = len(special) - before - special.count(0)
        own = self._tokenizer.encode(prefix.rstrip(), add_special_tokens=False).ids
        return before + len(own), after

    def _run_all(self, windows: list[list[int]]) -> Iterator[NDArray[np.float32]]:
        threads = min(_cores(), len(windows), _MAX_THREADS)
        if threads <= 1:
            yield from map(self._run, windows)
            return
        # Threads for this call only: 0.1 ms, and nothing idle is left behind in the host's process.
        with ThreadPoolExecutor(threads, thread_name_prefix="sqlmem-embed") as pool:
            yield from pool.map(self._run, windows)

    def _run(self, window: list[int]) -> NDArray[np.float32]:
        """One text per run: the model quantises its activations over the whole batch, so company changes a vector."""
        ids = np.array([window], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        feed = {name: feed[name] for name in feed if name in self._inputs}
        options = self._shrinking if len(window) >= _SHRINK_TOKENS else None
        hidden: NDArray[np.float32] = self._session.run([self._output], feed, options)[0][0]
        return _unit(hidden[0] if self._manifest.pooling == "cls" else hidden.mean(axis=0))


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.sqrt(np.square(vector).sum()))
    return vector / np.float32(length) if length else vector


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # the cores of this process: a container may have fewer than the machine
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
