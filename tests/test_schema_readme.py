"""schema/README.md is the contract of the file: its queries run, and nothing in a file goes unmentioned."""

from __future__ import annotations

import re
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

import sqlmem
from sqlmem import db as sqlite
from sqlmem import schema, text
from sqlmem.clock import to_ms
from sqlmem.store import bit_index
from tests.fixtures import make
from tests.helpers_store import DAY, MILLISECOND, START, MovableClock

README = Path(__file__).resolve().parent.parent / "schema" / "README.md"
if not README.exists():
    pytest.skip("the format's description is not part of an installed package", allow_module_level=True)
TEXT = README.read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
CODE = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


class Centred(sqlmem.HashEmbedder):
    centre = [0.01 * place - 0.05 for place in range(20)]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(20, "centred")


needs_vec = pytest.mark.skipif(sqlite.vec_library() is None, reason="sqlite-vec has no wheel for this platform")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "chat.db"
    shutil.copy(Path(make.__file__).parent / "format-1.db", path)
    with closing(sqlite3.connect(path)) as connection:
        yield connection


# What each query of the document finds in the file of format 1, in the order of the document. ANY: an id that was made up.
FOUND: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
    ({"user": "", "session": "t"}, [
        ("2025-03-03T08:30:00.250Z", "fact", "Ben drinks rum"), ("2025-03-01T09:00:00.000Z", "turn", "another session")]),
    ({}, [
        ("turn-0", "Shall we meet in Lisbon?"), ("turn-2", "部署 is done 🍕"), ("turn-3", "I prefer C++ to C#."),
        ("turn-4", "ok"), ("turn-5", "ok"), ("turn-9", "numbered"), ("long", "lives long"), ("other", "another session"),
        ("hers", "Ana's own"),
        (ANY, "Ben drinks rum"), (ANY, "Answer in Portuguese"), (ANY, "Yes, at the harbour."),
        ("waiting", "still without a vector")]),
    ({"then": 1740990600249}, [
        ("turn-9", "numbered"), ("turn-5", "ok"), ("turn-4", "ok"), ("turn-3", "I prefer C++ to C#."),
        ("turn-2", "部署 is done 🍕"), ("turn-1", "Yes, at the station."), ("pin-1", "Answer in English"),
        ("fact-1", "Ben drinks tea"), ("hers", "Ana's own"), ("other", "another session"), ("long", "lives long"),
        ("turn-0", "Shall we meet in Lisbon?")]),
    ({"now": 1740990600250, "day": 0}, [
        (ANY, "Answer in Portuguese"), (ANY, "Ben drinks rum"), ("waiting", "still without a vector"), ("turn-9", "numbered"),
        ("turn-5", "ok"), ("turn-4", "ok"), ("turn-3", "I prefer C++ to C#."), ("turn-2", "部署 is done 🍕"),
        (ANY, "Yes, at the harbour."), ("hers", "Ana's own"), ("other", "another session"), ("long", "lives long"),
        ("turn-0", "Shall we meet in Lisbon?")]),
    ({"then": 1740904200249, "day": 0}, []),
    ({"user": "", "session": "s"}, [
        (0, "user", "Shall we meet in Lisbon?"), (1, "assistant", "Yes, at the harbour."), (2, "user", "部署 is done 🍕"),
        (3, "Ben", "I prefer C++ to C#."), (4, "user", "ok"), (5, "user", "ok"), (9, "user", "numbered"),
        (11, "user", "lives long"), (13, "user", "still without a vector")]),
    ({"id": "fact-1"}, [
        (1, "superseded", "Ben drinks tea", "2025-03-03T08:30:00.250Z"),
        (2, "superseded", "Ben drinks coffee", "2025-03-03T08:30:00.250Z"), (3, "live", "Ben drinks rum", None)]),
    ({}, [(ANY, "Ben drinks rum")]),
    ({}, [("pin-1", "corrected", 1740990600250), ("fact-1", "useful", 1740990600250)]),
    ({}, [("forgotten", 1, "2025-03-03T08:30:00.250Z")]),
    ({"user": "", "session": "s"}, [
        ("turn-0", "Shall we meet in Lisbon?"), ("turn-2", "部署 is done 🍕"), (ANY, "Yes, at the harbour.")]),
    ({}, [("2025", 18), ("march", 18), ("scopexu1x", 17)]),
    ({}, [("hash-16", "own", 16, "vector_hash_16", 1)]),
    ({}, [("vector_hash_16", None)]),
]  # fmt: skip


