"""The embedders of an open store, matched with the models that its file holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlmem import embed
from sqlmem.db import Database
from sqlmem.embed import Embedder
from sqlmem.errors import InvalidArgument, ModelMismatch, ModelMissing
from sqlmem.store import models, vector_index
from sqlmem.store.models import Input, Model
from sqlmem.text import spoken, worded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Said = tuple[str, str]  # role, text

# One transaction and one parallel embedding run in a bulk write: large enough to make the commit cheap, small enough to leave
# the lock to others and to lose little when a long import is stopped.
BATCH = 256

_ANY_MEMORY = "select 1 from memory limit 1"


class Encoder:
    """Turns texts into the codes that the file's model tables hold, and questions into vectors."""

    def __init__(self, embedders: Sequence[Embedder]) -> None:
        self._embedders = {embedder.name: embedder for embedder in embedders}

    @property
    def embedders(self) -> list[Embedder]:
        """Those that it was made of."""
        return list(self._embedders.values())

    @property
    def names(self) -> list[str]:
        """The models that it runs."""
        return list(self._embedders)

    def documents(self, db: Database, said: Sequence[Said]) -> list[dict[int, bytes | None]]:
        """For each of what was said, its own code by model id, None where it has no vector. Raises EmbeddingError."""
        codes: list[dict[int, bytes | None]] = [{} for _ in said]
        if not said:
            return codes
        texts = [spoken(role, text) if worded(text) else None for role, text in said]
        for model in self.able(models.every(db)):
            if model.input == "own":
                for place, code in enumerate(self.codes(model, texts)):
                    codes[place][model.id] = code
        return codes

    def codes(self, model: Model, texts: Sequence[str | None]) -> list[bytes | None]:
        """int8 codes of texts, None where one has no vector. Raises EmbeddingError."""
        codes: list[bytes | None] = [None] * len(texts)
        worded = [place for place, text in enumerate(texts) if text is not None]
        units, usable = embed.embed_documents(self._embedders[model.name], [text for text in texts if text is not None])
        fine = [row for row in range(len(worded)) if usable[row]]
        if fine:
            for row, code in zip(fine, vector_index.encode(units[fine]), strict=True):
                codes[worded[row]] = code
        return codes

    def query(self, text: str) -> dict[str, NDArray[np.float32]]:
        """The unit vectors of a question, float32[dim] by model, without those that have none. Raises EmbeddingError."""
        vectors = {name: embed.embed_query(embedder, text) for name, embedder in self._embedders.items()}
        return {name: vector for name, vector in vectors.items() if vector is not None}

    def able(self, candidates: Sequence[Model]) -> list[Model]:
        """Those of the models that it can run."""
        return [model for model in candidates if _runs(self._embedders.get(model.name), model)]

    def serving(self, db: Database) -> list[Model]:
        """The models that searches use. Raises ModelMismatch if reembed() in another process put others in their place."""
        held = models.held(db)
        if len(self.able(held)) < len(held):
            raise ModelMismatch(
                f"the vectors of {db.path} are now made by {_names(held)}, this store was opened with "
                f"{_quoted(self.names)}: open it again"
            )
        return held


def bind(db: Database, embedder: object, context_vectors: bool | None, now: int) -> Encoder | None:
    """The encoder for `db`, its models entered in a file that holds none yet. None means keywords only.

    `embedder` is what open() was given: None for the file's own models (the bundled one in a new file), False for keywords
    only, a catalogue name, an Embedder, or several of them. Raises ModelMismatch when the file's vectors come from other
    models, ModelMissing when a model is not installed.
    """
    if embedder is False:
        if context_vectors:
            raise InvalidArgument("context_vectors=True needs a model; embedder=False searches by keywords only")
        return None
    held = models.held(db)
    chosen = _choose(db, embedder, held)
    if not chosen or (not held and db.read_only):
        return None
    if not held:
        with db.write():
            # Another process may have entered its models while we waited for the lock.
            held = models.held(db)
            if not held:
                wanted = spaces(chosen, bool(context_vectors))
                models.serve(db, [found_or_entered(db, one, input_, now=now).id for one, input_ in wanted])
                held = models.held(db)
    _match(db, held, chosen, context_vectors)
    _refresh(db)
    return Encoder(chosen)


def chosen(embedder: object) -> list[Embedder]:
    """The embedders that an argument names: a name, an Embedder, or several of them. Raises InvalidArgument, ModelMissing."""
    several = list(embedder) if isinstance(embedder, list | tuple) else [embedder]
    if not several or any(one is None or isinstance(one, bool) for one in several):
        raise InvalidArgument(f"embedder must be a model's name, an Embedder, several of them, False or None, not {embedder!r}")
    found = [embed.load(one) if isinstance(one, str) else embed.check_embedder(one) for one in several]
    if len({one.name for one in found}) < len(found):
        raise InvalidArgument(f"embedder names a model twice: {_quoted([one.name for one in found])}")
    return found


