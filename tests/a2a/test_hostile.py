"""What an agent that speaks A2A sends is hostile: sizes, shapes, other hosts, and who gets to see
its token."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.a2a.speaking import go
from tests.agents.turns import FIX
from tests.engine.at_work import ANA, PATIENCE, chain, node, opened, started

from handrail.agents.a2a import RemoteLimits, a2a_agent
from handrail.testing.clock import ManualClock

VARIABLE, TOKEN = "TRIAGE_TOKEN", "triage-secret-0123456789"
HEAD_MAX = 64_000
Says = Callable[[dict[str, Any]], bytes]
"""What it answers to a call."""


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)


class Hostile:
    """A listener on loopback that answers with any bytes."""

    def __init__(self, says: Says, card: Callable[["Hostile"], bytes] | None = None) -> None:
        self.says, self.card = says, card or (lambda one: carded(one.url))
        self.asked: list[str] = []
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Hostile":
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            self.asked.append(fields.get("authorization", ""))
            reply = self.says(json.loads(body)) if body else self.card(self)
            if not reply:
                await reader.read()  # it says nothing until the other side hangs up
                return
            writer.write(reply)
            with suppress(ConnectionError):
                await writer.drain()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def carded(url: str, version: str = "1.0") -> bytes:
    at = {"url": f"{url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": version}
    return http(json.dumps({"name": "x", "supportedInterfaces": [at]}).encode())


def result(call: dict[str, Any], **said: Any) -> bytes:
    return http(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": said}).encode())


def completed(call: dict[str, Any], text: str) -> bytes:
    part = {"artifactId": "1", "parts": [{"text": text}, {"raw": "AAAA"}, {"data": {"x": 1}}]}
    status = {"state": "TASK_STATE_COMPLETED"}
    return result(call, task={"id": "t", "status": status, "artifacts": [part]})


def stands(state: str, text: str) -> dict[str, Any]:
    """A task that says so."""
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"id": "t", "contextId": "c", "status": {"state": state, "message": said}}


def told(hostile: Hostile, **limits: Any) -> str:
    """What a person is told of an agent that brings no result."""

    async def play() -> str:
        async with hostile, opened("sqlite://", ManualClock()) as engine:
            wanted = RemoteLimits(**{"answer_bytes": 10_000, "text_chars": 1_000, **limits})
            works = a2a_agent(hostile.url, token_from=VARIABLE, limits=wanted)
            engine.add_agent(works, "backend-engineer")
            run = await started(engine, FIX)
            await run.questions(PATIENCE)
            state = await run.state()
            if state.ended:
                return str(state.terminal_status)
            (question,) = state.questions.values()
            return question.text

    said = go(play())
    assert TOKEN not in said
    return said


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (lambda call: http(b"x" * 10_001), "answers with more than 10000 bytes"),
        (lambda call: http(b"{oops"), "answers what is no A2A"),
        (lambda call: http(b'{"a":' * 1_900), "answers what is no A2A"),
        (lambda call: http(b"\xff\xfe"), "answers what is no A2A"),
        (lambda call: http(b"[]"), "answers what is no A2A"),
        (lambda call: http(b"{}"), "neither a result nor an error"),
        (lambda call: result(call), "neither a task nor a message"),
        (lambda call: result(call, task={"id": 7}), "answers what is no A2A"),
        (lambda call: completed(call, "x" * 1_001), "more than 1000 characters of text"),
        (lambda call: completed(call, '{"outcome": "perhaps"}'), "answers what is no result"),
        (lambda call: http(TOKEN.encode(), "500 Oops"), "answers 500: ***"),
        (lambda call: http(b"", "401 No"), "answers 401: wants a token that it knows"),
        (
            lambda call: http(b'{"error": {"code": -32602, "message": "no\\n\\nway"}}'),
            "says no (-32602): no way",
        ),
        (lambda call: b"", "has no answer after 0.5 s"),
        (lambda call: completed(call, "fine\0"), "done_success"),
    ],
)
def test_an_answer_that_is_none_costs_the_attempt_and_says_why(says: Says, why: str):
    assert why in told(Hostile(says), **({"seconds": 0.5} if "0.5" in why else {}))


def test_no_redirect_carries_the_token():
    elsewhere = Hostile(lambda call: completed(call, "fine"))

    def says(call: dict[str, Any]) -> bytes:
        return http(b"", "307 Moved", f"location: {elsewhere.url}/a2a")

    async def play() -> None:
        async with elsewhere:
            at_call = Hostile(says)
            assert "sends us to" in await asyncio.to_thread(told, at_call)
            assert at_call.asked == [f"bearer {TOKEN}"] * 2
            at_card = Hostile(says, lambda one: says({}))
            assert "sends us to" in await asyncio.to_thread(told, at_card)

    asyncio.run(play())
    assert elsewhere.asked == []


def test_an_answer_to_a_task_that_is_gone_is_sent_with_the_work_anew():
    sent: list[dict[str, Any]] = []

    def says(call: dict[str, Any]) -> bytes:
        sent.append(call["params"]["message"])
        if len(sent) == 2:
            return http(b'{"error": {"code": -32001, "message": "no such task"}}')
        state, text = ("INPUT_REQUIRED", "Which?") if len(sent) == 1 else ("COMPLETED", "done")
        return result(call, task=stands(f"TASK_STATE_{state}", text))

    async def play() -> None:
        async with Hostile(says) as hostile, opened("sqlite://", ManualClock()) as engine:
            engine.add_agent(a2a_agent(hostile.url), "backend-engineer")
            run = await started(engine, chain(node("fix")))
            (question,) = await run.questions(PATIENCE)
            await run.answer(question.id, "that one", by=ANA)
            assert (await run.result(PATIENCE)).terminal_status == "done_success"

    go(play())
    _, answer, anew = sent
    assert (answer["taskId"], answer["contextId"]) == ("t", "c")
    assert answer["parts"][0]["text"] == "that one"
    assert "taskId" not in anew
    assert "Which?" in anew["parts"][0]["text"]
    assert "that one" in anew["parts"][0]["text"]


def test_a_look_that_fails_is_tried_again_and_not_for_ever():
    def says(most: int) -> Says:
        looks = iter(range(most))

        def answer(call: dict[str, Any]) -> bytes:
            if call["method"] == "SendMessage":
                return result(call, task=stands("TASK_STATE_WORKING", ""))
            if call["method"] == "GetTask" and next(looks, None) is None:
                return result(call, **stands("TASK_STATE_COMPLETED", "done"))
            return http(b"", "503 Away")

        return answer

    assert told(Hostile(says(2))) == "done_success"
    assert "answers 503" in told(Hostile(says(100)))


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (lambda one: carded("http://example.org"), "names another host, example.org"),
        (lambda one: carded(one.url.replace("http:", "https:")), "names another host"),
        (
            lambda one: carded(one.url, "0.3.0"),
            "for JSON-RPC and protocol 1.0",
        ),
        (lambda one: http(b'{"name": "x", "url": "http://example.org"}'), "without an interface"),
        (lambda one: http(b"<html>"), "answers what is no A2A"),
    ],
)
def test_a_card_leads_to_nobody_else(card: Callable[[Hostile], bytes], why: str):
    hostile = Hostile(lambda call: completed(call, "fine"), card)
    assert why in told(hostile)
    assert len(hostile.asked) == 1


def test_a_token_that_is_not_set_is_told_before_anybody_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE)
    hostile = Hostile(lambda call: completed(call, "fine"))
    assert f"needs a token; set {VARIABLE}" in told(hostile)
    assert hostile.asked == []
    with pytest.raises(ValueError, match="no address of an agent"):
        a2a_agent("triage.example.org")
