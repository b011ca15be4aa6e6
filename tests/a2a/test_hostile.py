"""What an agent that speaks A2A sends is hostile: sizes, shapes, other hosts, and who gets to see
its token."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.a2a.a2a_server import run_async
from tests.agents.agent_runs import FIX
from tests.engine.engines import (
    ANA,
    PATIENCE,
    chain,
    manual_engine,
    node,
    start_run,
    wait_until_async,
)

from handrail.agents import a2a
from handrail.agents.a2a import RemoteLimits, a2a_agent
from handrail.engine.services.runs import RunHandle
from handrail.testing.clock import ManualClock

VARIABLE, TOKEN = "TRIAGE_TOKEN", "triage-secret-0123456789"
DONE, ASKS = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"
DRIP = 0.02
Says = Callable[[dict[str, Any]], bytes | list[bytes]]
"""What it answers to a call; a list comes piece by piece."""


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tasks are looked at often."""
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.setattr(a2a, "POLL_SECONDS_FIRST", 0.001)
    monkeypatch.setattr(a2a, "POLL_SECONDS_MAX", 0.01)
    monkeypatch.setattr(a2a, "CANCEL_SECONDS", 0.2)


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

    def gone(self) -> None:
        """Nobody listens there any more."""
        self._server.close()

    async def __aexit__(self, *_: object) -> None:
        self.gone()
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
            with suppress(ConnectionError):
                for part in reply if isinstance(reply, list) else [reply]:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(DRIP if isinstance(reply, list) else 0)
        except asyncio.IncompleteReadError:
            pass  # it was hung up on before it was asked anything
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


def stands(state: str, text: str = "", task_id: str = "t") -> dict[str, Any]:
    """A task that says so."""
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"id": task_id, "contextId": "c", "status": {"state": state, "message": said}}


def working_until(looks: Callable[[int], bytes]) -> Says:
    """Its task is at work, and what the looks find is said by their number."""
    numbers = iter(range(10_000))

    def answer(call: dict[str, Any]) -> bytes:
        if call["method"] == "SendMessage":
            return result(call, task=stands("TASK_STATE_WORKING"))
        return looks(next(numbers))

    return answer


def told(hostile: Hostile, **limits: Any) -> str:
    """What a person is told of an agent that brings no result."""

    async def play() -> str:
        async with hostile, manual_engine("sqlite://", ManualClock()) as engine:
            wanted = RemoteLimits(**{"answer_bytes": 10_000, "text_chars": 1_000, **limits})
            works = a2a_agent(hostile.url, token_from=VARIABLE, limits=wanted)
            engine.add_agent(works, "backend-engineer")
            run = await start_run(engine, FIX)
            await run.questions(PATIENCE)
            state = await run.state()
            if state.has_ended:
                return str(state.terminal_status)
            (question,) = state.pending_approvals.values()
            return question.text

    said = run_async(play())
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
        (lambda call: [b"HTTP/1.1 200 OK\r\n\r\n", *[b" "] * 500], "longer than 0.4 s for one"),
        (lambda call: result(call, task=stands("TASK_STATE_WORKING", "", "t" * 201)), "shorter"),
        (lambda call: result(call, task=stands("TASK_STATE_WORKING", "", "t\0")), "odd ones"),
        (
            working_until(lambda _: http(json.dumps({"result": stands(DONE, "", "u")}).encode())),
            "answers with task 'u' where 't' was meant",
        ),
    ],
)
def test_an_answer_that_is_none_costs_the_attempt_and_says_why(says: Says, why: str):
    times = {"0.5 s": {"seconds": 0.5}, "0.4 s": {"call_seconds": 0.4}}
    limits = next((given for told, given in times.items() if told in why), {})
    assert why in told(Hostile(says), **limits)


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
        async with Hostile(says) as hostile, manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(a2a_agent(hostile.url), "backend-engineer")
            run = await start_run(engine, chain(node("fix")))
            (question,) = await run.questions(PATIENCE)
            await run.answer(question.id, "that one", by=ANA)
            assert (await run.result(PATIENCE)).terminal_status == "done_success"

    run_async(play())
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
        (lambda one: carded("http://example.org"), "names another host, http://example.org/a2a"),
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


