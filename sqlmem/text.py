"""What is indexed is how a query is read: text as the keyword index sees it, and questions taken apart.

Nothing here may depend on Python's Unicode tables, which change between versions: the same text must be prepared the same way
by every Python that opens the file. TEXT_VERSION is stored in the file and counts changes of `prepare`.
"""

from __future__ import annotations

import re

TEXT_VERSION = 1

# Scripts written without spaces between words: CJK ideographs, kana, hangul, Thai, Lao, Myanmar, Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_EMOJI = "\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff"
_JOINERS = "\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff"  # zero-width joiner, variation selectors, skin tones
_SPECIAL = re.compile(f"[{_JOINERS}]|([{_UNSPACED}]+)|([{_EMOJI}])|(?<![A-Za-z0-9])([A-Za-z])(\\+\\+|#)")
_PLAIN = re.compile(f"[^{_JOINERS}{_UNSPACED}{_EMOJI}+#]*")

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
SINGLE = re.compile(f"[{_UNSPACED}]")


def prepare(text: str) -> str:
    """`text` with everything that the tokenizer would lose spelt as words.

    Runs of unspaced script become their bigrams and the last character, an emoji the word `emojix<hex>x`, and `C++` and `C#`
    the letter beside `Cxplusplusx` and `Cxsharpx`. All else stays as it is.
    """
    if _PLAIN.fullmatch(text):
        return text
    return _SPECIAL.sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    run, emoji, letter, sign = match.groups()
    if run:
        pairs = [run[i : i + 2] for i in range(len(run) - 1)]
        return f" {' '.join([*pairs, run[-1]])} "
    if emoji:
        return f" emojix{ord(emoji):x}x "
    if letter:
        return f" {letter} {letter}{'xsharpx' if sign == '#' else 'xplusplusx'} "
    return ""


def unstorable(text: str) -> int | None:
    """Where `text` holds a character that SQLite or UTF-8 cannot keep (NUL, a lone surrogate), or None."""
    match = _UNSTORABLE.search(text)
    return None if match is None else match.start()


def readable(query: str) -> str:
    """`query` without the characters that cannot be stored, and so match nothing."""
    return _UNSTORABLE.sub(" ", query)


GENERIC_ROLES = frozenset({"user", "assistant", "system", "tool", "developer", "human", "ai", "bot", "model", "summary"})


def speaker(role: str) -> str:
    """The name to index and embed with a text: its role, or "" for one that names nobody."""
    return "" if role.lower() in GENERIC_ROLES else role


def spoken(role: str, text: str) -> str:
    """`text` as it is embedded: "Speaker: text" where the role is a name."""
    name = speaker(role)
    return f"{name}: {text}" if name else text


def worded(text: str) -> bool:
    """Whether there is a letter or digit in `text`: without any, a model's vector means nothing and is near to everything."""
    return any(map(str.isalnum, text))


STOPWORDS = frozenset(
    """
    a about after again all also am an and any are as at be because been before being between both but by can could d did do
    does doing don down during each few for from further had has have having he her here hers herself him himself his how i if
    in into is it its itself just ll m me might more most my myself no nor not now of off on once only or other our ours
    ourselves out over own re s same she should so some such t than that the their theirs them themselves then there these
    they this those through to too under until up ve very was we were what when where which while who whom why will with would
    you your yours yourself yourselves
    """.split()
)
