"""`wait`: an answer at the end of the run, bounded, and nobody who waits is left behind."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from msgspec.structs import replace
from tests.server.harness import ASKS, PLAIN, ServerHarness, expect_json, expect_problem
from tests.server.http_agents import wait_for_long_polls

from handrail.server.process import ClosingServer
from handrail.server.settings import ServerSettings


@pytest.mark.requirement("H1.4")
async def test_whoever_waits_has_the_result_when_the_run_ends(harness: ServerHarness):
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    waiting = asyncio.create_task(harness.viewer.get(path, params={"wait": 60}))
    await wait_for_long_polls(harness, 1)
    began = time.monotonic()
    harness.works()
    run = expect_json(await waiting)
    assert time.monotonic() - began < 30, "not when the time was over"
    assert (run["status"], run["terminal_status"]) == ("ended", "done_success")
    await wait_for_long_polls(harness, 0)


@pytest.mark.requirement("H1.4")
async def test_many_who_wait_are_all_told(harness: ServerHarness):
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    asked = [asyncio.create_task(harness.viewer.get(path, params={"wait": 60})) for _ in range(50)]
    await wait_for_long_polls(harness, 50)
    harness.works()
    runs = [expect_json(answer) for answer in await asyncio.gather(*asked)]
    assert {run["status"] for run in runs} == {"ended"}


async def test_a_run_that_has_ended_is_answered_at_once(harness: ServerHarness):
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    harness.works()
    await harness.quiet()
    assert expect_json(await harness.viewer.get(path, params={"wait": 60}))["status"] == "ended"


async def test_after_the_time_the_run_is_told_as_it_stands(harness: ServerHarness):
    await harness.define(ASKS)
    path = f"/executions/{(await harness.file('asks'))['execution_id']}"
    for wait in ("0.02", "0"):
        assert (
            expect_json(await harness.viewer.get(path, params={"wait": wait}))["status"]
            == "running"
        )
    harness.served.long_polls.settings = replace(harness.settings, wait_max=0.02)
    for wait in ("3600", "inf", "1e300"):
        assert (
            expect_json(await harness.viewer.get(path, params={"wait": wait}))["status"]
            == "running"
        )


async def test_a_time_that_is_none_is_refused(harness: ServerHarness):
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    for wait in ("-1", "soon", "nan", "-inf"):
        expect_problem(await harness.viewer.get(path, params={"wait": wait}), 422, "bad_parameter")


async def test_there_is_a_bound_for_how_many_wait(harness: ServerHarness):
    harness.served.long_polls.settings = ServerSettings(waiting_max=2)
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    waiting = [asyncio.create_task(harness.viewer.get(path, params={"wait": 60})) for _ in range(2)]
    await wait_for_long_polls(harness, 2)
    answer = await harness.viewer.get(path, params={"wait": 60})
    expect_problem(answer, 503, "too_many_waiting")
    assert answer.headers["retry-after"]
    expect_json(await harness.viewer.get(path))  # whoever does not wait is not affected
    harness.works()
    await asyncio.gather(*waiting)


async def test_whoever_waits_is_told_when_the_server_is_about_to_end(harness: ServerHarness):
    await harness.define(PLAIN)
    path = f"/executions/{(await harness.file('plain'))['execution_id']}"
    waiting = asyncio.create_task(harness.viewer.get(path, params={"wait": 60}))
    await wait_for_long_polls(harness, 1)
    harness.served.long_polls.draining.set()
    assert expect_json(await waiting)["status"] == "running"
    assert expect_json(await harness.viewer.get(path, params={"wait": 60}))["status"] == "running"


@asynccontextmanager
async def _listening(harness: ServerHarness):
    """On a socket of this machine."""
    config = uvicorn.Config(
        harness.served.asgi, http="httptools", ws="none", lifespan="on", log_config=None
    )
    server = ClosingServer(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.001)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def test_whoever_hangs_up_frees_the_place(harness: ServerHarness):
    await harness.define(PLAIN)
    run_id = (await harness.file("plain"))["execution_id"]
    token = harness.viewer.headers["Authorization"]
    async with (
        _listening(harness) as url,
        httpx.AsyncClient(headers={"Authorization": token}) as client,
    ):
        path = f"{url}/api/v1/executions/{run_id}"
        waiting = asyncio.create_task(client.get(path, params={"wait": 60}))
        await wait_for_long_polls(harness, 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await wait_for_long_polls(harness, 0)
