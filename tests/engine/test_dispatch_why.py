"""Why a run is not worked on, in words."""

from tests.engine.engines import (
    ANA,
    ROLE,
    abandon_engine,
    chain,
    engine_to_abandon,
    manual_engine,
    node,
    refusal_code,
    register_worker,
    run_async,
    start_run,
)

from handrail.kernel.definition.model import Settings
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]

ONE = chain(node("a"))


def test_why_a_run_is_not_worked_on(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock, kernel=Settings(role_grace=86_400)) as engine:
            run = await start_run(engine, chain(node("a"), node("ok", "approval"), node("b")))

            async def why() -> list[str]:
                return [waiting.code for waiting in await engine.run_queries.waits(run.id)]

            assert await why() == ["no_agent"]
            agent = await register_worker(engine)
            assert await why() == ["asking"]
            clock.advance(100)
            assert await why() == ["offline"]
            await agent.beat()
            dispatch = await agent.get()
            (waiting,) = await engine.run_queries.waits(run.id)
            assert (waiting.code, waiting.place) == ("claimed", "a")
            assert agent.name in waiting.message
            await engine.agents.register(agent.name, (ROLE,))
            assert await why() == ["lost"]
            await engine.tick()
            again = await register_worker(engine)
            dispatch = await again.get()
            await run.pause(by=ANA, reason="lunch")
            assert await why() == ["paused"]
            await run.resume(by=ANA, reason="back")
            await again.report(dispatch)
            (waiting,) = await engine.run_queries.waits(run.id)
            assert waiting.code == "asked"
            (question,) = await run.questions(60)
            assert question.id in waiting.hint
            await run.close(by=ANA, reason="enough")
            assert await why() == []
            assert await refusal_code(engine.run_queries.waits("nobody")) == "unknown_run"

    run_async(play())


def test_why_names_nobody_who_takes_other_definitions_only(file_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(file_url, clock) as engine:
            await engine.add_agent(lambda _: "", ROLE, name="builtin", only=["another"])
            run = await start_run(engine, ONE)
            clock.advance(30)
            await engine.tick()
            (waiting,) = await engine.run_queries.waits(run.id)
            assert waiting.code == "not_theirs"
            assert "takes 'w': builtin@" in waiting.message

    run_async(play())


def test_why_knows_of_disabled_agents(file_url: str, clock: ManualClock):
    async def play():
        engine = await engine_to_abandon(file_url, clock)
        run = await start_run(engine, ONE)
        agent = await register_worker(engine)
        await engine.agents.enable(agent.name, enabled=False)
        assert [waiting.code for waiting in await engine.run_queries.waits(run.id)] == ["disabled"]
        assert await refusal_code(agent.claim()) == "agent_disabled"
        await abandon_engine(engine)

    run_async(play())
