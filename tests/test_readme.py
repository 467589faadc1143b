"""The README: its examples run and print what it says, and what it points to is there."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sqlmem.cli import parser

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

if not README.is_file():
    pytest.skip("the README is not part of an installed package", allow_module_level=True)
TEXT = README.read_text(encoding="utf-8")
FENCES = [(match[1], match[2], TEXT[: match.start()].count("\n") + 2) for match in FENCE.finditer(TEXT)]


def commands() -> list[list[str]]:
    """The command lines of the console fences, as words."""
    lines = [line for language, body, _ in FENCES if language in ("console", "bash") for line in body.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def test_every_python_fence_runs_and_prints_the_text_fence_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "readme"}
    printed, ran = None, 0
    for language, body, line in FENCES:
        if language == "python":
            out = io.StringIO()
            # The line numbers of a traceback are the README's.
            code = compile("\n" * (line - 1) + body, str(README), "exec")
            with contextlib.redirect_stdout(out):
                exec(code, namespace)
            printed, ran = out.getvalue(), ran + 1
        elif language == "text":
            assert printed == body, f"README.md, line {line}"
    assert ran >= 5


def test_dev_commands_exist() -> None:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "tools" / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    named = [words[2] for words in commands() if words[:2] == ["python3", "tools/dev.py"]]
    assert {"demo", "test"} <= set(named) <= set(dev.COMMANDS)


def test_sqlmem_commands_are_understood() -> None:
    named = [words[1 : words.index(">") if ">" in words else None] for words in commands() if words[0] == "sqlmem"]
    for words in named:
        if words not in (["--help"], ["--version"], ["demo"]):
            assert parser.build().parse_args(words).file == "chat.db"
    assert named


def test_exit_codes_are_those_of_the_help() -> None:
    sentence = "0 done, 1 an error, 2 the command line makes no sense, 3 not found, 4 busy"
    assert sentence in " ".join(TEXT.split())
    assert sentence in parser.EPILOG


def test_links_lead_somewhere() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in target]
    assert "LICENSE" in targets
    if not (ROOT / "bench").is_dir():  # it is no part of the source distribution
        targets = [target for target in targets if not target.startswith("bench/")]
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_tests_that_it_names_exist() -> None:
    named = re.findall(r"`tests/(test_\w+\.py)(?:::(\w+))?`", TEXT)
    for file, function in named:
        path = ROOT / "tests" / file
        assert path.is_file(), file
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), function
