"""Rerankers: a second look at the best candidates that counts beside their scores, and breaks nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sqlmem
from sqlmem import reranking
from sqlmem.embed import CrossEncoder, cross_encoder
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_store import assert_sound, contents

# Cosines 1, .8, .6, 0 with the question.
NEAR = {"ask": (1.0, 0.0), "apple": (1.0, 0.0), "berry": (4.0, 3.0), "cherry": (3.0, 4.0), "plum": (0.0, 1.0)}
IN_ORDER = ["apple", "berry", "cherry", "plum"]


class Judge:
    """A reranker with a score for each passage; notes what it was asked."""

    def __init__(self, scores: dict[str, float] | None = None) -> None:
        self.scores = scores or {}
        self.asked: list[tuple[str, list[str]]] = []

    def __call__(self, query: str, passages: list[str]) -> list[float]:
        self.asked.append((query, passages))
        return [self.scores.get(passage, -100.0) for passage in passages]


def facts(store: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    store.remember_many([{"text": text, "kind": "fact"} for text in IN_ORDER[::-1]])
    return store


def ranked(open_store: OpenStore, reranker: Any, **options: Any) -> sqlmem.MemoryStore:
    return facts(open_store(embedder=Vectors(NEAR), recency_weight=0.0, reranker=reranker, **options))


def joint(store: sqlmem.MemoryStore, **options: Any) -> dict[str, float]:
    """relevance_norm by text."""
    return {memory.text: scoring(memory)["relevance_norm"] for memory in store.recall("ask", **options)}


# -- what it changes --------------------------------------------------------------------------------------------------


def test_a_reranker_that_likes_nothing_changes_nothing(open_store: OpenStore) -> None:
    plain = facts(open_store(embedder=Vectors(NEAR), recency_weight=0.0))
    judge = Judge()
    assert joint(ranked(open_store, judge)) == pytest.approx(joint(plain), abs=1e-9)
    assert judge.asked == [("ask", IN_ORDER)]


@pytest.mark.parametrize("verb", ["recall", "search", "context"])
def test_each_verb_that_ranks_asks_it(open_store: OpenStore, verb: str) -> None:
    judge = Judge()
    getattr(ranked(open_store, judge), verb)("  ask ")
    assert [query for query, _ in judge.asked] == ["ask"]
    assert judge.asked[0][1][:4] == IN_ORDER


def test_a_blank_question_asks_nothing(open_store: OpenStore) -> None:
    judge = Judge()
    assert len(ranked(open_store, judge).recall(" ")) == 4
    assert judge.asked == []


def test_a_score_is_worth_its_certainty() -> None:
    """WEIGHT * sigmoid(score), whatever the score."""
    scores = {"a": 0.0, "b": 1.0, "c": -1.0, "d": 1e308, "e": -1e308}
    bonus = reranking.bonus(Judge(scores), "ask", dict(enumerate(scores)))
    share = 1 / (1 + math.exp(-1))
    expected = {0: 0.5, 1: share, 2: 1 - share, 3: 1.0, 4: 0.0}
    assert bonus == pytest.approx({rowid: reranking.WEIGHT * part for rowid, part in expected.items()})


def test_what_a_score_is_worth_adds_to_the_joint_score(open_store: OpenStore) -> None:
    plain = joint(ranked(open_store, Judge()))
    found = joint(ranked(open_store, Judge({"berry": 0.0, "cherry": 99.0})))
    gained = {text: found[text] - plain[text] for text in plain}
    assert gained["apple"] == gained["plum"] == 0
    assert gained["cherry"] == pytest.approx(2 * gained["berry"])
    assert gained["cherry"] > 0.1


def test_it_turns_neighbours_round_but_does_not_lift_the_last_to_the_top(open_store: OpenStore) -> None:
    near = {**NEAR, "berry": (10.0, 2.0)}  # a cosine of .98
    store = facts(open_store(embedder=Vectors(near), recency_weight=0.0, reranker=Judge({"berry": 9.0, "plum": 99.0})))
    assert store.recall("ask").texts == ["berry", "apple", "cherry", "plum"]


def test_relevance_itself_does_not_change(open_store: OpenStore) -> None:
    found = ranked(open_store, Judge({"plum": 5.0})).recall("ask")
    relevance = {memory.text: scoring(memory)["relevance"] for memory in found}
    assert relevance == pytest.approx(dict(zip(IN_ORDER, (1.0, 0.8, 0.6, 0.0), strict=True)), abs=1e-2)


# -- what it is asked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 50])
def test_only_the_best_candidates_are_asked(open_store: OpenStore, count: int) -> None:
    judge = Judge()
    store = ranked(open_store, judge, rerank_candidates=count)
    assert set(store.recall("ask").texts) == set(IN_ORDER)
    assert judge.asked == [("ask", IN_ORDER[:count])]


def test_twenty_are_asked_unless_told_otherwise(open_store: OpenStore) -> None:
    judge = Judge()
    store = open_store(embedder=False, reranker=judge)
    store.remember_many([f"tea number {number}" for number in range(30)])
    store.recall("tea", limit=1)
    assert [len(passages) for _, passages in judge.asked] == [20]


def test_a_turn_is_read_with_the_one_before_it(open_store: OpenStore) -> None:
    judge = Judge()
    store = open_store(embedder=False, reranker=judge)
    store.remember("do you like tea?", session="s", role="Ana")
    store.remember("tea, always", session="s", role="Ben", id="gone")
    store.remember("so no coffee", session="s")
    store.remember("tea is a drink", kind="fact")
    store.remember("tea elsewhere", session="t")
    store.correct("gone", "tea, at times")
    store.recall("tea")
    ((_, passages),) = judge.asked
    assert sorted(passages) == [
        "Ana: do you like tea?",
        "Ana: do you like tea?\nBen: tea, at times",
        "Ben: tea, at times\nso no coffee",
        "tea elsewhere",
        "tea is a drink",
    ]


def test_what_filters_keep_out_is_not_asked(open_store: OpenStore) -> None:
    judge = Judge()
    store = ranked(open_store, judge)
    store.remember("ask another user", user="ana")
    store.recall("ask", kinds=["turn"])
    store.recall("ask", user="nobody")
    assert judge.asked == []
    store.recall("ask", user="ana")
    assert judge.asked == [("ask", ["ask another user"])]


def test_it_runs_outside_of_transactions(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store: sqlmem.MemoryStore
    calls = 0

    def writing(query: str, passages: list[str]) -> list[float]:
        nonlocal calls
        calls += 1
        store.remember(f"written {calls}", kind="fact")
        store.forget(ids=["gone"])
        with sqlmem.open(path, embedder=False) as other:
            other.remember(f"elsewhere {calls}", kind="fact")
        return [0.0] * len(passages)

    store = open_store(path, embedder=False, reranker=writing)
    store.remember("a note", id="gone")
    store.remember("another note", id="stays")
    assert store.recall("note").ids == ["stays"]
    assert {memory.text for memory in store.list().items} == {"another note", "written 1", "elsewhere 1"}
    assert_sound(store)


# -- what it may not do -----------------------------------------------------------------------------------------------


def _raising(query: str, passages: Sequence[str]) -> list[float]:
    raise ZeroDivisionError("oh no")


BAD: dict[str, tuple[Any, str]] = {
    "raises": (_raising, "raised ZeroDivisionError: oh no"),
    "too few": (lambda query, passages: [1.0] * (len(passages) - 1), "must return 4 finite numbers"),
    "too many": (lambda query, passages: [1.0] * (len(passages) + 1), "must return 4 finite numbers"),
    "NaN": (lambda query, passages: [math.nan] * len(passages), "must return 4 finite numbers"),
    "infinite": (lambda query, passages: [math.inf] * len(passages), "must return 4 finite numbers"),
    "None": (lambda query, passages: None, "TypeError"),
    "words": (lambda query, passages: ["good"] * len(passages), "ValueError"),
    "vectors": (lambda query, passages: [[1.0, 2.0]] * len(passages), "TypeError"),
}


@pytest.mark.parametrize("verb", ["recall", "search", "context"])
@pytest.mark.parametrize("name", BAD)
def test_a_reranker_that_fails_is_a_callback_error(open_store: OpenStore, tmp_path: Path, name: str, verb: str) -> None:
    reranker, message = BAD[name]
    path = tmp_path / "chat.db"
    store = facts(open_store(path, embedder=Vectors(NEAR), reranker=reranker))
    before = contents(path)
    with pytest.raises(sqlmem.CallbackError, match=message):
        getattr(store, verb)("ask")
    assert contents(path) == before
    assert len(store.recall("")) == 4


def test_arrays_are_numbers_too(open_store: OpenStore) -> None:
    store = ranked(open_store, lambda query, passages: np.array([0.0, 0.0, 0.0, 9.0], dtype=np.float32))
    assert store.recall("ask").texts == IN_ORDER


def test_its_own_errors_of_sqlmem_come_through(open_store: OpenStore) -> None:
    def missing(query: str, passages: list[str]) -> list[float]:
        raise sqlmem.ModelMissing("not here")

    with pytest.raises(sqlmem.ModelMissing, match="not here"):
        ranked(open_store, missing).recall("ask")


# -- a cross-encoder in a folder --------------------------------------------------------------------------------------


class Tokenizer:
    """Stands in for that of `tokenizers`: one token a word."""

    def encode(self, query: str, passage: str) -> Any:
        asked, said = query.split(), passage.split()
        ids = [len(word) for word in (*asked, *said)]
        return SimpleNamespace(ids=ids, attention_mask=[1] * len(ids), type_ids=[0] * len(asked) + [1] * len(said))


class Session:
    """Stands in for an ONNX session: the score is the sum of what it is fed, or `answer`."""

    def __init__(self, *names: str, answer: Any = None) -> None:
        self.names, self.answer = names, answer

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.names]

    def run(self, outputs: None, feed: dict[str, Any]) -> list[Any]:
        assert sorted(feed) == sorted(self.names)
        assert {(array.dtype, array.shape[0]) for array in feed.values()} == {(np.dtype(np.int64), 1)}
        return [np.array([[sum(int(array.sum()) for array in feed.values())]]) if self.answer is None else self.answer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"not a model")
    return tmp_path


def stand_in(encoder: CrossEncoder, session: Session, monkeypatch: pytest.MonkeyPatch) -> CrossEncoder:
    def load() -> None:
        encoder._session, encoder._tokenizer = session, Tokenizer()

    monkeypatch.setattr(encoder, "_load", load)
    return encoder


ALL = ("input_ids", "attention_mask", "token_type_ids")


@pytest.mark.parametrize(
    ("names", "scores"),
    [(ALL, [3 + 2 + 3 + 3 + 1, 3 + 2 + 2 + 0]), (ALL[:2], [3 + 2 + 3 + 3, 3 + 2 + 2]), (ALL[:1], [3 + 2 + 3, 3 + 2])],
)
def test_a_cross_encoder_scores_each_pair(
    folder: Path, names: tuple[str, ...], scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fed with what it takes in: three tokens of 3, 2 and 3 letters, and two of them."""
    encoder = stand_in(CrossEncoder(folder), Session(*names), monkeypatch)
    assert encoder("who is", ["Ben"]) == [scores[0]]
    assert encoder("who is", ["Ben", ""]) == scores
    assert encoder("who is", []) == []


