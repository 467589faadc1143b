"""Text as the keyword index sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlmem import text as texts
from sqlmem.db import Database
from sqlmem.search import keywords


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    """A connection, for SQLite's tokenizer."""
    opened = Database(":memory:")
    yield opened
    opened.close()


# -- prepare ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "plain words, 20.04 & more", "naïve café Straße", "Привет κόσμε", "a\nb\tc", "'\"*^(){}:-", "x" * 10_000]
)
def test_what_the_tokenizer_understands_stays_as_it_is(text: str) -> None:
    assert texts.prepare(text) is text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("部", "部"),
        ("部署", "部署 署"),
        ("部署到", "部署 署到 到"),
        ("昨天部署itgc系统", "昨天 天部 部署 署 itgc 系统 统"),
        ("サンド", "サン ンド ド"),
        ("ｻﾝﾄﾞ", "ｻﾝ ﾝﾄ ﾄﾞ ﾞ"),
        ("人々", "人々 々"),
        ("한국", "한국 국"),
        ("𠮷野", "𠮷野 野"),
        ("กิน", "กิ ิน น"),
        ("日本。東京", "日本 本 。 東京 京"),
        ("🍕", "emojix1f355x"),
        ("🍕🍕", "emojix1f355x emojix1f355x"),
        ("hot🍕now", "hot emojix1f355x now"),
        ("👍🏽", "emojix1f44dx"),
        ("👍", "emojix1f44dx"),
        ("👩\u200d🚀", "emojix1f469x emojix1f680x"),
        ("👩🏾\u200d🚀", "emojix1f469x emojix1f680x"),
        ("❤\ufe0f", "emojix2764x"),
        ("❤\ufe0e", "emojix2764x"),
        ("🇵🇹", "emojix1f1f5x emojix1f1f9x"),
        ("→", "emojix2192x"),
        ("a\u200db", "ab"),
        ("🏽", ""),
        ("C++", "C Cxplusplusx"),
        ("C#", "C Cxsharpx"),
        ("c#", "c cxsharpx"),
        ("C++17", "C Cxplusplusx 17"),
        ("(C++,F#)", "( C Cxplusplusx , F Fxsharpx )"),
        ("ABC#", "ABC#"),
        ("a+b", "a+b"),
        ("C+", "C+"),
        ("#1", "#1"),
    ],
)
def test_what_it_would_lose_is_spelt_as_words(text: str, words: str) -> None:
    assert texts.prepare(text).split() == words.split()


@given(st.text())
def test_prepared_text_holds_no_emoji_joiner_or_long_unspaced_run(text: str) -> None:
    prepared = texts.prepare(text)
    assert not any(0x1F000 <= ord(sign) <= 0x1FAFF or sign in "\u200d\ufe0e\ufe0f" for sign in prepared)
    assert all(len(word) <= 2 for word in prepared.split() if texts.SINGLE.match(word) and all(map(texts.SINGLE.match, word)))


@given(st.text(alphabet="aé部署人サกิ🍕👍🏽\u200d\ufe0fC+# .", max_size=12), st.text(alphabet="aé部署🍕C+# ", max_size=6))
def test_a_text_is_found_by_any_of_its_words(db: Database, before: str, word: str) -> None:
    """The words of a question that stands in a text with space around it are among the text's words."""
    document = set(db.words(texts.prepare(f"{before} {word} {before}")))
    assert all(any(held.startswith(asked) for held in document) for asked in keywords.terms(db, word))


# -- terms of a question ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("", []),
        ("?!", []),
        ("what is the plan", ["plan"]),
        ("what is it", ["what", "is", "it"]),
        ("Plan plan PLAN", ["plan"]),
        ("café CAFE cafe\u0301", ["cafe"]),
        ("what's up", ["what", "s", "up"]),
        ("x" * 3, ["xxx"]),
        ("部署", ["部署"]),
        ("部署到", ["部署", "署到"]),
        ("部", ["部"]),
        ("部 署", ["部", "署"]),
        ("部署 署", ["部署"]),
        ("🍕 pizza", ["emojix1f355x", "pizza"]),
        ("C++ or C#", ["c", "cxplusplusx", "cxsharpx"]),
        ("ubuntu 20.04", ["ubuntu", "20", "04"]),
        ("nul\0byte", ["nul", "byte"]),
        ("half\ud800pair", ["half", "pair"]),
        (" ".join(f"w{i}" for i in range(100)), [f"w{i}" for i in range(32)]),
    ],
)
def test_the_words_to_look_for(db: Database, query: str, terms: list[str]) -> None:
    assert keywords.terms(db, query) == terms


@given(st.text())
def test_any_question_can_be_taken_apart(db: Database, query: str) -> None:
    terms = keywords.terms(db, query)
    assert len(terms) <= 32
    assert len(set(terms)) == len(terms)
    assert all(term and '"' not in term and "\0" not in term for term in terms)


# -- characters that cannot be kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [("fine", None), ("", None), ("🍕\uffff\u200b", None), ("a\0", 1), ("\ud800", 0), ("ab\udfffc\0", 2)],
)
def test_the_first_character_that_cannot_be_kept_is_pointed_at(text: str, place: int | None) -> None:
    assert texts.unstorable(text) == place
    assert texts.unstorable(texts.readable(text)) is None
    assert len(texts.readable(text)) == len(text)


# -- speakers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "spoken"),
    [("user", "hi"), ("Assistant", "hi"), ("SYSTEM", "hi"), ("tool", "hi"), ("Ana", "Ana: hi"), ("user 2", "user 2: hi")],
)
def test_a_name_is_embedded_with_what_was_said_a_generic_role_is_not(role: str, spoken: str) -> None:
    assert texts.spoken(role, "hi") == spoken
