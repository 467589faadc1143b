"""The embedder of an open store, matched with the model that its file holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlmem import embed
from sqlmem.db import Database
from sqlmem.embed import Embedder
from sqlmem.errors import InvalidArgument, ModelMismatch, ModelMissing
from sqlmem.store import models, vector_index
from sqlmem.store.models import Model
from sqlmem.text import spoken

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Said = tuple[str, str]  # role, text

# One transaction and one parallel embedding run in a bulk write: large enough to make the commit cheap, small enough to leave
# the lock to others and to lose little when a long import is stopped.
BATCH = 256

_WAITING = """
select m.rowid, m.role, m.text from pending p join memory m on m.rowid = p.memory where p.model = :model limit :limit
"""
_ANY_MEMORY = "select 1 from memory limit 1"


class Encoder:
    """Turns texts into the codes that the file's model table holds."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name

    def documents(self, said: Sequence[Said]) -> list[bytes | None]:
        """int8 codes of what was said, None where the text has no vector. Raises EmbeddingError."""
        if not said:
            return []
        units, usable = embed.embed_documents(self._embedder, [spoken(role, text) for role, text in said])
        codes: list[bytes | None] = [None] * len(said)
        places = [place for place, fine in enumerate(usable) if fine]
        if places:
            for place, code in zip(places, vector_index.encode(units[places]), strict=True):
                codes[place] = code
        return codes

    def query(self, text: str) -> NDArray[np.float32] | None:
        """The unit vector of a question, float32[dim], or None if it has none. Raises EmbeddingError."""
        return embed.embed_query(self._embedder, text)

    def model(self, db: Database) -> Model | None:
        """The file's row for this embedder, as it is now."""
        return next((model for model in models.held(db) if model.name == self.name), None)


def embed_pending(db: Database, encoder: Encoder | None, *, limit: int | None = None) -> int:
    """Give vectors to memories that wait for them, in batches; returns to how many. Does nothing without an embedder."""
    if encoder is None or db.read_only:
        return 0
    done = 0
    while limit is None or done < limit:
        model = encoder.model(db)
        if model is None:
            break
        waiting = db.rows(_WAITING, {"model": model.id, "limit": BATCH if limit is None else min(BATCH, limit - done)})
        if not waiting:
            break
        codes = encoder.documents([(role, text) for _, role, text in waiting])
        with db.write():
            vector_index.settle(db, model, dict(zip((row[0] for row in waiting), codes, strict=True)))
        done += len(waiting)
    return done


def bind(db: Database, embedder: object, now: int) -> Encoder | None:
    """The encoder for `db`, its model entered in a file that holds none yet. None means keywords only.

    `embedder` is what open() was given: None for the file's own model (the bundled one in a new file), False for keywords
    only, a catalogue name, or an Embedder. Raises ModelMismatch when the file's vectors come from another model, ModelMissing
    when the model is not installed.
    """
    if embedder is False:
        return None
    held = models.held(db)
    chosen = _choose(db, embedder, held)
    if chosen is None:
        return None
    if not held and db.read_only:
        return None
    if not held:
        with db.write():
            # Another process may have entered its model while we waited for the lock.
            held = models.held(db)
            if not held:
                _enter(db, chosen, now)
    for model in held:
        _match(db, model, chosen)
    _refresh(db)
    return Encoder(chosen)


def _choose(db: Database, embedder: object, held: list[Model]) -> Embedder | None:
    if isinstance(embedder, str):
        return embed.load(embedder)
    if embedder is not None:
        if embedder is True or isinstance(embedder, list | tuple):
            raise InvalidArgument(f"embedder must be a model's name, an Embedder, False or None, not {embedder!r}")
        return embed.check_embedder(embedder)
    if held:
        return _load_held(db, held[0])
    # A file that was filled without vectors stays a keyword-only file until a model is asked for.
    return None if db.row(_ANY_MEMORY) else embed.load(embed.DEFAULT_MODEL)


def _load_held(db: Database, model: Model) -> Embedder:
    try:
        return embed.load(model.name)
    except ModelMissing as error:
        raise ModelMissing(
            f"the vectors of {db.path} were made by {model.name!r} ({model.dim} dimensions), which is not available: {error}; "
            "pass that embedder to open(), or embedder=False to search by keywords"
        ) from error


def _enter(db: Database, embedder: Embedder, now: int) -> None:
    centre = getattr(embedder, "centre", None)
    packed = None
    if centre is not None:
        import numpy as np

        try:
            numbers = np.asarray(centre, dtype="<f4")
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"the centre of embedder {embedder.name!r} must be numbers: {error}") from error
        if numbers.shape != (embedder.dim,) or not np.isfinite(numbers).all():
            raise InvalidArgument(f"the centre of embedder {embedder.name!r} must be {embedder.dim} finite numbers")
        packed = numbers.tobytes()
    models.add(db, name=embedder.name, fingerprint=_fingerprint(embedder), dim=embedder.dim, centre=packed, now=now)
    vector_index.refresh_bits(db)


def _match(db: Database, model: Model, embedder: Embedder) -> None:
    given = _fingerprint(embedder)
    same_build = not (given and model.fingerprint) or given == model.fingerprint
    if model.name == embedder.name and model.dim == embedder.dim and same_build:
        return
    detail = "" if same_build else f", another build of it (sha256 {given[:12]}… instead of {model.fingerprint[:12]}…)"
    raise ModelMismatch(
        f"the vectors of {db.path} were made by {model.name!r} ({model.dim} dimensions), the embedder given is "
        f"{embedder.name!r} ({embedder.dim} dimensions){detail}; nothing was written: open it without embedder="
    )


def _fingerprint(embedder: Embedder) -> str:
    return str(getattr(embedder, "fingerprint", "") or "")


def _refresh(db: Database) -> None:
    if db.read_only or not db.has_vec:
        return
    if any(model.bits != "current" and model.centre is not None for model in models.held(db)):
        with db.write():
            vector_index.refresh_bits(db)
