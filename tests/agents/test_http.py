"""Services as agents, over real HTTP on loopback."""

import asyncio
import json
from collections.abc import Callable

import pytest
from tests.agents.agent_runs import FIX, PAIR
from tests.agents.model_stub import ModelReply, ModelRequest, Stub
from tests.engine.engines import ANA, manual_engine, run_async, start_run, wait_until_async

from handrail.agents.http import ServiceLimits, http_agent
from handrail.kernel.run.state import Run
from handrail.testing.clock import ManualClock

QUICK = ServiceLimits(seconds=20, answer_bytes=10_000)
SECRET = "hr-secret-0123456789"
DONE = {"outcome": "success", "text": "fixed", "usage": {"tokens": 5}}


def answered(
    says: Callable[[ModelRequest], ModelReply], limits: ServiceLimits = QUICK, path: str = "/turn"
) -> tuple[Run, Stub]:
    """A run whose one agent is that service."""

    async def play() -> tuple[Run, Stub]:
        async with Stub(says) as stub, manual_engine("sqlite://", ManualClock()) as engine:
            url = stub.url.removesuffix("/v1") + path
            headers = {"Authorization": f"Bearer {SECRET}"}
            engine.add_agent(http_agent(url, headers=headers, limits=limits), "backend-engineer")
            run = await start_run(engine, FIX, title="500 on /invoices")
            await run.questions(60)
            return await run.state(), stub

    return run_async(play())


def told(says: Callable[[ModelRequest], ModelReply], limits: ServiceLimits = QUICK) -> str:
    run, _ = answered(says, limits)
    (question,) = run.pending_approvals.values()
    assert "the service http://127.0.0.1:" in question.text
    assert "/turn of 'fix' " in question.text
    assert SECRET not in question.text
    return question.text


@pytest.mark.requirement("L9.6")
def test_a_service_is_posted_the_dispatch_and_answers_with_a_result():
    run, stub = answered(lambda asked: ModelReply(json.dumps(DONE).encode()))
    (asked,) = stub.asked
    assert (run.terminal_status, run.ledger.tokens) == ("done_success", 5)
    assert asked.body["bead"]["title"] == "500 on /invoices"
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.headers["idempotency-key"] == asked.body["key"]


def test_a_service_may_answer_in_text():
    run, _ = answered(lambda asked: ModelReply(b"fixed"))
    assert run.terminal_status == "done_success"


def test_a_service_works_in_a_team():
    def says(asked: ModelRequest) -> ModelReply:
        last = "HANDOFF: closer: x" if asked.body["agent"] == "asker" else "TERMINATE_WORKFLOW: y"
        return ModelReply(f"ok\n{last}".encode())

    async def play():
        async with Stub(says) as stub, manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(http_agent(stub.url), "asker", "closer")
            run = await start_run(engine, PAIR)
            assert (await run.result(60)).terminal_status == "done_success"

    run_async(play())


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            ModelReply(b"no way in with " + SECRET.encode(), 500),
            "answered 500 (no way in with ***)",
        ),
        (ModelReply(b"", 204), "answered 204"),
        (ModelReply(b"{oops"), "answered what is no result"),
        (ModelReply(b'{"outcome": "perhaps"}'), "answered what is no result"),
        (ModelReply(b"\xff\xfe"), "answered what is no result"),
        (ModelReply(b"x" * 10_001), "more than 10000 bytes"),
        (ModelReply(b"", drips=True), "more than 10000 bytes"),
        (ModelReply(b"", 302, (("location", "/elsewhere"),)), "answered 302"),
        (ModelReply(b"", 307, (("location", "/turn"),)), "redirects more than 3 times"),
        (
            ModelReply(b"", 307, (("location", "http://example.org/"),)),
            "sends us to another host, example.org; give that address if it is meant",
        ),
        (ModelReply(b"", 308, (("location", "https://127.0.0.1/"),)), "another host, 127.0.0.1"),
    ],
)
def test_an_answer_that_is_none_costs_the_attempt_and_says_why(reply: ModelReply, said: str):
    limits = ServiceLimits(seconds=20, answer_bytes=10 if reply.drips else 10_000)
    if reply.drips:
        said = "more than 10 bytes"
    assert said in told(lambda asked: reply, limits)


def test_a_redirect_on_the_same_host_is_followed():
    moved = iter([ModelReply(b"", 307, (("location", "/v2/turn"),))])
    run, stub = answered(lambda asked: next(moved, ModelReply(json.dumps(DONE).encode())))
    assert run.terminal_status == "done_success"
    assert stub.asked[0].body == stub.asked[1].body


def test_a_service_that_does_not_answer_in_time_is_given_up():
    limits = ServiceLimits(seconds=0.2)
    never = ModelReply(b"", after=None, drips=True)
    assert "did not answer in 0.2 s" in told(lambda asked: never, limits)


def test_a_service_that_is_not_there_is_told():
    async def play():
        async with Stub(lambda asked: ModelReply(b"")) as stub:
            url = stub.url
        async with manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(http_agent(url), "backend-engineer")
            run = await start_run(engine, FIX)
            (question,) = await run.questions(60)
            assert "could not be asked (ConnectError" in question.text

    run_async(play())
    with pytest.raises(ValueError, match="no address of a service"):
        http_agent("triage.example.org")


@pytest.mark.requirement("H5.5")
def test_a_run_that_is_closed_hangs_up_on_the_service():
    async def play():
        never = asyncio.Event()
        async with (
            Stub(lambda asked: ModelReply(b"", after=never)) as stub,
            manual_engine("sqlite://", ManualClock()) as engine,
        ):
            engine.add_agent(http_agent(stub.url), "backend-engineer")
            run = await start_run(engine, FIX)
            await wait_until_async(lambda: bool(stub.asked))
            await run.close(by=ANA, reason="no longer needed")
            await wait_until_async(lambda: stub.left == 1)

    run_async(play())
