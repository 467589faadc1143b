"""Categories: what they are called, what they are for, and which memories have them."""

from __future__ import annotations

from typing import Any

import pytest

import sqlmem
from tests.helpers_store import MovableClock


@pytest.fixture
def food(store: sqlmem.MemoryStore) -> sqlmem.MemoryStore:
    store.categories.create("food", "what somebody eats")
    store.categories.create("work")
    store.remember("Ana eats rice", kind="fact", id="rice", categories=["food"])
    return store


def listed(store: sqlmem.MemoryStore) -> list[tuple[str, str, int]]:
    return [(category.name, category.description, category.count) for category in store.categories.list()]


def test_a_new_name_stays_with_the_memories(food: sqlmem.MemoryStore) -> None:
    food.categories.rename("food", "meals")
    assert listed(food) == [("meals", "what somebody eats", 1), ("work", "", 0)]
    assert food.get("rice").categories == ("meals",)
    assert food.recall("Ana", categories=["meals"]).ids == ["rice"]
    with pytest.raises(sqlmem.NotFound, match="unknown categories: food; known are: meals, work"):
        food.recall("Ana", categories=["food"])
    food.categories.rename("meals", "meals")
    assert food.get("rice").categories == ("meals",)


def test_a_category_can_be_described_anew(food: sqlmem.MemoryStore) -> None:
    food.categories.describe("work", "what is paid")
    food.categories.describe("food", "")
    assert listed(food) == [("food", "", 1), ("work", "what is paid", 0)]


@pytest.mark.parametrize("name", ["", "Food", "9food", "fo od", "food-stuff", "é", "food\n", "_food", 7, None])
def test_a_name_must_be_one(food: sqlmem.MemoryStore, name: Any) -> None:
    with pytest.raises(sqlmem.InvalidArgument):
        food.categories.create(name)
    with pytest.raises(sqlmem.InvalidArgument):
        food.categories.rename("food", name)
    assert [name for name, _, _ in listed(food)] == ["food", "work"]


def test_names_that_are_taken_or_unknown_change_nothing(food: sqlmem.MemoryStore) -> None:
    with pytest.raises(sqlmem.AlreadyExists, match="the category 'work' is already there"):
        food.categories.rename("food", "work")
    with pytest.raises(sqlmem.AlreadyExists):
        food.categories.create("food")
    unknown = "unknown categories: none; known are: food, work"
    with pytest.raises(sqlmem.NotFound, match=unknown):
        food.categories.rename("none", "some")
    with pytest.raises(sqlmem.NotFound, match=unknown):
        food.categories.describe("none", "some")
    with pytest.raises(sqlmem.NotFound, match=unknown):
        food.categories.delete("none")
    assert listed(food) == [("food", "what somebody eats", 1), ("work", "", 0)]


def test_deleting_a_category_keeps_its_memories(food: sqlmem.MemoryStore) -> None:
    food.categories.delete("food")
    assert (food.get("rice").state, food.get("rice").categories) == ("live", ())


def test_categories_are_assigned_by_hand(food: sqlmem.MemoryStore) -> None:
    assert food.categories.assign("rice", "work", "food", "work") == ("food", "work")
    assert food.get("rice").version_number == 1
    assert food.recall("Ana", categories=["work"]).ids == ["rice"]
    assert food.categories.unassign("rice", "food") == ("work",)
    assert food.categories.unassign("rice", "food") == ("work",)
    assert listed(food) == [("food", "what somebody eats", 0), ("work", "", 1)]


def test_the_live_version_is_meant_whichever_is_named(food: sqlmem.MemoryStore) -> None:
    new = food.correct("rice", "Ana eats bread")
    assert food.categories.assign("rice", "work") == ("food", "work")
    assert food.get("rice").categories == ("food",)
    assert food.get(new).categories == ("food", "work")


def test_what_cannot_be_assigned_is_refused(food: sqlmem.MemoryStore, clock: MovableClock) -> None:
    with pytest.raises(sqlmem.NotFound, match="unknown categories: none"):
        food.categories.assign("rice", "work", "none")
    assert food.get("rice").categories == ("food",)
    with pytest.raises(sqlmem.NotFound, match="'nobody' is not in this store"):
        food.categories.assign("nobody", "work")
    with pytest.raises(sqlmem.InvalidArgument, match="name at least one category"):
        food.categories.assign("rice")
    food.invalidate("rice")
    with pytest.raises(sqlmem.NotFound, match="has no live version"):
        food.categories.assign("rice", "work")
