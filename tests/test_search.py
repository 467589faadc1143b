"""Search: by relevance alone, and by words in any script, whatever is typed."""

from __future__ import annotations

from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore, Vectors, scoring
from tests.helpers_store import DAY, START


@pytest.fixture
def words(open_store: OpenStore) -> sqlmem.MemoryStore:
    """A store that knows only words."""
    return open_store(embedder=False)


def fill(store: sqlmem.MemoryStore, *texts: str, **arguments: Any) -> None:
    store.remember_many([{"text": text, "kind": "fact", **arguments} for text in texts])


# -- relevance alone --------------------------------------------------------------------------------------------------


def test_neither_age_nor_grades_count(open_store: OpenStore) -> None:
    places = {"ask": (1.0, 0.0), "near": (1.0, 0.0), "far": (4.0, 3.0)}
    store = open_store(embedder=Vectors(places))
    close = store.remember("near", kind="fact", timestamp=START - 1000 * DAY)
    far = store.remember("far", kind="fact")
    for _ in range(3):
        store.feedback(close, "dead_end")
        store.feedback(far, "useful")
    assert store.recall("ask", recency_weight=1.0).ids == [far, close]
    found = store.search("ask")
    assert found.ids == [close, far]
    assert [memory.score for memory in found] == [scoring(memory)["relevance_norm"] for memory in found]
    assert [memory.score for memory in found] == pytest.approx([1.0, 0.8], abs=0.01)
    assert [scoring(memory)["feedback"] for memory in found] == [-2.0, 2.0]


def test_limit_gap_and_budget_cut_a_search_like_a_recall(open_store: OpenStore) -> None:
    places = {"ask": (1.0, 0.0), "one": (1.0, 0.0), "two": (4.0, 3.0), "three": (3.0, 4.0), "four": (0.0, 1.0)}
    store = open_store(embedder=Vectors(places), token_counter=lambda text: 1)
    fill(store, "one", "two", "three", "four")
    assert store.search("ask").texts == ["one", "two", "three", "four"]
    assert store.search("ask", limit=3).texts == ["one", "two", "three"]
    assert store.search("ask", score_gap=0.7).texts == ["one", "two"]
    assert store.search("ask", min_relevance=0.7).texts == ["one", "two"]
    cut = store.search("ask", token_budget=2)
    assert (cut.texts, cut.truncated, cut.cut_count, cut.token_estimate) == (["one", "two"], True, 2, 2)
    top = store.search("ask", token_budget=0)
    assert (top.texts, top.truncated, top.cut_count) == (["one"], True, 3)


def test_a_fresh_store_says_nothing(words: sqlmem.MemoryStore) -> None:
    assert words.search("anything").texts == []


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("what's the plan?", "what's the plan?"),
        ("the pre-edit hook", "pre-edit"),
        ("this is memory:safe code", "memory:safe"),
        ('they say "hi" a lot', 'say "hi'),
        ("foo AND more", "foo AND"),
        ("written in (python)", "(python"),
        ("NEAR(the sea)", "NEAR("),
        ("ubuntu 20.04 is old", "ubuntu 20.04"),
        ("set {x} to one", "{x}"),
        ("the -x flag", "-x"),
        ("price is 5 * 3", "5*"),
        ("a caret ^top", "^top"),
        ("columns own: and ctx:", "own:ctx"),
        ("path C:\\temp\\x.txt", "c:\\temp"),
        ("50% of o'hara_airport", "o'hara_airport"),
        ("or not", "NOT OR"),
        ("mail ana@example.org", "ana@example.org"),
        ("semi;colon -- comment", "semi; -- comment"),
        ("tab\tand\nline", "tab and line"),
        ("nul follows", "nul\0follows"),
        ("half a pair", "half \ud83c pair"),
    ],
)
def test_what_is_typed_is_searched_literally(words: sqlmem.MemoryStore, text: str, query: str) -> None:
    fill(words, "something else altogether", text, "zebra crossing")
    assert words.search(query).texts[0] == text


