"""The scaling bench: its made-up memories, its arithmetic and its tables, on a few hundred rows."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlmem

ROOT = Path(__file__).resolve().parent.parent

if not (ROOT / "bench").is_dir():
    pytest.skip("the bench is not part of an installed package", allow_module_level=True)
sys.path.append(str(ROOT))  # last, so that an installed sqlmem is not hidden by a checkout's

from bench.peers import side_by_side  # noqa: E402
from bench.peers.contest import OURS, exactness  # noqa: E402
from bench.scaling import corpus, files, quality, report, timing, verbs  # noqa: E402
from bench.scaling.layout import LONG, SESSION_ROWS, USER, Files, probe_sessions, session_of  # noqa: E402
from bench.scaling.prepared import Prepared, prepared  # noqa: E402
from bench.scaling.report import Column  # noqa: E402

ROWS = 300
DIM = 64
WORDS = "river boat garden letter train summer violin bread harbour winter market lantern".split()


@pytest.fixture(scope="module")
def source() -> corpus.Source:
    """Forty turns of hash vectors, five questions."""
    model = sqlmem.HashEmbedder(DIM)
    chance = np.random.default_rng(5)
    texts = [" ".join(chance.choice(WORDS, size=12)) for _ in range(40)]
    questions = [f"which {first} and {second}" for first, second in itertools.pairwise(WORDS[:6])]
    asked = np.stack([np.asarray(model.embed_query(question)) for question in questions])
    return corpus.Source(["Ada", "Bo"] * 20, texts, np.asarray(model.embed_documents(texts)), questions, asked)


@pytest.fixture
def made(source: corpus.Source, tmp_path: Path) -> Files:
    return corpus.write(source, tmp_path, ROWS)


@pytest.fixture
def embedder(made: Files) -> Prepared:
    """The corpus' vectors under a name of their own."""
    queries = {text: np.frombuffer(vector, dtype=np.float32) for text, vector in made.asked()}
    return Prepared(queries, model=sqlmem.HashEmbedder(DIM))


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_same_rows_come_out_every_time(source: corpus.Source) -> None:
    once, again = (corpus.Generator(source).chunk(3, ROWS) for _ in range(2))
    other = corpus.Generator(source, seed=1).chunk(3, ROWS)

    assert (once.roles, once.texts) == (again.roles, again.texts)
    assert np.array_equal(once.vectors, again.vectors)
    assert once.texts != other.texts


def test_a_larger_corpus_begins_with_the_smaller_one(source: corpus.Source, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    small, large = (corpus.write(source, tmp_path / name, rows) for name, rows in (("small", 100), ("large", ROWS)))

    assert [row.spoken for row in small.rows(100)] == [row.spoken for row in large.rows(ROWS, 0, 100)]
    assert np.array_equal(corpus.matrix(small, 100), corpus.matrix(large, 100))
    assert corpus.held(large) == ROWS


def test_a_kept_corpus_is_not_written_again(source: corpus.Source, made: Files) -> None:
    before = made.vectors.stat().st_mtime_ns

    assert corpus.write(source, made.vectors.parent, ROWS - 1) == made
    assert made.vectors.stat().st_mtime_ns == before


def test_texts_are_all_different_and_vectors_have_unit_length(made: Files) -> None:
    assert len({row.spoken for row in made.rows(ROWS)}) == ROWS
    assert np.allclose(np.linalg.norm(corpus.matrix(made, ROWS), axis=1), 1.0, atol=1e-6)


def test_noise_has_half_the_covariance_of_neighbours_differences() -> None:
    pair = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32)
    matrix = corpus.noise(pair, neighbours=1)
    difference = pair[0] - pair[1]

    assert np.allclose(matrix.T @ matrix, np.outer(difference, difference) / 2, atol=1e-6)


