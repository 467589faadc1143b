"""A cross-encoder from a local folder: reads a question and a passage together and says how well the one answers the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlmem.embed.manifest import MODEL_FILE, TOKENIZER_FILE
from sqlmem.errors import EmbeddingError, InvalidArgument, ModelMissing

_MAX_TOKENS = 512


class CrossEncoder:
    """The reranker in `folder`: `model.onnx`, which yields one number a pair, and `tokenizer.json`. Safe to share by threads.

    Loaded by the first call (some 0.3 s). A pair of 100 tokens takes about 20 ms of one core. Of pairs beyond 512 tokens
    the longer text loses its end.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        lacking = [name for name in (MODEL_FILE, TOKENIZER_FILE) if not (self.folder / name).is_file()]
        if lacking:
            raise InvalidArgument(f"{self.folder} is not the folder of a cross-encoder: it has no {' and no '.join(lacking)}")
        self._lock = threading.Lock()
        self._session: Any = None
        self._tokenizer: Any = None

    def __repr__(self) -> str:
        return f"CrossEncoder({str(self.folder)!r})"

    def __call__(self, query: str, passages: Sequence[str]) -> list[float]:
        """One logit for each passage. Raises EmbeddingError, ModelMissing."""
        with self._lock:
            if self._session is None:
                self._load()
        try:
            return [self._score(query, passage) for passage in passages]
        except Exception as error:  # both libraries raise their own types, without a common root
            raise EmbeddingError(f"the cross-encoder in {self.folder} failed: {error}") from error

    def _load(self) -> None:
        try:
            from tokenizers import Tokenizer

            from sqlmem.embed.session import inference_session
        except ImportError as error:
            raise ModelMissing(f"the cross-encoder in {self.folder} cannot run here: {error}") from error
        try:
            self._tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER_FILE))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(_MAX_TOKENS, strategy="longest_first")
            self._session = inference_session(self.folder / MODEL_FILE)
        except Exception as error:
            raise EmbeddingError(f"the cross-encoder in {self.folder} cannot be loaded: {error}") from error

    def _score(self, query: str, passage: str) -> float:
        import numpy as np

        pair = self._tokenizer.encode(query, passage)
        feed = {
            "input_ids": np.array([pair.ids], dtype=np.int64),
            "attention_mask": np.array([pair.attention_mask], dtype=np.int64),
            "token_type_ids": np.array([pair.type_ids], dtype=np.int64),
        }
        names = {entry.name for entry in self._session.get_inputs()}
        answer = np.asarray(self._session.run(None, {name: feed[name] for name in feed if name in names})[0])
        if answer.size != 1:
            raise ValueError(f"it yields {answer.shape} for a pair, not one number")
        return float(answer.reshape(-1)[0])
