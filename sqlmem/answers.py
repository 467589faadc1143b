"""What language models answer: JSON, or what comes near to it."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from sqlmem.errors import SqlmemError

_FENCE = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)


class Unusable(SqlmemError):
    """An answer that holds no such object. The message says what is wrong, in words for the model too."""


class Answer(NamedTuple):
    """A JSON object, and whether it had to be mended."""

    value: dict[str, Any]
    mended: bool


def read(text: object, key: str) -> Answer:
    """The JSON object in a model's answer that has `key`. Raises Unusable.

    Code fences and prose around it do not count as mending. What is no JSON is mended by the package json_repair, where it is
    installed: trailing commas, single quotes, bad escapes. Of what was cut off only the whole parts before are taken.
    """
    if not isinstance(text, str):
        raise Unusable(f"it is no text but a {type(text).__name__}")
    if "{" not in text:
        raise Unusable("it holds no JSON object" if text.strip() else "it is empty")
    found = next((value for value in _objects(text) if key in value), None)
    if found is not None:
        return Answer(found, mended=False)
    mended = _mended(text)
    for value in mended if isinstance(mended, list) else [mended]:
        if isinstance(value, dict) and key in value:
            return Answer(_whole(value, key) if _is_cut(text) else value, mended=True)
    raise Unusable(f'it holds no JSON object with "{key}"')


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects that stand in a text as they are, the outermost ones."""
    decoder, found, start = json.JSONDecoder(), [], 0
    while (start := text.find("{", start)) >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start += 1
            continue
        found += [value] if isinstance(value, dict) else []
        start = end
    return found


def _is_cut(text: str) -> bool:
    return not text.rstrip(" \t\r\n`").endswith("}")


def _whole(value: dict[str, Any], key: str) -> dict[str, Any]:
    # Where an answer breaks off, its last part may say anything.
    return {key: value[key][:-1]} if isinstance(value[key], list) else {}


def _mended(text: str) -> Any:
    try:
        import json_repair
    except ImportError:
        raise Unusable("it is no valid JSON (the extra sqlmem[llm] brings what mends some that are not)") from None
    fenced = _FENCE.search(text)
    inner = fenced[1] if fenced is not None and "{" in fenced[1] else text[text.index("{") :]
    try:
        return json_repair.loads(inner)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"it is no valid JSON: {error}") from error
