"""The prompts: text files in `prompts/`, filled with what is asked about.

Their version is that of the package. `prompts=` replaces one by another text with the same $names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from string import Template

from sqlmem import arguments
from sqlmem.errors import InvalidArgument

NAMES = ("extract", "decide", "summarize", "resolve", "plan", "again")


def checked(prompts: object) -> dict[str, str]:
    """The prompts that replace the package's own, by name. Raises InvalidArgument."""
    if prompts is None:
        return {}
    if not isinstance(prompts, Mapping):
        raise InvalidArgument(f"prompts must map names ({', '.join(NAMES)}) to texts, not {prompts!r:.200}")
    for name, text in prompts.items():
        if name not in NAMES:
            raise InvalidArgument(f"there is no prompt {name!r}; known are {', '.join(NAMES)}")
        _require_names(name, arguments.text(text))
    return dict(prompts)


def default(name: str) -> str:
    """A prompt of the package."""
    return resources.files("sqlmem").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")


def fill(prompts: Mapping[str, str], name: str, /, **values: str) -> str:
    """A prompt with its $names replaced."""
    return Template(prompts.get(name) or default(name)).substitute(values)


def _require_names(name: str, text: str) -> None:
    template = Template(text)
    wanted = set(Template(default(name)).get_identifiers())
    if not template.is_valid() or set(template.get_identifiers()) != wanted:
        raise InvalidArgument(f"the prompt {name!r} must use each of ${', $'.join(sorted(wanted))} and no other $name")
