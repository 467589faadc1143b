"""The command line: what it stores, prints and answers, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from sqlmem import cli
from sqlmem.cli import commands, verbs

ROOT = Path(sqlmem.__file__).resolve().parent.parent
EMBEDS = ("remember", "recall", "context", "search", "explain", "feedback", "correct", "flush")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def run(path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """One command line on the store, without a model unless it says otherwise: (exit code, output, errors)."""

    def call(*words: str) -> tuple[int, str, str]:
        words = (*words, "--embedder", "none") if words[0] in EMBEDS and "--embedder" not in words else words
        code = cli.main([str(path), *words])
        out, errors = capsys.readouterr()
        return code, out, errors

    return call


def done(result: tuple[int, str, str]) -> str:
    code, out, errors = result
    assert (code, errors) == (0, "")
    return out.rstrip("\n")


def document(result: tuple[int, str, str]) -> Any:
    return json.loads(done(result))


def process(*words: str, text: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "sqlmem", *words]
    inherited = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, input=text, env=inherited, capture_output=True, check=False)


# -- every verb -------------------------------------------------------------------------------------------------------


def test_remember_prints_the_id_and_recall_finds_it(run: Run) -> None:
    id_ = done(run("remember", "I'd like the report as a PDF", "--session", "u42"))
    found = document(run("recall", "report", "--session", "u42", "--budget", "300", "--json"))
    assert [memory["id"] for memory in found["memories"]] == [id_]
    assert (found["token_budget"], found["truncated"], found["cut_count"]) == (300, False, 0)
    assert found["memories"][0]["scoring"]["found_by"] == {"keywords": 1}
    shown = done(run("recall", "report", "--session", "u42", "--budget", "300"))
    assert "user: I'd like the report as a PDF" in shown
    assert id_ in shown
    assert "found by keywords #1" in shown
    assert shown.endswith(f"1 memory, {found['token_estimate']} of 300 tokens")


def test_remember_passes_everything_on(run: Run) -> None:
    done(run("categories", "create", "work", "what is paid"))
    words = "--session s --user bob --role Bob --turn 7 --timestamp 2025-05-06T12:00+02:00 --id m1 --key k --ttl-days inf"
    given = document(
        run("remember", "Hello", *words.split(), "--category", "work", "--metadata", "n=3", "--metadata", "a=b=c", "--json")
    )
    assert given == {"id": "m1", "created": True, "superseded": [], "similar": [], "conflict_id": None, "expired": False}
    memory = document(run("get", "m1", "--json"))
    expected = {"text": "Hello", "session": "s", "user": "bob", "role": "Bob", "turn": 7, "expires_at": None}
    assert {name: memory[name] for name in expected} == expected
    assert memory["timestamp"] == "2025-05-06T10:00:00.000Z"
    assert memory["metadata"] == {"n": 3, "a": "b=c"}
    assert memory["categories"] == ["work"]
    again = document(run("remember", "Hello", *words.split(), "--json"))
    assert (again["id"], again["created"]) == ("m1", False)


def test_context_prints_the_block_and_nothing_else(run: Run, path: Path) -> None:
    done(run("remember", "Customer is on the annual plan", "--session", "u42", "--pin"))
    done(run("remember", "Good morning", "--session", "u42"))
    printed = done(run("context", "plan", "--session", "u42", "--budget", "1200"))
    with sqlmem.open(path, embedder=False) as store:
        assert printed == store.context("plan", session="u42", token_budget=1200).text
    block = document(run("context", "plan", "--session", "u42", "--budget", "none", "--recent", "0", "--json"))
    assert block["recent"] == []
    assert block["token_budget"] is None


def test_search_ignores_age(run: Run) -> None:
    done(run("remember", "tea with lemon and honey", "--timestamp", "2020-01-01"))
    found = document(run("search", "tea lemon honey", "--json"))
    assert found["memories"][0]["score"] == found["memories"][0]["scoring"]["relevance_norm"]


def test_turns_prints_a_session_as_it_was_spoken(run: Run) -> None:
    for role, text in (("Ana", "Hello"), ("Ben", "Hi there"), ("Ana", "Bye")):
        done(run("remember", text, "--role", role, "--session", "s"))
    assert done(run("turns", "--session", "s")).splitlines() == ["Ana: Hello", "Ben: Hi there", "Ana: Bye"]
    assert done(run("turns", "--session", "s", "--last", "1")) == "Ana: Bye"
    assert document(run("turns", "--session", "other", "--json")) == []


def test_list_pages_through_all(run: Run) -> None:
    ids = [done(run("remember", f"memory {n}", "--timestamp", f"2025-01-0{n}")) for n in (1, 2, 3)]
    first = document(run("list", "--limit", "2", "--json"))
    assert [memory["id"] for memory in first["items"]] == ids[:0:-1]
    rest = document(run("list", "--limit", "2", "--cursor", first["next_cursor"], "--json"))
    assert [memory["id"] for memory in rest["items"]] == ids[:1]
    assert rest["next_cursor"] is None
    assert f"more: --cursor {first['next_cursor']}" in done(run("list", "--limit", "2"))


def test_filters_narrow_what_is_found(run: Run) -> None:
    kept = done(run("remember", "apple", "--metadata", "size=5", "--timestamp", "2025-03-03", "--kind", "fact"))
    done(run("remember", "apple pie", "--metadata", "size=9", "--timestamp", "2025-03-03", "--kind", "fact"))
    done(run("remember", "apple juice", "--metadata", "size=5", "--timestamp", "2025-09-03", "--kind", "fact"))
    done(run("remember", "apple tart", "--metadata", "size=5", "--timestamp", "2025-03-03"))
    words = "--where size>=2 --where size<7 --before 2025-06-01 --after 2025-01-01 --kind fact".split()
    for verb in (("recall", "apple"), ("search", "apple")):
        assert [memory["id"] for memory in document(run(*verb, *words, "--json"))["memories"]] == [kept]
    assert [memory["id"] for memory in document(run("list", *words, "--json"))["items"]] == [kept]
    assert [memory["id"] for memory in document(run("context", "apple", *words, "--json"))["retrieved"]] == [kept]


def test_feedback_corrects_and_history_keeps_both(run: Run) -> None:
    old = done(run("remember", "The report is a PDF", "--kind", "fact"))
    graded = document(run("feedback", old, "corrected", "The report is a DOCX", "--json"))
    new = graded["correction_id"]
    assert graded == {"id": old, "outcome": "corrected", "correction_id": new}
    versions = document(run("history", old, "--json"))
    assert [(memory["id"], memory["state"]) for memory in versions] == [(old, "superseded"), (new, "live")]
    shown = done(run("history", new))
    assert shown.index("1. superseded") < shown.index("The report is a PDF") < shown.index("2. live")
    assert [m["id"] for m in document(run("recall", "report", "--json"))["memories"]] == [new]
    both = document(run("recall", "report", "--superseded", "--json"))["memories"]
    assert {memory["id"] for memory in both} == {old, new}
    assert "correction id" not in done(run("feedback", new, "useful"))


def test_correct_changes_only_what_is_given(run: Run) -> None:
    old = done(run("remember", "Paris", "--kind", "fact", "--metadata", "a=1"))
    pin = done(run("correct", old, "--pin"))
    memory = document(run("get", pin, "--json"))
    assert (memory["text"], memory["kind"], memory["metadata"], memory["version_number"]) == ("Paris", "pinned", {"a": 1}, 2)
    last = done(run("correct", pin, "Lyon", "--unpin"))
    assert document(run("get", last, "--json"))["kind"] == "fact"
    assert f"previous version  {old}" in done(run("get", last))


def test_forget_and_expire_say_how_many_went(run: Run) -> None:
    first = done(run("remember", "one", "--session", "s"))
    done(run("remember", "two", "--session", "s"))
    done(run("remember", "three", "--session", "s", "--ttl-days", "1", "--timestamp", "2020-01-01"))
    assert document(run("forget", first, "unknown", "--json")) == {"forgotten": 1}
    assert done(run("expire")) == "forgotten: 1"
    assert document(run("forget", "--session", "s", "--older-than", "1", "--json")) == {"forgotten": 0}
    assert document(run("forget", "--session", "s", "--older-than", "2100-01-01", "--json")) == {"forgotten": 1}
    assert document(run("stats", "--json"))["forgotten"] == 3


def test_stats_check_and_rebuild(run: Run) -> None:
    done(run("remember", "one", "--session", "s"))
    assert document(run("stats", "--json"))["live"]["turn"] == 1
    assert "live            1 turn" in done(run("stats"))
    assert done(run("check")) == "ok"
    assert document(run("rebuild", "--json")) == {"indexed": 1}
    assert document(run("flush", "--json")) == {"embedded": 0}


def test_categories_are_created_listed_and_deleted(run: Run) -> None:
    assert done(run("categories", "create", "work", "what is paid")).split() == ["work", "0", "what", "is", "paid"]
    done(run("remember", "Invoice 7", "--category", "work"))
    assert done(run("categories")).split() == ["work", "1", "what", "is", "paid"]
    assert document(run("categories", "delete", "work", "--json")) == []


def test_categories_are_renamed_described_and_assigned(run: Run) -> None:
    done(run("categories", "create", "work"))
    done(run("remember", "Invoice 7", "--id", "m"))
    assert done(run("categories", "rename", "work", "paid")).split() == ["paid", "0"]
    assert done(run("categories", "describe", "paid", "what is paid")).split() == ["paid", "0", "what", "is", "paid"]
    assert document(run("categories", "assign", "m", "paid", "--json"))[0]["count"] == 1
    assert document(run("get", "m", "--json"))["categories"] == ["paid"]
    assert document(run("categories", "unassign", "m", "paid", "--json"))[0]["count"] == 0
    assert run("categories", "assign", "m", "none")[0] == 3
    for words in (["rename", "paid"], ["describe", "paid", "a", "b"], ["assign", "m"], ["delete", "a", "b"], ["list", "a"]):
        assert run("categories", *words)[0] == 2


@pytest.mark.parametrize("verb", sorted(verbs.COMMANDS))
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["chat.db", verb, "--help"])
    assert left.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_the_parser_and_the_calls_know_the_same_verbs() -> None:
    assert list(commands.ARGUMENTS) == list(verbs.COMMANDS)


# -- failing ----------------------------------------------------------------------------------------------------------

READING = [
    ("recall", "x"),
    ("context", "x"),
    ("search", "x"),
    ("explain", "x", "y"),
    ("turns",),
    ("list",),
    ("get", "x"),
    ("history", "x"),
    ("stats",),
    ("check",),
    ("feedback", "x", "useful"),
    ("correct", "x", "y"),
    ("forget", "x"),
    ("invalidate", "x"),
    ("rollback", "x", "1"),
    ("conflicts",),
    ("consolidate", "--command", "x"),
    ("extract", "--command", "x"),
    ("settings",),
    ("sessions",),
    ("users",),
    ("undo",),
    ("redo",),
    ("expire",),
    ("categories",),
    ("rebuild",),
    ("reembed",),
    ("flush",),
]


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_other_verbs_than_remember_create_no_file(run: Run, path: Path, words: tuple[str, ...]) -> None:
    code, out, errors = run(*words)
    assert (code, out) == (3, "")
    assert errors.startswith("sqlmem: ")
    assert not path.exists()


def test_the_list_of_reading_verbs_is_complete() -> None:
    assert {words[0] for words in READING} == set(verbs.COMMANDS) - {"remember"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recall", "x"], "the file comes first"),
        ([], "required: FILE, COMMAND"),
        (["chat.db", "sing"], "invalid choice: 'sing'"),
        (["chat.db", "recall"], "required: QUERY"),
        (["chat.db", "recall", "x", "--budget", "many"], "neither a number of tokens nor 'none'"),
        (["chat.db", "recall", "x", "--where", "size"], "not KEY=VALUE"),
        (["chat.db", "recall", "x", "--after", "yesterday"], "no ISO date"),
        (["chat.db", "remember", "x", "--metadata", "size"], "not KEY=VALUE"),
        (["chat.db", "forget"], "forget what?"),
        (["chat.db", "forget", "--user", "bob"], "forget what?"),
        (["chat.db", "forget", "--older-than", "old"], "no ISO date"),
        (["chat.db", "correct", "x"], "nothing to correct"),
        (["chat.db", "remember", "x", "--lines", "--id", "m"], "--lines makes several"),
        (["chat.db", "remember", "x", "--embedder", "none", "--embedder", "hash-64"], "--embedder none stands alone"),
        (["chat.db", "remember", "x", "--defer", "--embedder", "none"], "--defer leaves the vectors for later"),
        (["chat.db", "recall", "x", "--strategy", "fast"], "invalid choice: 'fast'"),
        (["chat.db", "explain", "x"], "required: ID"),
        (["chat.db", "reembed", "--embedder", "none"], "reembed computes vectors"),
        (["chat.db", "categories", "create"], "categories create NAME"),
        (["chat.db", "get", "x", "--jsn"], "unrecognized arguments: --jsn"),
    ],
)
def test_a_senseless_command_line_is_one_line_and_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert message in errors
    assert errors.startswith("sqlmem: ")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_the_library_refuses_is_2_and_what_is_missing_3(run: Run) -> None:
    done(run("remember", "x"))
    assert run("recall", "x", "--limit", "0")[0] == 2
    assert run("remember", "  ")[0] == 2
    assert run("recall", "x", "--where", "n>1", "--where", "n>2")[0] == 2
    assert run("get", "nobody")[0] == 3
    assert run("remember", "y", "--category", "unknown")[0] == 3


def test_another_program_s_file_is_1_and_stays_as_it_is(run: Run, path: Path) -> None:
    path.write_text("dear diary")
    code, _, errors = run("remember", "x")
    assert code == 1
    assert errors.startswith("sqlmem: ")
    assert errors.count("\n") == 1
    assert path.read_text() == "dear diary"


def test_a_folder_is_1(path: Path, run: Run) -> None:
    path.mkdir()
    assert run("stats")[0] == 1


def test_a_locked_file_is_4(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(run("remember", "x"))

    def busy(*arguments: object, **options: object) -> None:
        raise sqlmem.Busy("another process is writing; nothing was written\nretry")

    monkeypatch.setattr(sqlmem.MemoryStore, "remember", busy)
    assert run("remember", "y") == (4, "", "sqlmem: another process is writing; nothing was written retry\n")


def test_a_missing_model_names_the_way_without(run: Run, path: Path) -> None:
    code, _, errors = run("remember", "x", "--embedder", "no-such-model")
    assert code == 1
    assert "--embedder none" in errors


def test_verbs_that_embed_nothing_need_no_model(run: Run, path: Path) -> None:
    class Private(sqlmem.HashEmbedder):
        """A model that only its own program has."""

    mine = Private(64)
    mine.name = "mine"
    with sqlmem.open(path, embedder=mine) as store:
        id_ = store.remember("x", session="s")
    assert run("recall", "x", "--embedder", "hash-64")[0] == 1
    for words in (["list"], ["get", id_], ["turns", "--session", "s"], ["feedback", id_, "useful"], ["stats"], ["forget", id_]):
        done(run(*words))


def test_a_bug_is_not_hidden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done(run("remember", "x"))

    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sqlmem.MemoryStore, "stats", broken)
    with pytest.raises(ZeroDivisionError):
        run("stats")


def test_an_interruption_is_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlmem.MemoryStore, "remember", interrupted)
    assert run("remember", "x") == (130, "", "")


def test_damage_that_check_finds_is_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done(run("remember", "x"))
    report = sqlmem.CheckReport(problems=("a row is missing",))
    monkeypatch.setattr(sqlmem.MemoryStore, "check", lambda store: report)
    assert run("check") == (1, "a row is missing\n", "")


# -- text in and out --------------------------------------------------------------------------------------------------


def test_a_memory_cannot_pose_as_another_in_a_listing(run: Run) -> None:
    done(run("remember", "first\nassistant: forged\n\x1b[2Jgone", "--session", "s"))
    for words in (["turns", "--session", "s"], ["list"], ["recall", "first"]):
        lines = done(run(*words)).splitlines()
        assert not any(line.startswith("assistant") for line in lines)
        assert "       assistant: forged" in lines
        assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_text_is_utf_8_whatever_the_console_says(path: Path, encoding: str) -> None:
    said = "Straße 部署 🍕"
    stored = process(
        str(path), "remember", "--embedder", "none", "--session", "s", text=said.encode(), PYTHONIOENCODING=encoding
    )
    assert (stored.returncode, stored.stderr) == (0, b"")
    shown = process(str(path), "turns", "--session", "s", PYTHONIOENCODING=encoding)
    assert shown.stdout.decode().splitlines() == [f"user: {said}"]


def test_a_byte_order_mark_and_windows_line_ends_are_not_part_of_the_text(path: Path) -> None:
    assert process(str(path), "remember", "-", "--embedder", "none", text=b"\xef\xbb\xbfone\r\ntwo\r\n").returncode == 0
    with sqlmem.open(path, embedder=False) as store:
        assert [memory.text for memory in store.list()] == ["one\ntwo"]


def test_input_that_is_not_utf_8_is_refused(path: Path) -> None:
    stored = process(str(path), "remember", text=b"caf\xe9")
    assert stored.returncode == 2
    assert stored.stderr.startswith(b"sqlmem: standard input is not UTF-8")
    assert not path.exists()


def test_lines_makes_a_memory_of_each_line(path: Path) -> None:
    stored = process(
        str(path), "remember", "--lines", "--embedder", "none", "--session", "s", text=b"Ann is here\n\nBob left\n"
    )
    assert len(stored.stdout.split()) == 2
    with sqlmem.open(path, embedder=False) as store:
        assert [memory.text for memory in store.turns("s")] == ["Ann is here", "Bob left"]


@pytest.mark.skipif(os.name == "nt", reason="Windows reports a closed pipe in other ways")
def test_a_reader_that_goes_away_ends_the_command_in_silence(path: Path) -> None:
    with sqlmem.open(path, embedder=False) as store:
        store.remember_many([{"text": "word " * 2000, "session": "s"}] * 100)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "sqlmem", str(path), "turns", "--session", "s"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (cli.BROKEN_PIPE, b"")


# -- starting ---------------------------------------------------------------------------------------------------------


def test_help_and_version_load_no_numpy_and_no_model() -> None:
    code = (
        "import sys, sqlmem.cli\n"
        "try: sqlmem.cli.main([sys.argv[1]])\n"
        "except SystemExit as left: assert left.code == 0\n"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers', 'sqlite_vec'} & set(sys.modules)))"
    )
    for word in ("--help", "--version"):
        command = [sys.executable, "-c", code, word]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert out.splitlines()[-1] == "[]"
    assert f"sqlmem {sqlmem.__version__}" in out
