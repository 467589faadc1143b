"""The commands that change what is known, wait for an answer, or take a change back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import sqlmem
from tests.test_cli import Run, document, done, path, process, run

__all__ = ["path", "run"]  # fixtures


def say(run: Run, text: str, *words: str) -> str:
    return done(run("remember", text, *words, "--embedder", "none"))


def lines(result: tuple[int, str, str]) -> list[str]:
    return done(result).splitlines()


@pytest.fixture
def waiting(path: Path) -> tuple[str, str, str]:
    """The ids of a fact, of a statement that contradicts it, and of their conflict."""

    def judge(new: str, known: list[str]) -> list[sqlmem.Verdict]:
        return [sqlmem.Verdict(contradicts=True, reason="she can drink one thing") for _ in known]

    with sqlmem.open(path, embedder=False, judge=judge, on_contradiction="ask") as store:
        old = store.remember("Kim drinks tea", kind="fact")
        new = store.remember("Kim drinks rum", kind="fact")
    return str(old), str(new), str(new.conflict_id)


# -- versions ---------------------------------------------------------------------------------------------------------


def test_a_memory_is_invalidated_and_rolled_back(run: Run) -> None:
    first = say(run, "Ana eats rice", "--kind", "fact")
    second = done(run("correct", first, "Ana eats bread", "--note", "she said so"))
    assert done(run("invalidate", first, "--reason", "system_correction", "--note", "she does not")) == second
    shown = document(run("get", second, "--json"))
    assert (shown["state"], shown["expiration_reason"], shown["expiration_note"]) == (
        "ended",
        "system_correction",
        "she does not",
    )
    assert document(run("get", first, "--json"))["expiration_note"] == "she said so"
    third = done(run("rollback", second, "1"))
    assert [line.split(",")[0] for line in lines(run("history", first))[::2]][2] == "3. live"
    assert document(run("rollback", third, "1", "--json"))["superseded"] == [third]
    code, out, errors = run("invalidate", "nobody")
    assert (code, out, errors) == (3, "", "sqlmem: the memory 'nobody' is not in this store\n")
    assert run("rollback", third, "9")[0] == 3
    assert run("rollback", third, "one")[0] == 2
    assert run("invalidate", third, "--reason", "updated")[0] == 2


def test_the_past_and_the_future_can_be_asked_about(run: Run) -> None:
    say(run, "Ana lives in Rome", "--kind", "fact", "--valid-from", "2100-01-01", "--valid-to", "2101-01-01")
    id_ = say(run, "Ana lives in Porto", "--kind", "fact", "--valid-to", "2100-01-01T00:00Z")

    def texts(*words: str) -> list[str]:
        return [memory["text"] for memory in document(run("recall", "Where does Ana live", "--json", *words))["memories"]]

    assert texts() == ["Ana lives in Porto"]
    assert texts("--valid-on", "2100-06-01") == ["Ana lives in Rome"]
    assert texts("--valid-on", "2100-06-01", "--as-of", "2000-01-01") == []
    assert lines(run("list", "--as-of", "2000-01-01")) == []
    assert len(lines(run("list"))) == 4
    assert "Porto" in done(run("context", "Ana"))
    assert done(run("context", "Ana", "--as-of", "2000-01-01")) == ""
    assert lines(run("explain", "Ana", id_, "--valid-on", "2100-06-01")) == [
        "not recalled (valid_on): it does not pass the filter valid_on"
    ]
    assert "valid_to" in done(run("get", id_))
    assert run("recall", "x", "--as-of", "2000-01-01", "--now", "2000-01-01")[0] == 2
    assert run("remember", "x", "--valid-from", "2000-01-01")[0] == 2


# -- conflicts --------------------------------------------------------------------------------------------------------


def test_conflicts_are_shown_and_resolved(run: Run, waiting: tuple[str, str, str]) -> None:
    old, new, conflict = waiting
    expected = [
        f"{conflict}  pending",
        "  new: Kim drinks rum",
        "  old: Kim drinks tea",
        "  why: she can drink one thing",
    ]
    assert lines(run("conflicts"))[:4] == expected
    assert lines(run("conflicts", "get", conflict)) == lines(run("conflicts", "list"))
    assert document(run("conflicts", "--json"))["items"][0]["id"] == conflict
    assert "conflicts" in done(run("get", old))
    assert "proposed        1" in done(run("stats"))
    shown = lines(run("conflicts", "resolve", conflict, "--take-new"))
    assert shown[0] == f"{conflict}  resolved: take_new"
    assert document(run("get", old, "--json"))["replaced_by"] == new
    assert lines(run("conflicts")) == []
    assert len(lines(run("conflicts", "--status", "resolved"))) == len(shown)
    code, _, errors = run("conflicts", "resolve", conflict, "--keep-old")
    assert (code, errors) == (1, f"sqlmem: the conflict {conflict} is resolved already: take_new; nothing was changed\n")


def test_a_text_of_one_s_own_resolves(run: Run, waiting: tuple[str, str, str], path: Path) -> None:
    answered = process(
        str(path), "conflicts", "resolve", waiting[2], "--text", "-", "--embedder", "none", "--json", text=b"Kim drinks both\n"
    )
    assert (answered.returncode, answered.stderr) == (0, b"")
    resolved = json.loads(answered.stdout)
    assert resolved["resolution"] == "own_text"
    assert document(run("get", resolved["results"][0], "--json"))["text"] == "Kim drinks both"


def test_what_a_judge_or_a_note_says_cannot_pose_as_something_else(run: Run, path: Path) -> None:
    def judge(new: str, known: list[str]) -> list[sqlmem.Verdict]:
        verdict = sqlmem.Verdict(contradicts=True, reason="one\n  new: rum", question="Which?\n  old: tea", options=("a\nb",))
        return [verdict for _ in known]

    with sqlmem.open(path, embedder=False, judge=judge, on_contradiction="ask") as store:
        old = store.remember("Kim drinks tea", kind="fact")
        conflict = store.remember("Kim drinks\n  why: rum", kind="fact").conflict_id
    assert lines(run("conflicts")) == [
        f"{conflict}  pending",
        "  new: Kim drinks",
        "         why: rum",
        "  old: Kim drinks tea",
        "  why: one",
        "         new: rum",
        "  Which?",
        "         old: tea  (a",
        "       b)",
    ]
    done(run("invalidate", old, "--note", "said\n  state             live"))
    shown = lines(run("get", old))
    assert [line for line in shown if line.startswith("  state ")] == ["  state             ended"]
    assert shown[shown.index("  expiration_note   said") + 1] == "         state             live"


def test_a_user_may_be_asked(run: Run) -> None:
    say(run, "hello", "--user", "ana")
    assert done(run("conflicts", "mode")) == "default"
    assert done(run("conflicts", "mode", "ask", "--user", "ana")) == "user ana: ask"
    assert document(run("conflicts", "mode", "--user", "ana", "--json")) == {"user": "ana", "mode": "ask"}
    assert done(run("conflicts", "mode", "default", "--user", "ana")) == "user ana: default"


def test_a_senseless_command_line_does_not_wait_for_a_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # whoever reads it fails
    assert run("conflicts", "get", "x", "--text", "-")[0] == 2
    assert run("conflicts", "resolve", "--text", "-")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["get"],
        ["resolve", "x"],
        ["resolve", "--keep-old"],
        ["get", "x", "--keep-old"],
        ["list", "x"],
        ["mode", "never"],
        ["resolve", "x", "--keep-old", "--take-new"],
        ["resolve", "x", "--keep-old", "--text", "y"],
        ["--status", "open"],
    ],
)
def test_conflicts_that_make_no_sense_are_refused(run: Run, path: Path, words: list[str]) -> None:
    code, out, errors = run("conflicts", *words)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert not path.exists()


# -- forget, undo, redo -----------------------------------------------------------------------------------------------


def test_what_lies_in_the_trash_comes_back(run: Run) -> None:
    first, second = say(run, "hello"), say(run, "Ana eats rice", "--kind", "fact")
    assert done(run("forget", first, "--trash-days", "3")) == "forgotten: 1"
    assert "trash           1" in done(run("stats"))
    assert run("get", first)[0] == 3
    assert lines(run("undo"))[0].startswith("forget of 2")
    assert lines(run("undo"))[1:] == [f"  {second}"]
    assert document(run("redo", "--json"))["verb"] == "remember"
    assert document(run("redo", "--json"))["ids"] == [first]
    code, _, errors = run("redo")
    assert (code, errors) == (3, "sqlmem: there is nothing to redo for user '': a call after undo() makes it final\n")
    assert run("undo", "--user", "ana")[0] == 3
    assert run("forget", first, "--trash-days", "0")[0] == 2


def test_a_version_before_lives_again(run: Run) -> None:
    first = say(run, "Ana eats rice", "--kind", "fact")
    second = done(run("correct", first, "Ana eats bread"))
    assert done(run("forget", second, "--resurrect")) == "forgotten: 1"
    assert lines(run("list"))[0] == "Ana eats rice"


# -- consolidate ------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
turns = json.load(sys.stdin)
assert set(turns[0]) == {"role", "text", "ts"}
print(json.dumps([turn["text"].upper() for turn in turns]))
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    script = tmp_path / "summarize facts.py"
    script.write_text(PROGRAM, encoding="utf-8")
    return f'"{sys.executable}" "{script}"'


def test_a_program_makes_facts_of_turns(run: Run, program: str) -> None:
    for text in ("we met", "è bello", "again"):
        say(run, text, "--session", "s")
    command = ("consolidate", "--session", "s", "--keep-recent", "1", "--command", program, "--embedder", "none")
    assert lines(run(*command, "--dry-run")) == ["WE MET", "È BELLO", "2 facts of 2 turns, 0 turns removed"]
    assert len(lines(run("turns", "--session", "s"))) == 3
    assert lines(run(*command, "--trash-days", "5", "--batch-turns", "1"))[-1] == "2 facts of 2 turns, 2 turns removed"
    assert lines(run("undo"))[0].startswith("consolidate of")
    report = document(run(*command, "--json", "--keep-turns"))
    assert (report["facts"], report["turns_removed"]) == (["WE MET", "È BELLO"], 0)
    fact = document(run("get", report["fact_ids"][0], "--json"))
    assert fact["sources"] == report["turn_ids"]
    assert "derived" in done(run("get", report["turn_ids"][0]))
    assert done(run("forget", report["turn_ids"][0], "--cascade")) == "forgotten: 3"


def test_a_fact_cannot_pose_as_another(run: Run, program: str) -> None:
    say(run, "one\ntwo", "--session", "s")
    command = ("consolidate", "--session", "s", "--keep-recent", "0", "--command", program, "--embedder", "none")
    assert lines(run(*command)) == ["ONE", "       TWO", "1 facts of 1 turns, 1 turns removed"]


@pytest.mark.parametrize(
    ("program", "code", "message"),
    [
        (f'"{sys.executable}" -c "print(7)"', 1, "the summarizer must return a list of strings, it returned 7"),
        (f'"{sys.executable}" -c "print(\'no\')"', 1, "the summarizer raised JSONDecodeError"),
        (f'"{sys.executable}" -c "raise SystemExit(4)"', 1, "returned non-zero exit status 4"),
        ("no-such-program-anywhere", 1, "the summarizer raised FileNotFoundError"),
        ('"unclosed', 2, "is no command line"),
        (" ", 2, "--command names no program"),
    ],
)
def test_a_program_that_fails_changes_nothing(run: Run, program: str, code: int, message: str) -> None:
    for text in ("we met", "again"):
        say(run, text, "--session", "s")
    got, out, errors = run("consolidate", "--session", "s", "--keep-recent", "0", "--command", program, "--embedder", "none")
    assert (got, out) == (code, "")
    assert message in errors
    assert lines(run("turns", "--session", "s")) == ["user: we met", "user: again"]


# -- users, sessions, extraction, settings ----------------------------------------------------------------------------


def test_users_and_sessions_are_shown_and_deleted(run: Run, path: Path) -> None:
    for user, session in (("ana", "s"), ("ana", "t"), ("", "s")):
        say(run, "hello", "--user", user, "--session", session, "--timestamp", "2026-01-02")
    assert lines(run("sessions")) == [
        "s: 1 turns, 0 memories, last 2026-01-02 00:00",
        "t of ana: 1 turns, 0 memories, last 2026-01-02 00:00",
        "s of ana: 1 turns, 0 memories, last 2026-01-02 00:00",
    ]
    assert lines(run("sessions", "--user", "ana", "--limit", "1"))[1].startswith("more: --cursor ")
    assert lines(run("users"))[1] == "ana: 2 sessions, 2 memories, last 2026-01-02 00:00"
    with sqlmem.open(path) as store:
        store.sessions.create("made", "ana", metadata={"channel": "mail"})
    assert len(lines(run("sessions", "--where", "channel=mail"))) == 1
    assert len(lines(run("sessions", "--status", "pending"))) == 1
    assert done(run("sessions", "--status", "failed")) == ""
    assert run("sessions", "delete", "s", "--user", "ana", "--status", "failed")[0] == 2
    assert document(run("sessions", "get", "s", "--user", "ana", "--json"))["turns"] == 1
    assert "last_at           2026-01-02T00:00:00.000Z" in lines(run("users", "get", "ana"))
    assert done(run("sessions", "delete", "s", "--user", "ana")) == "forgotten: 1"
    assert done(run("users", "delete", "ana")) == "forgotten: 1"
    assert run("users", "get", "ana")[0] == 3
    assert run("users", "delete")[0] == run("sessions", "list", "s")[0] == 2


MODEL = """
import json, sys
prompt = sys.stdin.read()
assert "I live in Porto" in prompt
print("```json", json.dumps({"memories": [{"text": "The user lives in Porto", "turns": [0]}], "summary": "Porto."}), "```")
"""


def test_a_program_reads_a_session(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(MODEL, encoding="utf-8")
    say(run, "I live in Porto", "--session", "s")
    command = ("extract", "--session", "s", "--command", f'"{sys.executable}" "{script}"', "--embedder", "none")
    first, id_ = lines(run(*command))
    assert first == "1 turns, 1 calls: 1 memories, 0 known already, 0 ended"
    assert document(run("get", id_.strip(), "--json"))["text"] == "The user lives in Porto"
    assert lines(run(*command)) == ["0 turns, 0 calls: 0 memories, 0 known already, 0 ended"]
    assert lines(run(*command, "--retry-failed")) == []
    say(run, "and work there", "--session", "s")
    script.write_text("print('no')", encoding="utf-8")
    code, _, errors = run(*command)
    assert (code, "could not be used, twice" in errors) == (1, True)


def test_settings_are_set_and_carried(run: Run, path: Path) -> None:
    say(run, "hello")
    document(run("settings", "set", "extraction", "inclusion_instructions", "food", "what they like", "--json"))
    document(run("settings", "set", "extraction", "similarity_top_k", "20", "--json"))
    exported = done(run("settings"))
    assert json.loads(exported)["extraction"]["inclusion_instructions"] == ["food", "what they like"]
    assert json.loads(exported)["extraction"]["similarity_top_k"] == 20
    assert json.loads(done(run("settings", "set", "recall", "keyword_weight", "0.25")))["recall"]["keyword_weight"] == 0.25
    answered = process(str(path), "settings", "import", text=exported.encode())
    assert (answered.returncode, json.loads(answered.stdout)) == (0, json.loads(exported))
    assert process(str(path), "settings", "import", text=b"no").returncode == 2
    for words in (["set"], ["set", "extraction"], ["set", "other", "a", "b"], ["export", "recall", "x"]):
        assert run("settings", *words)[0] == 2
    assert run("settings", "set", "extraction", "similarity_top_k", "9")[0] == 2
    assert run("settings", "set", "extraction", "no_such", "9")[0] == 2