def test_every_query_has_its_expected_rows() -> None:
    assert len(QUERIES) == len(FOUND)


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_a_query_of_the_document_finds_what_is_there(db: sqlite3.Connection, number: int) -> None:
    bindings, expected = FOUND[number]
    assert db.execute(QUERIES[number], bindings).fetchall() == expected


def _asking(*names: str) -> str:
    """The one query of the document that has exactly these parameters, of time."""
    query: str
    (query,) = (query for query in QUERIES if set(re.findall(r"[(<>= ]:(\w+)", re.sub("--.*", "", query))) == set(names))
    return query


def test_the_past_can_be_read_without_the_library(tmp_path: Path) -> None:
    path, clock = tmp_path / "chat.db", MovableClock()
    with sqlmem.open(path, embedder=False, clock=clock) as store:
        id_ = store.remember("Ana lives in Lisbon", kind="fact")
        store.remember("Ana is on leave", kind="fact", valid_from=START + DAY, valid_to=START + 2 * DAY, ttl_days=3)
        clock.forward(days=1)
        store.correct(id_, "Ana lives in Porto")
        clock.forward(days=1)
        store.invalidate(id_)
        edges = [START + number * DAY + offset for number in range(5) for offset in (-MILLISECOND, timedelta())]
        listed: dict[tuple[datetime | None, datetime | None], list[tuple[str, str]]] = {
            (then, day): [(memory.id, memory.text) for memory in store.list(as_of=then, valid_on=day)]
            for then in (None, *edges)
            for day in (None, *edges)
        }
    with closing(sqlite3.connect(path)) as db:
        for (then, day), expected in listed.items():
            if day is None and then is None:
                continue
            names = [name for name, moment in (("then", then), ("day", day)) if moment is not None]
            bound = {"then": then or clock.now, "day": day or START, "now": clock.now}
            query = _asking(*names) if then is not None else _asking("now", "day")
            assert db.execute(query, {name: to_ms(moment) for name, moment in bound.items()}).fetchall() == expected
    texts = {moments: [text for _, text in rows] for moments, rows in listed.items()}
    assert texts[START, None] == texts[START, START + DAY] == ["Ana is on leave", "Ana lives in Lisbon"]
    assert texts[START + DAY, START] == texts[START + DAY, START + 2 * DAY] == ["Ana lives in Porto"]
    assert texts[None, START + DAY] == texts[START + 2 * DAY, START + DAY] == ["Ana is on leave"]
    assert texts[START + 3 * DAY, None] == texts[START - MILLISECOND, None] == texts[None, START] == []


def _names(path: Path) -> set[str]:
    """Every table, view, index, trigger and column in a file, vectors' names made general."""
    with closing(sqlite3.connect(path)) as db:
        found = set()
        for kind, name in db.execute("select type, name from sqlite_schema").fetchall():
            general = name
            for (table,) in db.execute("select table_name from model").fetchall():
                general = general.replace(f"{table}_bits_", "_bits_", 1).replace(table, "<table_name>", 1)
            if not name.startswith("sqlite_autoindex"):
                found.add(general)
            if kind in ("table", "view") and "_bits" not in name:  # which only the extension can read
                found |= {column[1] for column in db.execute(f'pragma table_info("{name}")')}
        return found


def test_nothing_in_a_file_goes_unmentioned(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=Centred()) as store:
        store.remember_many(f"hello {number}" for number in range(bit_index.LAG))
        bits = store.stats().models[0].bits
    assert bits == ("current" if sqlite.vec_library() else "none")
    named = set(re.findall(r"`([^`\n]+)`", TEXT))
    missing = _names(path) - named - {"_bits_info"} - {"<table_name>_bits"}
    assert missing == set()
    assert {"<table_name>_bits", "<table_name>_bits_info"} <= named


