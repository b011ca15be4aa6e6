"""`wait`: an answer at the end of the run, bounded, and nobody who waits is left behind."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from msgspec.structs import replace
from tests.server.house import ASKS, PLAIN, House, problem, told

from handrail.server.process import ClosingServer
from handrail.server.settings import ServerSettings


async def _at(house: House, count: int) -> None:
    """Until so many requests wait."""
    for _ in range(10_000):
        if house.served.long_polls.count == count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{house.served.long_polls.count} requests wait, not {count}")


@pytest.mark.requirement("H1.4")
async def test_whoever_waits_has_the_result_when_the_run_ends(house: House):
    await house.define(PLAIN)
    path = f"/executions/{(await house.file('plain'))['execution_id']}"
    waiting = asyncio.create_task(house.viewer.get(path, params={"wait": 60}))
    await _at(house, 1)
    began = time.monotonic()
    house.works()
    run = told(await waiting)
    assert time.monotonic() - began < 30, "not when the time was over"
    assert (run["status"], run["terminal_status"]) == ("ended", "done_success")
    await _at(house, 0)


@pytest.mark.requirement("H1.4")
async def test_many_who_wait_are_all_told(house: House):
    await house.define(PLAIN)
    path = f"/executions/{(await house.file('plain'))['execution_id']}"
    asked = [asyncio.create_task(house.viewer.get(path, params={"wait": 60})) for _ in range(50)]
    await _at(house, 50)
    house.works()
    runs = [told(answer) for answer in await asyncio.gather(*asked)]
    assert {run["status"] for run in runs} == {"ended"}


async def test_a_run_that_has_ended_is_answered_at_once(house: House):
    await house.define(PLAIN)
    path = f"/executions/{(await house.file('plain'))['execution_id']}"
    house.works()
    await house.quiet()
    assert told(await house.viewer.get(path, params={"wait": 60}))["status"] == "ended"


async def test_after_the_time_the_run_is_told_as_it_stands(house: House):
    await house.define(ASKS)
    path = f"/executions/{(await house.file('asks'))['execution_id']}"
    for wait in ("0.02", "0"):
        assert told(await house.viewer.get(path, params={"wait": wait}))["status"] == "running"
    house.served.long_polls.settings = replace(house.settings, wait_max=0.02)
    for wait in ("3600", "inf", "1e300"):
        assert told(await house.viewer.get(path, params={"wait": wait}))["status"] == "running"


async def test_a_time_that_is_none_is_refused(house: House):
    await house.define(PLAIN)
    path = f"/executions/{(await house.file('plain'))['execution_id']}"
    for wait in ("-1", "soon", "nan", "-inf"):
        problem(await house.viewer.get(path, params={"wait": wait}), 422, "bad_parameter")


async def test_there_is_a_bound_for_how_many_wait(house: House):
    house.served.long_polls.settings = ServerSettings(waiting_max=2)
    await house.define(PLAIN)
    path = f"/executions/{(await house.file('plain'))['execution_id']}"
    waiting = [asyncio.create_task(house.viewer.get(path, params={"wait": 60})) for _ in range(2)]
    await _at(house, 2)
    answer = await house.viewer.get(path, params={"wait": 60})
    problem(answer, 503, "too_many_waiting")
    assert answer.headers["retry-after"]
    told(await house.viewer.get(path))  # whoever does not wait is not affected
    house.works()
    await asyncio.gather(*waiting)


async def test_whoever_waits_is_told_when_the_server_is_about_to_end(house: House):
    await house.define(PLAIN)
    path = f"/executions/{(await house.file('plain'))['execution_id']}"
    waiting = asyncio.create_task(house.viewer.get(path, params={"wait": 60}))
    await _at(house, 1)
    house.served.long_polls.draining.set()
    assert told(await waiting)["status"] == "running"
    assert told(await house.viewer.get(path, params={"wait": 60}))["status"] == "running"


@asynccontextmanager
async def _listening(house: House):
    """On a socket of this machine."""
    config = uvicorn.Config(
        house.served.asgi, http="httptools", ws="none", lifespan="on", log_config=None
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


async def test_whoever_hangs_up_frees_the_place(house: House):
    await house.define(PLAIN)
    run_id = (await house.file("plain"))["execution_id"]
    token = house.viewer.headers["Authorization"]
    async with (
        _listening(house) as url,
        httpx.AsyncClient(headers={"Authorization": token}) as client,
    ):
        path = f"{url}/api/v1/executions/{run_id}"
        waiting = asyncio.create_task(client.get(path, params={"wait": 60}))
        await _at(house, 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await _at(house, 0)
