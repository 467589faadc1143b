"""Calling an embedder that may be anybody's: what it raises and returns is checked before a store sees it.

numpy is imported inside the functions: whoever imports this module may never embed anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlmem.embed.base import Embedder
from sqlmem.errors import EmbeddingError, InvalidArgument, SqlmemError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def check_embedder(embedder: object) -> Embedder:
    """Return `embedder` if it has all that an `Embedder` needs, else raise `InvalidArgument` saying what it lacks.

    Nothing is embedded.
    """
    lacking = [part for part in ("name", "dim", "embed_documents", "embed_query") if not hasattr(embedder, part)]
    if lacking or not isinstance(embedder, Embedder):
        raise InvalidArgument(f"{embedder!r} is not an embedder: it has no {', '.join(lacking)}")
    name: Any = embedder.name
    dim: Any = embedder.dim
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"an embedder's name must be a non-empty string, got {name!r}")
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise InvalidArgument(f"the dim of embedder {name!r} must be a whole number above 0, got {dim!r}")
    return embedder


def embed_documents(embedder: Embedder, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Unit vectors of `texts`, float32[n, dim], and which rows are usable, bool[n].

    An unusable row (the embedder returned NaN, infinity or only zeros) is all zeros here and must not be stored. No
    texts: the embedder is not called. Raises `EmbeddingError`: from the original if the embedder raised, and if what it
    returned is not len(texts) vectors of `embedder.dim` numbers.
    """
    import numpy as np

    if not texts:
        return np.zeros((0, embedder.dim), dtype=np.float32), np.zeros(0, dtype=np.bool_)
    try:
        answer: Any = embedder.embed_documents(list(texts))
    except SqlmemError:
        raise
    except Exception as error:
        raise _failed(embedder, "embed_documents", error) from error
    return _unit_rows(_numbers(embedder, answer, (len(texts), embedder.dim)))


def embed_query(embedder: Embedder, text: str) -> NDArray[np.float32] | None:
    """The unit vector of `text`, float32[dim], or None if the embedder has none for it (NaN, infinity or only zeros).

    Raises `EmbeddingError` as `embed_documents` does.
    """
    try:
        answer: Any = embedder.embed_query(text)
    except SqlmemError:
        raise
    except Exception as error:
        raise _failed(embedder, "embed_query", error) from error
    vectors, usable = _unit_rows(_numbers(embedder, answer, (embedder.dim,))[None, :])
    return vectors[0] if usable[0] else None


def _failed(embedder: Embedder, method: str, error: Exception) -> EmbeddingError:
    return EmbeddingError(f"{method} of embedder {embedder.name!r} raised {type(error).__name__}: {error}")


def _numbers(embedder: Embedder, answer: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    import numpy as np

    try:
        # float64 on the way, so that very short or long vectors keep their direction.
        numbers = np.asarray(answer, dtype=np.float64)
    except Exception as error:  # tensors of other libraries raise their own types
        raise EmbeddingError(
            f"embedder {embedder.name!r} returned {type(answer).__name__}, expected numbers of shape {shape}: {error}"
        ) from error
    if numbers.shape != shape:
        raise EmbeddingError(f"embedder {embedder.name!r} returned shape {numbers.shape}, expected {shape}")
    return numbers


def _unit_rows(numbers: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    import numpy as np

    usable: NDArray[np.bool_] = np.logical_and(np.isfinite(numbers).all(axis=1), (numbers != 0).any(axis=1))
    rows = np.where(usable[:, None], numbers, 0.0)
    # By the largest number first: squares of very large ones would overflow, of very small ones vanish.
    rows /= np.where(usable, np.abs(rows).max(axis=1), 1.0)[:, None]
    rows /= np.where(usable, np.sqrt(np.square(rows).sum(axis=1)), 1.0)[:, None]
    return rows.astype(np.float32), usable
