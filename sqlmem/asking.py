"""Asking a language model for a JSON object: once, once more if the answer cannot be used, then no more."""

from __future__ import annotations

from typing import Any

from sqlmem import answers, prompting
from sqlmem.engine import Engine, LanguageModel
from sqlmem.errors import CallbackError, InvalidArgument, SqlmemError


class Unread(CallbackError):
    """A model's `answer` could not be used, twice. Nothing was changed."""

    def __init__(self, message: str, answer: str) -> None:
        super().__init__(message)
        self.answer = answer


class Asker:
    """Asks one model, outside of transactions, and counts: `calls` of it, answers `mended`, questions `retried`."""

    def __init__(self, engine: Engine, model: LanguageModel) -> None:
        self.calls = self.mended = self.retried = 0
        self._prompts, self._model = engine.options.prompts, model

    def ask(self, name: str, key: str, /, **values: str) -> dict[str, Any]:
        """The answer to a prompt, an object that has `key`. Raises Unread, CallbackError."""
        question = prompting.fill(self._prompts, name, **values)
        said = self._call(question)
        try:
            return self._read(said, key)
        except answers.Unusable as error:
            self.retried += 1
            again = prompting.fill(self._prompts, "again", error=str(error))
            said = self._call(f"{question}\n{again}")
        try:
            return self._read(said, key)
        except answers.Unusable as error:
            raise Unread(f"the model's answer could not be used, twice: {error}; nothing was changed", str(said)) from error

    def _call(self, prompt: str) -> str:
        self.calls += 1
        try:
            return self._model(prompt)
        except SqlmemError:
            raise
        except Exception as error:
            raise CallbackError(f"the model raised {type(error).__name__}: {error}; nothing was changed") from error

    def _read(self, said: object, key: str) -> dict[str, Any]:
        answer = answers.read(said, key)
        self.mended += answer.mended
        return answer.value


def model(engine: Engine, given: object, verb: str) -> LanguageModel:
    """The model that a verb was given, or the store's. Raises InvalidArgument if there is none."""
    chosen = engine.options.llm if given is None else given
    if chosen is None:
        raise InvalidArgument(f"{verb} needs a language model, and there is none: open(..., llm=…), or {verb[:-1]}llm=…)")
    if not callable(chosen):
        raise InvalidArgument(f"llm must be a callable from a prompt to a text, not {chosen!r:.200}")
    return chosen
