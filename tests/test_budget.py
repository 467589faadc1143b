"""Token budgets: the block costs what it says, stays within its budget, and reports what it left out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sqlmem
from tests.conftest import OpenStore, Vectors
from tests.helpers_store import DAY, START

Counter = Callable[[str], int]


def four_characters(text: str) -> int:
    return -(-len(text) // 4)


def word_count(text: str) -> int:
    return len(text.split())


def framed(text: str) -> int:
    """Like a tokenizer that puts a token before and after every text, the empty one as well."""
    return 2 + four_characters(text)


def as_message(text: str) -> int:
    """Like the count of a whole chat message, which has its own overhead."""
    return 7 + four_characters(text)


def distinct_letters(text: str) -> int:
    """Two texts together have hardly more than the longer one alone."""
    return len(set(text))


def growing(text: str) -> int:
    """A whole has far more than its parts."""
    return len(text) ** 2 // 40


def erratic(text: str) -> int:
    """One character more can make the count fall."""
    return len(text) // 4 + zlib.crc32(text.encode()) % 7


COUNTERS: list[Counter] = [four_characters, word_count, framed, as_message, distinct_letters, growing, erratic]
counters = pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.__name__)

# -- any store, any budget --------------------------------------------------------------------------------------------

BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n\n"]
PIECES = [
    "boiler", "plan", "a", "x" * 60, "部署到", "🍕", "👩\u200d🚀", "é", "-", "- ", ": ", "user: ", "Pinned facts:",
    "Relevant memories:",
    "Recent conversation:", "8 May 2023:", "  ", " ", "\t", "\u200b", "\u3000", *BREAKS,
]  # fmt: skip


class Said(NamedTuple):
    text: str
    role: str
    kind: Any
    session: str | None
    age: float
    ttl: float | None


any_text = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join), st.text(min_size=1, max_size=40)
).filter(lambda text: bool(text.strip()) and "\0" not in text and not any(0xD800 <= ord(sign) <= 0xDFFF for sign in text))
said = st.builds(
    Said,
    any_text,
    st.sampled_from(["user", "assistant", "Ana Maria", "部", "🤖"]),
    st.sampled_from(["turn", "turn", "turn", "fact", "pinned"]),
    st.sampled_from([None, "s", "s", "t"]),
    st.sampled_from([0.0, 0.01, 1.0, 40.0]),
    st.sampled_from([None, None, None, 0.5]),
)


def lines(memory: sqlmem.Memory) -> list[str]:
    """What a memory may print: its first line behind its mark, the others indented."""
    first, *more = memory.text.strip().splitlines()
    return [(f"{memory.role}: " if memory.kind == "turn" else "- ") + first, *("  " + line for line in more)]


def day(memory: sqlmem.Memory) -> str:
    moment = memory.timestamp
    return f"{moment.day} {'Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec'.split()[moment.month - 1]} {moment.year}:"


def printed(block: sqlmem.ContextBlock) -> str:
    """The text that a block must have, from its sections."""
    relevant = [line for memory in block.retrieved if memory.kind != "turn" for line in lines(memory)]
    turns = sorted(
        (memory for memory in block.retrieved if memory.kind == "turn"), key=lambda turn: (turn.timestamp, turn.turn, turn.id)
    )
    days: dict[tuple[str, str | None, str], list[str]] = {}
    for turn in turns:
        days.setdefault((turn.user, turn.session, day(turn)), []).extend(lines(turn))
    for (_, _, date), of_day in days.items():
        relevant += [date, *of_day]
    sections = {
        "Pinned facts:": [line for memory in block.pinned for line in lines(memory)],
        "Recent conversation:": [line for memory in block.recent for line in lines(memory)],
        "Relevant memories:": relevant,
    }
    return "\n\n".join("\n".join([heading, *held]) for heading, held in sections.items() if held)


def ids(memories: Sequence[sqlmem.Memory]) -> list[str]:
    return [memory.id for memory in memories]


def remember_all(store: sqlmem.MemoryStore, memories: Sequence[Said]) -> None:
    for memory in memories:
        store.remember(
            memory.text, role=memory.role, kind=memory.kind, session=memory.session, ttl_days=memory.ttl,
            timestamp=START - timedelta(days=memory.age),
        )  # fmt: skip


@settings(max_examples=250)
@given(
    memories=st.lists(said, max_size=14),
    counter=st.sampled_from(COUNTERS),
    budget=st.one_of(st.none(), st.integers(0, 40), st.integers(0, 400)),
    recent_turns=st.integers(0, 5),
    limit=st.one_of(st.none(), st.none(), st.integers(1, 4)),
    query=st.sampled_from(["", "boiler", "what about the plan", "部署", "nothing of this"]),
    session=st.sampled_from([None, "s", "s", "new"]),
    words_only=st.booleans(),
)
@example([Said("a" * 40, "user", "turn", "s", 0.0, None)] * 6, erratic, 30, 5, None, "boiler", "s", True)
def test_a_block_is_what_it_says_and_fits(
    memories: list[Said],
    counter: Counter,
    budget: int | None,
    recent_turns: int,
    limit: int | None,
    query: str,
    session: str | None,
    words_only: bool,
) -> None:
    embedder: Any = False if words_only else sqlmem.HashEmbedder(16)
    with sqlmem.open(":memory:", embedder=embedder, token_counter=counter, clock=lambda: START) as store:
        remember_all(store, memories)
        whole = store.context(query, session=session, token_budget=None, recent_turns=recent_turns, limit=limit)
        block = store.context(query, session=session, token_budget=budget, recent_turns=recent_turns, limit=limit)
        pins = store.list(session=session, kinds=["pinned"], limit=1000).items

        # Every line is a heading, a date, or belongs to a memory of the block, and no other sign breaks a line.
        assert block.text == printed(block)
        assert block.text.split("\n") == (block.text.splitlines() or [""])
        assert block.token_estimate == counter(block.text)

        # Nothing twice, pins complete, the others from where they belong.
        shown = ids([*block.pinned, *block.recent, *block.retrieved])
        assert len(shown) == len(set(shown)) == len(block)
        assert sorted(ids(block.pinned)) == sorted(ids(pins))
        assert ids(block.pinned) == ids(sorted(block.pinned, key=lambda pin: (pin.timestamp, pin.id)))
        turns = [] if session is None else store.turns(session, last=recent_turns)
        assert ids(block.recent) == ids(turns)[len(turns) - len(block.recent) :]
        assert set(ids(block.retrieved)) <= set(ids(whole.retrieved)) | set(ids(whole.recent)) or limit is not None

        # Within the budget unless the pins alone exceed it, and everything left out is reported.
        pins_alone = printed(sqlmem.ContextBlock(**{**vars_of(block), "recent": (), "retrieved": ()}))
        over = budget is not None and counter(pins_alone) > budget
        if budget is not None and block.token_estimate > budget:
            assert over
            assert block.text == pins_alone
        if over and counter is not erratic:
            assert (block.recent, block.retrieved) == ((), ())
        assert block.truncated == (over or block.cut_count > 0)
        if limit is None:
            assert block.cut_count == len(whole) - len(block)
        if not block.truncated:
            assert (block.text, shown) == (whole.text, ids([*whole.pinned, *whole.recent, *whole.retrieved]))
        assert (whole.truncated, whole.cut_count) == (False, 0)


def vars_of(block: sqlmem.ContextBlock) -> dict[str, Any]:
    return {name: getattr(block, name) for name in type(block).__slots__}


@settings(max_examples=100)
@given(
    memories=st.lists(said, max_size=8),
    counter=st.sampled_from(COUNTERS),
    budget=st.one_of(st.none(), st.integers(0, 60)),
    limit=st.integers(1, 10),
    query=st.sampled_from(["", "boiler", "部署"]),
)
def test_a_recall_fits_or_is_its_best_alone(
    memories: list[Said], counter: Counter, budget: int | None, limit: int, query: str
) -> None:
    with sqlmem.open(":memory:", embedder=sqlmem.HashEmbedder(16), token_counter=counter, clock=lambda: START) as store:
        remember_all(store, memories)
        whole = store.recall(query, limit=limit)
        found = store.recall(query, limit=limit, token_budget=budget)
        assert found.token_estimate == sum(counter(memory.text) for memory in found)
        assert found.ids == whole.ids[: len(found)]
        assert found.cut_count == len(whole) - len(found)
        over = budget is not None and found.token_estimate > budget
        assert found.truncated == (over or found.cut_count > 0)
        assert len(found) == 1 or not over
        if budget is not None and found.cut_count:
            assert found.token_estimate + counter(whole[len(found)].text) > budget


# -- exact borders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(open_store: OpenStore) -> Callable[[Counter], sqlmem.MemoryStore]:
    def fill(counter: Counter) -> sqlmem.MemoryStore:
        store = open_store(token_counter=counter)
        store.remember("eats no meat\nand no fish", pinned=True)
        store.remember_many([{"text": f"boiler line {i} {'and so on ' * i}", "session": "s"} for i in range(5)])
        store.remember_many([{"text": f"boiler fact {i} {'of sorts ' * (i * 3 % 7)}", "kind": "fact"} for i in range(7)])
        store.remember_many([{"text": f"boiler talk {i}", "session": "t", "timestamp": START - i * DAY} for i in range(3)])
        return store

    return fill


@pytest.mark.parametrize(
    "counter", [counter for counter in COUNTERS if counter is not distinct_letters], ids=lambda counter: counter.__name__
)
def test_a_block_that_fits_exactly_is_whole_and_one_token_less_cuts(
    filled: Callable[[Counter], sqlmem.MemoryStore], counter: Counter
) -> None:
    store = filled(counter)
    whole = store.context("boiler", token_budget=None, all_users=True)
    assert len(whole) == 16
    exact = store.context("boiler", token_budget=whole.token_estimate, all_users=True)
    assert (exact.text, exact.truncated, exact.cut_count) == (whole.text, False, 0)
    less = store.context("boiler", token_budget=whole.token_estimate - 1, all_users=True)
    assert less.truncated
    assert less.cut_count == 16 - len(less) > 0


@counters
def test_at_every_budget_the_block_fits_and_counts_what_it_cut(
    filled: Callable[[Counter], sqlmem.MemoryStore], counter: Counter
) -> None:
    store = filled(counter)
    whole = store.context("boiler", session="s", token_budget=None, recent_turns=3)
    pins_alone = counter("Pinned facts:\n- eats no meat\n  and no fish")
    # Stepping by three once there are many keeps this quick; growing() counts to several thousand.
    for budget in [*range(60), *range(60, whole.token_estimate + 3, max(3, whole.token_estimate // 100))]:
        block = store.context("boiler", session="s", token_budget=budget, recent_turns=3)
        assert block.token_estimate == counter(block.text)
        assert block.token_estimate <= max(budget, pins_alone)
        assert block.truncated == (len(block) < len(whole))
        assert block.cut_count == len(whole) - len(block)


# -- pins -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 1, 5, 20])
def test_pins_are_never_cut_and_leave_room_for_nothing_else(open_store: OpenStore, budget: int) -> None:
    store = open_store()
    pins = [store.remember(f"pin {i} " + "word " * 20, pinned=True, timestamp=START - i * DAY) for i in range(3)]
    store.remember("hi", session="s")
    store.remember("boiler", kind="fact")
    block = store.context("boiler", session="s", token_budget=budget)
    assert ids(block.pinned) == pins[::-1]
    assert (block.recent, block.retrieved) == ((), ())
    assert (block.truncated, block.cut_count) == (True, 2)
    assert block.token_estimate == four_characters(block.text) > budget


def test_pins_over_the_budget_are_reported_even_if_nothing_else_is_there(open_store: OpenStore) -> None:
    store = open_store()
    store.remember("on the annual plan", pinned=True)
    block = store.context("", token_budget=8)  # "Pinned facts:\n- on the annual plan" is 34 characters
    assert (len(block), block.token_estimate, block.truncated, block.cut_count) == (1, 9, True, 0)
    assert store.context("", token_budget=9).truncated is False


# -- recent and relevant ----------------------------------------------------------------------------------------------


def test_recent_turns_are_cut_from_the_oldest(open_store: OpenStore) -> None:
    store = open_store(token_counter=word_count)
    store.remember_many([{"text": f"line {i}", "session": "s"} for i in range(6)])  # three words each with "user:"
    for budget, kept in ((2, 0), (5, 1), (7, 1), (8, 2), (20, 6)):
        block = store.context("", session="s", token_budget=budget, limit=1)
        assert [turn.text for turn in block.recent] == [f"line {i}" for i in range(6 - kept, 6)], budget


def test_a_huge_newest_turn_leaves_no_recent_ones(open_store: OpenStore) -> None:
    store = open_store(embedder=False)
    store.remember_many([{"text": text, "session": "s"} for text in ("one", "two", "huge " * 100)])
    block = store.context("nothing of this", session="s", token_budget=50)
    assert block.recent == ()
    assert (block.truncated, block.cut_count) == (True, 3)


def test_what_does_not_fit_is_passed_over_for_what_does(open_store: OpenStore) -> None:
    """The best memory is too large; the smaller ones after it still come."""
    big, small, smaller = "big " * 400, "small one", "smaller one"
    by_hand = Vectors({"ask": (1.0, 0.0), big: (1.0, 0.0), small: (4.0, 3.0), smaller: (3.0, 4.0)})
    store = open_store(embedder=by_hand)
    for text in (big, small, smaller):
        store.remember(text, kind="fact")
    assert store.search("ask", score_gap=0.01).top is not None
    block = store.context("ask", token_budget=100)
    assert [memory.text for memory in block.retrieved] == [small, smaller]
    assert (block.truncated, block.cut_count) == (True, 1)


@pytest.mark.parametrize("size", [77, 78, 79, 120])
def test_what_does_not_fit_beside_better_ones_is_passed_over_too(open_store: OpenStore, size: int) -> None:
    """With the heading, the dashes and the first one's 20 words, 76 would fit."""
    medium, big, small = " ".join(f"m{i}" for i in range(20)), " ".join(f"b{i}" for i in range(size)), "small one"
    by_hand = Vectors({"ask": (1.0, 0.0), medium: (1.0, 0.0), big: (4.0, 3.0), small: (3.0, 4.0)})
    store = open_store(embedder=by_hand, token_counter=word_count)
    for text in (medium, big, small):
        store.remember(text, kind="fact")
    block = store.context("ask", token_budget=100)
    assert [memory.text for memory in block.retrieved] == [medium, small]
    assert (block.token_estimate, block.truncated, block.cut_count) == (26, True, 1)
    assert [memory.text for memory in store.context("ask", token_budget=size + 24).retrieved] == [medium, big]


