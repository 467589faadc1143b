"""Ready language models, against a server on this machine that answers as badly as real ones do."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import sqlmem
from sqlmem import llms
from tests.conftest import OpenStore
from tests.helpers_store import broken_rules

pytest.importorskip("openai")
pytest.importorskip("anthropic")

GOOD = json.dumps({"memories": [{"text": "The user lives in Porto", "turns": [0]}], "summary": "On Porto."})


class Server:
    """Answers each request with the next of what was prepared: a text, or a status and a body. Notes what was asked."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                answer = outer.answers.pop(0)
                status, body = answer if isinstance(answer, tuple) else (200, outer.wrapped(self.path, answer))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def wrapped(self, path: str, text: str | None) -> str:
        if path.endswith("/messages"):
            content = [] if text is None else [{"type": "text", "text": text}]
            usage = {"input_tokens": 1, "output_tokens": 1}
            message: dict[str, Any] = {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "small",
                "content": content,
                "usage": usage,
            }
            return json.dumps({**message, "stop_reason": "end_turn", "stop_sequence": None})
        spoken = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": spoken}
        return json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "small", "choices": [choice]})

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def server(running: Server) -> Server:
    running.answers.clear()
    running.asked.clear()
    return running


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def model(request: pytest.FixtureRequest, running: Server) -> Any:
    if request.param == "openai":
        return llms.openai("small", base_url=f"{running.address}/v1", api_key="none", max_retries=0)
    return llms.anthropic("small", base_url=running.address, api_key="none", max_retries=0)


@pytest.fixture
def chat(open_store: OpenStore) -> sqlmem.MemoryStore:
    store = open_store()
    store.remember("I live in Porto", session="s")
    return store


@pytest.mark.parametrize(("maker", "name"), [(llms.openai, "stop"), (llms.anthropic, "stop_sequences")])
def test_requests_take_more_arguments(server: Server, maker: Any, name: str) -> None:
    path = "/v1" if maker is llms.openai else ""
    server.answers = ["fine"]
    model = maker("small", request={name: ["end"]}, base_url=f"{server.address}{path}", api_key="none", max_retries=0)
    assert model("hello") == "fine"
    assert server.asked[0][name] == ["end"]


def test_a_prompt_goes_there_and_the_text_comes_back(server: Server, model: Any) -> None:
    server.answers = ["Olá 🍕"]
    assert model("Say hello") == "Olá 🍕"
    assert server.asked[0]["model"] == "small"
    assert server.asked[0]["messages"] == [{"role": "user", "content": "Say hello"}]


NASTY: list[tuple[list[Any], int, int]] = [
    ([GOOD], 0, 0),
    ([f"Sure! Here is the JSON:\n```json\n{GOOD}\n```\nLet me know."], 0, 0),
    ([GOOD.replace("}]", "},]")], 1, 0),
    ([GOOD.replace('"', "'")], 1, 0),
    ([GOOD.replace("Porto", "Po\\rto\\x")], 1, 0),
    ([GOOD[:60], GOOD], 0, 1),
    (["", GOOD], 0, 1),
    ([None, GOOD], 0, 1),
    (["I'm sorry, but I can't help with that.", GOOD], 0, 1),
    (['{"facts": []}', GOOD], 0, 1),
]


@pytest.mark.parametrize(("answers", "mended", "retried"), NASTY)
def test_nasty_answers_are_read_or_asked_for_again(
    server: Server, model: Any, chat: sqlmem.MemoryStore, answers: list[Any], mended: int, retried: int
) -> None:
    server.answers = answers[:]
    report = chat.extract("s", llm=model)
    read = (report.mended, report.retried, len(report.memory_ids) + len(report.dropped))
    assert read in ((mended, retried, 1), (1, 0, 0))  # what was cut off within its only memory holds none
    assert [failure.session for failure in chat.failures()] == []
    assert broken_rules(chat) == []


@pytest.mark.parametrize(
    "answers",
    [["", ""], ["no", "no"], [(500, "broken")], [(429, '{"error": "slow down"}')], [(200, "no JSON")], [(401, "{}")]],
)
def test_a_server_that_fails_loses_nothing(server: Server, model: Any, chat: sqlmem.MemoryStore, answers: list[Any]) -> None:
    server.answers = answers[:]
    with pytest.raises(sqlmem.CallbackError, match="nothing was changed"):
        chat.extract("s", llm=model)
    assert chat.stats().live["fact"] == 0
    server.answers = [GOOD]
    assert len(chat.extract("s", llm=model)) == 1


def test_a_server_that_is_not_there_is_said(chat: sqlmem.MemoryStore) -> None:
    gone = llms.openai("small", base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0)
    with pytest.raises(sqlmem.CallbackError, match="the model raised APIConnectionError"):
        chat.extract("s", llm=gone)


@pytest.mark.parametrize("maker", [llms.openai, llms.anthropic])
def test_what_is_missing_is_named(maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", " ", None, 7):
        with pytest.raises(sqlmem.InvalidArgument, match="model must be the name of a model"):
            maker(name)
    monkeypatch.setitem(sys.modules, maker.__name__, None)
    with pytest.raises(sqlmem.ModelMissing, match=f"pip install 'sqlmem\\[{maker.__name__}\\]'"):
        maker("small")
