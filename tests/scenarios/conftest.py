"""Every scenario at a server has one of its own; all runs stop where the frozen rules stop them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.engines import run_async
from tests.kernel.frozen_histories import compare_history
from tests.scenarios.server_scenarios import Play
from tests.server.harness import ServerHarness

from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.run.events import RunEvent
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


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compares the history of every run that the kernel decided in this process.

    A replay decides again under other limits, and drafts of reports are thrown away: only what
    follows the last recorded event of its run is its history.
    """
    histories: dict[str, list[RunEvent]] = defaultdict(list)
    emit = DecisionBuilder.emit

    def recorded(builder: DecisionBuilder, event: RunEvent) -> None:
        emit(builder, event)
        history = histories[builder.run.id]
        if builder.run.seq == 1:
            history.clear()
        if builder.run.seq == len(history) + 1:
            history.append(event)

    monkeypatch.setattr(DecisionBuilder, "emit", recorded)
    yield
    for history in histories.values():
        compare_history(history)