def test_relevant_memories_that_pins_and_turns_leave_no_room_for_are_reported(open_store: OpenStore) -> None:
    store = open_store()
    store.remember("pin", pinned=True)
    store.remember("hello there", session="s")
    used = store.context("boiler", session="s").token_estimate
    for i in range(3):
        store.remember(f"boiler {i}", kind="fact")
    block = store.context("boiler", session="s", token_budget=used)
    assert (len(block.pinned), len(block.recent), block.retrieved) == (1, 1, ())
    assert (block.token_estimate, block.truncated, block.cut_count) == (used, True, 3)


def test_headings_marks_dates_and_blank_lines_count(open_store: OpenStore) -> None:
    store = open_store()
    store.remember("abcd", pinned=True)
    store.remember("efgh", session="s", role="a")
    store.remember("ijkl", session="t", role="b", timestamp=START)
    block = store.context("ijkl", session=None)
    assert block.text == "Pinned facts:\n- abcd\n\nRelevant memories:\n1 Mar 2026:\na: efgh\n1 Mar 2026:\nb: ijkl"
    assert block.token_estimate == 20  # 80 characters


def test_the_budget_is_1500_unless_given(open_store: OpenStore) -> None:
    store = open_store()
    store.remember_many([{"text": f"boiler {i} " + "word " * 20, "kind": "fact"} for i in range(100)])
    block = store.context("boiler")
    assert block.token_budget == 1500
    assert 1400 < block.token_estimate <= 1500
    assert block.truncated
    whole = store.context("boiler", token_budget=None)
    assert (whole.token_budget, len(whole), whole.truncated) == (None, 100, False)


