"""The sample conversation and the demo that shows it."""

from __future__ import annotations

import re
import socket
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from sqlmem import cli
from sqlmem.cli.demo import items, sample


@pytest.fixture(scope="module")
def talk() -> dict[str, Any]:
    return sample()


def moment(iso: str) -> datetime:
    assert iso.endswith("Z")
    return datetime.fromisoformat(iso)


def test_it_is_a_conversation_of_several_days(talk: dict[str, Any]) -> None:
    turns = talk["turns"]
    assert 48 <= len(turns) <= 60
    assert {turn["role"] for turn in turns} == set(talk["speakers"])
    times = [moment(turn["timestamp"]) for turn in turns]
    assert all(before < after for before, after in pairwise(times))
    sessions = [session for session, _ in groupby(turn["session"] for turn in turns)]
    assert 6 <= len(sessions) == len(set(sessions)) <= 8
    assert times[-1] < moment(talk["now"])
    assert all(turn["text"] == turn["text"].strip() for turn in turns)


def test_it_is_free_to_use(talk: dict[str, Any]) -> None:
    assert talk["licence"] == "CC0-1.0"


def test_the_correction_is_of_a_fact_and_is_not_said_before(talk: dict[str, Any]) -> None:
    correction = talk["correction"]
    assert correction["of"] in [fact["text"] for fact in talk["facts"]]
    assert not any("Eindhoven" in item["text"] for item in talk["turns"] + talk["facts"])
    assert "Eindhoven" in correction["text"]
    assert moment(talk["turns"][-1]["timestamp"]) < moment(correction["because"]["timestamp"]) < moment(talk["now"])


def test_its_items_are_what_remember_many_takes(talk: dict[str, Any]) -> None:
    with sqlmem.open(":memory:", embedder=False) as store:
        ids = store.remember_many(items(talk))
        assert len(set(ids)) == len(talk["turns"]) + len(talk["facts"])
        live = store.stats().live
        assert live["turn"] == len(talk["turns"])
        assert live["pinned"] == sum(fact["pinned"] for fact in talk["facts"])
        for session in {turn["session"] for turn in talk["turns"]}:
            said = [turn["text"] for turn in talk["turns"] if turn["session"] == session]
            assert [memory.text for memory in store.turns(session, talk["user"])] == said


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("who looks after the cat", "Miso"),
        ("what is she allergic to", "walnuts"),
        ("does she still run the half marathon", "half marathon"),
        ("when does the new mechanic start", "1 July"),
        ("what does the accountant want", "PDF"),
    ],
)
def test_it_answers_questions(talk: dict[str, Any], question: str, word: str) -> None:
    with sqlmem.open(":memory:", clock=lambda: moment(talk["now"])) as store:
        store.remember_many(items(talk))
        assert any(word in text for text in store.recall(question, user=talk["user"], limit=3).texts)


def test_the_demo_shows_recall_correction_block_and_history(talk: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo"]) == 0
    out, errors = capsys.readouterr()
    assert errors == ""
    old, new = talk["correction"]["of"], talk["correction"]["text"]
    remembered, recalled, corrected, block, history = re.split(r"^\d\. ", out, flags=re.MULTILINE)[1:]
    assert f"{len(talk['turns']) + len(talk['facts'])} memories" in remembered
    assert old in recalled.split("store.recall(")[1].splitlines()[2]
    assert "found by keywords" in recalled
    assert "of 120 tokens, truncated" in recalled
    assert new in corrected.splitlines()[3]
    assert all(f"| {heading}" in block for heading in ("Pinned facts:", "Recent conversation:", "Relevant memories:"))
    assert new in block
    assert old not in block
    assert f"version 1, superseded: {old}" in history
    assert f"version 2, live: {new}" in history
    for call in ("remember_many(", "recall(", "feedback(", "context(", "history("):
        assert f"store.{call}" in out


def test_the_demo_needs_no_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class NoSocket(socket.socket):
        def __init__(self, *arguments: object, **options: object) -> None:
            raise AssertionError("something wants the network")

    monkeypatch.setattr(socket, "socket", NoSocket)
    assert cli.main(["demo"]) == 0
    assert "found by keywords #2 and vectors #1" in capsys.readouterr().out


def test_the_demo_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["demo", "--embedder", "none"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_demo_keeps_its_store_where_it_is_told(
    talk: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.db"
    assert cli.main(["demo", "--keep", str(path), "--embedder", "none"]) == 0
    with sqlmem.open(path, embedder=False, create=False) as store:
        found = store.recall(talk["question"], user=talk["user"], now=datetime(2025, 7, 8, tzinfo=UTC))
        assert found.top is not None
        assert found.top.text == talk["correction"]["text"]
    assert cli.main(["demo", "--keep", str(path)]) == 2
    assert "already there" in capsys.readouterr().err