@pytest.mark.parametrize("query", ["*", "^", "()", '"', '""', "'", "-", "{}", "?!", "\u200b", "a\u0300"[1:], "+", "~/", "…"])
def test_signs_alone_find_nothing(words: sqlmem.MemoryStore, query: str) -> None:
    fill(words, "something else altogether")
    assert words.search(query).texts == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("部署到生产环境", "部署"),
        ("部署到生产环境", "生产"),
        ("我们昨天部署了itgc系统", "itgc"),
        ("我们昨天部署了itgc系统", "系统"),
        ("サンドボックスで試す", "サンドボックス"),
        ("サンドボックスで試す", "ボックス"),
        ("猫", "猫"),
        ("黒い猫がいる", "猫"),
        ("東京タワーへ行った", "東京"),
        ("안녕하세요 세계", "세계"),
        ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
        ("ພາສາລາວ", "ລາວ"),
        ("ខ្ញុំចូលចិត្ត", "ចិត្ត"),
        ("let's get 🍕 tonight", "🍕"),
        ("family 👨\u200d👩\u200d👧 photo", "👨\u200d👩\u200d👧"),
        ("ok 👍🏽", "👍"),
        ("ok 👍", "👍🏿"),
        ("I ❤\ufe0f it", "❤"),
        ("Привет, мир", "МИР"),
        ("Καλημέρα κόσμε", "ΚΌΣΜΕ"),
        ("naïve café", "cafe"),
        ("naive cafe", "café"),
        ("nai\u0308ve cafe\u0301", "naïve CAFÉ"),
        ("Straße und Übung", "ubung"),
        ("the 2nd of July", "2nd"),
    ],
)
def test_words_of_any_script_are_found(words: sqlmem.MemoryStore, text: str, query: str) -> None:
    fill(words, "something else 日本語 altogether", text, "天気がいい 🎉", "ภาษาไทย")
    assert words.search(query).texts[:1] == [text]


@pytest.mark.parametrize("query", ["署到", "環境", "🍔", "👎", "กาแฟ", "犬"])
def test_words_that_are_not_there_are_not_found(words: sqlmem.MemoryStore, query: str) -> None:
    fill(words, "部署 到 生产环境", "サンドボックス", "🍕👍", "ข้าวผัด", "猫")
    assert words.search(query).texts == []


def test_c_plus_plus_and_c_sharp_are_told_apart(words: sqlmem.MemoryStore) -> None:
    said = {
        "C++": "she writes C++ at work",
        "C#": "she writes C# at work",
        "C": "she writes C at work",
        "F#": "she writes F# at work",
    }
    fill(words, *said.values())
    for query, text in said.items():
        found = words.search(query)
        assert found.texts[0] == text, query
        assert found.texts.count(text) == 1
    assert said["F#"] not in words.search("C#").texts
    assert said["C++"] not in words.search("F#").texts
    assert words.search("c++").texts[0] == said["C++"]


def test_inflections_are_found(words: sqlmem.MemoryStore) -> None:
    fill(words, "the boilers were being serviced", "Ana lives in Lisbon")
    assert words.search("boiler service").texts == ["the boilers were being serviced"]
    assert words.search("living").texts == ["Ana lives in Lisbon"]


def test_common_words_do_not_count_unless_there_are_no_others(words: sqlmem.MemoryStore) -> None:
    fill(words, "what is it that they do", "the boiler hums")
    assert words.search("what is it about the boiler").texts == ["the boiler hums"]
    assert words.search("what is it").texts == ["what is it that they do"]


def test_a_question_of_many_words_is_cut_not_refused(words: sqlmem.MemoryStore) -> None:
    fill(words, "the boiler hums", "zebra")
    long = "boiler " + " ".join(f"word{i}" for i in range(5000))
    assert words.search(long).texts == ["the boiler hums"]
    assert set(words.search("boiler " * 5000 + "zebra").texts) == {"the boiler hums", "zebra"}