async def answered(run: RunHandle, most: int) -> list[str]:
    """A person answers whatever is asked, so often at most: what was asked, and at last where it
    stands."""
    asked: list[str] = []
    for _ in range(most):
        questions = await run.questions(PATIENCE)
        if not questions:
            break
        asked.append(questions[0].text)
        if questions[0].kind != "clarification_request":
            break
        await run.answer(questions[0].id, "go on", by=ANA)
    return asked


def test_an_agent_that_asks_for_ever_has_an_attempt_for_each_and_then_somebody_looks_at_it():
    def says(call: dict[str, Any]) -> bytes:
        return result(call, task=stands(ASKS, "And now?"))

    async def play() -> list[str]:
        async with Hostile(says) as hostile, manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(a2a_agent(hostile.url), "backend-engineer")
            return await answered(await start_run(engine, chain(node("fix"))), 50)

    *asked, last = run_async(play())
    assert asked == ["And now?"] * 2
    assert "needs a decision after 3 of 3 attempts" in last


def test_what_was_completed_stays_so_whatever_the_agent_says_of_it_later():
    calls: list[str] = []

    def says(call: dict[str, Any]) -> bytes:
        calls.append(call["method"])
        if call["method"] == "SendMessage":
            return completed(call, "done")
        return result(call, **stands("TASK_STATE_FAILED", "no, it failed"))

    assert told(Hostile(says)) == "done_success"
    assert calls == ["SendMessage"]


def test_an_agent_that_is_gone_for_good_is_not_looked_for_for_ever():
    hostile = Hostile(lambda call: b"")

    def says(call: dict[str, Any]) -> bytes:
        hostile.gone()
        return result(call, task=stands("TASK_STATE_WORKING"))

    hostile.says = says
    assert "could not be asked (ConnectError" in told(hostile)


def test_a_card_that_names_another_host_by_the_time_of_the_answer_gets_no_token_there():
    elsewhere = Hostile(lambda call: completed(call, "fine"))

    def says(call: dict[str, Any]) -> bytes:
        return result(call, task=stands(ASKS, "Which?"))

    def card(one: Hostile) -> bytes:
        return carded(one.url if len(one.asked) == 1 else elsewhere.url)

    async def play() -> list[str]:
        async with (
            elsewhere,
            Hostile(says, card) as hostile,
            manual_engine("sqlite://", ManualClock()) as engine,
        ):
            engine.add_agent(a2a_agent(hostile.url, token_from=VARIABLE), "backend-engineer")
            return await answered(await start_run(engine, chain(node("fix", max_attempts=2))), 2)

    asked, last = run_async(play())
    assert asked == "Which?"
    assert "names another host" in last
    assert elsewhere.asked == []


def test_runs_whose_tasks_have_the_same_name_end_each_by_itself():
    sent: list[str] = []
    cancelled: list[str] = []

    def says(call: dict[str, Any]) -> bytes:
        if call["method"] == "SendMessage":
            sent.append(call["params"]["message"]["messageId"])
            return result(call, task=stands("TASK_STATE_WORKING"))
        if call["method"] == "CancelTask":
            cancelled.append(call["params"]["id"])
        state = "TASK_STATE_CANCELED" if cancelled else "TASK_STATE_WORKING"
        return result(call, **stands(state))

    async def play() -> tuple[Any, str]:
        async with Hostile(says) as hostile, manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(a2a_agent(hostile.url), "backend-engineer", capacity=2)
            one, other = await start_run(engine, FIX), await start_run(engine, FIX)
            await wait_until_async(lambda: len(sent) == 2)
            await one.close(by=ANA, reason="not needed")
            (question,) = await other.questions(PATIENCE)
            return (await one.state()).terminal_status, question.text

    closed, last = run_async(play())
    assert closed == "closed_by_human"
    assert "the work was cancelled at the agent" in last
