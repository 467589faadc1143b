"""The bundled sentence encoder: its vectors, its windows over long texts, its threads and its failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sqlmem.embed
from sqlmem.embed import DEFAULT_MODEL, OnnxEmbedder, embed_documents, load
from sqlmem.embed.encoder import Encoder
from sqlmem.errors import EmbeddingError, ModelMissing

GOLDEN = json.loads((Path(__file__).parent / "golden" / "e5-small-v2.json").read_text(encoding="utf-8"))
PASSAGE = "passage: "


@pytest.fixture(scope="module")
def model() -> OnnxEmbedder:
    embedder = load(DEFAULT_MODEL)
    assert isinstance(embedder, OnnxEmbedder)
    return embedder


@pytest.fixture(scope="module")
def encoder(model: OnnxEmbedder) -> Encoder:
    return model._load()


def fresh(model: OnnxEmbedder, **changes: Any) -> OnnxEmbedder:
    """A second embedder of the same files, its session not loaded yet."""
    return OnnxEmbedder(replace(model.manifest, **changes), model.folder)


# What the vectors are


@pytest.mark.parametrize("golden", GOLDEN, ids=[f"{entry['as']}: {entry['text'][:20]}" for entry in GOLDEN])
def test_vectors_are_the_model_s(model: OnnxEmbedder, golden: dict[str, Any]) -> None:
    is_query = golden["as"] == "query"
    vector = model.embed_query(golden["text"]) if is_query else model.embed_documents([golden["text"]])[0]
    # 8-bit kernels differ between processors: equal bits are promised on one machine only.
    np.testing.assert_allclose(vector[:8], golden["first"], atol=0.02)
    assert vector @ np.array(golden["vector"]) >= 0.99


def test_vectors_have_unit_length_and_the_model_s_width(model: OnnxEmbedder) -> None:
    vectors = model.embed_documents(["a", "", "Where did I put the keys? " * 300])
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert model.embed_query("a").shape == (384,)


def test_no_texts_make_no_rows(model: OnnxEmbedder) -> None:
    assert model.embed_documents([]).shape == (0, 384)
    assert model.embed_documents([]).dtype == np.float32


@pytest.mark.parametrize(
    ("question", "related", "unrelated"),
    [
        ("what format did they want", "I'd like the report as a PDF", "My cat sleeps on the sofa all day"),
        ("does she have any pets", "My cat sleeps on the sofa all day", "I'd like the report as a PDF"),
        ("when is the appointment", "The dentist can see you on Thursday at nine", "He plays the violin beautifully"),
    ],
)
def test_an_answer_is_nearer_than_another_subject(model: OnnxEmbedder, question: str, related: str, unrelated: str) -> None:
    near, far = model.embed_documents([related, unrelated]) @ model.embed_query(question)
    assert near > far + 0.02


def test_a_text_is_another_vector_as_a_question_than_as_a_document(model: OnnxEmbedder) -> None:
    text = "The meeting is on Monday"
    as_query, as_document = model.embed_query(text), model.embed_documents([text])[0]
    bare = fresh(model, query_prefix="", passage_prefix="")
    assert as_query @ as_document < 0.99
    # The prefixes are the whole difference: written out by hand they give the same bits.
    assert bare.embed_query("query: " + text).tobytes() == as_query.tobytes()
    assert bare.embed_documents(["passage: " + text]).tobytes() == as_document.tobytes()


def test_cls_pooling_takes_the_first_token_s_vector(model: OnnxEmbedder) -> None:
    by_cls = fresh(model, pooling="cls")
    ids = np.array([by_cls._load()._windows(PASSAGE, "A grey cat")[0]])
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    first = by_cls._load()._session.run(None, feed)[0][0, 0]
    np.testing.assert_allclose(by_cls.embed_documents(["A grey cat"])[0], first / np.linalg.norm(first), atol=1e-6)


def test_the_centre_is_what_ordinary_sentences_share(model: OnnxEmbedder) -> None:
    centre = model.centre
    assert centre is not None
    assert centre.shape == (384,)
    assert centre.dtype == np.float32
    texts = ["The ferry leaves at six.", "I never liked maths.", "Could you water the plants?", "Tom: See you then."]
    vectors = model.embed_documents(texts)
    centred = vectors - centre
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    pairs = np.triu_indices(len(texts), 1)
    assert (vectors @ vectors.T)[pairs].mean() > 0.7
    assert abs((centred @ centred.T)[pairs].mean()) < 0.2


# The same text, the same bits


def mixed_texts() -> list[str]:
    return [f"Turn {i}: " + "we talked about the house and the garden. " * (i % 3) for i in range(300)]


def test_a_vector_is_bit_for_bit_the_same_alone_and_in_bulk(model: OnnxEmbedder) -> None:
    texts = mixed_texts()
    bulk = model.embed_documents(texts)
    checked, usable = embed_documents(model, texts)
    assert usable.all()
    for i in (0, 1, 6, 255, 256, 299):  # both sides of where bulk work is divided
        assert model.embed_documents([texts[i]])[0].tobytes() == bulk[i].tobytes()
        assert embed_documents(model, [texts[i]])[0].tobytes() == checked[i].tobytes()


def test_threads_share_one_session_and_get_the_same_bits(model: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []
    original = Encoder.__init__

    def counted(self: Encoder, manifest: Any, folder: Path) -> None:
        built.append(folder)
        original(self, manifest, folder)

    monkeypatch.setattr(Encoder, "__init__", counted)
    cold, texts, together = fresh(model), mixed_texts()[:20], threading.Barrier(4)

    def work(_: int) -> bytes:
        together.wait()
        return cold.embed_documents(texts).tobytes()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(work, range(4)))
    assert set(answers) == {model.embed_documents(texts).tobytes()}
    assert built == [model.folder]


def test_one_core_gives_the_same_bits_as_several(model: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*mixed_texts()[:5], "A long story about the sea. " * 200]
    vectors = []
    for cores in (1, 3):
        monkeypatch.setattr("sqlmem.embed.encoder._cores", lambda cores=cores: cores)
        vectors.append(model.embed_documents(texts).tobytes())
    assert vectors[0] == vectors[1]


def test_texts_are_embedded_at_the_same_time(model: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    both_running = threading.Barrier(2, timeout=60)

    def stand_in(self: Encoder, window: list[int]) -> NDArray[np.float32]:
        both_running.wait()  # one after the other, the first would wait for ever
        return np.ones(384, dtype=np.float32)

    monkeypatch.setattr("sqlmem.embed.encoder._cores", lambda: 2)
    monkeypatch.setattr(Encoder, "_run", stand_in)
    assert model.embed_documents(["one", "two"]).all()


# Long texts


@pytest.mark.parametrize("words", [1, 300, 900, 901, 902, 3000])
def test_windows_hold_every_token_behind_the_prefix(encoder: Encoder, words: int) -> None:
    names = [f"{n}" for n in range(words)]  # every number below 3,000 has tokens of its own: order can be seen
    whole = encoder._tokenizer.encode(" ".join(names), add_special_tokens=False).ids
    opening, closing = encoder._tokenizer.encode(PASSAGE).ids[:-1], encoder._tokenizer.encode("").ids[-1:]
    seen: list[int] = []
    windows = encoder._windows(PASSAGE, " ".join(names))
    for window in windows:
        assert len(window) <= 512
        assert window[: len(opening)] == opening
        assert window[-1:] == closing
        body = window[len(opening) : -1]
        seen += body if not seen else body[32:]  # neighbours share 32 tokens
    assert seen == whole
    assert (len(windows) == 1) == (len(opening) + len(whole) + 1 <= 512)
    assert max(map(len, windows)) - min(map(len, windows)) <= 1


def test_a_text_that_just_fits_is_one_window_and_a_token_more_makes_two(encoder: Encoder) -> None:
    # The model takes 512: two special tokens, two of "passage:" and 508 of the text.
    assert [len(window) for window in encoder._windows(PASSAGE, "word " * 508)] == [512]
    assert [len(window) for window in encoder._windows(PASSAGE, "word " * 509)] == [274, 275]


CATS = "The grey cat slept on the warm windowsill while birds sang outside in the garden. "
LEDGER = "The accountant reconciled the quarterly invoices against the company's bank statement. "


def test_a_long_text_is_near_both_of_its_halves(model: OnnxEmbedder) -> None:
    both, cats, ledger, sea = model.embed_documents(
        [CATS * 100 + LEDGER * 130, CATS, LEDGER, "A lighthouse keeper rowed out into the storm. "]
    )
    assert both @ cats > both @ sea + 0.02
    assert both @ ledger > both @ sea + 0.02


def test_a_fact_at_the_very_end_of_a_long_text_counts(model: OnnxEmbedder) -> None:
    long = CATS * 200  # 3,000 words
    without, with_fact = model.embed_documents([long, long + "Anna's passport number is X4471."])
    question = model.embed_query("What is Anna's passport number?")
    assert with_fact @ question > without @ question


def test_a_very_long_text_is_embedded_in_windows_of_bounded_size(model: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def stand_in(self: Encoder, window: list[int]) -> NDArray[np.float32]:
        sizes.append(len(window))
        return np.full(384, 0.5, dtype=np.float32)

    monkeypatch.setattr(Encoder, "_run", stand_in)
    vectors = model.embed_documents(["An ordinary sentence of words. " * 6500])  # 201,500 characters, 39,000 tokens
    assert len(sizes) == 82  # each with 476 tokens that no other has: 512 less prefix, special tokens and overlap
    assert max(sizes) <= 512
    np.testing.assert_allclose(np.linalg.norm(vectors), 1.0, atol=1e-6)


# What is loaded when


def python(code: str) -> str:
    root = str(Path(sqlmem.embed.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_loading_a_model_by_name_imports_no_runtime_until_something_is_embedded() -> None:
    steps = """
