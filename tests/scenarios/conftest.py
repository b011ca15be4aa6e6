"""Every scenario at a server has one of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.engines import run_async
from tests.scenarios.server_scenarios import Play
from tests.server.harness import ServerHarness

from handrail.testing.clock import ManualClock


@pytest.fixture
def at(tmp_path: Path) -> Callable[[Play], None]:
    """Plays a scenario at a server of its own."""

    def play(scenario: Play) -> None:
        async def opened() -> None:
            async with ServerHarness(
                f"sqlite:///{tmp_path / 'work.db'}", ManualClock()
            ).opened() as harness:
                await scenario(harness)

        run_async(opened())

    return play
