"""Deferred embedding: a memory is stored and found by its words at once, and its vector follows without fail."""

from __future__ import annotations

from pathlib import Path

import pytest

import sqlmem
from sqlmem import recall
from tests.conftest import OpenStore
from tests.helpers_models import Noting, found_by, waiting
from tests.helpers_store import assert_sound, beside, child

BOTH = {"keywords", "vectors"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def embedder() -> Noting:
    return Noting()


@pytest.fixture
def store(path: Path, embedder: Noting, open_store: OpenStore) -> sqlmem.MemoryStore:
    return open_store(path, embedder=embedder, embedding="deferred")


def test_storing_embeds_nothing(store: sqlmem.MemoryStore, embedder: Noting) -> None:
    embedder.broken = True
    fact = store.remember("Ana drinks tea", kind="fact")
    store.remember("Ana drinks tea", kind="fact")
    store.remember_many([{"text": f"number {number}", "key": str(number)} for number in range(300)])
    store.correct(fact, "Ana drinks rum")
    store.feedback(fact, "corrected", "Ana drinks gin")
    assert (embedder.texts, embedder.questions) == ([], [])
    assert waiting(store) == [303]
    assert_sound(store)
    embedder.broken = False


def test_what_waits_is_found_by_its_words(store: sqlmem.MemoryStore, embedder: Noting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "EMBED_FIRST", 0)
    store.remember("a late penguin")
    assert found_by(store, "penguin") == {"a late penguin": {"keywords"}}
    assert found_by(store, "a bird that is late") == {"a late penguin": {"keywords"}}
    assert embedder.texts == []


def test_a_recall_embeds_what_waits(store: sqlmem.MemoryStore, embedder: Noting) -> None:
    store.remember("a late penguin", role="Ben")
    store.remember("an early bird")
    assert found_by(store, "penguin")["a late penguin"] == BOTH
    assert sorted(embedder.taken()) == ["Ben: a late penguin", "an early bird"]
    assert found_by(store, "bird")["an early bird"] == BOTH
    assert embedder.taken() == []
    assert waiting(store) == [0]


@pytest.mark.parametrize("verb", ["recall", "search", "context"])
def test_a_question_embeds_only_the_newest(
    store: sqlmem.MemoryStore, embedder: Noting, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    assert recall.EMBED_FIRST == 100
    monkeypatch.setattr(recall, "EMBED_FIRST", 3)
    store.remember_many([f"number {number}" for number in range(8)])
    for texts in (["number 7", "number 6", "number 5"], ["number 4", "number 3", "number 2"], ["number 1", "number 0"], []):
        getattr(store, verb)("anything")
        assert embedder.taken() == texts
    assert_sound(store)


def test_flush_embeds_all_that_waits(store: sqlmem.MemoryStore, embedder: Noting) -> None:
    store.remember_many([f"number {number}" for number in range(300)])
    assert store.flush() == 300
    assert embedder.taken() == [f"number {number}" for number in range(300)]
    assert (store.flush(), embedder.taken(), waiting(store)) == (0, [], [0])


def test_a_memory_that_is_gone_before_its_vector_came_is_not_embedded(store: sqlmem.MemoryStore, embedder: Noting) -> None:
    ids = store.remember_many(["stays", "goes"])
    store.forget(ids=[ids[1]])
    assert store.flush() == 1
    assert embedder.texts == ["stays"]
    assert_sound(store)


def test_one_that_is_forgotten_while_it_is_embedded_gets_no_vector(
    store: sqlmem.MemoryStore, path: Path, embedder: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = store.remember_many(["stays", "goes"])
    real = embedder.embed_documents

    def slow(texts: list[str]) -> object:
        with sqlmem.open(path, embedder=False) as other:
            other.forget(ids=[ids[1]])
        return real(texts)

    monkeypatch.setattr(embedder, "embed_documents", slow)
    assert store.flush() == 2
    (model,) = store.stats().models
    assert (model.vectors, model.pending) == (1, 0)
    assert_sound(store)


def test_correcting_what_has_a_vector_keeps_it_where_the_text_stays(store: sqlmem.MemoryStore, embedder: Noting) -> None:
    fact = store.remember("Ana drinks tea", kind="fact")
    store.flush()
    embedder.taken()
    store.correct(fact, pinned=True)
    assert waiting(store) == [0]
    store.correct(fact, "Ana drinks rum")
    assert waiting(store) == [1]
    assert found_by(store, "rum")["Ana drinks rum"] == BOTH
    assert embedder.taken() == ["Ana drinks rum"]


# -- closing ----------------------------------------------------------------------------------------------------------


def test_closing_embeds_what_waits(path: Path, embedder: Noting) -> None:
    with sqlmem.open(path, embedder=embedder, embedding="deferred") as store:
        store.remember_many(["one", "two"])
        assert embedder.taken() == []
    assert embedder.taken() == ["one", "two"]
    store.close()
    assert embedder.taken() == []
    with sqlmem.open(path, embedder=embedder) as store:
        (model,) = store.stats().models
        assert (model.vectors, model.pending) == (2, 0)
        assert_sound(store)


def test_closing_a_store_that_embeds_at_once_leaves_waiting_what_waits(path: Path, embedder: Noting) -> None:
    sqlmem.open(path, embedder=embedder).close()
    with sqlmem.open(path, embedder=False) as store:
        store.remember("waits")
    with sqlmem.open(path, embedder=embedder):
        pass
    assert embedder.texts == []
    with sqlmem.open(path, embedder=embedder) as store:
        assert waiting(store) == [1]


def test_an_embedder_that_fails_at_closing_loses_nothing(path: Path, embedder: Noting) -> None:
    store = sqlmem.open(path, embedder=embedder, embedding="deferred")
    store.remember_many(["one", "two"])
    embedder.broken = True
    with pytest.raises(sqlmem.EmbeddingError, match="out of order"):
        store.close()
    assert beside(path) == ["chat.db"]
    with pytest.raises(sqlmem.StoreClosed):
        store.turns(None)
    store.close()
    embedder.broken = False
    with sqlmem.open(path, embedder=embedder) as again:
        assert waiting(again) == [2]
        assert found_by(again, "two")["two"] == BOTH
        assert_sound(again)


def test_a_block_left_by_an_exception_embeds_and_closes_all_the_same(path: Path, embedder: Noting) -> None:
    store = sqlmem.open(path, embedder=embedder, embedding="deferred")
    store.remember("one")
    with pytest.raises(ZeroDivisionError), store:
        raise ZeroDivisionError
    assert embedder.taken() == ["one"]
    assert beside(path) == ["chat.db"]


def test_a_block_left_by_an_exception_shows_it_beside_the_embedder_s(path: Path, embedder: Noting) -> None:
    store = sqlmem.open(path, embedder=embedder, embedding="deferred")
    store.remember("one")
    embedder.broken = True
    with pytest.raises(sqlmem.EmbeddingError) as raised, store:
        raise ZeroDivisionError
    chain: list[BaseException | None] = [raised.value]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    assert ZeroDivisionError in {type(error) for error in chain}
    assert beside(path) == ["chat.db"]


@pytest.mark.parametrize("embedding", ["immediate", "deferred"])
def test_a_read_only_store_embeds_nothing(path: Path, embedder: Noting, embedding: str) -> None:
    sqlmem.open(path, embedder=embedder).close()
    with sqlmem.open(path, embedder=False) as store:
        store.remember("a late penguin")
    before = path.read_bytes()
    with sqlmem.open(path, embedder=embedder, embedding=embedding, read_only=True) as store:  # type: ignore[arg-type]
        assert found_by(store, "penguin") == {"a late penguin": {"keywords"}}
        with pytest.raises(sqlmem.ReadOnly):
            store.flush()
    assert embedder.texts == []
    assert path.read_bytes() == before


def test_without_a_model_deferring_changes_nothing(path: Path) -> None:
    with sqlmem.open(path, embedder=False, embedding="deferred") as store:
        store.remember("a late penguin")
        assert store.stats().models == ()
        assert store.recall("penguin").texts == ["a late penguin"]


# -- others -----------------------------------------------------------------------------------------------------------

REMEMBER = """
import sys, sqlmem
store = sqlmem.open(sys.argv[1], embedder=sqlmem.HashEmbedder(64), embedding="deferred")
store.remember_many([f"number {number}" for number in range(5)])
print("stored")
sys.stdin.readline()
"""


def test_what_waits_survives_a_killed_process(path: Path, embedder: Noting) -> None:
    process = child(REMEMBER, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "stored\n"
    process.kill()
    process.communicate()
    with sqlmem.open(path, embedder=embedder, embedding="deferred") as store:
        assert waiting(store) == [5]
        assert found_by(store, "number 3")["number 3"] == BOTH
        assert waiting(store) == [0]
        assert len(embedder.taken()) == 5
        assert_sound(store)


def test_another_store_embeds_what_waits(store: sqlmem.MemoryStore, path: Path, embedder: Noting) -> None:
    store.remember("a late penguin")
    with sqlmem.open(path, embedder=Noting()) as other:
        assert found_by(other, "penguin") == {"a late penguin": BOTH}
    assert found_by(store, "penguin") == {"a late penguin": BOTH}
    assert embedder.texts == []


def test_two_stores_may_embed_the_same_at_once(
    store: sqlmem.MemoryStore, path: Path, embedder: Noting, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember_many(["one", "two"])
    real = embedder.embed_documents

    def overtaken(texts: list[str]) -> object:
        with sqlmem.open(path, embedder=Noting()) as other:
            other.flush()
            other.remember("three")
        return real(texts)

    monkeypatch.setattr(embedder, "embed_documents", overtaken)
    store.flush()
    (model,) = store.stats().models
    assert (model.vectors, model.pending) == (3, 0)
    assert_sound(store)
