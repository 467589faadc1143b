"""An ONNX sentence encoder from a folder, loaded when it is first needed.

This module is imported whenever a store is opened with a model, so it stays light: numpy, onnxruntime and tokenizers
come with `encoder`, which the first embedding imports.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sqlmem.embed.manifest import ModelManifest
from sqlmem.errors import ModelMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sqlmem.embed.encoder import Encoder


class OnnxEmbedder:
    """The sentence encoder that `manifest` describes, in `folder`. Safe to use from any number of threads.

    Vectors have unit length. A text's vector is bit for bit the same alone, in bulk and from several threads (on one
    machine and release of onnxruntime; across machines they agree to a cosine of about .99). Any length of text is
    embedded whole: beyond `max_tokens`, in overlapping windows whose vectors are averaged.

    The first call loads the model (about 0.3 s, 70 MB). After that a turn of 40 tokens takes 6 to 10 ms of one core,
    a window of 512 some 0.2 s; `embed_documents` uses up to eight cores. Both raise `EmbeddingError` from the original.
    """

    def __init__(self, manifest: ModelManifest, folder: Path) -> None:
        self.name = manifest.name
        self.dim = manifest.dim
        self.fingerprint = manifest.model.sha256
        self.manifest = manifest
        self.folder = folder
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self.name!r}, dim={self.dim})"

    @property
    def centre(self) -> NDArray[np.float32] | None:
        """The mean of the model's unit vectors over ordinary text, float32[dim]; None if the manifest has none."""
        import numpy as np

        return None if self.manifest.centre is None else np.array(self.manifest.centre, dtype=np.float32)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of `texts` as passages, float32[len(texts), dim]."""
        return self._load().encode(self.manifest.passage_prefix, texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The unit vector of `text` as a question, float32[dim]."""
        vectors: NDArray[np.float32] = self._load().encode(self.manifest.query_prefix, [text])[0]
        return vectors

    def _load(self) -> Encoder:
        if self._encoder is None:
            with self._lock:  # the second thread waits for the first one's session instead of building another
                if self._encoder is None:
                    self._encoder = _build(self.manifest, self.folder)
        return self._encoder


def _build(manifest: ModelManifest, folder: Path) -> Encoder:
    try:
        from sqlmem.embed.encoder import Encoder
    except ImportError as error:  # installed, but broken: a missing system library, for instance
        raise ModelMissing(
            f"The model {manifest.name!r} cannot run here: {error}. embedder=False works without it, by keywords only."
        ) from error
    return Encoder(manifest, folder)
