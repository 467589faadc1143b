"""Which memories a verb may see, as one SQL condition that every search uses inside its own query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlmem import arguments
from sqlmem.clock import moment_ms
from sqlmem.db import Database
from sqlmem.errors import InvalidArgument, NotFound
from sqlmem.records import Kind
from sqlmem.store import memories, scopes
from sqlmem.store.memories import array

OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains")

# Of the metadata value j and a wanted value w, both from json_each: equal, and of the same type; numbers are of one type.
_SAME_VALUE = """
    j.type not in ('array', 'object') and j.atom is w.atom
    and (j.type = w.type or (j.type in ('integer', 'real') and w.type in ('integer', 'real')))
"""
_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_IN_CATEGORY = """
exists (select 1 from memory_category mc join category c on c.id = mc.category
         where mc.memory = m.rowid and c.name in (select value from json_each(:categories)))
"""
# A cross join keeps SQLite from reading the whole scope by its index.
_PASSING = "select m.rowid from json_each(:some) s cross join memory m on m.rowid = s.value where {condition}"
_KNOWN_CATEGORIES = "select name from category order by name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Checked arguments of a verb. Times are milliseconds; `after` and `before` leave their own moment out.

    `as_of` looks at the versions of that moment, `valid_on` at what is true then; None at those of now, and at all.
    """

    user: str = ""
    session: str | None = None
    all_users: bool = False
    kinds: tuple[Kind, ...] | None = None
    categories: tuple[str, ...] | None = None
    where: tuple[tuple[str, str, Any], ...] = ()
    after: int | None = None
    before: int | None = None
    include_superseded: bool = False
    as_of: int | None = None
    valid_on: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on `memory m`.

    `scope_sql` is its part that bounds the scope, `scope_words` the keyword index's words for it (None for no limit).
    """

    sql: str
    bindings: Mapping[str, Any]
    scope_sql: str
    scope_words: tuple[str, ...] | None
    live_only: bool


def build(
    *,
    user: object = "",
    session: object = None,
    all_users: object = False,
    kinds: object = None,
    categories: object = None,
    where: object = None,
    after: object = None,
    before: object = None,
    include_superseded: object = False,
    as_of: object = None,
    valid_on: object = None,
) -> Filter:
    """Check a verb's filter arguments. Raises InvalidArgument."""
    if arguments.boolean("include_superseded", include_superseded) and as_of is not None:
        raise InvalidArgument(
            "as_of shows the versions of one moment, of which none is superseded: leave include_superseded out"
        )
    if arguments.boolean("all_users", all_users) and (user != "" or session is not None):
        raise InvalidArgument("all_users=True looks at everything; leave user and session out")
    return Filter(
        user=arguments.name("user", user, empty=True),
        session=None if session is None else arguments.name("session", session),
        all_users=bool(all_users),
        kinds=None if kinds is None else arguments.kinds(kinds),
        categories=None if categories is None else arguments.category_names(categories),
        where=terms(where),
        after=None if after is None else moment_ms("after", after),
        before=None if before is None else moment_ms("before", before),
        include_superseded=bool(include_superseded),
        as_of=None if as_of is None else moment_ms("as_of", as_of),
        valid_on=None if valid_on is None else moment_ms("valid_on", valid_on),
    )


def condition(db: Database, chosen: Filter, now: int, *, exclude: Iterable[int] = ()) -> Condition | None:
    """The condition for what `chosen` lets through at `now`, without the rowids `exclude`.

    None when nothing was ever stored in the scope. Raises NotFound for an unknown category.
    """
    check_categories(db, chosen.categories or ())
    scope = _scope(db, chosen)
    if scope is None:
        return None
    scope_sql, words, bound = scope
    parts = [scope_sql, *(sql for _, sql in _tests(chosen, bound))]
    excluded = list(exclude)
    if excluded:
        bound["exclude"] = array(excluded)
        parts.append("m.rowid not in (select value from json_each(:exclude))")
    bound["now"] = now
    return Condition(" and ".join(parts), bound, scope_sql, words, not (chosen.include_superseded or chosen.as_of is not None))


