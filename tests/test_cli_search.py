"""The command line where vectors come in: several models, strategies, rerankers, explain, reembed, deferred embedding."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sqlmem
from sqlmem import candidates, cli, embed
from sqlmem.cli import commands
from tests.helpers_store import run as in_a_process
from tests.test_cli import Run, document, done

KEYWORDS = ("--embedder", "none")
BOTH = ("--embedder", "hash-64", "--embedder", "hash-32")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def run(path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """One command line on the store: (exit code, output, errors)."""

    def call(*words: str) -> tuple[int, str, str]:
        code = cli.main([str(path), *words])
        out, errors = capsys.readouterr()
        return code, out, errors

    return call


@pytest.fixture
def filled(run: Run) -> Run:
    """The same, on three facts with vectors of hash-64."""
    for id_, text in (("tea", "Ana drinks tea"), ("rum", "Ana drinks rum"), ("cat", "Ben has a cat")):
        done(run("remember", text, "--kind", "fact", "--id", id_, "--embedder", "hash-64"))
    return run


def models(run: Run) -> list[tuple[str, str, int, int]]:
    """Name, input, vectors and waiting memories of the file's models."""
    held = document(run("stats", "--json"))["models"]
    return [(model["name"], model["input"], model["vectors"], model["pending"]) for model in held]


def found_by(run: Run, *words: str) -> dict[str, set[str]]:
    """Which searches found each memory, by id, best first."""
    memories = document(run(*words, "--json"))["memories"]
    return {memory["id"]: set(memory["scoring"]["found_by"]) for memory in memories}


# -- models -----------------------------------------------------------------------------------------------------------


def test_several_embedders_are_used_together(run: Run) -> None:
    done(run("remember", "Ana drinks tea", "--id", "tea", *BOTH))
    assert models(run) == [("hash-64", "own", 1, 0), ("hash-32", "own", 1, 0)]
    expected = {"tea": {"keywords", "vectors:hash-64", "vectors:hash-32"}}
    assert found_by(run, "recall", "tea") == expected
    assert found_by(run, "recall", "tea", "--embedder", "hash-32", "--embedder", "hash-64") == expected
    assert found_by(run, "recall", "tea", "--embedder", "none") == {"tea": {"keywords"}}


@pytest.mark.parametrize("words", [("--embedder", "hash-32"), BOTH, ("--embedder", "hash-16")])
def test_other_embedders_than_the_file_s_are_1(filled: Run, words: tuple[str, ...]) -> None:
    code, out, errors = filled("recall", "tea", *words)
    assert (code, out) == (1, "")
    assert "made by 'hash-64' (64 dimensions)" in errors


def test_a_model_named_twice_is_2(filled: Run) -> None:
    code, _, errors = filled("recall", "tea", "--embedder", "hash-64", "--embedder", "hash-64")
    assert (code, errors) == (2, "sqlmem: embedder names a model twice: 'hash-64', 'hash-64'\n")


def test_the_demo_takes_several_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "demo.db"
    assert cli.main(["demo", *BOTH, "--keep", str(kept)]) == 0
    assert "vectors:hash-64 #" in capsys.readouterr().out
    with sqlmem.open(kept) as store:
        assert [model.name for model in store.stats().models] == ["hash-64", "hash-32"]


# -- finding ----------------------------------------------------------------------------------------------------------


def test_the_strategies_are_the_library_s() -> None:
    # Planners are callables, of which a command line has none.
    assert set(commands.STRATEGIES) == set(candidates.STRATEGIES) - {"agentic", "auto"}


@pytest.mark.parametrize("verb", ["recall", "search"])
def test_low_latency_goes_by_vectors_alone(filled: Run, verb: str) -> None:
    both = {"keywords", "vectors"}
    assert found_by(filled, verb, "rum")["rum"] == found_by(filled, verb, "rum", "--strategy", "balanced")["rum"] == both
    assert found_by(filled, verb, "rum", "--strategy", "low_latency")["rum"] == {"vectors"}


