"""What the verbs return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, overload

Kind = Literal["turn", "fact", "pinned", "summary"]
Held = Literal["proposed", "trash"]
State = Literal["live", "superseded", "expired", "proposed", "ended", "trash"]
EndReason = Literal["updated", "merged", "invalidated", "conflict_resolved", "system_correction"]
ConflictStatus = Literal["pending", "failed", "resolved"]
ContradictionMode = Literal["supersede", "ask"]
Action = Literal["new", "duplicate", "update", "merge", "invalidate", "conflict"]
SessionStatus = Literal["pending", "processing", "processed", "failed"]
Outcome = Literal["useful", "dead_end", "corrected"]

Item = TypeVar("Item")

KINDS: tuple[Kind, ...] = ("turn", "fact", "pinned", "summary")
OUTCOMES: tuple[Outcome, ...] = ("useful", "dead_end", "corrected")


class MemoryId(str):
    """The id of a stored memory: a `str` that also says what the call did.

    `created` is False where the statement or key was already there; `superseded` holds the ids of the versions that this one
    replaced; `similar` the ids of live facts that say nearly the same; `conflict_id` names the conflict that it waits for.
    `expired` is True where the time to live had passed already, as an import of old memories may find.
    """

    created: bool
    superseded: tuple[str, ...]
    similar: tuple[str, ...]
    conflict_id: str | None
    expired: bool

    def __new__(
        cls,
        value: str,
        *,
        created: bool = True,
        superseded: tuple[str, ...] = (),
        similar: tuple[str, ...] = (),
        conflict_id: str | None = None,
        expired: bool = False,
    ) -> MemoryId:
        """Wrap the id `value`."""
        self = super().__new__(cls, value)
        self.created = created
        self.superseded = superseded
        self.similar = similar
        self.conflict_id = conflict_id
        self.expired = expired
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says of one known fact: whether the new one contradicts it, and why.

    `reason` is kept as the ended version's `expiration_note`. Where the user is asked, `question` and its `options` are shown
    instead of the ready ones.
    """

    contradicts: bool
    reason: str | None = None
    question: str | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One version of a memory.

    `timestamp` is the time that the memory is about (when it was said), `created_at` when it was stored; both aware UTC, like
    all datetimes here. `expired_at` and `expiration_reason` say when and why a newer version, or nothing, took its place.
    `sources` are the ids of the memories that it was made from, forgotten ones too, `derived` those that were made from it.
    `score` and `scoring` are set on recalled memories only: `scoring` holds relevance, relevance_norm, recency, feedback,
    score and found_by. `excerpt` is what a context block prints of it, where that is not the whole text.
    """

    id: str
    text: str
    kind: Kind
    role: str
    user: str
    session: str | None
    turn: int | None
    timestamp: datetime
    created_at: datetime
    expires_at: datetime | None
    state: State
    version_number: int
    total_versions: int
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expired_at: datetime | None = None
    expiration_reason: EndReason | None = None
    expiration_note: str | None = None
    replaced_by: str | None = None
    seen: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    previous_versions: tuple[Memory, ...] = ()
    score: float | None = None
    scoring: Mapping[str, Any] | None = None
    excerpt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """How an answer was found: the strategy that was used in the end, and what was searched for beside the question.

    `after` and `before` bound what the planner's queries and keywords found, not what the question did. `calls` of the planner
    took `seconds`. `notes` say what went otherwise than asked. Which search found a memory stands in its `scoring`.
    """

    strategy: str
    queries: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    after: datetime | None = None
    before: datetime | None = None
    calls: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Sequence[Memory]):
    """Recalled memories, best first.

    `cut_count` memories were left out because the budget was used up; `truncated` also says that the first one alone exceeds
    it. `token_estimate` is the sum over the texts.
    """

    memories: tuple[Memory, ...]
    query: str
    token_budget: int | None
    token_estimate: int
    truncated: bool
    cut_count: int
    trace: Trace

    @property
    def top(self) -> Memory | None:
        """The best memory, or None."""
        return self.memories[0] if self.memories else None

    @property
    def ids(self) -> list[str]:
        """The ids, best first."""
        return [memory.id for memory in self.memories]

    @property
    def texts(self) -> list[str]:
        """The texts, best first."""
        return [memory.text for memory in self.memories]

    @overload
    def __getitem__(self, index: int) -> Memory: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Memory]: ...
    def __getitem__(self, index: int | slice) -> Memory | Sequence[Memory]:
        return self.memories[index]

    def __len__(self) -> int:
        return len(self.memories)

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBlock:
    """Text for a prompt, and the memories in it.

    `pinned` and `summaries` are oldest first, `recent` in the order spoken, `retrieved` best first. `token_estimate` is the
    token count of `text`; it exceeds `token_budget` only if the pinned memories alone do. `truncated` is True when anything was
    left out or shortened for want of room, or the pins exceed the budget; `cut_count` says how many memories were left out.
    """

    text: str
    pinned: tuple[Memory, ...]
    summaries: tuple[Memory, ...]
    recent: tuple[Memory, ...]
    retrieved: tuple[Memory, ...]
    query: str
    session: str | None
    token_budget: int | None
    token_estimate: int
    truncated: bool
    cut_count: int

    def __len__(self) -> int:
        return len(self.pinned) + len(self.summaries) + len(self.recent) + len(self.retrieved)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """Some memories, sessions, users or conflicts of a longer list.

    Pass `next_cursor` as `cursor` for the following ones; it is None on the last page.
    """

    items: tuple[Item, ...]
    next_cursor: str | None

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why recall() returns a memory for a question, or what keeps it out.

    `kept_out_by` is None if it is returned; else the first thing that stops it: "scope", "state", the name of an argument
    ("kinds", "where", …, "min_relevance", "score_gap", "limit", "token_budget"), or "candidates" if neither search proposed
    it. `rank` counts from 1 among all candidates; it and `scoring` are None for what is no candidate.
    """

    id: str
    kept_out_by: str | None
    reason: str
    rank: int | None
    candidates: int
    scoring: Mapping[str, Any] | None

    @property
    def recalled(self) -> bool:
        """Whether the memory is returned."""
        return self.kept_out_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to ask about a conflict, what may be answered, and what was."""

    question: str
    options: tuple[str, ...]
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A statement that waits, because it contradicts what is known.

    `conflicting` are the live memories that it contradicts, `reasons` what the judge said of each. `status` is "pending",
    "failed" (the resolver raised; nothing was changed, it can be resolved still) or "resolved". `resolution` says how:
    "keep_old", "take_new", "keep_both", "own_text", "answers", "no_longer" (nothing that it contradicted was live any more) or
    "forgotten" (the statement itself was). `results` are the ids of what that stored or let live.
    """

    id: str
    user: str
    proposed: Memory | None
    conflicting: tuple[Memory, ...]
    reasons: tuple[str | None, ...]
    questions: tuple[Question, ...]
    status: ConflictStatus
    error: str | None
    resolution: str | None
    results: tuple[str, ...]
    created_at: datetime
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckReport:
    """What recheck() did: how many facts were compared, and the ids of the versions that ended."""

    checked: int
    ended: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A label for memories, known to the whole store. `count` is how many live memories carry it."""

    name: str
    description: str
    count: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Vectors of a model that the file holds: of each memory's `own` text, or of turns in their `context`.

    `pending` memories still wait for theirs.
    """

    name: str
    dim: int
    vectors: int
    pending: int
    bits: str
    input: str = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a store holds. `live` counts live memories by kind; `size_bytes` is the file without SQLite's sidecars."""

    path: str
    size_bytes: int
    format_version: int
    users: int
    sessions: int
    live: Mapping[str, int]
    superseded: int
    expired: int
    ended: int
    proposed: int
    trash: int
    forgotten: int
    feedback: int
    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationReport:
    """What consolidate() did, or with delete=False would do.

    `facts` are the texts, `fact_ids` their ids: `created` is False for one that was known already. `turn_ids` are the turns
    that they were made from, of which `turns_removed` are gone. `empty_batches` of the `batches` gave no fact.
    """

    session: str | None
    batches: int
    empty_batches: int
    facts: tuple[str, ...]
    fact_ids: tuple[MemoryId, ...]
    turn_ids: tuple[str, ...]
    turns_removed: int

    def __len__(self) -> int:
        return len(self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionReport:
    """What extract() did with a session.

    `turns` were read, in `calls` of the model, whose answers had to be `mended` or asked for again (`retried`) so often.
    `memory_ids` were stored, or wait in a conflict; `repeated` were known, `ended` are no longer true. `dropped` are statements
    that no turn bears out, each cut to 200 characters.
    """

    session: str | None
    turns: int
    memory_ids: tuple[MemoryId, ...]
    repeated: tuple[str, ...]
    ended: tuple[str, ...]
    dropped: tuple[str, ...]
    summary_id: str | None
    calls: int
    mended: int
    retried: int

    def __len__(self) -> int:
        return len(self.memory_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionFailure:
    """A session that extract() could not read: what was wrong with the model's answer, and that answer."""

    user: str
    session: str | None
    error: str
    answer: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionSettings:
    """What extract() is told, beside the turns. `version` counts the changes.

    inclusion_instructions, exclusion_instructions: what is to be remembered, and what not, in words.
    positive_examples, negative_examples: texts that hold a memory, and texts that hold none.
    false_positive_examples, false_negative_examples: memories that should not have been made, and some that were missed.
    similarity_top_k: how many of the nearest memories each candidate is compared with, 10 to 50.
    raise_merge_conflicts: True asks the user about contradictions, False ends what is contradicted, None as the store does.
    custom_instructions: anything else.
    """

    version: int = 0
    inclusion_instructions: tuple[str, ...] = ()
    exclusion_instructions: tuple[str, ...] = ()
    positive_examples: tuple[str, ...] = ()
    negative_examples: tuple[str, ...] = ()
    false_positive_examples: tuple[str, ...] = ()
    false_negative_examples: tuple[str, ...] = ()
    similarity_top_k: int = 10
    raise_merge_conflicts: bool | None = None
    custom_instructions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings:
    """What recall() with a planner is told. `version` counts the changes.

    subquery_weight, keyword_weight: how much what was found by the planner's questions, and by its keywords, counts, 0 to 1.
    example_subqueries, example_keywords, example_summary_questions: what good ones look like.
    custom_instructions: anything else.
    """

    version: int = 0
    custom_instructions: tuple[str, ...] = ()
    subquery_weight: float = 0.5
    keyword_weight: float = 0.5
    example_subqueries: tuple[str, ...] = ()
    example_keywords: tuple[str, ...] = ()
    example_summary_questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation of a user: its live `turns`, and other live `memories` that are its own.

    `last_at` is the time of its last turn, `extracted_to` the number of the last turn that extract() has read. `status` is None
    for a session that was not created as one, which stays open.
    """

    user: str
    session: str
    turns: int
    memories: int
    created_at: datetime
    last_at: datetime | None
    extracted_to: int | None
    summary_id: str | None
    status: SessionStatus | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    processed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An owner of memories: how many sessions and live memories, since when, and the time of the last memory."""

    user: str
    sessions: int
    memories: int
    created_at: datetime
    last_at: datetime | None
    on_contradiction: ContradictionMode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """Which call undo() took back, or redo() did again: its verb, when it had ended, and the ids of what it had touched."""

    verb: str
    at: datetime
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What check() found. `problems` is empty for a sound file."""

    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems
