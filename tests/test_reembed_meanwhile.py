"""While the models of a file are changed: others go on reading and writing, and an interruption loses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_models import Centred, Noting, fill, found_by, held
from tests.helpers_store import assert_sound, child, contents

OLD, NEW = sqlmem.HashEmbedder(64), sqlmem.HashEmbedder(32)
BOTH = {"keywords", "vectors"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def test_the_old_vectors_serve_until_the_new_ones_are_there(path: Path, open_store: OpenStore) -> None:
    other = open_store(fill(path), embedder=OLD)
    steps: list[tuple[int, int]] = []
    with sqlmem.open(path, embedder=OLD) as store:

        def progress(done: int, total: int) -> None:
            steps.append((done, total))
            for one in (store, other):
                assert found_by(one, "number 77", session="s")["number 77"] == BOTH
                assert [model[:2] for model in held(one)] == [("hash-64", 602), ("hash-32", min(done, 602))]

        store.reembed(NEW, progress=progress)
        assert steps == [(256, 603), (512, 603), (603, 603)]
        assert held(store) == [("hash-32", 602, 0)]
        with pytest.raises(sqlmem.ModelMismatch, match=r"'hash-32' \(32 dimensions\).*'hash-64'.*open it again"):
            other.recall("number 77", session="s")
        late = other.remember("a late penguin")
        assert held(store) == [("hash-32", 602, 1)]
        other.close()
        assert store.search("a late penguin").ids[0] == late
    with sqlmem.open(path, embedder=NEW) as store:
        assert held(store) == [("hash-32", 603, 0)]
        assert_sound(store)


def test_what_others_store_meanwhile_gets_its_vectors(path: Path, open_store: OpenStore) -> None:
    other = open_store(fill(path), embedder=OLD)

    def progress(done: int, total: int) -> None:
        if done > 512:
            return
        other.remember_many([{"text": f"meanwhile {done} {number}", "session": "t"} for number in range(200)])
        other.forget(ids=[f"m{done - 1}"])
        other.correct(f"m{done - 2}", f"corrected {done}")

    with sqlmem.open(path, embedder=OLD) as store:
        store.reembed(NEW, progress=progress)
        other.close()
        ((_, vectors, pending),) = held(store)
        memories = store._engine.db.value("select count(*) from memory")
        assert vectors + pending == memories - 1
        store.flush()
        assert held(store) == [("hash-32", memories - 1, 0)]
        assert found_by(store, "meanwhile 256 7", session="t")["meanwhile 256 7"] == BOTH
        assert_sound(store)


def test_what_comes_for_one_model_while_the_next_is_filled_is_not_left_behind(path: Path, open_store: OpenStore) -> None:
    other = open_store(fill(path), embedder=OLD)

    def progress(done: int, total: int) -> None:
        if done == 603 + 256:
            other.remember_many(f"meanwhile {number}" for number in range(300))

    with sqlmem.open(path, embedder=OLD) as store:
        store.reembed([NEW, Centred()], progress=progress)
        assert held(store) == [("hash-32", 902, 0), ("centred", 902, 0)]
        other.close()
        assert_sound(store)


class Stop(Exception):
    pass


@pytest.mark.parametrize("before", [OLD, False])
def test_an_interrupted_call_is_resumed(path: Path, before: Any) -> None:
    fill(path, embedder=before)
    rows = contents(path)["table memory"]
    new = Noting(32)

    def stop(done: int, total: int) -> None:
        raise Stop

    with sqlmem.open(path, embedder=before) as store, pytest.raises(Stop):
        store.reembed(new, progress=stop)
    first = new.taken()
    with sqlmem.open(path, embedder=before) as store:
        assert found_by(store, "number 77", session="s")["number 77"] == (BOTH if before else {"keywords"})
        new.broken = True
        with pytest.raises(sqlmem.EmbeddingError, match="out of order"):
            store.reembed(new)
        assert_sound(store)
        new.broken = False
        assert store.reembed(new) == 602
        assert (len(first), len(new.texts)) == (256, 602 - 256)
        assert not set(first) & set(new.texts)
        assert held(store) == [("hash-32", 602, 0)]
        assert_sound(store)
    assert contents(path)["table memory"] == rows


def test_a_killed_call_is_resumed(path: Path) -> None:
    script = """
