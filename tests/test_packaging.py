"""What the package is made of. The built wheel itself is tested by `tools/dev.py wheel`."""

from __future__ import annotations

import importlib.util
import re
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

import sqlmem
from sqlmem import schema

ROOT = Path(__file__).resolve().parent.parent

if not (ROOT / "pyproject.toml").is_file():
    pytest.skip("an installed package has no pyproject.toml", allow_module_level=True)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def dev() -> Any:
    """tools/dev.py as a module."""
    spec = importlib.util.spec_from_file_location("dev", ROOT / "tools" / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_runtime_needs_five_packages_and_no_more() -> None:
    names = {re.match(r"[a-z-]+", line)[0] for line in PROJECT["project"]["dependencies"]}  # type: ignore[index]
    assert names == {"apsw", "numpy", "onnxruntime", "sqlite-vec", "tokenizers"}


def test_sqlite_vec_is_held_below_the_releases_that_crash_without_avx2() -> None:
    (line,) = (line for line in PROJECT["project"]["dependencies"] if line.startswith("sqlite-vec"))
    assert line.startswith("sqlite-vec>=0.1.9,<0.1.10;")


def test_the_installed_version_is_the_package_s() -> None:
    try:
        installed = version("sqlmem")
    except PackageNotFoundError:
        pytest.skip("sqlmem runs from its sources here")
    assert installed == sqlmem.__version__


def test_the_schema_folder_holds_what_the_library_reads() -> None:
    for name in ("tables.sql", "fts.sql", "vectors.sql", "bits.sql", "views.sql"):
        assert schema.sql(name).strip()
    # A package there would be importable as `schema` by everybody.
    assert not list((ROOT / "schema").rglob("*.py"))


def test_licences_are_where_the_project_says() -> None:
    for pattern in PROJECT["project"]["license-files"]:
        assert list(ROOT.glob(pattern)), pattern
    assert (ROOT / "sqlmem" / "py.typed").is_file()


def archive(dev: Any, folder: Path, *, leave_out: str = "", add: str = "") -> Path:
    """A wheel of empty files, as it should be but for one."""
    package = [path.relative_to(ROOT).as_posix() for path in dev.files(ROOT / "sqlmem")]
    sql = [f"sqlmem/_sql/{path.relative_to(ROOT / 'schema').as_posix()}" for path in dev.files(ROOT / "schema")]
    path = folder / "sqlmem-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name in [*package, *sql, "sqlmem-0.dist-info/METADATA", *filter(None, [add])]:
            if not leave_out or not name.endswith(leave_out):
                wheel.writestr(name, "")
    return path


def test_a_complete_wheel_passes(dev: Any, tmp_path: Path) -> None:
    dev.compare(archive(dev, tmp_path))


@pytest.mark.parametrize(
    "name", ["_sql/views.sql", "model.onnx", "py.typed", "conversation.json", "manifest.json", "prompts/extract.txt"]
)
def test_a_wheel_that_lacks_a_file_is_refused(dev: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(dev.Failed, match=re.escape(name)):
        dev.compare(archive(dev, tmp_path, leave_out=name))


def test_a_wheel_with_a_stray_file_is_refused(dev: Any, tmp_path: Path) -> None:
    with pytest.raises(dev.Failed, match="tests/test_cli"):
        dev.compare(archive(dev, tmp_path, add="tests/test_cli.py"))


def test_ci_runs_the_readme_s_command() -> None:
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("the source package has no CI script")
    lines = script.read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in lines
    assert "python3 tools/dev.py test" in lines
    assert "python3 tools/dev.py test" in (ROOT / "README.md").read_text(encoding="utf-8")
