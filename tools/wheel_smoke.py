"""Use an installed sqlmem as its users do. Run by `dev.py wheel`, in an environment that holds only the wheel.

Any attempt to open a socket ends the run.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


class NoSocket(socket.socket):
    """Stands for socket.socket: cannot be made."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise AssertionError("something wants the network")


socket.socket = NoSocket  # type: ignore[misc]

import sqlmem  # noqa: E402  (after the network is gone)
from sqlmem import cli  # noqa: E402


def main() -> None:
    """Remember, recall, build a context block, close and open again, on the real model; then the command line."""
    package = Path(sqlmem.__file__).resolve()
    assert package.is_relative_to(Path(sys.prefix).resolve()), f"sqlmem was imported from {package}"
    path = Path("chat.db")
    with sqlmem.open(path) as store:
        said = store.remember("I'd like the report as a PDF", session="u42", role="user")
        store.remember("My cat sleeps on the sofa all day", session="u42", role="user")
        store.remember("Customer is on the annual plan", session="u42", pinned=True)
        use(store, said)
    assert [file.name for file in Path().iterdir()] == [path.name], "a closed store is one file"
    with sqlmem.open(path, create=False) as store:
        use(store, said)
        assert [model.name for model in store.stats().models] == ["e5-small-v2"]
        assert store.check().ok, store.check().problems
    assert cli.main(["demo"]) == 0
    script = Path(sys.executable).with_name("sqlmem")
    version = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.split() == ["sqlmem", sqlmem.__version__]
    print("the wheel works")


def use(store: sqlmem.MemoryStore, said: str) -> None:
    """Ask for what was said."""
    question = "which file format do they want"
    memories = store.recall(question, session="u42", token_budget=300)
    assert memories.top is not None
    assert memories.top.id == said
    assert memories.top.scoring is not None
    assert "vectors" in memories.top.scoring["found_by"]
    block = store.context(question, session="u42", token_budget=1200)
    assert "annual plan" in block.text
    assert "PDF" in block.text
    assert block.token_estimate <= 1200


if __name__ == "__main__":
    main()