def failing(db: Database, chosen: Filter, now: int, rowid: int) -> str | None:
    """The first of the tests that this memory does not pass: "scope", "state", or the name of a filter argument."""
    check_categories(db, chosen.categories or ())
    scope = _scope(db, chosen)
    if scope is None:
        return "scope"
    scope_sql, _, bound = scope
    tests = [("scope", scope_sql), *_tests(chosen, bound)]
    columns = ", ".join(f"coalesce({sql}, false)" for _, sql in tests)
    passed = db.row(f"select {columns} from memory m where m.rowid = :rowid", {**bound, "now": now, "rowid": rowid})
    assert passed is not None, "asked about a memory that is there"
    return next((name for (name, _), fine in zip(tests, passed, strict=True) if not fine), None)


def passing(
    db: Database, sql: str, bindings: Mapping[str, Any], ranked: Sequence[tuple[int, float]], limit: int
) -> list[tuple[int, float]]:
    """The first `limit` pairs of a rowid and a score, of `ranked`, whose memory passes a condition on `memory m`.

    Looks up no more than it must: first a few over the limit, as most pass most conditions.
    """
    found: list[tuple[int, float]] = []
    start, size = 0, limit + limit // 8
    while start < len(ranked) and len(found) < limit:
        part = ranked[start : start + size]
        rows = db.rows(_PASSING.format(condition=sql), {**bindings, "some": array(rowid for rowid, _ in part)})
        fine = {row[0] for row in rows}
        found += [pair for pair in part if pair[0] in fine]
        start, size = start + size, len(ranked)
    return found[:limit]


def share(db: Database, condition: Condition) -> float:
    """About which part of the store lies in the scope, 0..1: by its turn numbers, or by the user's part of the scopes."""
    if condition.scope_words is None:
        return 1.0
    if "user" in condition.bindings:
        return scopes.share(db, condition.bindings["user"])
    if "scope" not in condition.bindings:
        return 0.0
    return min(1.0, scopes.next_turn(db, condition.bindings["scope"]) / max(1, memories.count_ever(db)))


def _scope(db: Database, chosen: Filter) -> tuple[str, tuple[str, ...] | None, dict[str, Any]] | None:
    if chosen.all_users:
        return "true", None, {}
    base = scopes.find(db, chosen.user, None)
    if base is None:
        return None
    if chosen.session is None:
        return "m.scope in (select id from scope where user = :user)", (scopes.word("u", base.id),), {"user": chosen.user}
    bound = {"base": base.id}
    wide = "(m.scope = :base and m.kind <> 'turn')"
    session = scopes.find(db, chosen.user, chosen.session)
    if session is None:
        return wide, (scopes.word("w", base.id),), bound
    return (
        f"(m.scope = :scope or {wide})",
        (scopes.word("w", base.id), scopes.word("s", session.id)),
        {**bound, "scope": session.id},
    )


def _tests(chosen: Filter, bound: dict[str, Any]) -> list[tuple[str, str]]:
    """The conditions beside the scope, each with the name of what demands it; their values are put into `bound`."""
    tests = [
        ("state", sql) for sql in (*_there(chosen, bound), "m.held is null", "(m.expires_at is null or m.expires_at > :now)")
    ]
    if chosen.valid_on is not None:
        bound["valid_on"] = chosen.valid_on
        tests.append(("valid_on", "(m.valid_from is null or m.valid_from <= :valid_on)"))
        tests.append(("valid_on", "(m.valid_to is null or m.valid_to > :valid_on)"))
    if chosen.kinds is not None:
        bound["kinds"] = array(chosen.kinds)
        tests.append(("kinds", "m.kind in (select value from json_each(:kinds))"))
    if chosen.categories is not None:
        bound["categories"] = array(chosen.categories)
        tests.append(("categories", _IN_CATEGORY))
    if chosen.after is not None:
        bound["after"] = chosen.after
        tests.append(("after", "m.at > :after"))
    if chosen.before is not None:
        bound["before"] = chosen.before
        tests.append(("before", "m.at < :before"))
    return [*tests, *(("where", sql) for sql in metadata_sql(chosen.where, bound))]


