"""Language models behind the clients of their makers, as callables from a prompt to a text.

Each takes what its client takes; keys, timeouts and retries are the client's. They need the extras `sqlmem[openai]` and
`sqlmem[anthropic]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlmem.errors import InvalidArgument, ModelMissing

if TYPE_CHECKING:
    from sqlmem.engine import LanguageModel


def openai(model: str, *, request: Mapping[str, Any] | None = None, **client: Any) -> LanguageModel:
    """A model behind an endpoint that speaks OpenAI's chat protocol: OpenAI's own, Ollama, llama.cpp, LM Studio and others.

    request: more arguments of each request, such as {"temperature": 0, "max_tokens": 2000}.
    client: arguments of `openai.OpenAI`, such as base_url="http://127.0.0.1:8080/v1", api_key="none", timeout=60,
        max_retries=2. Raises ModelMissing without the package. What the client raises reaches the caller as CallbackError.
    """
    _require_name(model)
    try:
        from openai import OpenAI
    except ImportError as error:
        raise ModelMissing(f"this needs the package openai: pip install 'sqlmem[openai]' ({error})") from error
    endpoint, asked = OpenAI(**client), dict(request or {})

    def ask(prompt: str) -> str:
        messages: Any = [{"role": "user", "content": prompt}]
        answer = endpoint.chat.completions.create(model=model, messages=messages, **asked)
        return (answer.choices[0].message.content or "") if answer.choices else ""

    return ask


def anthropic(model: str, *, max_tokens: int = 4_096, request: Mapping[str, Any] | None = None, **client: Any) -> LanguageModel:
    """A model of Anthropic's.

    max_tokens: of an answer. request: more arguments of each request. client: arguments of `anthropic.Anthropic`. Raises
        ModelMissing without the package. What the client raises reaches the caller as CallbackError.
    """
    _require_name(model)
    try:
        from anthropic import Anthropic
    except ImportError as error:
        raise ModelMissing(f"this needs the package anthropic: pip install 'sqlmem[anthropic]' ({error})") from error
    endpoint, asked = Anthropic(**client), dict(request or {})

    def ask(prompt: str) -> str:
        messages: Any = [{"role": "user", "content": prompt}]
        answer = endpoint.messages.create(model=model, max_tokens=max_tokens, messages=messages, **asked)
        return "".join(block.text for block in answer.content if block.type == "text")

    return ask


def _require_name(model: object) -> None:
    if not isinstance(model, str) or not model.strip():
        raise InvalidArgument(f"model must be the name of a model, not {model!r:.200}")
