"""Agents that wait (K31): the engine offers their next dispatch when its time has come, also after
a restart, and an outage pushes it."""

import pytest
from tests.engine.engines import (
    ROLE,
    abandon_engine,
    chain,
    check_stored,
    engine_to_abandon,
    events_of,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
    wait_until_idle,
)

import handrail
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Result
from handrail.kernel.run.events import Asked, ClocksPushed, Offered
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

POLLS = chain(node("poll", max_waits=2, waits_within="1m"))
WAITS = handrail.wait_for("CI", 20)
TEAM = {
    "id": "pollers",
    "name": "pollers",
    "kind": "team",
    "start": "a",
    "terminator": "a",
    "agents": [{"id": "a", "role": ROLE}],
    "stop_rules": {"max_waits": 2, "wait_deadline": "1m"},
}


def test_a_function_waits_and_gets_its_next_dispatch_after_the_time(
    url: str, clock: ManualClock
) -> None:
    seen: list[tuple[int, str]] = []

    def poll(dispatch: Dispatch) -> Result:
        seen.append((dispatch.wait.count if dispatch.wait is not None else 0, dispatch.key))
        waits = handrail.wait_for("CI", retry_after=20, data={"job": 7})
        return waits if len(seen) < 3 else handrail.success("green")

    async def play() -> None:
        async with manual_engine(url, clock) as engine:
            await engine.add_agent(poll, ROLE)
            run = await start_run(engine, POLLS)
            await wait_until_idle(engine)
            assert len(seen) == 1
            clock.advance(19)
            await wait_until_idle(engine)
            assert len(seen) == 1
            for _ in range(2):
                clock.advance(20)
                await wait_until_idle(engine)
            state = await engine.runs.state(run.id)
            assert state.terminal_status == "done_success"
            assert state.context["job"] == 7
            assert [count for count, _ in seen] == [0, 1, 2]
            assert len({key for _, key in seen}) == 1, "what it began is begun once"
            await check_stored(engine, run.id)

    run_async(play())


def test_a_dispatch_says_what_was_waited_and_whether_more_is_allowed(
    file_url: str, clock: ManualClock
) -> None:
    async def play() -> None:
        async with manual_engine(file_url, clock) as engine:
            agent = await register_worker(engine)
            run = await start_run(engine, TEAM)
            for _ in range(2):
                dispatch = await agent.get()
                assert "waiting" in dispatch.allowed.outcomes
                await agent.report(dispatch, WAITS)
                clock.advance(20)
                await engine.tick()
            dispatch = await agent.get()
            view = await engine.dispatches.view(dispatch)
            assert view.wait is not None
            assert view.wait.count == 2
            assert (view.wait.deadline - view.wait.since).total_seconds() == 60
            assert "waiting" not in view.allowed.outcomes
            assert view.briefing.limits["wait_deadline"] == 60
            shown = await engine.run_queries.view(run.id)
            assert (shown.waits.count, shown.waits.deadline) == (2, view.wait.deadline)

    run_async(play())


def test_why_says_what_an_agent_waits_for(file_url: str, clock: ManualClock) -> None:
    async def play() -> None:
        async with manual_engine(file_url, clock) as engine:
            agent = await register_worker(engine)
            for document, then in ((POLLS, "a person is asked"), (TEAM, "the run ends")):
                run = await start_run(engine, document)
                await agent.work(WAITS)
                (reason,) = await engine.run_queries.waits(run.id)
                assert reason.code == "waiting"
                assert "waits for CI, for the 1st time" in reason.message
                assert then in reason.message

    run_async(play())


@pytest.mark.requirement("L4.6")
def test_a_wait_outlives_its_engine_and_an_outage_pushes_it(
    shared_url: str, clock: ManualClock
) -> None:
    async def begin() -> str:
        engine = await engine_to_abandon(shared_url, clock)
        agent = await register_worker(engine, name="poller")
        run = await start_run(engine, POLLS)
        await agent.work(WAITS)
        await abandon_engine(engine)
        return run.id

    async def go_on(run_id: str) -> None:
        async with manual_engine(shared_url, clock) as engine:
            await engine.tick()
            assert await events_of(engine, run_id, ClocksPushed)
            assert len(await events_of(engine, run_id, Offered)) == 1
            clock.advance(20)
            await engine.tick()
            assert len(await events_of(engine, run_id, Offered)) == 2
            assert not await events_of(engine, run_id, Asked)
            await check_stored(engine, run_id)

    run_id = run_async(begin())
    clock.advance(1_000)
    run_async(go_on(run_id))


def test_past_its_deadline_a_wait_asks_a_person_or_ends_the_run(
    file_url: str, clock: ManualClock
) -> None:
    async def play() -> None:
        async with manual_engine(file_url, clock) as engine:
            agent = await register_worker(engine)
            flow = await start_run(engine, POLLS)
            await agent.work(handrail.wait_for("CI", 3600))
            team = await start_run(engine, TEAM)
            await agent.work(handrail.wait_for("CI", 3600))
            clock.advance(60)
            await engine.tick()
            (question,) = await events_of(engine, flow.id, Asked)
            assert "still waits for CI" in question.approval.text
            ended = await engine.runs.state(team.id)
            assert ended.stop is not None
            assert ended.stop.rule == "wait_deadline"

    run_async(play())


def test_where_nobody_may_wait_the_dispatch_stays_open(file_url: str, clock: ManualClock) -> None:
    async def play() -> None:
        async with manual_engine(file_url, clock) as engine:
            agent = await register_worker(engine)
            await start_run(engine, chain(node("plain")))
            dispatch = await agent.get()
            assert await refusal_code(agent.report(dispatch, WAITS)) == "no_waits"
            await agent.report(dispatch)

    run_async(play())
