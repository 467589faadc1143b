"""What the package shows: its names, their documentation, its exceptions, and what importing it costs."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from typing import Any

import pytest

import sqlmem
from sqlmem import errors
from tests.helpers_store import run


def test_all_is_exactly_what_is_public() -> None:
    shown = {
        name
        for name, value in vars(sqlmem).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and str(getattr(value, "__module__", "")).startswith("sqlmem")
    }
    assert shown | {"HashEmbedder"} == set(sqlmem.__all__)  # which is imported when it is asked for
    assert sqlmem.__all__ == sorted(sqlmem.__all__)
    assert len(set(sqlmem.__all__)) == len(sqlmem.__all__)


def test_every_name_is_there_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in sqlmem.__all__:
        assert getattr(sqlmem, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        sqlmem.nonsense  # noqa: B018
    star: dict[str, Any] = {}
    exec("from sqlmem import *", star)
    assert set(star) - {"__builtins__"} == set(sqlmem.__all__)


def test_every_exception_is_public() -> None:
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert classes <= set(sqlmem.__all__)


def test_every_result_is_public() -> None:
    """What a verb returns, and what such a record holds, can be named by the caller."""
    from sqlmem import records

    classes = {
        name for name, value in vars(records).items() if isinstance(value, type) and value.__module__ == records.__name__
    }
    assert classes <= set(sqlmem.__all__)


def _public(thing: Any) -> list[tuple[str, Any]]:
    found = []
    for name, value in vars(thing).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)):
            found.append((f"{thing.__name__}.{name}", value))
    return found


def _everything() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in sqlmem.__all__:
        value = getattr(sqlmem, name)
        found.append((name, value))
        if isinstance(value, type):
            found += _public(value)
    with sqlmem.open(":memory:", embedder=False) as store:
        for name, value in vars(store).items():
            if not name.startswith("_"):
                found += [(f"store.{name}", type(value)), *_public(type(value))]
    return found


@pytest.mark.parametrize(("name", "thing"), _everything(), ids=[name for name, _ in _everything()])
def test_everything_public_is_documented(name: str, thing: Any) -> None:
    text = thing.__doc__
    assert text, f"{name} has no docstring"
    assert text.strip(), name
    if dataclasses.is_dataclass(thing):
        assert not text.startswith(f"{name}("), f"{name} has the docstring that dataclass made up"


@pytest.mark.parametrize("name", ["remember", "recall", "context", "list", "correct", "forget"])
def test_every_argument_is_keyword_only_beyond_the_first_ones(name: str) -> None:
    parameters = list(inspect.signature(getattr(sqlmem.MemoryStore, name)).parameters.values())
    allowed = {"remember": 1, "recall": 1, "context": 1, "list": 0, "correct": 2, "forget": 0}[name]
    positional = [p.name for p in parameters[1:] if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert len(positional) == allowed


def test_results_cannot_be_changed() -> None:
    with sqlmem.open(":memory:", embedder=False) as store:
        memory = store.get(store.remember("hello"))
        for record in (memory, store.recall("hello"), store.context("hello"), store.list(), store.stats(), store.check()):
            field = dataclasses.fields(record)[0].name
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, field, None)


# -- the tree of exceptions -------------------------------------------------------------------------------------------


def _drawn() -> dict[str, tuple[str, list[str]]]:
    """Each exception of the drawing with its parent there and the built-in ones in brackets."""
    assert errors.__doc__ is not None
    found: dict[str, tuple[str, list[str]]] = {}
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+)(?: \(([\w, ]+)\))?", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        above[depth:] = [match[2]]
        also = [name for name in (match[3] or "").split(", ") if name]
        found[match[2]] = (above[depth - 1] if depth else "Exception", also)
    return found


def test_the_tree_of_exceptions_is_drawn_as_it_is() -> None:
    drawn = _drawn()
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    assert drawn.keys() == classes.keys()
    for name, (parent, also) in drawn.items():
        assert [base.__name__ for base in classes[name].__bases__] == [parent, *also], name
    assert drawn["InvalidArgument"] == ("SqlmemError", ["ValueError", "TypeError"])
    assert drawn["NotFound"] == ("SqlmemError", ["KeyError"])
    assert drawn["Busy"] == ("StorageError", [])


def test_an_error_s_message_is_plain_text() -> None:
    assert str(sqlmem.NotFound("the memory 'x' is not here")) == "the memory 'x' is not here"
    error = sqlmem.Busy("held", path="chat.db", code=5)
    assert (str(error), error.path, error.code, error.retry) == ("held", "chat.db", 5, True)
    assert sqlmem.StorageError("x").retry is False


# -- what it costs to import ------------------------------------------------------------------------------------------

HEAVY = "import sys; print([name for name in ('numpy', 'onnxruntime', 'tokenizers', 'sqlite_vec') if name in sys.modules])"


def test_importing_sqlmem_imports_nothing_heavy() -> None:
    assert run(f"import sqlmem\n{HEAVY}") == "[]\n"


def test_a_keyword_only_store_imports_nothing_heavy() -> None:
    script = """
import sqlmem
with sqlmem.open(":memory:", embedder=False) as store:
    id = store.remember("hello there", session="s", kind="fact")
    store.remember("general", session="s")
    store.correct(id, "hello again")
    store.feedback(id, "useful")
    assert store.recall("hello", session="s").texts[0] == "hello again"
    store.context("hello", session="s")
    store.forget(session="s")
    store.rebuild()
    assert store.check().ok and store.stats().forgotten == 1
"""
    assert run(script + HEAVY) == "[]\n"


def test_opening_with_a_model_loads_it_only_when_it_embeds(tmp_path: Any) -> None:
    script = f"""
import sqlmem
with sqlmem.open({str(tmp_path / "chat.db")!r}) as store:
    store.turns("s")
    store.recall("")
import sys; print([name for name in ("onnxruntime", "tokenizers") if name in sys.modules])
"""
    assert run(script) == "[]\n"