def test_every_column_stands_in_the_section_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    sqlmem.open(path, embedder=False).close()
    sections = dict(re.findall(r"^#+ (.+?)\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL))
    with closing(sqlite3.connect(path)) as db:
        for table, section in {
            "scope": "scope", "memory": "memory", "model": "Vectors", "memory_fts": "The keyword index",
            "memory_history": "Views", "session_turns": "Views", "change": "The bit index",
        }.items():  # fmt: skip
            for column in db.execute(f"pragma table_info({table})").fetchall():
                assert f"`{column[1]}`" in sections[section], (table, column[1])
        for row in re.findall(r"^\| `(\w+)` \| (`[^|]+`) \|", sections["Beside it"], re.MULTILINE):
            columns = [column[1] for column in db.execute(f"pragma table_info({row[0]})")]
            assert re.findall(r"`(\w+)`", row[1]) == columns, row[0]


def test_values_that_columns_may_have_are_all_listed() -> None:
    tables = schema.sql("tables.sql")
    lists = re.findall(r"check \((\w+) in \(([^)]+)\)", tables)
    assert len(lists) >= 5
    for column, values in lists:
        for value in re.findall(r"'(\w+)'", values):
            assert f"`{value}`" in TEXT, (column, value)


def test_the_numbers_are_right(db: sqlite3.Connection) -> None:
    assert f"Format {schema.FORMAT_VERSION}." in TEXT
    assert f"0x{schema.APPLICATION_ID:X} ({schema.APPLICATION_ID}" in TEXT
    assert db.execute("pragma application_id").fetchone() == (schema.APPLICATION_ID,)
    assert db.execute("pragma user_version").fetchone() == (1,)
    assert db.execute("pragma page_size").fetchone() == (4096,)
    assert db.execute("pragma encoding").fetchone() == ("UTF-8",)
    assert f"Preparation {text.TEXT_VERSION} " in TEXT
    assert dict(db.execute("select name, value from setting"))["text_version"] == str(text.TEXT_VERSION)


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ("部署服务", "部署 署服 服务 务"),
        ("🍕", "emojix1f355x"),
        ("C++", "C Cxplusplusx"),
        ("C#", "C Cxsharpx"),
        ("👍🏽", "emojix1f44dx"),
    ],
)
def test_text_is_prepared_as_described(given: str, prepared: str) -> None:
    assert text.prepare(given).split() == prepared.split()


def test_scope_words_are_as_described(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False) as store:
        store.remember("alpha", user="ana", kind="fact")
        store.remember("alpha", user="ana", session="s")
        store.remember("alpha", user="ben", session="s")
    with closing(sqlite3.connect(path)) as db:
        scopes = {(user, session): id_ for id_, user, session in db.execute("select id, user, session from scope")}
        assert scopes.keys() == {("ana", None), ("ana", "s"), ("ben", None), ("ben", "s")}
        words: dict[int, set[str]] = {}
        for term, doc in db.execute("select term, doc from memory_word_place where col = 'scope'"):
            words.setdefault(doc, set()).add(term)
    ana, anas, ben, bens = (scopes[key] for key in (("ana", None), ("ana", "s"), ("ben", None), ("ben", "s")))
    assert words == {
        1: {f"scopexu{ana}x", f"scopexs{ana}x", f"scopexw{ana}x"},
        2: {f"scopexu{ana}x", f"scopexs{anas}x", f"scopexp{ana}x"},
        3: {f"scopexu{ben}x", f"scopexs{bens}x", f"scopexp{ben}x"},
    }


def test_the_digest_is_as_described(db: sqlite3.Connection) -> None:
    import hashlib

    for said, digest in db.execute("select text, digest from memory where digest is not null"):
        assert struct.unpack(">q", hashlib.blake2b(said.encode(), digest_size=8).digest()) == (digest,)


def test_vectors_are_as_described(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=Centred()) as store:
        store.remember_many(["tea and rum", "rum", "!!!", "gin"])
        store.remember("gin", role="Ben")
    space: dict[str, Any] = {}
    assert len(CODE) == 1
    exec(CODE[0], space)
    with closing(sqlite3.connect(path)) as db:
        (table, dim, centre) = db.execute("select table_name, dim, centre from model").fetchone()
        assert struct.unpack(f"<{dim}f", centre) == pytest.approx(Centred.centre)
        codes = dict(db.execute(f"select id, code from {table}").fetchall())
        assert codes[3] is None
        assert codes[4] != codes[5]  # "Ben: gin"
        unit = Centred().embed_query("rum")
        largest = max(abs(float(number)) for number in unit)
        assert struct.unpack(f"{dim}b", codes[2]) == tuple(round(float(number) / largest * 127) for number in unit)
        query = [float(number) for number in unit]
        found = space["cosines"](db, table, dim, query)
        assert found[0] == (2, pytest.approx(1.0, abs=1e-4))
        assert [rowid for rowid, _ in found[:2]] == [2, 1]
        assert len(found) == 4