def test_the_rarer_word_decides(words: sqlmem.MemoryStore) -> None:
    fill(words, *(f"boiler {i}" for i in range(30)), "the walrus")
    assert words.search("boiler walrus").texts[0] == "the walrus"


def test_beyond_what_may_be_scored_common_words_count_where_two_stand_together(
    words: sqlmem.MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(words, *(f"boiler {i}" for i in range(60)), *(f"kettle {i}" for i in range(60, 110)))
    fill(words, "boiler and kettle", "the walrus swims", "boiler and walrus")
    assert len(words.search("boiler kettle walrus", limit=200)) == 113
    monkeypatch.setattr("sqlmem.search.keywords.MOST_SCORED", 40)
    found = {"the walrus swims", "boiler and walrus", "boiler and kettle"}
    with monkeypatch.context() as few:
        few.setattr("sqlmem.recall.POOL", 3)
        assert set(words.search("boiler kettle walrus", limit=3).texts) == found
    assert len(words.search("boilers", limit=200)) == 62  # the rarest word is searched, however common
    # Where words are all there is to search by, and they find too little, the common ones are searched after all.
    assert len(words.search("boiler kettle walrus", limit=200)) == 113


# -- what is indexed --------------------------------------------------------------------------------------------------


def test_names_of_speakers_are_found_generic_roles_are_not(words: sqlmem.MemoryStore) -> None:
    ana = words.remember("I bought a bike", session="s", role="Ana Maria")
    words.remember("that is nice", session="t", role="assistant")
    words.remember("yes", session="u", role="user")
    assert words.search("what about Maria").ids == [ana]
    for role in ("assistant", "user", "system"):
        assert words.search(role).texts == []


@pytest.mark.parametrize(
    "query", ["u1", "s1", "s2", "w1", "u1 s2 w1", "scope", "own", "ctx", "standup", "ana@home", "annual", "plan"]
)
def test_marks_of_the_index_names_of_sessions_and_metadata_are_no_words(words: sqlmem.MemoryStore, query: str) -> None:
    fill(words, "the boiler hums", session="standup", user="ana@home", metadata={"plan": "annual"})
    fill(words, "the boiler hums", user="ana@home")
    assert words.search(query, user="ana@home").texts == []


@pytest.mark.parametrize("query", ["8 May 2023", "May 2023", "what happened on the 8th of May"])
def test_the_date_of_a_memory_can_be_asked_for(words: sqlmem.MemoryStore, query: str) -> None:
    on_that_day = START.replace(year=2023, month=5, day=8)
    for days in (400, 0, -200):
        words.remember("lunch with Ben", session=f"s{days}", timestamp=on_that_day + days * DAY)
    top = words.search(f"lunch with Ben {query}").top
    assert top is not None
    assert top.timestamp == on_that_day


def test_the_date_alone_finds_a_memory(words: sqlmem.MemoryStore) -> None:
    id_ = words.remember("lunch with Ben", session="a", timestamp=START.replace(month=5, day=8))
    words.remember("lunch with Ben", session="b", timestamp=START.replace(month=6, day=9))
    assert words.search("8 May").ids == [id_]


def test_a_turn_is_found_by_what_was_said_around_it_but_after_what_says_it(words: sqlmem.MemoryStore) -> None:
    for text in ("unrelated", "do you know a good dentist?", "Doctor Kaya in Main Street", "thanks", "bye", "see you", "later"):
        words.remember(text, session="s", role="Ana")
    found = words.search("dentist").texts
    assert found[0] == "do you know a good dentist?"
    assert "Doctor Kaya in Main Street" in found
    assert "later" not in found


@pytest.mark.parametrize("query", ["boiler", "BOILER!", "“boiler”"])
def test_both_searches_say_where_they_found_it(open_store: OpenStore, query: str) -> None:
    store = open_store()
    fill(store, "boiler", "zebra crossing")
    found = {memory.text: scoring(memory)["found_by"] for memory in store.search(query)}
    assert found["boiler"] == {"keywords": 1, "vectors": 1}
    assert found["zebra crossing"] == {"vectors": 2}