def test_drawing_in_makes_room_for_the_noise() -> None:
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0]], dtype=np.float32)
    moved = corpus.drawn_in(vectors, added=0.19)

    assert np.allclose(moved, [[0.9, 0.0], [-0.9, 0.0]], atol=1e-6)


def test_the_vocabulary_goes_on_in_different_made_up_words() -> None:
    words = corpus.vocabulary(["tea tea tea"], size=3_000)

    assert len(set(words)) == 3_000
    assert "tea" not in words  # among the commonest hundred


@pytest.mark.parametrize("rows", [1_000, 10_000, 20_000])
def test_sessions_have_200_rows_and_large_stores_one_of_5000(rows: int) -> None:
    sizes = Counter(session_of(place, rows) for place in range(rows))

    assert sizes.pop(LONG, 0) == (5_000 if rows >= 10_000 else 0)
    assert set(sizes.values()) == {SESSION_ROWS}
    assert set(probe_sessions(rows, 7)) <= set(sizes)


def test_brute_force_finds_what_sorting_everything_finds(source: corpus.Source, made: Files) -> None:
    held = corpus.matrix(made, ROWS)
    places, cosines = quality.exact_top(held, source.asked, depth=10)
    everything = source.asked @ np.asarray(held).T

    assert np.allclose(cosines, -np.sort(-everything, axis=1)[:, :10])
    assert all(quality.share(found, found) == 1.0 for found in places.tolist())
    assert quality.share([1, 2, 9], [1, 2, 3, 4]) == 0.5
    assert quality.share([1], [1, -1]) == 1.0  # fewer rows than the depth


def test_a_small_scope_is_searched_whole(source: corpus.Source, made: Files, embedder: Prepared, tmp_path: Path) -> None:
    built = files.build(made, embedder, tmp_path, ROWS)
    with sqlmem.open(built.path, embedder=embedder) as store:
        found = quality.measure(store, corpus.matrix(made, ROWS), source.asked)
        # int8 codes swap neighbours of almost the same cosine, so near the edge of the 50 some may differ.
        _, own = quality.vector_search(store, source.asked[0])

    assert found.candidates is None
    assert found.final > 0.9
    exact, _ = quality.exact_top(corpus.matrix(made, ROWS), source.asked[:1])
    assert own[0] == exact[0][0]


def test_a_store_holds_the_corpus_and_is_reused(made: Files, embedder: Prepared, tmp_path: Path) -> None:
    built = files.build(made, embedder, tmp_path, ROWS)
    again = files.build(made, embedder, tmp_path, ROWS)

    assert (again, built.rows, built.bytes) == (built, ROWS, built.path.stat().st_size)
    with sqlmem.open(built.path, embedder=embedder) as store:
        assert sum(store.stats().live.values()) == ROWS
        assert store.check().ok
        assert [turn.text for turn in store.turns("s0", USER)][:2] == [
            row.text for row in made.rows(ROWS, 0, 10) if row.session == "s0"
        ][:2]


def test_every_verb_is_timed_and_the_store_stays_as_it_was(
    source: corpus.Source, made: Files, embedder: Prepared, tmp_path: Path
) -> None:
    built = files.build(made, embedder, tmp_path, ROWS)
    before = built.path.read_bytes()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with sqlmem.open(built.path, embedder=embedder) as store:
        read = verbs.reading(store, embedder, ROWS, source.questions, repeat=2)
    written = verbs.writing(built.path, embedder, made, ROWS, scratch, repeat=2)

    assert set(read) == {"session", "scope"}  # no session of 5,000 in so small a store
    assert set(written) == {"remember", "many"}
    assert all(len(sample.cpu) >= 2 and sample.median > 0 for sample in (*read.values(), *written.values()))
    assert built.path.read_bytes() == before
    assert list(scratch.iterdir()) == []


def test_the_prepared_embedder_knows_the_questions_and_counts_its_time(made: Files) -> None:
    known = prepared(made)
    text, vector = made.asked()[0]

    assert known.spent() == (0.0, 0.0)
    assert known.embed_query(text).tobytes() == vector
    assert known.spent()[1] > 0
    with pytest.raises(KeyError):
        known.embed_query("another question")