@needs_vec
def test_bits_are_as_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_index, "LAG", 3)
    with sqlmem.open(tmp_path / "chat.db", embedder=Centred()) as store:
        old = store.remember("tea and rum", kind="fact")
        store.correct(old, "gin")  # the third change
        store.remember("milk")
        db = store._engine.db
        limit = 0.9816 * ((1 - sum(number * number for number in Centred.centre)) / 20) ** 0.5
        found = db.rows("select id, live, bit, fine from vector_centred_bits order by id")
        assert [row[:2] for row in found] == [(1, 0), (2, 1)]
        for rowid, _, bit, fine in found:
            numbers = struct.unpack("20b", db.value("select code from vector_centred where id = ?", (rowid,)))
            length = sum(number * number for number in numbers) ** 0.5
            rest = [number / length - centre for number, centre in zip(numbers, Centred.centre, strict=True)]
            assert bytes(bit) == _packed(number > 0 for number in rest)
            assert bytes(fine) == _packed(abs(number) > limit for number in rest)
        assert db.rows(QUERIES[-1]) == [("vector_centred", 1)]
        assert db.rows("select seq, memory, added from change") == [(1, 1, 1), (2, 1, 0), (3, 2, 1), (4, 3, 1)]


def _packed(bits: Iterable[bool]) -> bytes:
    return int("".join(str(int(bit)) for bit in bits).ljust(24, "0"), 2).to_bytes(3, "big")


def test_context_vectors_are_as_described(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=Centred(), context_vectors=True) as store:
        for role, said in (("Ben", "gin or tea"), ("user", "rum"), ("assistant", "milk")):
            store.remember(said, session="s", role=role, id=said)
        store.remember("beer", kind="fact")
        store.flush()
        store.correct("rum", "tea")
    with closing(sqlite3.connect(path)) as db:
        models = db.execute("select id, table_name from model where input = 'context'").fetchall()
        assert len(models) == 1
        (number, table) = models[0]
        waiting = [row[0] for row in db.execute("select memory from pending where model = ?", (number,))]
        held = dict(db.execute(f"select id, code from {table}").fetchall())
    assert waiting == [3, 5]
    assert held == {1: None, 4: None}
    with sqlmem.open(path, embedder=Centred()) as store:
        assert store.flush() == 2
        held = dict(store._engine.db.rows(f"select id, code from {table}"))
    assert held == {1: None, 3: _code("tea\nmilk"), 4: None, 5: _code("Ben: gin or tea\ntea")}


def _code(text: str) -> bytes:
    unit = [float(number) for number in Centred().embed_query(text)]
    return struct.pack("20b", *(round(number / max(map(abs, unit)) * 127) for number in unit))


def test_the_context_column_is_as_described(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with sqlmem.open(path, embedder=False) as store:
        for word in ("alpha", "beta", "gamma", "delta"):
            store.remember(word, session="s")
        store.remember("x" + "y" * 300, session="s")
    with closing(sqlite3.connect(path)) as db:
        beside: dict[int, set[str]] = {}
        for term, doc in db.execute("select term, doc from memory_word_place where col = 'ctx'"):
            beside.setdefault(doc, set()).add(term)
    long = "x" + "y" * 199
    assert beside == {
        1: {"beta", "gamma"}, 2: {"alpha", "gamma", "delta"}, 3: {"alpha", "beta", "delta", long}, 4: {"beta", "gamma"},
    }  # fmt: skip


def test_now_in_sql_is_the_clock_s_millisecond() -> None:
    """The expression for "now" is the one of the views, and right at any moment that SQLite's clock may show."""
    expression = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer)"
    assert expression in TEXT
    assert expression in schema.sql("views.sql")
    with closing(sqlite3.connect(":memory:")) as db:
        for ms in (0, 1, 1_740_990_600_250, 1_740_990_600_999, 4_102_444_799_999):
            moment = make.SAID.replace(year=1970, month=1, day=1, hour=0) + timedelta(milliseconds=ms)
            said = moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"
            at_that_time = expression.replace("'now'", f"'{said}'")
            assert db.execute(f"select {at_that_time}").fetchone() == (ms,)


def test_links_within_the_document_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    }
    targets = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert targets <= headings
    assert len(targets) >= 6