import sys, sqlmem
def progress(done, total):
    print(done)
    sys.stdin.readline()
with sqlmem.open(sys.argv[1]) as store:
    store.reembed(sqlmem.HashEmbedder(32), progress=progress)
"""
    process = child(script, fill(path))
    assert process.stdout is not None
    assert process.stdout.readline() == "256\n"
    process.kill()
    process.communicate()
    new = Noting(32)
    with sqlmem.open(path, embedder=OLD) as store:
        assert held(store) == [("hash-64", 602, 0), ("hash-32", 256, 347)]
        assert_sound(store)
        assert store.reembed(new) == 602
        assert len(new.texts) == 346
        assert_sound(store)


def test_what_an_interrupted_call_left_goes_if_another_model_is_wanted(path: Path) -> None:
    with sqlmem.open(fill(path), embedder=OLD) as store:
        with pytest.raises(Stop):
            store.reembed(NEW, progress=_stop)
        store.reembed(sqlmem.HashEmbedder(16))
        assert held(store) == [("hash-16", 602, 0)]
        assert_sound(store)
    tables = [name for kind, name, *_ in contents(path)["schema"] if kind == "table" and name.startswith("vector_")]
    assert {name.split("_bits")[0] for name in tables} == {"vector_hash_16"}


def _stop(done: int, total: int) -> None:
    raise Stop


def test_a_keyword_only_file_whose_reembedding_was_interrupted_opens_with_the_model(path: Path) -> None:
    with sqlmem.open(fill(path, embedder=False), embedder=False) as store, pytest.raises(Stop):
        store.reembed(NEW, progress=_stop)
    with sqlmem.open(path, embedder=NEW) as store:
        assert held(store) == [("hash-32", 256, 347)]
        assert store.flush() == 347
        assert_sound(store)


def test_of_two_calls_that_want_different_models_one_gives_way(path: Path, open_store: OpenStore) -> None:
    other = open_store(fill(path), embedder=OLD)
    with sqlmem.open(path, embedder=OLD) as store:
        with pytest.raises(sqlmem.ModelMismatch, match="in another process"):
            store.reembed(NEW, progress=lambda done, total: other.reembed(Centred()))
        assert held(other) == [("centred", 602, 0)]
        assert_sound(other)
        with pytest.raises(sqlmem.ModelMismatch, match="open it again"):
            store.reembed()
    assert found_by(other, "number 77", session="s")["number 77"] == BOTH


def test_of_two_calls_that_want_the_same_models_both_end_well(path: Path, open_store: OpenStore) -> None:
    other = open_store(fill(path), embedder=OLD)
    first, second = Noting(32), Noting(32)
    with sqlmem.open(path, embedder=OLD) as store:
        assert store.reembed(first, progress=lambda done, total: other.reembed(second)) == 602
        assert (len(first.texts), len(second.texts)) == (256, 602 - 256)
        for one in (store, other):
            assert held(one) == [("hash-32", 602, 0)]
            assert found_by(one, "number 77", session="s")["number 77"] == BOTH


def test_embedding_for_a_model_that_went_meanwhile_is_in_vain(path: Path, open_store: OpenStore) -> None:
    with sqlmem.open(path, embedder=OLD) as store:
        store.remember("one")
    with sqlmem.open(path, embedder=False) as store:
        store.remember_many(["two", "three"])
    other = open_store(path, embedder=False)

    class Slow(Noting):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            if not self.texts:
                other.reembed(NEW)
            return super().embed_documents(texts)

    with sqlmem.open(path, embedder=Slow()) as store:
        store.flush()
        assert held(store) == [("hash-32", 3, 0)]
        assert_sound(store)