# -- the counter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "tokens"), [("a", 1), ("abcd", 1), ("abcde", 2), ("🍕🍕🍕🍕", 1), ("x" * 4001, 1001)])
def test_without_a_counter_four_characters_are_a_token(open_store: OpenStore, text: str, tokens: int) -> None:
    store = open_store()
    store.remember(text, kind="fact")
    assert store.recall("").token_estimate == tokens


def test_a_given_counter_decides_every_budget(open_store: OpenStore) -> None:
    store = open_store(token_counter=word_count)
    store.remember_many(["boiler one two three", "boiler four five six"])
    for found in (store.recall("boiler", token_budget=7), store.search("boiler", token_budget=7)):
        assert (len(found), found.token_estimate, found.truncated) == (1, 4, True)
    block = store.context("boiler", token_budget=11)
    assert (len(block), block.token_estimate, block.cut_count) == (1, 10, 1)


def failing(text: str) -> int:
    raise KeyError("no encoding")


@pytest.mark.parametrize(
    "counter",
    [failing, lambda _: -1, lambda _: 1.5, lambda _: None, lambda _: True, lambda _: "3", lambda _: [1, 2], lambda: 1],
)
def test_a_counter_that_fails_or_lies_is_named_and_the_store_goes_on(open_store: OpenStore, counter: Any) -> None:
    store = open_store(token_counter=counter)
    store.remember("boiler", session="s")
    before = store.stats()
    for call in (store.recall, store.search, store.context):
        for budget in (None, 100):
            with pytest.raises(sqlmem.CallbackError):
                call("boiler", session="s", token_budget=budget)
    assert store.stats() == before
    assert store.remember("more", session="s").created


def test_a_counter_that_uses_the_store_harms_nothing(open_store: OpenStore) -> None:
    stores: list[sqlmem.MemoryStore] = []

    def counter(text: str) -> int:
        return len(stores[0].turns("s")) + len(text) if stores else len(text)

    stores.append(open_store(token_counter=counter))
    stores[0].remember("boiler", session="s")
    block = stores[0].context("boiler", session="s")
    assert block.token_estimate == 1 + len(block.text)
