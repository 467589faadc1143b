"""The store: one open file and its verbs."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from sqlmem import (
    arguments,
    consolidation,
    encoding,
    engine,
    explanation,
    extraction,
    facts,
    forgetting,
    ingest,
    lifecycle,
    lookup,
    maintenance,
    pending,
    recall,
    rechecking,
    reembedding,
    revise,
    schema,
    undoing,
)
from sqlmem import context as contexts
from sqlmem.categories import Categories
from sqlmem.clock import Clock, read, system_clock
from sqlmem.conflicts import Conflicts
from sqlmem.errors import InvalidArgument
from sqlmem.owners import Sessions, Users
from sqlmem.records import (
    CheckReport,
    Conflict,
    ConsolidationReport,
    ContextBlock,
    ContradictionMode,
    Explanation,
    ExtractionFailure,
    ExtractionReport,
    Kind,
    Memory,
    MemoryId,
    Outcome,
    Page,
    Recall,
    RecheckReport,
    Stats,
    Undone,
)
from sqlmem.search import filters
from sqlmem.settings import Settings
from sqlmem.tokens import TokenCounter

if TYPE_CHECKING:
    from sqlmem.candidates import Strategy
    from sqlmem.embed import Embedder
    from sqlmem.engine import Judge, LanguageModel, Planner, Resolver, Summarize
    from sqlmem.reranking import Reranker

DURABILITIES = ("normal", "full")


def open(
    path: str | os.PathLike[str],
    *,
    embedder: Embedder | str | Sequence[Embedder | str] | Literal[False] | None = None,
    token_counter: TokenCounter | None = None,
    half_life_days: float = 7.0,
    recency_weight: float = 0.5,
    recency_gate: float = 4.0,
    feedback_weight: float = 0.25,
    feedback_half_life_days: float = 30.0,
    ttl_days: Mapping[str, float] | None = None,
    read_only: bool = False,
    create: bool = True,
    durability: Literal["normal", "full"] = "normal",
    embedding: Literal["immediate", "deferred"] = "immediate",
    context_vectors: bool | None = None,
    reranker: Reranker | str | os.PathLike[str] | None = None,
    rerank_candidates: int = 20,
    judge: Judge | None = None,
    judge_candidates: int = 5,
    on_judge_error: Literal["raise", "store"] = "raise",
    on_contradiction: ContradictionMode = "supersede",
    on_conflict: Callable[[Conflict], object] | None = None,
    resolver: Resolver | None = None,
    llm: LanguageModel | None = None,
    planner: Planner | None = None,
    prompts: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> MemoryStore:
    """Open the store in the file at `path`, creating it where there is none; ":memory:" keeps it in memory.

    embedder: None takes the model that the file holds (in a new file the bundled one), False searches by keywords only;
        else a model's name, an `Embedder`, or several of them, whose scores are averaged. Models are loaded when first needed.
    token_counter: counts the tokens of a text for all budgets; the default takes four characters as one.
    half_life_days, recency_weight, recency_gate: over its relevance of 0..1 a memory gains recency_weight *
        0.5 ** (age / half-life) * relevance ** recency_gate. The last factor keeps what is new from hiding what was asked
        for: noise gains next to nothing, of two good matches the newer wins. 0 leaves it out.
    feedback_weight, feedback_half_life_days: likewise for the sum of its grades, which is kept within ±2.
    ttl_days: days that memories live by kind, such as {"turn": 30}; kinds not named live until forgotten.
    read_only: nothing is written, no file is left beside it, and a newer format may be opened.
    create: False raises NotFound instead of creating a file.
    durability: "normal" survives a killed process, "full" a power cut as well, and waits for the disk at each write.
    embedding: "immediate" computes a memory's vector before it is stored. "deferred" stores it at once, found by keywords;
        its vector follows at the next recall (the 100 newest), at flush(), or at close(), in this process or another. What the
        embedder refuses goes on waiting: recalls do without it, flush() and close() raise EmbeddingError.
    context_vectors: True gives each turn a second vector, together with the turn before it; for new files. It finds more
        and costs three times the embedding and half as much file (bench/README.md). reembed() changes it later.
    reranker: a callable (question, passages) -> scores, or the folder of an ONNX cross-encoder. What it finds in the best
        `rerank_candidates` counts beside their scores, at some 20 ms a candidate.
    judge: a callable (new fact, known facts) -> a bool or `Verdict` for each: whether the new one contradicts it. It is asked
        about each fact that is remembered or corrected, and sees the `judge_candidates` live ones that are nearest.
    on_judge_error: "raise" stores nothing when the judge fails; "store" stores the fact as unchecked, for recheck().
    on_contradiction: "supersede" ends what a new fact contradicts; "ask" lets the new fact wait as proposed, and opens a
        conflict (see `store.conflicts`). on_conflict: called with each conflict, once it is stored.
    resolver: a callable (conflict, answers) -> texts, which turns answers to a conflict's questions into what is true.
    llm: a callable from a prompt to a text, which extract() asks, consolidate() without a summarizer, and answers to a
        conflict's questions without a resolver. It never makes remember() judge; recall() asks it to plan, without a planner,
        for the strategies "agentic" and "auto".
    planner: a callable (question, texts found so far, settings, time of the question) -> {"queries": …, "keywords": …,
        "after": …, "before": …, "done": …}: what else to search for. It is asked once for the strategy "balanced", and for
        "agentic" again with what was found.
    prompts: texts in the place of the package's own (sqlmem/prompts), by name, with the same $names in them.
    clock: a callable that returns the current time as an aware datetime.

    A store may be shared by threads, and its file by processes. Raises InvalidArgument, NotFound, FileFormatError,
    StorageError, ModelMissing, ModelMismatch.
    """
    if durability not in DURABILITIES:
        raise InvalidArgument(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
    options = engine.options(
        token_counter=token_counter,
        half_life_days=half_life_days,
        recency_weight=recency_weight,
        recency_gate=recency_gate,
        feedback_weight=feedback_weight,
        feedback_half_life_days=feedback_half_life_days,
        ttl_days=ttl_days,
        clock=system_clock if clock is None else clock,
        embedding=embedding,
        reranker=reranker,
        rerank_candidates=rerank_candidates,
        judge=judge,
        judge_candidates=judge_candidates,
        on_judge_error=on_judge_error,
        on_contradiction=on_contradiction,
        on_conflict=on_conflict,
        resolver=resolver,
        llm=llm,
        planner=planner,
        prompts=prompts,
    )
    in_context = None if context_vectors is None else arguments.boolean("context_vectors", context_vectors)
    # Before a file is made: a model that is not there must not leave an empty one behind.
    given = embedder if embedder is None or embedder is False else encoding.chosen(embedder)
    name = _path(path)
    if read_only and name == ":memory:":
        raise InvalidArgument('":memory:" makes a new, empty store; there is nothing to read in it')
    db = schema.open_file(
        name,
        read_only=arguments.boolean("read_only", read_only),
        create=arguments.boolean("create", create),
        full=durability == "full",
    )
    try:
        encoder = encoding.bind(db, given, in_context, read(options.clock))
    except BaseException:
        db.close()
        raise
    return MemoryStore(engine.Engine(db, encoder, options))


class MemoryStore:
    """An open store. Made by `sqlmem.open()`; usable as a context manager, which closes it.

    Every verb is one transaction: it happens as a whole or not at all. Models run outside of transactions.
    """

    def __init__(self, engine_: engine.Engine) -> None:
        self._engine = engine_
        self.categories = Categories(engine_)
        self.conflicts = Conflicts(engine_)
        self.settings = Settings(engine_)
        self.sessions = Sessions(engine_)
        self.users = Users(engine_)

    # -- remember -----------------------------------------------------------------------------------------------------

    def remember(
        self,
        text: str,
        *,
        session: str | None = None,
        user: str = "",
        role: str = "user",
        kind: Kind | None = None,
        pinned: bool = False,
        turn: int | None = None,
        timestamp: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        key: str | None = None,
        ttl_days: float | None = None,
        valid_from: datetime | None = None,
        valid_to: datetime | None = None,
        check: bool | None = None,
        categories: Sequence[str] = (),
    ) -> MemoryId:
        """Store one memory and return its id.

        It is a turn unless `kind` says "fact" or `pinned` is True (a fact that every context block of its session shows; of
        all the user's sessions if `session` is None). Turns are numbered in their session in the order stored, unless `turn`
        gives a free number; numbers of forgotten turns are never given again.

        A fact that is live word for word in the same session is not stored twice: its id comes back with `created` False, its
        `seen` goes up, and the other arguments are ignored, except that `pinned=True` pins it. `key` makes any call
        repeatable: the user's second call with it returns the first one's id.

        timestamp: when it was said, for recency, dates and TTL; default now. A naive datetime is UTC.
        With a judge, a fact is compared with the nearest live ones of its session and its user: what it contradicts ends, and
        the new fact takes its place, with its pin, its categories and its widest scope; `superseded` names it. What was true
        before something that is known (by `valid_from`, else `timestamp`) ends nothing: it is kept as true until then. In "ask"
        mode nothing ends: the fact waits as proposed, and `conflict_id` names its conflict. `similar` names facts that say
        nearly the same. check: True or False judges this memory, or does not, whatever its kind.

        ttl_days: days from `timestamp` after which it is no longer recalled; math.inf for never, None for the store's rule.
        valid_from, valid_to: when a fact is true, the second left out; it is recalled only for a time within.

        Costs one embedding, before the transaction, and then 1 to 2 ms; a fact costs a search as well. Raises InvalidArgument,
        AlreadyExists (an id, turn number, or key with another text), NotFound (a category), EmbeddingError, CallbackError (the
        judge; nothing was written), StorageError.
        """
        return facts.remember(
            self._engine,
            ingest.item(
                text,
                session=session,
                user=user,
                role=role,
                kind=kind,
                pinned=pinned,
                turn=turn,
                timestamp=timestamp,
                metadata=metadata,
                id=id,
                key=key,
                ttl_days=ttl_days,
                valid_from=valid_from,
                valid_to=valid_to,
                categories=categories,
            ),
            check,
        )

    def remember_many(
        self, items: Iterable[str | Mapping[str, Any]], *, progress: Callable[[int, int], object] | None = None
    ) -> list[MemoryId]:
        """Store many memories: texts, or mappings with the arguments of `remember()`. Returns their ids in order.

        All items are checked before the first is written. They are then stored in batches of 256, each one transaction, and
        `progress(done, total)` is called after each; what it raises ends the call and leaves the batches done so far. With a
        `key` on every item the same call can be repeated after any interruption: what is stored is not stored or embedded
        again. Raises what `remember()` raises.
        """
        return facts.remember_many(self._engine, items, progress)

    def turns(self, session: str | None, user: str = "", *, last: int | None = None) -> list[Memory]:
        """The live turns of one session in the order spoken, or its `last` ones. None: those outside of any session."""
        return lookup.turns(self._engine, session, user, last)

    # -- find ---------------------------------------------------------------------------------------------------------

    def recall(
        self,
        query: str,
        *,
        session: str | None = None,
        user: str = "",
        all_users: bool = False,
        limit: int = 10,
        token_budget: int | None = None,
        score_gap: float | None = None,
        kinds: Sequence[Kind] | None = None,
        categories: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include_superseded: bool = False,
        strategy: Strategy = "balanced",
        at_least: int = 0,
        min_relevance: float | None = None,
        min_summary_relevance: float | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        as_of: datetime | None = None,
        valid_on: datetime | None = None,
        now: datetime | None = None,
        half_life_days: float | None = None,
        recency_weight: float | None = None,
    ) -> Recall:
        """The memories that matter for `query`, best first, by relevance, recency and feedback.

        session: that session's memories and the user's facts and pins without a session; None: all of the user's.
        limit, token_budget: at most so many, and only the first ones whose texts fit together; the best one always ships.
        score_gap: leaves out what scores below this share of the best, in (0, 1].
        strategy: "balanced" searches by keywords and vectors (and for what the store's planner says), "low_latency" by vectors
            alone. "agentic" lets the planner, else the language model, plan, see what was found, and plan again, up to three
            times; "auto" does so only if the best memory is not relevant enough. What else was searched for counts by the
            weights of `store.settings.recall`, and `Recall.trace` tells all of it. A planner that fails is done without,
            and the trace says so.
        min_relevance: leaves out what is less relevant than this, 0..1, where 0 is ordinary text and 1 the question itself.
        min_summary_relevance: the same for summaries of sessions; None: as for all others.
        at_least: the best so many stay whatever these bars and `score_gap` say; `limit` and `token_budget` bound them too.
        where: metadata, {"key": value} or {"key": {"gt": 3}}; eq ne gt gte lt lte in nin contains. Missing keys equal nothing.
        after, before: bounds on `timestamp`, exclusive.
        include_superseded: also versions that a newer one replaced.
        as_of: answers with what the store believed then: the versions of that moment, shown as they were, by the grades of
            before; not with `now` or `include_superseded`. What was forgotten since is missing, and what was undone never was.
            Without history are categories, `seen`, sources of a statement made again, and which versions a conflict is about.
        valid_on: answers with what is true at that time, by `valid_from` and `valid_to`; else with what is true now, or was
            at `as_of`.
        now, half_life_days, recency_weight: instead of the store's.

        A blank query returns the newest. `Memory.scoring` shows each part of the score: score = relevance_norm +
        recency_weight * recency * relevance_norm ** recency_gate + feedback_weight * feedback, where relevance_norm is the
        joint keyword and vector score as a share of the best candidate's. The candidate pool does not depend on `limit` up to
        100. Of candidates with equal scores the newer comes first.
        Raises InvalidArgument, NotFound (a category), EmbeddingError, CallbackError.
        """
        asked = recall.question(
            self._engine,
            query,
            session=session,
            user=user,
            all_users=all_users,
            limit=_some(limit),
            token_budget=token_budget,
            score_gap=score_gap,
            kinds=kinds,
            categories=categories,
            where=where,
            include_superseded=include_superseded,
            strategy=strategy,
            at_least=at_least,
            min_relevance=min_relevance,
            min_summary_relevance=min_summary_relevance,
            after=after,
            before=before,
            as_of=as_of,
            valid_on=valid_on,
            now=now,
            half_life_days=half_life_days,
            recency_weight=recency_weight,
        )
        return recall.recall(self._engine, asked)

    def search(
        self,
        query: str,
        *,
        session: str | None = None,
        user: str = "",
        all_users: bool = False,
        limit: int = 10,
        token_budget: int | None = None,
        score_gap: float | None = None,
        kinds: Sequence[Kind] | None = None,
        categories: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include_superseded: bool = False,
        strategy: Strategy = "balanced",
        at_least: int = 0,
        min_relevance: float | None = None,
        min_summary_relevance: float | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        as_of: datetime | None = None,
        valid_on: datetime | None = None,
        now: datetime | None = None,
    ) -> Recall:
        """Like `recall()`, by relevance alone: neither recency nor feedback counts."""
        asked = recall.question(
            self._engine,
            query,
            session=session,
            user=user,
            all_users=all_users,
            limit=_some(limit),
            token_budget=token_budget,
            score_gap=score_gap,
            kinds=kinds,
            categories=categories,
            where=where,
            include_superseded=include_superseded,
            strategy=strategy,
            at_least=at_least,
            min_relevance=min_relevance,
            min_summary_relevance=min_summary_relevance,
            after=after,
            before=before,
            as_of=as_of,
            valid_on=valid_on,
            now=now,
            relevance_only=True,
        )
        return recall.recall(self._engine, asked)

    def context(
        self,
        query: str,
        *,
        session: str | None = None,
        user: str = "",
        all_users: bool = False,
        token_budget: int | None = 1500,
        recent_turns: int = 6,
        recent_summaries: int = 0,
        limit: int | None = None,
        kinds: Sequence[Kind] | None = None,
        categories: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include_superseded: bool = False,
        strategy: Strategy = "balanced",
        at_least: int = 0,
        min_relevance: float | None = None,
        min_summary_relevance: float | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        as_of: datetime | None = None,
        valid_on: datetime | None = None,
        now: datetime | None = None,
        half_life_days: float | None = None,
        recency_weight: float | None = None,
        timezone: tzinfo | str | None = None,
    ) -> ContextBlock:
        """Text to put before a prompt: pinned facts, the latest summaries, the session's last turns, and relevant memories.

        Pins are never cut. Room is given next to `recent_turns` turns, from the newest back, then to the user's
        `recent_summaries` latest summaries of sessions, likewise, and then to memories by rank. Where not all of
        them fit, their sentences compete for the room: those of better memories, that hold more of the question's words, names,
        figures and times. A memory of which only some are printed shows "…" for the rest: `Memory.excerpt` is what is printed,
        `Memory.text` stays whole. `limit` bounds their number, None leaves it to the budget (or to 100 if there is none).
        `token_estimate` is the token count of the whole text, headings included. Filters bear on the relevant memories only,
        but `as_of` on the whole block and `valid_on` on the pins and summaries too; for these and `at_least` see `recall()`.
        timezone: of the dates that are printed, and of the days that a planner names: a tzinfo, or the name of a zone such as
            "Europe/Lisbon"; None is UTC.
        Raises InvalidArgument, NotFound (a category), EmbeddingError, CallbackError.
        """
        count = arguments.integer("recent_turns", recent_turns, least=0)
        summaries = arguments.integer("recent_summaries", recent_summaries, least=0)
        asked = recall.question(
            self._engine,
            query,
            session=session,
            user=user,
            all_users=all_users,
            limit=limit,
            token_budget=token_budget,
            kinds=kinds,
            categories=categories,
            where=where,
            include_superseded=include_superseded,
            strategy=strategy,
            at_least=at_least,
            min_relevance=min_relevance,
            min_summary_relevance=min_summary_relevance,
            after=after,
            before=before,
            as_of=as_of,
            valid_on=valid_on,
            now=now,
            half_life_days=half_life_days,
            recency_weight=recency_weight,
            timezone=timezone,
        )
        return contexts.context(self._engine, asked, count, summaries)

    def explain(
        self,
        query: str,
        id: str,
        *,
        session: str | None = None,
        user: str = "",
        all_users: bool = False,
        limit: int = 10,
        token_budget: int | None = None,
        score_gap: float | None = None,
        kinds: Sequence[Kind] | None = None,
        categories: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include_superseded: bool = False,
        strategy: Strategy = "balanced",
        at_least: int = 0,
        min_relevance: float | None = None,
        min_summary_relevance: float | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        as_of: datetime | None = None,
        valid_on: datetime | None = None,
        now: datetime | None = None,
        half_life_days: float | None = None,
        recency_weight: float | None = None,
    ) -> Explanation:
        """Why `recall()`, given the same arguments, returns the memory `id`, or what keeps it out, with its rank and scores.

        Costs what that recall costs. Raises InvalidArgument, NotFound, EmbeddingError, CallbackError.
        """
        asked = recall.question(
            self._engine,
            query,
            session=session,
            user=user,
            all_users=all_users,
            limit=_some(limit),
            token_budget=token_budget,
            score_gap=score_gap,
            kinds=kinds,
            categories=categories,
            where=where,
            include_superseded=include_superseded,
            strategy=strategy,
            at_least=at_least,
            min_relevance=min_relevance,
            min_summary_relevance=min_summary_relevance,
            after=after,
            before=before,
            as_of=as_of,
            valid_on=valid_on,
            now=now,
            half_life_days=half_life_days,
            recency_weight=recency_weight,
        )
        return explanation.explain(self._engine, asked, id)

    def get(self, id: str) -> Memory:
        """One version by its id, in whatever state, with its previous versions. Raises NotFound."""
        return lookup.get(self._engine, id)

    def list(
        self,
        *,
        session: str | None = None,
        user: str = "",
        all_users: bool = False,
        kinds: Sequence[Kind] | None = None,
        categories: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include_superseded: bool = False,
        after: datetime | None = None,
        before: datetime | None = None,
        as_of: datetime | None = None,
        valid_on: datetime | None = None,
        limit: int = 20,
        cursor: str | None = None,
        include_previous_versions: bool = True,
    ) -> Page[Memory]:
        """A page of memories, newest `timestamp` first, with the filters of `recall()`.

        Pass the page's `next_cursor` for the next one: what is added or forgotten meanwhile neither repeats nor hides others.
        `limit` is at most 1,000. Whatever its validity, a memory is listed, unless `valid_on` is given; `as_of` lists what this
        listed then. Raises InvalidArgument, NotFound (a category).
        """
        chosen = filters.build(
            session=session,
            user=user,
            all_users=all_users,
            kinds=kinds,
            categories=categories,
            where=where,
            include_superseded=include_superseded,
            after=after,
            before=before,
            as_of=as_of,
            valid_on=valid_on,
        )
        return lookup.page(self._engine, chosen, limit=limit, cursor=cursor, previous=include_previous_versions)

    def history(self, id: str) -> builtins.list[Memory]:
        """All versions of the memory that `id` is a version of, oldest first; forgotten ones are missing. Raises NotFound."""
        return lookup.history(self._engine, id)

    # -- grade and correct --------------------------------------------------------------------------------------------

    def feedback(
        self, id: str, outcome: Outcome, correction: str | None = None, timestamp: datetime | None = None
    ) -> MemoryId | None:
        """Grade a memory "useful", "dead_end" or "corrected"; later recalls rank it up or down.

        A grade counts ±1 and halves every `feedback_half_life_days`. With "corrected", `correction` stores the next version
        as `correct()` does, in the same transaction, and its id is returned. Superseded versions may be graded too.
        Raises InvalidArgument, NotFound, EmbeddingError.
        """
        return revise.feedback(self._engine, id, outcome, correction, timestamp)

    def correct(
        self,
        id: str,
        text: str | None = None,
        *,
        pinned: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        categories: Sequence[str] | None = None,
        ttl_days: float | None = None,
        reason: Literal["updated", "system_correction"] = "updated",
        note: str | None = None,
    ) -> MemoryId:
        """Store the next version of a memory and return its id; the version before stays in its history.

        `id` may be any version: the live one is followed. What is not given stays as it was; `metadata` and `categories` are
        replaced whole. `pinned` turns a fact into a pin or back. `note` says why, and is kept as the `expiration_note` of the
        version that ends. A turn keeps its number and time; a fact is dated now, and a TTL counts from there (math.inf removes
        it). With a judge, a fact's new text is judged, and ends what it contradicts, unless contradictions are asked about. If
        nothing would change, the live version's id comes back with `created` False.
        Raises InvalidArgument, NotFound (also when no version is live), EmbeddingError, CallbackError.
        """
        return revise.correct(
            self._engine,
            id,
            text=text,
            pinned=pinned,
            metadata=metadata,
            categories=categories,
            ttl_days=ttl_days,
            reason=reason,
            note=note,
        )

    def invalidate(
        self,
        id: str,
        reason: Literal["invalidated", "system_correction"] = "invalidated",
        *,
        note: str | None = None,
    ) -> str:
        """End a memory that is wrong or no longer true, without a successor; returns the id of the version that ended.

        It stays in the history, is no longer recalled, and rollback() brings it back. `id` may be any version; `note` is kept
        as its `expiration_note`. Raises InvalidArgument, NotFound (also when no version is live).
        """
        return revise.invalidate(self._engine, id, reason, note)

    def rollback(self, id: str, version: int) -> MemoryId:
        """Let an earlier version be true again: store its text, metadata and categories as the next version.

        `id` may be any version of the memory, `version` is the number of the one to take. History is not edited. A memory
        that was invalidated, or whose newest version was forgotten, lives again. If that version is live already, its id comes
        back with `created` False. Raises InvalidArgument, NotFound (also when that version was forgotten).
        """
        return revise.rollback(self._engine, id, version)

    def recheck(
        self, *, user: str | None = None, limit: int | None = None, progress: Callable[[int], object] | None = None
    ) -> RecheckReport:
        """Judge the live facts that no judge has seen, the oldest first: all, or those of one user, at most `limit`.

        Facts are unchecked if they were stored without a judge, with `check=False`, or when the judge failed and
        `on_judge_error="store"`. Of two that contradict each other the one of the later time stays; what ends carries the
        reason "system_correction". Each fact is one transaction, and `progress(checked)` is called after it: what is done
        stays done, and another call goes on. Raises InvalidArgument (without a judge), CallbackError.
        """
        return rechecking.recheck(self._engine, user, limit, progress)

    # -- forget -------------------------------------------------------------------------------------------------------

    def forget(
        self,
        *,
        ids: Sequence[str] | None = None,
        user: str = "",
        session: str | None = None,
        kinds: Sequence[Kind] | None = None,
        older_than: float | datetime | None = None,
        where: Mapping[str, Any] | None = None,
        superseded: bool = False,
        all: bool = False,
        cascade: bool = False,
        resurrect: bool = False,
        trash_days: float | None = None,
    ) -> int:
        """Delete memories for good and return how many versions went. Their text leaves the rows and the indexes.

        Everything given must hold. Turns are meant unless `kinds` says otherwise; with `ids` memories of any kind and user,
        with `superseded=True` facts and pins that a newer version replaced. `older_than` is a number of days or a datetime,
        exclusive. `session` means exactly that session; without it all of the user's are meant. Without any selector the call
        is refused, unless `all=True`: all turns of the user. Unknown ids count as nothing.

        cascade: also what was made from them (`Memory.derived`), with all its versions, even if it has other sources too.
        resurrect: where the live version of a memory went, the last one that is left lives again, as a new version.
        trash_days: keep them out of sight for so many days instead, in which undo() brings them back; then expire() deletes
            them. By their ids they can be deleted before.

        Raises InvalidArgument.
        """
        return forgetting.forget(
            self._engine,
            ids=ids,
            user=user,
            session=session,
            kinds=kinds,
            older_than=older_than,
            where=where,
            superseded=superseded,
            all_=all,
            cascade=cascade,
            resurrect=resurrect,
            trash_days=trash_days,
        )

    def expire(self, now: datetime | None = None) -> int:
        """Delete for good what has passed its TTL, of all users; returns how many versions went.

        Expired memories are invisible at once; this takes them out of the file.
        """
        moment = self._engine.now(now)
        with self._engine.db.write():
            return lifecycle.purge(self._engine.db, lifecycle.expired(self._engine.db, moment), self._engine.now())

    # -- distil -------------------------------------------------------------------------------------------------------

    def consolidate(
        self,
        session: str | None,
        summarize: Summarize | None = None,
        *,
        user: str = "",
        keep_recent: int = 6,
        older_than: float | datetime | None = None,
        batch_turns: int = 40,
        pinned: bool = False,
        delete: bool = True,
        keep_turns: bool = False,
        drop_empty: bool = False,
        trash_days: float | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> ConsolidationReport:
        """Make facts of the old turns of a session (None: of those outside of any), and take these turns away.

        summarize: a callable from turns, each {"role", "text", "ts"}, oldest first, to a list of texts. It is called outside of
            transactions with up to `batch_turns` turns at a time. None asks the store's language model (`llm=`).
        keep_recent, older_than: the last turns stay, so many; of the others those older than a number of days, or a datetime.
        pinned: the facts become pins.
        delete: False writes nothing and shows in the report what would be stored.
        keep_turns: the turns stay, and are passed over by the next call.
        drop_empty: takes away also the turns of which the summarizer made nothing; else they stay.
        trash_days: the turns stay restorable by undo() for so many days.

        A batch is one transaction: its facts are stored with the turns as their `sources`, and only then its turns go. What
        raises, or kills the process, leaves the batches that are done, and another call goes on after them. If turns of a batch
        change while it is summarized, it is summarized anew. Facts have the role "summary", the session, the time of their
        newest turn, and their time to live from now on. Each is judged if there is a judge, not against others of its batch;
        one that is known word for word is counted as seen. `progress(done, total)`, in turns, is called after each batch.
        Raises InvalidArgument, CallbackError (the summarizer or judge raised or returned nonsense), EmbeddingError, Busy.
        """
        chosen = consolidation.plan(
            self._engine,
            session,
            user=user,
            keep_recent=keep_recent,
            older_than=older_than,
            batch_turns=batch_turns,
            pinned=pinned,
            delete=delete,
            keep_turns=keep_turns,
            drop_empty=drop_empty,
            trash_days=trash_days,
        )
        return consolidation.consolidate(self._engine, chosen, summarize, progress)

    def extract(
        self,
        session: str | None,
        *,
        user: str = "",
        llm: LanguageModel | None = None,
        tokens_a_call: int = 3_000,
    ) -> ExtractionReport:
        """Make memories of what was said in a session since the last time, and summarize it. Needs a language model.

        The model reads the turns in calls of at most `tokens_a_call` tokens of turns, with some turns before, and says what
        becomes of each statement beside the known memories that are nearest to it (`store.settings.extraction`): it is new,
        known already, takes the place of others, ends them, or waits in a conflict about them. Statements are the user's, in no
        session; `sources` names the turns that say them. What no turn bears out is dropped. The summary is a memory of the
        kind "summary", seen from all sessions, whose next version follows the next time.

        Models are asked outside of transactions; what they said is stored in one. If nothing was said since, no model is
        asked. An answer that cannot be used is mended (by the extra `sqlmem[llm]`) or asked for once more; then CallbackError
        is raised, nothing is changed, and the answer is kept for retry_failed(). Raises InvalidArgument, CallbackError,
        EmbeddingError, Busy.
        """
        return extraction.extract(self._engine, session, user=user, llm=llm, tokens_a_call=tokens_a_call)

    def failures(self, user: str | None = None) -> builtins.list[ExtractionFailure]:
        """The sessions, of one user or all, that extract() could not read, with what the model had answered. Oldest first."""
        return extraction.failed(self._engine, user)

    def retry_failed(
        self, user: str | None = None, *, llm: LanguageModel | None = None, tokens_a_call: int = 3_000
    ) -> builtins.list[ExtractionReport]:
        """Call extract() again for the sessions that it could not read, the oldest first. What fails again raises."""
        return extraction.retry(self._engine, user, llm=llm, tokens_a_call=tokens_a_call)

    # -- undo ---------------------------------------------------------------------------------------------------------

    def undo(self, user: str = "") -> Undone:
        """Take back the last call that changed this user's memories, whatever process made it, and say which it was.

        Repeated, it takes back the calls before, up to the last 100. remember(), remember_many(), correct(), feedback(),
        invalidate(), rollback(), recheck(), conflicts.resolve() can be undone, and a forget() or consolidate() that was given
        `trash_days`. A call that was final stops it. What a call had stored goes into the trash for 30 days; turn numbers are
        not given again. Raises NotFound if there is nothing to undo, if the last call was final, or if what it put into the
        trash was deleted meanwhile; then nothing is changed.
        """
        return undoing.undo(self._engine, user)

    def redo(self, user: str = "") -> Undone:
        """Do again what undo() took back last, as it was. Any other change of the user's memories makes undo() final.

        Raises NotFound if there is nothing to redo, or if what the call had stored was deleted from the trash meanwhile.
        """
        return undoing.redo(self._engine, user)

    # -- keep ---------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """What the store holds. Reads every row once."""
        return lookup.stats(self._engine)

    def check(self) -> CheckReport:
        """Compare the indexes with the memories, and the memories with the rules of the format. Changes nothing.

        Reads everything and builds a second keyword index in memory: about 0.3 ms a memory.
        """
        return maintenance.check(self._engine)

    def rebuild(self) -> int:
        """Write all search indexes again from the memories, in one transaction; returns how many were indexed."""
        return maintenance.rebuild(self._engine)

    def reembed(
        self,
        embedder: Embedder | str | Sequence[Embedder | str] | None = None,
        *,
        context_vectors: bool | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> int:
        """Give all memories vectors of other models, and return how many vectors the file holds then.

        embedder: as for `open()`; None keeps the models. context_vectors: whether turns get a second vector; None keeps that.

        The old vectors serve, here and in other processes, until one transaction puts the new ones in their place. Computed
        in batches of 256, `progress(done, total)` after each; interrupted, the same call goes on where it stopped. Stores that
        are open elsewhere raise ModelMismatch after the swap, and must be opened again. The file holds both sets meanwhile;
        what the old ones took is used for later memories. Raises InvalidArgument, ModelMissing, EmbeddingError.
        """
        in_context = None if context_vectors is None else arguments.boolean("context_vectors", context_vectors)
        return reembedding.reembed(self._engine, embedder, in_context, progress)

    def flush(self) -> int:
        """Compute the vectors that memories still wait for, in batches of 256; returns how many.

        Memories wait when they were stored with `embedding="deferred"`, or without the file's model. What the embedder refuses
        goes on waiting: its EmbeddingError is raised when all others have their vectors.
        """
        self._engine.db.require_writable()
        return pending.embed_all(self._engine.db, self._engine.encoder)

    def close(self) -> None:
        """Close the file; the last one to close leaves a single file. Repeating it does nothing.

        With `embedding="deferred"`, first compute what vectors are still missing. Raises EmbeddingError if that fails: the
        file is closed all the same, and the memories go on waiting.
        """
        db, deferred = self._engine.db, self._engine.options.deferred
        try:
            if deferred and not (db.closed or db.read_only):
                pending.embed_all(db, self._engine.encoder)
        finally:
            db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._engine.db.closed else ""
        return f"MemoryStore({self._engine.db.path!r}{state})"


def _path(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument(f"path must be a string or a path, not {path!r}")
    name = arguments.string("path", os.fspath(path))
    if not name:
        raise InvalidArgument('path must not be empty; use ":memory:" for a store without a file')
    return name


def _some(limit: object) -> object:
    if limit is None:
        raise InvalidArgument("limit must be a whole number of at least 1, not None")
    return limit
