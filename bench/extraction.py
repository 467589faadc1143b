"""What extract() makes of LoCoMo's conversations with a model of your choice.

    python bench/extraction.py --data locomo10.json --base-url http://127.0.0.1:8080/v1 --model NAME

For the first sessions of the first conversations: how many answers were usable, mended, asked for again or given up; facts a
session, how many of what was read no turn bears out, how many facts say the same; and the evidence recall of a block, with and
without the facts. A turn counts as found if it is shown, or if a fact that was made from it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sqlmem
from bench.datasets import Conversation, Question, load_locomo
from bench.scoring import evidence_recall, mean
from sqlmem import llms

BUDGETS = (334, 700, 1500)


@dataclass
class Tally:
    """What was counted over all sessions."""

    sessions: int = 0
    failed: int = 0
    calls: int = 0
    mended: int = 0
    retried: int = 0
    facts: int = 0
    repeated: int = 0
    ended: int = 0
    dropped: int = 0
    seconds: float = 0.0
    lost: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The figures, one a line."""
        done = self.sessions - self.failed
        read = self.facts + self.repeated + self.dropped
        yield f"| sessions read / given up | {done} / {self.failed} |"
        yield f"| calls of the model | {self.calls} ({self.seconds / max(1, self.calls):.1f} s each) |"
        yield f"| answers mended / asked for again | {self.mended} / {self.retried} |"
        yield f"| facts stored, a session that was read | {self.facts / max(1, done):.1f} |"
        yield f"| known already / ended others | {self.repeated} / {self.ended} |"
        yield f"| borne out by a turn | {(read - self.dropped) / max(1, read):.0%} of {read} |"
        yield f"| turns lost or doubled | {len(self.lost)} |"


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json, or the folder that holds it")
    parser.add_argument("--base-url", required=True, help="an endpoint that speaks OpenAI's protocol")
    parser.add_argument("--model", required=True, help="the model's name there")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--max-tokens", type=int, default=1_000, help="of an answer, default 1000")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one answer, default 600")
    parser.add_argument("--conversations", type=int, default=1, help="how many, default 1")
    parser.add_argument("--sessions", type=int, default=3, help="of each so many, default 3")
    parser.add_argument("--tokens-a-call", type=int, default=1_000, help="of turns in one prompt, default 1000")
    return parser.parse_args(argv)


def fill(store: sqlmem.MemoryStore, conversation: Conversation, sessions: Sequence[str]) -> None:
    """Store the turns of these sessions, each under its own ref."""
    store.remember_many(
        [
            {"text": t.stored_text, "role": t.speaker, "session": t.session, "timestamp": t.at, "id": t.ref}
            for t in conversation.turns
            if t.session in sessions
        ]
    )


def read(store: sqlmem.MemoryStore, sessions: Sequence[str], tokens_a_call: int, tally: Tally) -> None:
    """Extract every session, and count."""
    for session in sessions:
        before = [turn.id for turn in store.turns(session)]
        started = time.perf_counter()
        tally.sessions += 1
        try:
            report = store.extract(session, tokens_a_call=tokens_a_call)
        except sqlmem.CallbackError as error:
            tally.failed += 1
            print(f"{session}: {' '.join(str(error).split())[:160]}", file=sys.stderr)
        else:
            tally.calls += report.calls
            tally.mended += report.mended
            tally.retried += report.retried
            tally.facts += len(report)
            tally.repeated += len(report.repeated)
            tally.ended += len(report.ended)
            tally.dropped += len(report.dropped)
        tally.seconds += time.perf_counter() - started
        tally.lost += set(before) ^ {turn.id for turn in store.turns(session)}


def found(store: sqlmem.MemoryStore, question: Question, budget: int, kinds: Sequence[sqlmem.Kind] | None) -> set[str]:
    """The turns that a block shows, or that one of its facts was made from."""
    block = store.context(question.text, token_budget=budget, recent_turns=0, kinds=kinds)
    return {id_ for memory in (*block.pinned, *block.retrieved) for id_ in (memory.id, *memory.sources)}


def main() -> int:
    """Read, count, ask."""
    options = parse_arguments()
    llm = llms.openai(
        options.model,
        request={"max_tokens": options.max_tokens, "temperature": 0},
        base_url=options.base_url,
        api_key=options.api_key,
        timeout=options.timeout,
    )
    tally = Tally()
    recalls: dict[tuple[str, int], list[float]] = {}
    for conversation in load_locomo(options.data)[: options.conversations]:
        sessions = list(dict.fromkeys(turn.session for turn in conversation.turns))[: options.sessions]
        refs = {turn.ref for turn in conversation.turns if turn.session in sessions}
        with sqlmem.open(":memory:", llm=llm) as store:
            fill(store, conversation, sessions)
            read(store, sessions, options.tokens_a_call, tally)
            for question in conversation.questions:
                if not refs.issuperset(question.evidence):
                    continue
                for budget in BUDGETS:
                    for name, kinds in (("turns", ("turn",)), ("turns, facts, summaries", None)):
                        shown = found(store, question, budget, kinds)
                        recalls.setdefault((name, budget), []).append(evidence_recall(question.evidence, shown))
            problems = store.check().problems
            tally.lost += problems
    print("| | |\n|---|---:|")
    print("\n".join(tally.lines()))
    print(f"\n| evidence recall | {' | '.join(map(str, BUDGETS))} |\n|---|{'---:|' * len(BUDGETS)}")
    for name in dict.fromkeys(name for name, _ in recalls):
        print(f"| {name} | {' | '.join(f'{mean(recalls[name, budget]):.3f}' for budget in BUDGETS)} |")
    return 1 if tally.lost else 0


if __name__ == "__main__":
    sys.exit(main())
