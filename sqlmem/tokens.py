"""How long a text is for a model."""

from __future__ import annotations

from collections.abc import Callable

from sqlmem.errors import CallbackError

TokenCounter = Callable[[str], int]
CHARACTERS_A_TOKEN = 4


def estimate(text: str) -> int:
    """Tokens of `text` at four characters each, rounded up: 0 for "", at least 1 otherwise."""
    return -(-len(text) // CHARACTERS_A_TOKEN)


def checked(counter: TokenCounter) -> TokenCounter:
    """`counter`, made to raise CallbackError where it raises or answers anything but an int of at least 0."""

    def count(text: str) -> int:
        try:
            tokens = counter(text)
        except Exception as error:
            raise CallbackError("the token counter raised; nothing was changed") from error
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise CallbackError(f"the token counter must return an int of at least 0, it returned {tokens!r}")
        return tokens

    return count
