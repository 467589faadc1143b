"""What an embedder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class Embedder(Protocol):
    """Text to vectors. The method names are LangChain's, so its embedding objects need only `name` and `dim` added.

    `name` identifies the vector space: a file refuses an embedder of another name or width. Vectors may have any
    length; they are compared by cosine. An embedder may also carry

    * `fingerprint: str`, a checksum that tells two builds of one model apart, and
    * `centre: float32[dim]`, the mean of the model's unit vectors over ordinary text, from which relevance is measured.
    """

    name: str
    dim: int

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of `texts`, float32[len(texts), dim]."""
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question, float32[dim]."""
        ...