def test_context_takes_a_strategy(filled: Run) -> None:
    block = document(filled("context", "rum", "--strategy", "low_latency", "--json"))
    assert {name for memory in block["retrieved"] for name in memory["scoring"]["found_by"]} == {"vectors"}


@pytest.mark.parametrize("verb", ["recall", "search", "context"])
def test_a_reranker_s_folder_is_passed_on(filled: Run, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def cross_encoder(folder: object) -> Callable[[str, list[str]], list[float]]:
        asked.append(folder)
        return lambda query, passages: [100.0 if "cat" in passage else -100.0 for passage in passages]

    monkeypatch.setattr(embed, "CrossEncoder", cross_encoder)

    def first(*words: str) -> str:
        result = document(filled(verb, "tea rum cat", "--limit", "1", *words, "--json"))
        id_: str = result["retrieved" if verb == "context" else "memories"][0]["id"]
        return id_

    assert first("--reranker", "here") == "cat"
    assert asked == ["here"]


@pytest.mark.parametrize("verb", [("recall", "tea"), ("search", "tea"), ("context", "tea"), ("explain", "tea", "tea")])
def test_a_folder_without_a_reranker_is_2(filled: Run, tmp_path: Path, verb: tuple[str, ...]) -> None:
    code, out, errors = filled(*verb, "--reranker", str(tmp_path))
    assert (code, out) == (2, "")
    assert "has no model.onnx and no tokenizer.json" in errors


def test_a_reranker_that_cannot_be_loaded_is_1(filled: Run, tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"not a model")
    assert filled("recall", "tea", "--reranker", str(tmp_path))[0] == 1


def test_excerpts_are_in_the_block_s_document(run: Run) -> None:
    train = "The train to Lyon leaves on Friday at 9:15 in the morning."
    text = f"The weather was fine all day long and we talked. {train} Later we went home again."
    done(run("remember", text, "--session", "s", "--embedder", "none"))
    words = ("context", "when does the train to Lyon leave", "--session", "s", "--recent", "0", "--json")
    (short,) = document(run(*words, "--budget", "28"))["retrieved"]
    assert (short["text"], short["excerpt"]) == (text, f"… {train} …")
    (whole,) = document(run(*words))["retrieved"]
    assert (whole["text"], whole["excerpt"]) == (text, None)


def test_what_is_relevant_enough_can_be_said(filled: Run) -> None:
    bars = ("--min-relevance", "1", "--min-summary-relevance", "0.5")
    assert document(filled("recall", "rum", *bars, "--json"))["memories"] == []
    assert len(document(filled("recall", "rum", *bars, "--at-least", "2", "--json"))["memories"]) == 2
    assert filled("recall", "rum", "--at-least", "-1")[0] == 2


def test_context_shows_summaries_and_dates_of_a_zone(run: Run, path: Path) -> None:
    done(run("remember", "hello there", "--session", "s", "--timestamp", "2026-01-01T23:30", *KEYWORDS))
    with sqlmem.open(path, embedder=False) as store:
        store.extract("s", llm=lambda prompt: '{"memories": [], "summary": "They met."}')
    printed = done(run("context", "hello", "--summaries", "1", "--timezone", "Asia/Tokyo", *KEYWORDS))
    assert printed.startswith("Latest summaries:\n- 2 Jan 2026: They met.")
    assert printed.endswith("2 Jan 2026:\nuser: hello there")
    code, _, error = run("context", "hello", "--timezone", "Nowhere", *KEYWORDS)
    assert (code, "timezone must be a tzinfo or the name of a zone" in error) == (2, True)


# -- explain ----------------------------------------------------------------------------------------------------------


def test_explain_says_why_a_memory_is_recalled(filled: Run) -> None:
    words = ("rum", "rum", "--recency-weight", "0")
    said = document(filled("explain", *words, "--json"))
    scoring = said.pop("scoring")
    assert said == {
        "recalled": True,
        "id": "rum",
        "kept_out_by": None,
        "reason": "it is number 1 of 3 candidates",
        "rank": 1,
        "candidates": 3,
    }
    assert (scoring["score"], scoring["relevance_norm"], set(scoring["found_by"])) == (1.0, 1.0, {"keywords", "vectors"})
    first, second = done(filled("explain", *words)).splitlines()
    assert first == "recalled: it is number 1 of 3 candidates"
    assert second.startswith(" 1.00  relevance 1.00 (")
    assert second.endswith(", found by keywords #1 and vectors #1")


def test_explain_says_what_keeps_a_memory_out(filled: Run) -> None:
    first, second = done(filled("explain", "rum", "tea", "--limit", "1")).splitlines()
    assert first == "not recalled (limit): it is number 3, and the limit is 1"
    assert " 0.00  number 3 of 3 candidates, relevance 0.00 (" in second
    kept_out = done(filled("explain", "rum", "rum", "--kind", "turn"))
    assert kept_out == "not recalled (kinds): it does not pass the filter kinds"
    said = document(filled("explain", "rum", "rum", "--user", "bob", "--json"))
    assert (said["recalled"], said["kept_out_by"], said["rank"], said["scoring"]) == (False, "scope", None, None)


def test_explain_takes_the_arguments_of_recall(filled: Run) -> None:
    words = {
        "limit": ("--limit", "1"),
        "token_budget": ("--budget", "4"),
        "score_gap": ("--score-gap", "1"),
        "min_relevance": ("--min-relevance", "1"),
        "after": ("--after", "2100-01-01"),
        "before": ("--before", "2000-01-01"),
        "where": ("--where", "n=1"),
    }
    for name, given in words.items():
        assert document(filled("explain", "rum", "cat", *given, "--json"))["kept_out_by"] == name
    assert document(filled("explain", "rum", "cat", "--strategy", "low_latency", "--json"))["recalled"]
    assert document(filled("explain", "rum", "cat", "--embedder", "none", "--json"))["kept_out_by"] == "candidates"


def test_explain_of_an_unknown_memory_is_3(filled: Run) -> None:
    assert filled("explain", "rum", "nobody") == (3, "", "sqlmem: the memory 'nobody' is not in this store\n")
    assert filled("explain", "rum", "rum", "--limit", "0")[0] == 2
    assert filled("explain", "rum", "rum", "--category", "unknown")[0] == 3


# -- reembed ----------------------------------------------------------------------------------------------------------


def test_reembed_puts_other_models_in_the_place_of_the_file_s(filled: Run) -> None:
    assert done(filled("reembed", "--embedder", "hash-32")) == "vectors: 3"
    assert models(filled) == [("hash-32", "own", 3, 0)]
    assert document(filled("reembed", *BOTH, "--json")) == {"vectors": 6}
    assert sorted(models(filled)) == [("hash-32", "own", 3, 0), ("hash-64", "own", 3, 0)]
    assert done(filled("reembed")) == "vectors: 6"


def test_reembed_adds_and_drops_context_vectors(run: Run) -> None:
    for text in ("Do you like cats?", "Very much"):
        done(run("remember", text, "--session", "s", "--embedder", "hash-64"))
    done(run("reembed", "--context-vectors"))
    assert models(run) == [("hash-64", "own", 2, 0), ("hash-64", "context", 1, 0)]
    line = "models          hash-64 (2 vectors, 0 pending), hash-64 (1 context vectors, 0 pending)"
    assert line in done(run("stats")).splitlines()
    done(run("reembed", "--embedder", "hash-32"))
    assert models(run) == [("hash-32", "own", 2, 0), ("hash-32", "context", 1, 0)]
    assert done(run("reembed", "--no-context-vectors")) == "vectors: 2"
    assert models(run) == [("hash-32", "own", 2, 0)]


def test_reembed_needs_no_model_that_it_replaces(run: Run, path: Path) -> None:
    with sqlmem.open(path, embedder=sqlmem.HashEmbedder(64, "mine")) as store:
        store.remember("Ana drinks tea")
    assert run("reembed")[0] == 1
    assert done(run("reembed", "--embedder", "hash-32")) == "vectors: 1"


def test_reembed_gives_a_file_of_keywords_its_first_vectors(run: Run) -> None:
    done(run("remember", "Ana drinks tea", "--embedder", "none"))
    code, out, errors = run("reembed")
    assert (code, out) == (2, "")
    assert errors == "sqlmem: the file has no vectors yet, so name a model: reembed --embedder NAME\n"
    assert done(run("reembed", "--embedder", "hash-64")) == "vectors: 1"


def test_reembed_to_a_missing_model_is_1_and_changes_nothing(filled: Run) -> None:
    code, _, errors = filled("reembed", "--embedder", "no-such-model")
    assert code == 1
    assert "no-such-model" in errors
    assert models(filled) == [("hash-64", "own", 3, 0)]


def test_reembed_counts_on_a_terminal_and_only_there(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlmem.open(path, embedder="hash-64") as store:
        store.remember_many([f"number {number}" for number in range(1_100)])
    assert run("reembed", "--embedder", "hash-32") == (0, "vectors: 1100\n", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    counts = ("256", "512", "768", "1,024")
    counted = "".join(f"{count} of 1,100 vectors\r" for count in counts) + "1,100 of 1,100 vectors\n"
    assert run("reembed", "--embedder", "hash-16") == (0, "vectors: 1100\n", counted)


# -- remember --defer -------------------------------------------------------------------------------------------------


def test_defer_leaves_the_vectors_to_flush(run: Run) -> None:
    done(run("remember", "Ana drinks tea", "--defer", "--embedder", "hash-64"))
    done(run("remember", "Ana drinks rum", "--defer"))
    assert models(run) == [("hash-64", "own", 0, 2)]
    assert found_by(run, "recall", "rum", "--read-only").popitem()[1] == {"keywords"}
    assert done(run("flush")) == "embedded: 2"
    assert models(run) == [("hash-64", "own", 2, 0)]


def test_a_recall_embeds_what_was_deferred(run: Run) -> None:
    done(run("remember", "tea", "--defer", "--id", "tea", "--embedder", "hash-64"))
    assert found_by(run, "recall", "tea") == {"tea": {"keywords", "vectors"}}
    assert models(run) == [("hash-64", "own", 1, 0)]


def test_deferred_lines_in_a_new_file_wait_for_the_bundled_model(run: Run) -> None:
    assert len(done(run("remember", "Ana is here\nBob left", "--lines", "--defer")).splitlines()) == 2
    assert models(run) == [(embed.DEFAULT_MODEL, "own", 0, 2)]


def test_defer_fills_a_file_that_has_categories_only(run: Run) -> None:
    done(run("categories", "create", "work"))
    done(run("remember", "Invoice 7", "--category", "work", "--defer", "--embedder", "hash-64"))
    assert models(run) == [("hash-64", "own", 0, 1)]


def test_defer_refuses_another_model_than_the_file_s(filled: Run) -> None:
    assert filled("remember", "x", "--defer", "--embedder", "hash-32")[0] == 1
    assert document(filled("stats", "--json"))["live"]["fact"] == 3
    assert document(filled("stats", "--json"))["live"]["turn"] == 0


def test_defer_runs_no_model(path: Path) -> None:
    with sqlmem.open(path) as store:
        assert store.stats().models[0].name == embed.DEFAULT_MODEL
    code = "import sys; from sqlmem import cli; cli.main(sys.argv[1:]); print({'numpy', 'onnxruntime'} & set(sys.modules))"
    assert in_a_process(code, path, "remember", "Ana drinks tea", "--defer").splitlines()[1:] == ["set()"]
