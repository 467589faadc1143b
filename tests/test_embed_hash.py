"""HashEmbedder, and the checked calls of any embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from sqlmem.embed import Embedder, HashEmbedder, check_embedder, embed_documents, embed_query, load
from sqlmem.errors import EmbeddingError, InvalidArgument, StoreClosed


def test_a_word_has_the_same_vector_on_every_machine() -> None:
    assert HashEmbedder(8).embed_query("cat").tolist() == [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, -0.5, 0.5]
    third = float(np.float32(1 / np.sqrt(3)))
    assert HashEmbedder(8).embed_query("été").tolist() == [0.0, -third, 0.0, 0.0, -third, 0.0, -third, 0.0]


def test_case_and_punctuation_do_not_matter_and_documents_are_queries() -> None:
    embedder = HashEmbedder()
    documents = embedder.embed_documents(["The CAT, sat!", "the cat sat"])
    assert documents.shape == (2, 64)
    assert documents.dtype == np.float32
    assert documents[0].tobytes() == documents[1].tobytes() == embedder.embed_query("the cat sat").tobytes()


def test_texts_that_share_words_are_nearer_than_texts_that_do_not() -> None:
    query = HashEmbedder().embed_query("grey cat asleep")
    same, some, none = HashEmbedder().embed_documents(["asleep grey cat", "the grey cat purrs", "quarterly revenue"])
    assert query @ same == pytest.approx(1.0, abs=1e-6)
    assert query @ none + 0.3 < query @ some < 0.9


def test_a_text_without_words_has_the_zero_vector_and_one_word_never_has() -> None:
    assert not HashEmbedder().embed_documents(["", " ?! 🍕"]).any()
    assert HashEmbedder(1).embed_documents([f"word{i}" for i in range(200)]).all()


def test_its_name_says_its_width_and_loads_it() -> None:
    assert HashEmbedder(32).name == "hash-32"
    assert HashEmbedder(32, name="mine").name == "mine"
    loaded = load("hash-32")
    assert (loaded.name, loaded.dim) == ("hash-32", 32)
    assert loaded.embed_query("cat").tobytes() == HashEmbedder(32).embed_query("cat").tobytes()


def test_a_width_below_one_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="got 0"):
        HashEmbedder(0)


class Foreign:
    """Somebody's embedder: answers with what it was given, or raises it."""

    name = "foreign"
    dim = 2

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[Any] = []

    def embed_documents(self, texts: Sequence[str]) -> Any:
        self.calls.append(texts)
        return self._give()

    def embed_query(self, text: str) -> Any:
        self.calls.append(text)
        return self._give()

    def _give(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


Call = Callable[[Embedder], object]
both_calls = pytest.mark.parametrize(
    "call",
    [lambda embedder: embed_documents(embedder, ["a"]), lambda embedder: embed_query(embedder, "a")],
    ids=["documents", "query"],
)


def test_plain_lists_become_unit_float32_rows() -> None:
    rows, usable = embed_documents(Foreign([[3, 4], [0, -2]]), ("a", "b"))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, np.array([[0.6, 0.8], [0, -1]], dtype=np.float32))
    assert usable.tolist() == [True, True]
    query = embed_query(Foreign([0.3, 0.4]), "a")
    assert query is not None
    assert query.dtype == np.float32
    np.testing.assert_allclose(query, [0.6, 0.8], rtol=1e-6)


def test_nan_infinite_and_zero_rows_are_marked_and_emptied() -> None:
    answer = [[float("nan"), 1], [0, float("inf")], [0, 0], [0, 5]]
    rows, usable = embed_documents(Foreign(answer), list("abcd"))
    assert usable.tolist() == [False, False, False, True]
    assert rows.tolist() == [[0, 0], [0, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize("answer", [[float("nan"), 1], [float("-inf"), 0], [0.0, 0.0]])
def test_a_query_without_a_usable_vector_has_none(answer: list[float]) -> None:
    assert embed_query(Foreign(answer), "a") is None


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_very_short_and_very_long_vectors_keep_their_direction(scale: float) -> None:
    rows, usable = embed_documents(Foreign([[3 * scale, 4 * scale]]), ["a"])
    np.testing.assert_allclose(rows, [[0.6, 0.8]], rtol=1e-6)
    assert usable.tolist() == [True]


def test_the_embedder_s_own_array_is_left_as_it_was() -> None:
    answer = np.array([[3.0, 4.0]])
    embed_documents(Foreign(answer), ["a"])
    assert answer.tolist() == [[3.0, 4.0]]


def test_without_texts_the_embedder_is_not_called() -> None:
    foreign = Foreign(RuntimeError("must not be called"))
    rows, usable = embed_documents(foreign, [])
    assert rows.shape == (0, 2)
    assert usable.shape == (0,)
    assert foreign.calls == []


def test_the_embedder_gets_a_list_whatever_sequence_came() -> None:
    foreign = Foreign([[1, 0], [0, 1]])
    embed_documents(foreign, ("a", "b"))
    assert foreign.calls == [["a", "b"]]
    assert type(foreign.calls[0]) is list


@both_calls
def test_what_an_embedder_raises_becomes_an_embedding_error_from_it(call: Call) -> None:
    original = RuntimeError("service down")
    with pytest.raises(EmbeddingError, match="'foreign' raised RuntimeError: service down") as caught:
        call(Foreign(original))
    assert caught.value.__cause__ is original


@both_calls
def test_errors_of_sqlmem_and_interrupts_pass_unchanged(call: Call) -> None:
    for original in (StoreClosed("closed"), KeyboardInterrupt()):
        with pytest.raises(type(original)) as caught:
            call(Foreign(original))
        assert caught.value is original


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[1, 0]], r"returned shape \(1, 2\), expected \(2, 2\)"),
        ([[1, 0, 0], [0, 1, 0]], r"returned shape \(2, 3\), expected \(2, 2\)"),
        ([1, 0], r"returned shape \(2,\), expected \(2, 2\)"),
        ([[1, 0], [0]], r"returned list, expected numbers of shape \(2, 2\)"),
        ([["one", "two"], ["three", "four"]], r"returned list, expected numbers of shape \(2, 2\)"),
        (None, r"returned shape \(\), expected \(2, 2\)"),
        (iter([]), r"expected numbers of shape \(2, 2\)"),
    ],
)
def test_documents_of_the_wrong_shape_are_refused(answer: Any, message: str) -> None:
    with pytest.raises(EmbeddingError, match="'foreign' " + message if message.startswith("returned") else message):
        embed_documents(Foreign(answer), ["a", "b"])


def test_a_query_vector_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(EmbeddingError, match=r"returned shape \(1, 2\), expected \(2,\)"):
        embed_query(Foreign([[1, 0]]), "a")


def test_an_object_that_lacks_a_part_is_not_an_embedder() -> None:
    with pytest.raises(InvalidArgument, match="it has no name, dim, embed_documents, embed_query"):
        check_embedder(object())
    good = Foreign([])
    assert check_embedder(good) is good


@pytest.mark.parametrize(("part", "value"), [("name", ""), ("name", 3), ("dim", 0), ("dim", True), ("dim", 2.0)])
def test_a_name_or_width_that_makes_no_sense_is_refused(part: str, value: object) -> None:
    foreign = Foreign([])
    setattr(foreign, part, value)
    with pytest.raises(InvalidArgument, match=f"{part}.*{value!r}"):
        check_embedder(foreign)
