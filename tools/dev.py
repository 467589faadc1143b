"""Everything a contributor runs, from a plain checkout. Standard library only.

    python3 tools/dev.py demo                 what sqlmem does, on its sample conversation
    python3 tools/dev.py test [ARGUMENTS]     the tests; arguments go to pytest
    python3 tools/dev.py lint                 ruff: rules and format
    python3 tools/dev.py types                mypy, strict
    python3 tools/dev.py layers               import-linter: imports go downwards only
    python3 tools/dev.py wheel                build, install elsewhere, use it without network or sources
    python3 tools/dev.py check                all of the above but the demo

The first call makes the virtual environment `.venv` and installs sqlmem and what the command needs into it. Later calls
use it as it is, until pyproject.toml changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "sqlmem-installed"
OLDEST_PYTHON = (3, 11)

LINT = (("-m", "ruff", "check", "."), ("-m", "ruff", "format", "--check", "."))
TYPES = ("-m", "mypy")
# The command's own name differs from its module's; this is what its script calls.
LAYERS = ("-c", "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())")


class Failed(Exception):
    """Something did not work; the message says what, and what to do."""


# -- the environment --------------------------------------------------------------------------------------------------


def environment(extra: str) -> Path:
    """The Python of `.venv`, with sqlmem and `extra`'s packages installed in it."""
    python = interpreter(VENV)
    wanted = stamp(extra)
    # "dev" holds all that "test" does.
    if (installed() in (wanted, stamp("dev"))) and works(python, "import sqlmem"):
        return python
    if not works(python, "import pip"):
        say("making the virtual environment .venv")
        make_venv(VENV)
    say(f"installing sqlmem and its {extra} packages into .venv")
    STAMP.unlink(missing_ok=True)
    install(python, "--editable", f"{ROOT}[{extra}]")
    STAMP.write_text(wanted, encoding="utf-8")
    return python


def stamp(extra: str) -> str:
    """What identifies an installation: if this changes, it has to be repeated."""
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return f"{extra} {project}"


def installed() -> str:
    """The stamp of what `.venv` holds."""
    return STAMP.read_text(encoding="utf-8") if STAMP.is_file() else ""


def interpreter(folder: Path) -> Path:
    """The Python of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def works(python: Path, code: str) -> bool:
    """Whether `python` runs `code`; False where it is missing, moved or of another machine."""
    recent = f"import sys; assert sys.version_info >= {OLDEST_PYTHON}; {code}"
    try:
        return subprocess.run([python, "-c", recent], capture_output=True, check=False, cwd=VENV).returncode == 0
    except OSError:
        return False


def make_venv(folder: Path) -> None:
    """A new virtual environment, in the place of whatever was there."""
    try:
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failed(
            f"the virtual environment {folder} could not be made: {error}\n"
            "On Debian and Ubuntu it needs the package python3-venv."
        ) from error


def install(python: Path, *what: str) -> None:
    """Let pip install `what`, quietly unless it fails."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise Failed(f"pip could not install {' '.join(what)}. It said:\n\n{tail}\n\nIs the package index reachable?")


# -- the commands -----------------------------------------------------------------------------------------------------


def demo(arguments: list[str]) -> int:
    """Show what sqlmem does."""
    return run(environment("test"), "-m", "sqlmem", "demo", *arguments)


def test(arguments: list[str]) -> int:
    """Run the tests."""
    return run(environment("test"), "-m", "pytest", *arguments)


def lint(arguments: list[str]) -> int:
    """Run the linter, then compare the format."""
    python = environment("dev")
    return max(run(python, *command) for command in LINT)


def types(arguments: list[str]) -> int:
    """Check the types."""
    return run(environment("dev"), *TYPES, *arguments)


def layers(arguments: list[str]) -> int:
    """Check the direction of imports."""
    return run(environment("dev"), *LAYERS, *arguments)


def wheel(arguments: list[str]) -> int:
    """Build the source package, the wheel from it, and use that wheel where the sources are not."""
    python = environment("dev")
    # Far from the checkout: nothing of it may be found by accident.
    with tempfile.TemporaryDirectory(prefix="sqlmem-wheel-") as name:
        folder = Path(name)
        say("building the source package, and the wheel from it")
        if run(python, "-m", "build", "--outdir", str(folder), str(ROOT), quiet=True):
            raise Failed("the package could not be built")
        built = next(folder.glob("*.whl"))
        compare(built)
        say("installing the wheel into a clean environment")
        make_venv(folder / "venv")
        install(interpreter(folder / "venv"), str(built))
        say("using it: sockets blocked, sources out of reach")
        script = folder / "wheel_smoke.py"
        script.write_bytes((ROOT / "tools" / "wheel_smoke.py").read_bytes())
        (folder / "elsewhere").mkdir()
        return run(interpreter(folder / "venv"), "-I", str(script), cwd=folder / "elsewhere")


def compare(built: Path) -> None:
    """Raise unless the wheel holds exactly the package, its models and its schema files."""
    with zipfile.ZipFile(built) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {path.relative_to(ROOT).as_posix() for path in files(ROOT / "sqlmem")}
    schema = {f"sqlmem/_sql/{path.relative_to(ROOT / 'schema').as_posix()}" for path in files(ROOT / "schema")}
    expected = package | schema
    if not any(name.endswith(".sql") for name in schema) or not any(name.endswith(".onnx") for name in package):
        raise Failed("this checkout has no schema files or no model: it is incomplete")
    if found != expected:
        lacks, has = sorted(expected - found) or "nothing", sorted(found - expected) or "nothing"
        raise Failed(f"{built.name} is not the package. It lacks {lacks}; it has besides {has}")
    say(f"{built.name} holds {len(found)} files, {len(schema)} of them from schema/")


def files(folder: Path) -> list[Path]:
    """The files under `folder` that belong into the package."""
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def check(arguments: list[str]) -> int:
    """Run every check, and say at the end which failed."""
    failed = []
    for command in (lint, types, layers, test, wheel):
        say(f"check: {command.__name__}")
        if command([]):
            failed.append(command.__name__)
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


COMMANDS = {command.__name__: command for command in (demo, test, lint, types, layers, wheel, check)}


# -- running ----------------------------------------------------------------------------------------------------------


def run(python: Path, *arguments: str, cwd: Path = ROOT, quiet: bool = False) -> int:
    """Run Python and return its exit code; `quiet` shows its output only if that is not 0."""
    out, errors = (subprocess.PIPE, subprocess.STDOUT) if quiet else (None, None)
    done = subprocess.run([str(python), *arguments], cwd=cwd, stdout=out, stderr=errors, text=True, check=False)
    if quiet and done.returncode:
        print(done.stdout, flush=True)
    return done.returncode


def say(line: str) -> None:
    """One line of progress. On stderr, so that a command's own output can be piped."""
    print(f"dev: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command that the command line names."""
    if sys.version_info < OLDEST_PYTHON:
        # The rest of this file is kept readable for older Pythons, so that they get here.
        raise Failed(f"sqlmem needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on")
    options = parser.parse_args()
    return COMMANDS[options.command](options.arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        say(str(failure))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
