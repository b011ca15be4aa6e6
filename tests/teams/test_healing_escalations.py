"""Where nobody can go on with a bug, the CEO is asked, and told everything that is known of it."""

import asyncio
from pathlib import Path

import pytest
from tests.cli.command_line import run_command
from tests.engine.engines import ANA, advance_with_ticks, manual_engine, run_async, wait_until_async
from tests.engine.interactive_runs import run_to_end

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.services.runs import RunHandle
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Outcome, Result
from handrail.teams import HEALING_DEFINITION_ID, load_builtin, load_scripted_agents
from handrail.testing.clock import ManualClock
from handrail.views.approvals import Approval, approvals


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def started(engine: Engine) -> RunHandle:
    await engine.define(load_builtin(HEALING_DEFINITION_ID))
    return await engine.start(
        HEALING_DEFINITION_ID, title="IndexError", context={"specialist": "web-designer"}
    )


async def dossier(run: RunHandle) -> Approval:
    (found,) = approvals(await run.history())
    assert (found.type, found.status) == ("escalation", "open")
    assert found.original_bead_id == (await run.state()).bead_id
    assert found.failure_reason
    assert len(found.proposed_next_steps) == 4
    return found


@pytest.mark.requirement("L3.6", "L6.3", "L6.4")
def test_a_specialist_who_is_not_there_is_told_to_the_ceo_who_may_send_another(clock: ManualClock):
    async def play():
        async with manual_engine("sqlite://", clock, kernel=Settings(role_grace=30)) as engine:
            done = Result(outcome=Outcome.SUCCESS, text="reproduced")
            await engine.add_agent(lambda _: done, "qa-engineer")
            run = await started(engine)
            await wait_until_async(lambda: not engine.local_executor.active_count)
            await advance_with_ticks(engine, clock, 60)
            found = await dossier(run)
            assert found.node_id == "investigation"
            assert [one.outcome for one in found.attempt_history] == ["timed_out"]
            assert "web-designer" in found.failure_reason
            await run.answer(found.id, by=ANA, decision="reject", text="hire one")
            assert (await run.result(60)).terminal_status == "closed_by_human"

    run_async(play())


@pytest.mark.requirement("L8.5", "L6.3", "L6.4")
def test_a_triage_that_takes_too_long_is_stopped_and_told_to_the_ceo(clock: ManualClock):
    async def play():
        async with manual_engine("sqlite://", clock, kernel=Settings(node_timeout=300)) as engine:
            stopped = asyncio.Event()

            async def hangs(dispatch: Dispatch) -> Result:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
                raise AssertionError("nobody wakes it")

            run = await started(engine)
            engine.add_agent(hangs, "qa-engineer")
            await wait_until_async(lambda: engine.local_executor.active_count == 1)
            await advance_with_ticks(engine, clock, 310)
            await stopped.wait()
            found = await dossier(run)
            assert found.node_id == "triage"
            assert [one.outcome for one in found.attempt_history] == ["timed_out"]

    run_async(play())


@pytest.mark.requirement("L16")
def test_an_error_that_was_reported_is_never_only_rehearsed():
    staff, _ = load_scripted_agents(HEALING_DEFINITION_ID)
    local = run_to_end(
        load_builtin(HEALING_DEFINITION_ID),
        staff,
        title="IndexError",
        context={"error": {"type": "x"}},
    )
    (question,) = local.run.pending_approvals.values()
    assert (question.kind, question.step_id) == ("escalation", "triage")
    assert "give the setting `service`" in question.text


def test_a_service_file_that_is_not_there_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANDRAIL_SERVICE", "shop.yaml")
    called = run_command("serve", "--builtin-agents", "--port", "0")
    assert called.code == 2
    told = "'shop.yaml' cannot be read: No such file or directory; name a file"
    assert called.err == f"handrail serve: {told}\n"
