"""Servers under test. A test of this folder may be `async`: it runs in a loop of its own, and the
harnesses that it is given are open while it does."""

import inspect
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.engine.engines import run_async
from tests.server.harness import ServerHarness

from handrail.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def harness(tmp_path: Path, clock: ManualClock) -> ServerHarness:
    """A server on SQLite, and everybody with a token."""
    return ServerHarness(f"sqlite:///{tmp_path / 'work.db'}", clock)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    named = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in named}

    async def play() -> None:
        async with AsyncExitStack() as stack:
            for harness in given.values():
                if isinstance(harness, ServerHarness):
                    await stack.enter_async_context(harness.opened())
            await pyfuncitem.obj(**given)

    run_async(play())
    return True