def _there(chosen: Filter, bound: dict[str, Any]) -> list[str]:
    """Which versions of a chain are looked at."""
    if chosen.as_of is not None:
        bound["as_of"] = chosen.as_of
        return ["m.created_at <= :as_of", "(m.ended_at is null or m.ended_at > :as_of)"]
    return ["(m.ended_at is null or m.ended_by is not null)" if chosen.include_superseded else "m.ended_at is null"]


def metadata_sql(where: tuple[tuple[str, str, Any], ...], bound: dict[str, Any], column: str = "m.metadata") -> list[str]:
    """Conditions on a column of metadata, their values put into `bound`.

    A missing key equals nothing, so `ne` and `nin` let it through. Values compare within their own type only: 1 is not "1".
    """
    parts = []
    for number, (key, operator, value) in enumerate(where):
        name = f"where{number}"
        bound[f"{name}_key"] = key
        negated = operator in ("ne", "nin")
        test = _test(operator, value, name, bound)
        parts.append(
            f"{'not ' if negated else ''}exists (select 1 from json_each({column}) j where j.key = :{name}_key and {test})"
        )
    return parts


def _test(operator: str, value: Any, name: str, bound: dict[str, Any]) -> str:
    if operator in ("in", "nin"):
        bound[name] = array(value)
        return f"exists (select 1 from json_each(:{name}) w where {_SAME_VALUE})"
    if operator in _COMPARISONS:
        bound[name] = value
        kind = "j.type = 'text'" if isinstance(value, str) else "j.type in ('integer', 'real')"
        return f"{kind} and j.atom {_COMPARISONS[operator]} :{name}"
    if operator == "contains":
        inside = _equal(value, name, bound).replace("j.", "e.")
        element = f"j.type = 'array' and exists (select 1 from json_each(j.value) e where {inside})"
        return f"({element} or j.type = 'text' and instr(j.atom, :{name}))" if isinstance(value, str) else f"({element})"
    return _equal(value, name, bound)


def _equal(value: Any, name: str, bound: dict[str, Any]) -> str:
    if value is None:
        return "j.type = 'null'"
    if isinstance(value, bool):
        return f"j.type = '{str(value).lower()}'"
    bound[name] = value
    return f"j.atom = :{name} and j.type {'=' if isinstance(value, str) else 'in'} " + (
        "'text'" if isinstance(value, str) else "('integer', 'real')"
    )


def terms(where: object) -> tuple[tuple[str, str, Any], ...]:
    """What a filter by metadata asks for: keys, operators and values. Raises InvalidArgument."""
    return () if where is None else tuple(_terms(where))


def _terms(where: object) -> Iterable[tuple[str, str, Any]]:
    if not isinstance(where, Mapping):
        raise InvalidArgument(f"where must be a mapping of metadata keys, not {where!r}")
    for key, wanted in where.items():
        arguments.string("a key of where", key)
        tests = wanted if isinstance(wanted, Mapping) else {"eq": wanted}
        for operator, value in tests.items():
            if operator not in OPERATORS:
                raise InvalidArgument(f"where[{key!r}] has the operator {operator!r}; known are {', '.join(OPERATORS)}")
            yield key, operator, _operand(key, operator, value)


def _operand(key: str, operator: str, value: object) -> Any:
    if operator in ("in", "nin"):
        return [_scalar(key, item) for item in arguments.several(f"where[{key!r}][{operator!r}]", value)]
    _scalar(key, value)
    if operator in _COMPARISONS and (value is None or isinstance(value, bool)):
        raise InvalidArgument(f"where[{key!r}][{operator!r}] must be a number or a string, not {value!r}")
    return value


def _scalar(key: str, value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return arguments.string(f"where[{key!r}]", value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidArgument(f"where[{key!r}] is outside the 64-bit range")
    return value if isinstance(value, int) else arguments.number(f"where[{key!r}]", value, least=float("-inf"))


def check_categories(db: Database, names: Iterable[str]) -> None:
    """Raise NotFound if one of `names` is no category, naming those that are."""
    wanted = set(names)
    if not wanted:
        return
    known = [row[0] for row in db.rows(_KNOWN_CATEGORIES)]
    unknown = sorted(wanted - set(known))
    if unknown:
        raise NotFound(f"unknown categories: {', '.join(unknown)}; known are: {', '.join(known) or 'none'}")