def test_samples_are_medians_and_percentiles_without_the_warm_up() -> None:
    calls: list[int] = []
    sample = timing.timed([lambda: calls.append(1)] * 9)

    assert (len(calls), len(sample.cpu), len(sample.wall)) == (9, 4, 4)
    assert timing.Sample(tuple(map(float, range(1, 21))), (7.0,)).p95 == 19.0
    assert timing.Sample((1.0, 9.0, 2.0), (7.0,)).median == 2.0


def test_what_is_taken_out_is_not_counted() -> None:
    spent = itertools.chain.from_iterable(itertools.repeat(pair) for pair in [(0.0, 0.0)])
    later = iter([(0.0, 0.0), (100.0, 200.0)])
    free = timing.once(lambda: None, less=lambda: next(spent))
    taken = timing.once(lambda: None, less=lambda: next(later))

    assert free.wall[0] >= 0
    assert taken.cpu[0] < -90_000
    assert taken.wall[0] < -190_000


def test_the_tables_hold_the_bars() -> None:
    columns = [
        Column(100_000, {"scope": 20.0, "gemv": 10.0, "candidates": 0.99, "bytes": 1_400.0}, {"scope": 25.0}),
        Column(1_000, {"bytes": 2_000.0}),
    ]
    verdicts, growth = cells(report.verdicts(columns)), cells(report.growth(columns, report.FIGURES))

    assert ["recall() over all, ms", "100,000", "≤ 15", "20.0", "**no**"] in verdicts
    assert ["of the exact top 50 among the candidates", "100,000", "≥ 0.985", "0.9900", "yes"] in verdicts
    assert ["recall() over all, ms", "1,000,000", "≤ 90", "-", "not measured"] in verdicts
    assert [row[1] for row in verdicts if row[0].startswith("bytes")] == ["100,000"]  # small files are mostly empty pages
    assert ["recall() over all, ms", "20.0", "-", "≤ 15 at 100,000; ≤ 90 at 1,000,000"] in growth
    assert ["recall() over all / numpy's product", "2.00", "-"] in cells(report.ratios(columns))
    assert ["recall() over all, ms", "25.0", "-"] in cells(report.percentiles(columns))
    assert [bar.key for bar, _ in report.missed(columns)] == ["scope", "bytes"]


def test_systems_stand_side_by_side_and_nothing_is_dropped() -> None:
    ours = {"search": [4.0, 5.0], "bytes": 900.0}
    small = side_by_side.Size(1_000, {OURS: ours, "one": {"search": [2.0, 2.5], "bytes": 1_800.0, "failed": "over limit"}})
    large = side_by_side.Size(10_000, {OURS: {"search": [8.0, 9.0]}, "one": {"failed": "failed: no space"}})
    text = side_by_side.report([small, large])
    rows: list[Any] = cells(text)

    assert ["top 10 by vector, ms", "4.00 / 5.00", "2.00 / 2.50"] in rows
    assert ["one durable insert, ms", "-", "over limit"] in rows
    assert ["top 10 by vector, ms", "8.00 / 9.00", "failed"] in rows
    assert ["top 10 by vector, ms", "2.00", "-"] in cells(side_by_side.growth([small, large]))
    assert ["bytes a memory", "0.50"] in cells(side_by_side.ratios(small))
    assert list(side_by_side.beaten(small)) == ["1,000: top 10 by vector, ms: one (2.00 of theirs)"]
    assert "- one, 10,000: failed: no space" in text


def test_exactness_takes_the_questions_in_turn() -> None:
    exact = np.array([[0, 1], [2, 3]])

    assert exactness([[0, 1], [2, 9], [1, 0]], exact) == pytest.approx((1 + 0.5 + 1) / 3)
