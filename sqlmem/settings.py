"""Settings of extraction and recall, which lie in the file and hold for every process that opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from sqlmem import arguments
from sqlmem.db import Database
from sqlmem.engine import Engine
from sqlmem.errors import InvalidArgument
from sqlmem.records import ExtractionSettings, RecallSettings

_READ = "select value from setting where name = :name"
_WRITE = "insert or replace into setting (name, value) values (:name, :value)"

# As RecallrAI spells them, for what is imported from there.
_SPELLINGS = {
    "top_k_symantic_similarity_check": "similarity_top_k",
    "top_k_semantic_similarity_check": "similarity_top_k",
    "raise_merge_conflict": "raise_merge_conflicts",
    "subqueries_candidate_memories_weight": "subquery_weight",
    "keywords_candidate_memories_weight": "keyword_weight",
    "example_summary_search_questions": "example_summary_questions",
}
LEAST_TOP_K, MOST_TOP_K = 10, 50

Kept = TypeVar("Kept", ExtractionSettings, RecallSettings)


class Settings:
    """The settings of a store, as `store.settings`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def extraction(self) -> ExtractionSettings:
        """What extract() is told."""
        return extraction(self._engine.db)

    @property
    def recall(self) -> RecallSettings:
        """What a planner is told."""
        return recall(self._engine.db)

    def update_extraction(self, **changes: Any) -> ExtractionSettings:
        """Change settings of extract(), by the names of `ExtractionSettings`, and return all of them.

        Lists are replaced whole. If nothing differs, the version stays. Raises InvalidArgument; then nothing is changed.
        """
        return self._update("extraction", ExtractionSettings(), changes)

    def update_recall(self, **changes: Any) -> RecallSettings:
        """Change settings of recall(), by the names of `RecallSettings`, as update_extraction() does."""
        return self._update("recall", RecallSettings(), changes)

    def export(self) -> dict[str, dict[str, Any]]:
        """All settings as JSON values, which `import_()` takes."""
        with self._engine.db.read():
            kept: dict[str, ExtractionSettings | RecallSettings] = {"extraction": self.extraction, "recall": self.recall}
        return {group: _plain(settings) for group, settings in kept.items()}

    def import_(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over settings: those that export() gave, or those of RecallrAI, in one transaction.

        `given` has "extraction", "recall" or both; what such a group leaves out gets its default. Raises InvalidArgument.
        """
        if not isinstance(given, Mapping) or not given or not set(given) <= {"extraction", "recall"}:
            raise InvalidArgument(f"settings are a mapping with 'extraction', 'recall' or both, not {given!r:.200}")
        for group, values in given.items():
            if not isinstance(values, Mapping):
                raise InvalidArgument(f"the settings of {group} must be a mapping, not {values!r:.200}")
        plain = {group: _respelt(values) for group, values in given.items()}
        with self._engine.db.write():
            for group, values in plain.items():
                if group == "extraction":
                    _keep(self._engine.db, group, extraction(self._engine.db), _changed(ExtractionSettings(), values))
                else:
                    _keep(self._engine.db, group, recall(self._engine.db), _changed(RecallSettings(), values))

    def _update(self, group: str, default: Kept, changes: Mapping[str, Any]) -> Kept:
        db = self._engine.db
        with db.write():
            before = _read(db, group, default)
            return _keep(db, group, before, _changed(before, changes))


def extraction(db: Database) -> ExtractionSettings:
    """What extract() is told."""
    return _read(db, "extraction", ExtractionSettings())


def recall(db: Database) -> RecallSettings:
    """What a planner is told."""
    return _read(db, "recall", RecallSettings())


def _read(db: Database, group: str, default: Kept) -> Kept:
    held = db.value(_READ, {"name": group})
    if held is None:
        return default
    known = {field.name for field in fields(default)}
    # A newer sqlmem may have more of them.
    values: dict[str, Any] = {name: value for name, value in json.loads(held).items() if name in known}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return replace(default, **values)


def _keep(db: Database, group: str, before: Kept, after: Kept) -> Kept:
    if replace(after, version=before.version) == before:
        return before
    kept = replace(after, version=before.version + 1)
    db.execute(_WRITE, {"name": group, "value": json.dumps(asdict(kept), ensure_ascii=False)})
    return kept


def _plain(settings: ExtractionSettings | RecallSettings) -> dict[str, Any]:
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}
    del values["version"]
    return values


def _respelt(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their names here; the version is the file's own."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        ours = _SPELLINGS.get(name, name)
        if ours in plain:
            raise InvalidArgument(f"the setting {ours} is given twice, once as {name}")
        if ours != "version":
            plain[ours] = value
    return plain


def _changed(settings: Kept, changes: Mapping[str, Any]) -> Kept:
    """The settings with `changes`, checked."""
    known = [field.name for field in fields(settings) if field.name != "version"]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise InvalidArgument(f"there is no setting {unknown[0]!r}; known are {', '.join(known)}; nothing was changed")
    return replace(settings, **{name: _checked(name, value, getattr(settings, name)) for name, value in changes.items()})


def _checked(name: str, value: object, now: object) -> Any:
    if name == "similarity_top_k":
        count = arguments.integer(name, value, least=LEAST_TOP_K)
        if count > MOST_TOP_K:
            raise InvalidArgument(f"{name} must be at most {MOST_TOP_K}, not {count}")
        return count
    if name == "raise_merge_conflicts":
        return None if value is None else arguments.boolean(name, value)
    if isinstance(now, float):
        return arguments.number(name, value, least=0, most=1)
    return tuple(arguments.text(text) for text in arguments.several(name, value))