import sys
heavy = lambda: print(*[name in sys.modules for name in ("numpy", "onnxruntime", "tokenizers")])
import sqlmem.embed
heavy()
model = sqlmem.embed.load("e5-small-v2")
model.name, model.dim, model.fingerprint
heavy()
model.embed_query("a")
heavy()
"""
    assert python(steps).splitlines() == ["False False False", "False False False", "True True True"]


def test_the_same_bits_come_from_another_process(model: OnnxEmbedder) -> None:
    code = "import sqlmem.embed as e; print(e.load('e5-small-v2').embed_query('Where is Tom?').tobytes().hex())"
    assert python(code) == model.embed_query("Where is Tom?").tobytes().hex()


# Failures


def test_a_runtime_that_cannot_be_imported_is_model_missing(model: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sqlmem.embed.encoder")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelMissing, match=r"onnxruntime.*embedder=False") as caught:
        fresh(model).embed_query("a")
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_damaged_model_file_is_an_embedding_error(model: OnnxEmbedder, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    (tmp_path / "tokenizer.json").write_bytes((model.folder / "tokenizer.json").read_bytes())
    with pytest.raises(EmbeddingError, match="cannot be loaded") as caught:
        OnnxEmbedder(model.manifest, tmp_path).embed_query("a")
    assert caught.value.__cause__ is not None


def test_a_model_of_another_width_than_its_manifest_says_is_refused(model: OnnxEmbedder) -> None:
    with pytest.raises(EmbeddingError, match="expected a vector of 512 numbers per token"):
        fresh(model, dim=512, centre=None).embed_query("a")


def test_a_failing_run_is_an_embedding_error_from_the_original(model: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    # Windows larger than the model's positions make the real runtime fail.
    too_wide = fresh(model, max_tokens=1000)
    with pytest.raises(EmbeddingError, match="'e5-small-v2' failed") as caught:
        too_wide.embed_documents(["fine", "word " * 900])
    assert type(caught.value.__cause__).__module__.startswith("onnxruntime")
    assert too_wide.embed_documents(["fine"])[0].tobytes() == model.embed_documents(["fine"])[0].tobytes()


def test_what_is_not_a_text_is_an_embedding_error(model: OnnxEmbedder) -> None:
    with pytest.raises(EmbeddingError):
        model.embed_documents([None])  # type: ignore[list-item]
