"""Figures per definition: what the API says is what the events say, counted by hand."""

import random
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from math import floor
from typing import Any

import pytest
from tests.engine.engines import ANA, chain, node
from tests.server.harness import DONE, PLAIN, ServerHarness, expect_json, expect_problem

from handrail.api.shared import ApprovalDecision
from handrail.engine.engine import Engine
from handrail.kernel.result import Outcome, Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import Asked, Ended, Faulted, Offered, Reported, RunEvent
from handrail.testing.clock import NOON, ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ROLES = ("backend-engineer", "qa-engineer")
FIXES = chain(
    node("fix", max_attempts=2),
    node("verify", role="qa-engineer", kind="verification", on_failure={"rework": "fix", "max": 2}),
    id="fixes",
)
LOOKS = chain(node("look", kind="investigation", multi_dispatch=True, max_attempts=4), id="looks")
NOT_WELL = (Outcome.FAILURE,) * 3


@pytest.fixture(params=["sqlite", "postgres"])
def any_harness(request: pytest.FixtureRequest, tmp_path: Any, clock: ManualClock) -> ServerHarness:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    return ServerHarness(url, clock)


class Busy:
    """Chance, from a seed: runs begin, agents work well or not, people answer, time passes."""

    def __init__(self, harness: ServerHarness, seed: int) -> None:
        self.harness, self.chance = harness, random.Random(seed)
        self.engine: Engine = harness.engine
        self.runs: list[str] = []

    async def do(self, runs: int) -> None:
        await self.harness.define(FIXES, LOOKS)
        for role in ROLES:
            await self.engine.agents.register(f"the-{role}", [role])
        while len(self.runs) < runs:
            started = await self.engine.start(self.chance.choice(["fixes", "looks"]))
            self.runs.append(started.id)
            for _ in range(self.chance.randrange(5)):
                await self._something()
        for _ in range(100 * runs):
            if not await self._something():
                return
        raise AssertionError("it does not end")

    async def _something(self) -> bool:
        self.harness.clock.advance(self.chance.choice([0, 0.25, 1, 7.5]))
        worked = [await self._work(role) for role in ROLES]
        return any([*worked, await self._answer()])

    async def _work(self, role: str) -> bool:
        name = f"the-{role}"
        await self.engine.agents.heartbeat(name)
        dispatch = await self.engine.claims.claim(name)
        if dispatch is None:
            return False
        more = (Outcome.CONTINUE,) * 3 if dispatch.run.definition_id == "looks" else ()
        outcome = self.chance.choice([Outcome.SUCCESS] * 3 + [*NOT_WELL, *more])
        usage = Usage(tokens=self.chance.randrange(100), cost=self.chance.randrange(8) / 8)
        self.harness.clock.advance(self.chance.choice([0, 0.5, 3]))
        result = Result(outcome=outcome, text="so", usage=usage)
        where = f"{dispatch.run.id}.d{dispatch.fence}"
        await self.engine.dispatches.report_result(where, name, dispatch.fence, result)
        return True

    async def _answer(self) -> bool:
        opened = self.engine.store.approvals.list(status="open")
        if not opened:
            return False
        decisions: tuple[ApprovalDecision, ...] = ("approve", "reject")
        decision = self.chance.choice(decisions)
        await self.engine.approvals.answer(opened[0].id, "so be it", by=ANA, decision=decision)
        return True


def percentile(times: list[float], part: float) -> float:
    place = (len(times) - 1) * part
    low, high = times[floor(place)], times[min(floor(place) + 1, len(times) - 1)]
    return low + (high - low) * (place - floor(place))


def by_hand(runs: dict[str, list[list[RunEvent]]], since: datetime | None) -> list[dict[str, Any]]:
    """The figures, from nothing but the events."""
    found: list[dict[str, Any]] = []
    for workflow_id, histories in sorted(runs.items()):
        ended = [
            events
            for events in histories
            if isinstance(events[-1], Ended) and (since is None or events[-1].at >= since)
        ]
        if not ended:
            continue
        times = sorted((events[-1].at - events[0].at).total_seconds() for events in ended)
        tries: dict[str, Counter[int]] = defaultdict(Counter)
        for events in ended:
            for place, n in Counter(e.step_id for e in events if isinstance(e, Offered)).items():
                tries[place][n] += 1
        results = [
            e.result for events in ended for e in events if isinstance(e, Reported | Faulted)
        ]
        found.append(
            {
                "workflow_id": workflow_id,
                "runs": len(ended),
                "time_to_resolution": {
                    "p50": percentile(times, 0.5),
                    "p90": percentile(times, 0.9),
                    "p99": percentile(times, 0.99),
                    "mean": sum(times) / len(times),
                },
                "success_rate": sum(map(succeeded, ended)) / len(ended),
                "escalation_rate": sum(map(escalated, ended)) / len(ended),
                "retries": {
                    place: {str(n - 1): runs for n, runs in sorted(counts.items())}
                    for place, counts in tries.items()
                },
                "dispatch_cycles": {
                    place: sum(n * runs for n, runs in counts.items()) / counts.total()
                    for place, counts in tries.items()
                },
                "usage": {
                    "tokens": sum(result.usage.tokens for result in results),
                    "cost": sum(result.usage.cost for result in results),
                },
                "investigation_success": None,
                "fix_success": None,
                "fix_cycles": None,
            }
        )
    return found


