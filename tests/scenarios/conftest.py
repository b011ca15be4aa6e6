"""Every scenario at a server has one of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.at_work import go
from tests.scenarios.at_server import Play
from tests.server.house import House

from handrail.testing.clock import ManualClock


@pytest.fixture
def at(tmp_path: Path) -> Callable[[Play], None]:
    """Plays a scenario at a server of its own."""

    def play(scenario: Play) -> None:
        async def opened() -> None:
            async with House(f"sqlite:///{tmp_path / 'work.db'}", ManualClock()).opened() as house:
                await scenario(house)

        go(opened())

    return play
