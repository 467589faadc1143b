"""recheck() judges what no judge has seen, and of two that contradict each other keeps the later one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sqlmem
from tests.conftest import OpenStore
from tests.helpers_judge import Judge, same_subject, with_reason
from tests.helpers_store import DAY, START, MovableClock, broken_rules


def unchecked(store: sqlmem.MemoryStore, *texts: str, **options: Any) -> list[str]:
    return [str(store.remember(text, kind="fact", check=False, **options)) for text in texts]


def test_of_two_that_contradict_each_other_the_later_stays(open_store: OpenStore, clock: MovableClock) -> None:
    judge = Judge(with_reason)
    store = open_store(judge=judge)
    old, new = unchecked(store, "Kim drinks tea", "Kim drinks rum")
    clock.forward(days=1)
    report = store.recheck()
    assert (report.checked, report.ended, len(report)) == (2, (old,), 1)
    ended = store.get(old)
    assert (ended.state, ended.replaced_by, ended.expired_at, ended.expiration_reason) == (
        "superseded",
        new,
        clock.now,
        "system_correction",
    )
    assert ended.expiration_note == "Kim drinks tea, not Kim drinks rum"
    assert (store.get(new).version_number, store.get(new).state) == (1, "live")
    assert broken_rules(store) == []


@pytest.mark.parametrize(("first", "second", "stays"), [(0, -1, 0), (-1, 0, 1), (0, 0, 1)])
def test_later_is_by_what_they_say_of_their_time(open_store: OpenStore, first: int, second: int, stays: int) -> None:
    store = open_store(judge=same_subject)
    ids = [*unchecked(store, "Kim drinks tea", timestamp=START + first * DAY)]
    ids += unchecked(store, "Kim drinks rum", timestamp=START + second * DAY)
    assert store.recheck().ended == (ids[1 - stays],)
    assert [memory.id for memory in store.list()] == [ids[stays]]


def test_each_is_judged_once_the_oldest_first(open_store: OpenStore) -> None:
    judge = Judge(lambda new, known: [False] * len(known))
    store = open_store(judge=judge)
    unchecked(store, "Kim drinks tea", "Kim drinks milk", "Kim drinks rum")
    told: list[int] = []
    assert store.recheck(limit=2, progress=told.append).checked == 2
    assert [new for new, _ in judge.shown] == ["Kim drinks tea", "Kim drinks milk"]
    assert store.recheck(progress=told.append).checked == 1
    assert store.recheck(progress=told.append).checked == 0
    assert ([new for new, _ in judge.shown][2:], told) == (["Kim drinks rum"], [1, 2, 1])
    store.remember("Kim drinks gin", kind="fact")
    assert store.recheck().checked == 0


def test_it_may_be_about_one_user(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject)
    for user in ("ana", "ben"):
        unchecked(store, "Kim drinks tea", "Kim drinks rum", user=user)
    assert len(store.recheck(user="ana").ended) == 1
    assert (len(store.list(user="ana")), len(store.list(user="ben"))) == (1, 2)
    assert store.undo("ana").verb == "recheck"
    assert len(store.list(user="ana")) == 2


def test_a_pin_that_is_contradicted_ends_as_others_do(open_store: OpenStore) -> None:
    store = open_store(judge=same_subject)
    pin = store.remember("Kim drinks tea", pinned=True, check=False)
    unchecked(store, "Kim drinks rum")
    assert store.recheck().ended == (pin,)


def test_what_a_failing_judge_left_is_found(open_store: OpenStore, tmp_path: Path) -> None:
    def fail(new: str, known: list[str]) -> list[bool]:
        raise ConnectionError

    path = tmp_path / "chat.db"
    store = open_store(path, judge=fail, on_judge_error="store")
    old = store.remember("Kim drinks tea", kind="fact")
    store.remember("Kim drinks rum", kind="fact")
    assert store.recheck().ended == ()
    store.close()
    assert open_store(path, judge=same_subject).recheck().ended == (old,)


def test_a_judge_that_raises_ends_it_where_it_is(open_store: OpenStore) -> None:
    def judge(new: str, known: list[str]) -> list[bool]:
        if new.startswith("Lena"):
            raise ConnectionError("no answer")
        return same_subject(new, known)

    store = open_store(judge=judge)
    old = unchecked(store, "Kim drinks tea", "Kim drinks rum", "Lena drinks tea", "Lena drinks rum")[0]
    with pytest.raises(sqlmem.CallbackError, match="no answer"):
        store.recheck()
    assert store.get(old).state == "superseded"
    assert len(store.list()) == 3


def test_what_is_past_or_future_or_gone_is_not_judged(open_store: OpenStore, clock: MovableClock) -> None:
    judge = Judge()
    store = open_store(judge=judge)
    unchecked(store, "Kim drinks tea", valid_to=START)
    unchecked(store, "Kim drinks rum", valid_from=START + DAY)
    unchecked(store, "Kim drinks gin", ttl_days=1, timestamp=START - 2 * DAY)
    gone, trashed, live = unchecked(store, "Kim drinks milk", "Kim drinks water", "Kim drinks wine")
    store.invalidate(gone)
    store.forget(ids=[trashed], trash_days=1)
    assert store.recheck().checked == 1
    assert [new for new, _ in judge.shown] == ["Kim drinks wine"]
    assert store.get(live).state == "live"


def test_it_needs_a_judge_and_sound_arguments(open_store: OpenStore) -> None:
    with pytest.raises(sqlmem.InvalidArgument, match=r"recheck\(\) needs a judge"):
        open_store().recheck()
    store = open_store(judge=same_subject)
    for wrong in ({"limit": 0}, {"limit": True}, {"user": 7}):
        with pytest.raises(sqlmem.InvalidArgument):
            store.recheck(**wrong)