def succeeded(events: list[RunEvent]) -> bool:
    last = events[-1]
    assert isinstance(last, Ended)
    return last.status == "done_success"


def escalated(events: list[RunEvent]) -> bool:
    return any(isinstance(e, Asked) and e.approval.kind == "escalation" for e in events)


async def histories(harness: ServerHarness, runs: list[str]) -> dict[str, list[list[RunEvent]]]:
    found: dict[str, list[list[RunEvent]]] = defaultdict(list)
    for run_id in runs:
        events = await harness.engine.runs.history(run_id)
        found[events[0].definition_id].append(events)  # pyright: ignore[reportAttributeAccessIssue]
    return found


def near(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, to the ninth digit: sums in another order differ in the last."""
    return [
        {**one, "time_to_resolution": pytest.approx(one["time_to_resolution"], rel=1e-9)}
        for one in found
    ]


@pytest.mark.requirement("L14.1", "L14.2", "L14.3", "L14.4", "L14.5", "L14.6")
@pytest.mark.parametrize(("runs", "seed"), [(1, 1), (2, 2), (3, 3), (80, 4)])
async def test_the_figures_are_those_of_the_events(
    any_harness: ServerHarness, runs: int, seed: int
):
    busy = Busy(any_harness, seed)
    await busy.do(runs)
    viewer = any_harness.viewer
    answer = expect_json(await viewer.get("/metrics/workflows"))
    past = await histories(any_harness, busy.runs)
    assert answer == {"items": near(by_hand(past, None)), "since": None}
    ends = sorted(events[-1].at for of in past.values() for events in of)
    since = ends[len(ends) // 2]
    wanted = {"since": since.isoformat()}
    answer = expect_json(await viewer.get("/metrics/workflows", params=wanted))
    assert answer["items"] == near(by_hand(past, since))
    assert datetime.fromisoformat(answer["since"]) == since
    if runs > 50:
        rates = [(one["success_rate"], one["escalation_rate"]) for one in answer["items"]]
        assert all(0 < success < 1 and 0 < asked < 1 for success, asked in rates)


@pytest.mark.requirement("L14.6")
async def test_the_figures_of_one_definition_can_be_asked_for(harness: ServerHarness):
    await harness.define(PLAIN, {**PLAIN, "id": "other"})
    harness.works()
    for name in ("plain", "plain", "other"):
        await harness.file(name)
    await harness.quiet()
    answer = expect_json(
        await harness.viewer.get("/metrics/workflows", params={"workflow_id": "plain"})
    )
    assert [(one["workflow_id"], one["runs"]) for one in answer["items"]] == [("plain", 2)]
    nothing = expect_json(
        await harness.viewer.get("/metrics/workflows", params={"workflow_id": "none"})
    )
    assert nothing == {"items": [], "since": None}


@pytest.mark.requirement("L14.1")
async def test_a_run_that_goes_on_counts_once_it_has_ended(harness: ServerHarness):
    await harness.define(PLAIN)
    await harness.file("plain")
    assert expect_json(await harness.viewer.get("/metrics/workflows"))["items"] == []
    harness.clock.advance(minutes=3)
    harness.works()
    await harness.quiet()
    (found,) = expect_json(await harness.viewer.get("/metrics/workflows"))["items"]
    assert found["time_to_resolution"] == {"p50": 180, "p90": 180, "p99": 180, "mean": 180}


@pytest.mark.requirement("L14.4", "L14.5")
async def test_retries_and_cycles_are_told_for_each_node(harness: ServerHarness):
    await harness.define(LOOKS)
    said = [Result(outcome=Outcome.CONTINUE), Result(outcome=Outcome.CONTINUE), DONE, DONE]
    harness.engine.add_agent(lambda _: said.pop(0), "backend-engineer", capacity=1)
    for _ in range(2):
        await harness.file("looks")
        await harness.quiet()
    (found,) = expect_json(await harness.viewer.get("/metrics/workflows"))["items"]
    assert found["retries"] == {"look": {"0": 1, "2": 1}}
    assert found["dispatch_cycles"] == {"look": 2.0}


@pytest.mark.requirement("L14.2")
async def test_a_run_that_a_person_closed_is_no_success(harness: ServerHarness):
    await harness.define(PLAIN)
    run = await harness.engine.start("plain")
    await harness.engine.runs.command(run.id, c.Close(by=ANA, reason="not needed"))
    (found,) = expect_json(await harness.viewer.get("/metrics/workflows"))["items"]
    assert (found["runs"], found["success_rate"]) == (1, 0.0)


async def test_since_is_a_moment_and_without_a_zone_in_utc(harness: ServerHarness):
    wrong = await harness.viewer.get("/metrics/workflows", params={"since": "yesterday"})
    assert "since" in expect_problem(wrong, 422, "bad_parameter")["detail"]
    for text in ("2026-01-01T12:00:00", "2026-01-01T14:00:00+02:00"):
        answer = expect_json(await harness.viewer.get("/metrics/workflows", params={"since": text}))
        assert datetime.fromisoformat(answer["since"]) == NOON
    old = (NOON - timedelta(days=1)).isoformat()
    assert (
        expect_json(await harness.viewer.get("/metrics/workflows", params={"since": old}))["items"]
        == []
    )