@pytest.mark.parametrize("answer", [np.zeros((1, 2)), np.zeros((0,)), "x"])
def test_a_model_that_yields_something_else_is_an_embedding_error(
    folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = stand_in(CrossEncoder(folder), Session(*ALL, answer=answer), monkeypatch)
    with pytest.raises(sqlmem.EmbeddingError, match=r"cross-encoder in .* failed"):
        encoder("who", ["Ben"])


def test_a_folder_is_opened_as_a_cross_encoder(folder: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (folder, str(folder)):
        store = open_store(embedder=False, reranker=given)
        encoder = store._engine.options.reranker
        assert isinstance(encoder, CrossEncoder)
        assert repr(encoder) == f"CrossEncoder({str(folder)!r})"
        stand_in(encoder, Session(*ALL), monkeypatch)
        store.remember_many(["tea", "tea or coffee"])
        assert len(store.recall("tea")) == 2


@pytest.mark.parametrize("lacking", [["model.onnx"], ["tokenizer.json"], ["model.onnx", "tokenizer.json"]])
def test_a_folder_that_is_no_cross_encoder_is_refused_and_no_file_made(folder: Path, lacking: list[str]) -> None:
    for name in lacking:
        (folder / name).unlink()
    with pytest.raises(sqlmem.InvalidArgument, match=f"has no {' and no '.join(lacking)}"):
        sqlmem.open(folder / "chat.db", embedder=False, reranker=folder)
    assert not (folder / "chat.db").exists()


def test_a_damaged_cross_encoder_fails_when_it_is_asked(folder: Path, open_store: OpenStore) -> None:
    store = open_store(embedder=False, reranker=folder)
    store.remember("tea")
    with pytest.raises(sqlmem.EmbeddingError, match="cannot be loaded"):
        store.recall("tea")
    assert store.recall("").texts == ["tea"]


def test_long_passages_lose_their_end(folder: Path) -> None:
    """As the tokenizer is told: of the two, only the passage is cut."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "who": 1, "tea": 2}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    encoder, session = CrossEncoder(folder), Session(*ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlmem.embed.session.inference_session", lambda path: session)
        (long,) = encoder("who who", ["tea " * 1_000])
        (short,) = encoder("who who", ["tea"])
    rest = cross_encoder._MAX_TOKENS - 2
    assert long == (2 + 2 * rest) + (2 + rest) + rest
    assert short == (2 + 2) + 3 + 1
