"""Changing a file's models: new vectors are built beside the old ones, which serve until one transaction swaps them."""

from __future__ import annotations

from sqlmem import encoding, pending
from sqlmem.encoding import BATCH, Encoder
from sqlmem.engine import Engine
from sqlmem.errors import InvalidArgument, ModelMismatch
from sqlmem.pending import Progress
from sqlmem.store import bit_index, models
from sqlmem.store.memories import array
from sqlmem.store.models import Model

_WAITING = "select count(*) from pending where model in (select value from json_each(:models))"
_VECTORS = "select count(code) from {table}"


def reembed(engine: Engine, embedder: object, context_vectors: bool | None, progress: Progress | None) -> int:
    """Fill the wanted models, let them serve, and drop the others. Returns how many vectors the file holds then."""
    db = engine.db
    db.require_writable()
    if progress is not None and not callable(progress):
        raise InvalidArgument(f"progress must be callable, not {progress!r}; nothing was written")
    encoder, wanted = _prepare(engine, embedder, context_vectors)
    ids = [model.id for model in wanted]
    pending.embed_all(db, encoder, only=ids, progress=progress)
    while not _swapped(engine, encoder, wanted):
        pending.embed_all(db, encoder, only=ids, progress=progress)
    return sum(db.value(_VECTORS.format(table=model.table)) for model in models.held(db))


def _swapped(engine: Engine, encoder: Encoder, wanted: list[Model]) -> bool:
    """Put the wanted models in the place of the others, in the file and in this store, if their vectors are there."""
    before = engine.encoder
    try:
        with engine.db.write():
            # Others may have stored memories meanwhile; a few that wait are as good as none: the next recall embeds them.
            if engine.db.value(_WAITING, {"models": array(model.id for model in wanted)}) > BATCH:
                return False
            _swap(engine, wanted)
            engine.encoder = encoder
    except BaseException:
        engine.encoder = before
        raise
    return True


def _prepare(engine: Engine, embedder: object, context_vectors: bool | None) -> tuple[Encoder, list[Model]]:
    """Enter what is missing, resume what an interrupted call left, and drop what it wanted and this one does not."""
    db = engine.db
    if embedder is None:
        if engine.encoder is None:
            raise InvalidArgument("reembed() needs a model: this store was opened without one")
        engine.encoder.serving(db)  # or another process has changed them
        embedder = engine.encoder.embedders
    embedders = encoding.chosen(embedder)
    with db.write():
        held = models.every(db)
        if context_vectors is None:
            context_vectors = any(model.input == "context" for model in held if model.serving)
        now = engine.now()
        spaces = encoding.spaces(embedders, context_vectors)
        wanted = [encoding.found_or_entered(db, one, input_, now=now) for one, input_ in spaces]
        for model in held:
            if not model.serving and model.table not in _tables(wanted):
                _drop(engine, model)
    return Encoder(embedders), wanted


def _swap(engine: Engine, wanted: list[Model]) -> None:
    held = models.every(engine.db)
    if not {(model.id, model.table) for model in wanted} <= {(model.id, model.table) for model in held}:
        raise ModelMismatch(
            f"reembed() of {engine.db.path} in another process wanted other models meanwhile; its models stay, and what "
            "was computed here is gone: call it again when that one is done"
        )
    models.serve(engine.db, [model.id for model in wanted])
    for model in held:
        if model.table not in _tables(wanted):
            _drop(engine, model)


def _tables(chosen: list[Model]) -> set[str]:
    return {model.table for model in chosen}


def _drop(engine: Engine, model: Model) -> None:
    bit_index.drop(engine.db, model)
    models.drop(engine.db, model)