def spaces(embedders: Sequence[Embedder], context_vectors: bool) -> list[tuple[Embedder, Input]]:
    """The vectors that a memory gets: one from each embedder, and one in context where wanted."""
    inputs: tuple[Input, ...] = ("own", "context") if context_vectors else ("own",)
    return [(embedder, input_) for embedder in embedders for input_ in inputs]


def found_or_entered(db: Database, embedder: Embedder, input_: Input, *, now: int) -> Model:
    """The embedder's model in the file; one that is added does not serve yet, and all memories wait for its vectors."""
    wanted = embedder.name, fingerprint(embedder), input_, embedder.dim
    for model in models.every(db):
        if (model.name, model.fingerprint, model.input, model.dim) == wanted:
            return model
    return models.add(
        db,
        name=embedder.name,
        fingerprint=fingerprint(embedder),
        input=input_,
        dim=embedder.dim,
        centre=_centre(embedder),
        now=now,
    )


def fingerprint(embedder: Embedder) -> str:
    """The checksum that tells two builds of one model apart, or ""."""
    return str(getattr(embedder, "fingerprint", "") or "")


def _runs(embedder: Embedder | None, model: Model) -> bool:
    """Whether the embedder makes the model's vectors; where one of them has no fingerprint, the other's is not looked at."""
    if embedder is None or embedder.dim != model.dim:
        return False
    return fingerprint(embedder) in ("", model.fingerprint) or not model.fingerprint


def _choose(db: Database, embedder: object, held: Sequence[Model]) -> list[Embedder]:
    if embedder is not None:
        return chosen(embedder)
    if held:
        return _load_held(db, held)
    # A file that was filled without vectors stays a keyword-only file until a model is asked for.
    return [] if db.row(_ANY_MEMORY) else [embed.load(embed.DEFAULT_MODEL)]


def _load_held(db: Database, held: Sequence[Model]) -> list[Embedder]:
    found = []
    for name, dim in dict.fromkeys((model.name, model.dim) for model in held):
        try:
            found.append(embed.load(name))
        except ModelMissing as error:
            raise ModelMissing(
                f"the vectors of {db.path} were made by {name!r} ({dim} dimensions), which is not available: {error}; "
                "pass that embedder to open(), or embedder=False to search by keywords"
            ) from error
    return found


def _centre(embedder: Embedder) -> bytes | None:
    centre = getattr(embedder, "centre", None)
    if centre is None:
        return None
    import numpy as np

    try:
        numbers = np.asarray(centre, dtype="<f4")
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"the centre of embedder {embedder.name!r} must be numbers: {error}") from error
    if numbers.shape != (embedder.dim,) or not np.isfinite(numbers).all():
        raise InvalidArgument(f"the centre of embedder {embedder.name!r} must be {embedder.dim} finite numbers")
    return numbers.tobytes()


def _match(db: Database, held: Sequence[Model], given: Sequence[Embedder], context_vectors: bool | None) -> None:
    """Raise ModelMismatch unless the file's vectors are those of the embedders given."""
    ours = {embedder.name: embedder for embedder in given}
    for model in held:
        embedder = ours.get(model.name)
        if embedder is None or embedder.dim != model.dim:
            break
        if not _runs(embedder, model):
            mark = fingerprint(embedder)
            raise _mismatch(
                db, held, given, f", another build of it (sha256 {mark[:12]}… instead of {model.fingerprint[:12]}…)"
            )
    else:
        if set(ours) == {model.name for model in held}:
            _match_context(db, held, context_vectors)
            return
    raise _mismatch(db, held, given, "")


def _match_context(db: Database, held: Sequence[Model], wanted: bool | None) -> None:
    has = any(model.input == "context" for model in held)
    if wanted is not None and wanted != has:
        raise ModelMismatch(
            f"{db.path} was filled {'with' if has else 'without'} context vectors; nothing was written: open it without "
            f"context_vectors=, and call reembed(context_vectors={wanted}) to change it"
        )


def _mismatch(db: Database, held: Sequence[Model], given: Sequence[Embedder], detail: str) -> ModelMismatch:
    ours = " and ".join(f"{embedder.name!r} ({embedder.dim} dimensions)" for embedder in given)
    return ModelMismatch(
        f"the vectors of {db.path} were made by {_names(held)}, the embedder given is {ours}{detail}; nothing was written: "
        "open it without embedder=, and call reembed() to change its model"
    )


def _names(held: Sequence[Model]) -> str:
    return " and ".join(f"{name!r} ({dim} dimensions)" for name, dim in dict.fromkeys((m.name, m.dim) for m in held))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _refresh(db: Database) -> None:
    if not db.read_only and vector_index.behind(db):
        with db.write():
            vector_index.refresh(db)
