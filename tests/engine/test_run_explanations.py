"""Why a run stopped, waits or is not worked on: every case a sentence, each with what to do."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.engines import (
    ANA,
    DONE,
    ROLE,
    manual_engine,
    register_worker,
    run_async,
    start_run,
)
from tests.kernel import histories
from tests.kernel.driven_run import NOON, DrivenRun, Outcome, chain, node, team

from handrail.engine.queries.why import NEXT_BY_RULE, RunSurroundings, explain, wait_reasons
from handrail.kernel.lock import CommitLock, LockHolder, LockRequest
from handrail.kernel.run import commands as c
from handrail.kernel.stop.rules import StopRule
from handrail.store.rows import AgentRow, DispatchRow, iso
from handrail.testing.clock import ManualClock
from handrail.views.report import build_report
from handrail.views.run_view import WaitReason

pytest_plugins = ["tests.fixtures_postgres"]

COMMITTING = chain(
    node("c", kind="commit", role="engineering-manager", repository="shop"),
    node("v", kind="verification", role="qa-engineer"),
)


def agent(name: str = "coder-1", role: str = ROLE, **rest: Any) -> AgentRow:
    row = {"capacity": 1, "enabled": True, "session": f"s-{name}", "engine": None}
    return AgentRow(**{"id": name, "roles": f'["{role}"]', "beat_at": iso(NOON), **row, **rest})


def only(d: DrivenRun, *agents: AgentRow, **known: Any) -> WaitReason:
    """What the one open place waits for."""
    (found,) = wait_reasons(
        d.plan, d.run, RunSurroundings(now=d.now, offline_after=60, agents=agents, **known)
    )
    assert found.hint, "it says what to do"
    assert found.place in d.run.positions
    return found


def test_nobody_is_registered_for_the_role():
    found = only(DrivenRun(chain(node("a"))), agent(role="cook"))
    assert found.code == "no_agent"
    assert found.message == (
        "nobody is registered for the role 'backend-engineer'; if it stays so, a person is asked "
        "at 2026-01-01 12:01:00 UTC"
    )
    assert found.hint == (
        "start an agent with the role 'backend-engineer': `handrail worker MODULE:NAME`, or for a "
        "built-in team `handrail serve --builtin-agents`"
    )


def test_in_a_team_nobody_is_asked_and_the_run_ends():
    found = only(DrivenRun(team({"a": ["a"]}, terminator="a")))
    assert "if it stays so, the run ends at 2026-01-01 12:01:00 UTC" in found.message


def test_every_agent_of_the_role_is_disabled():
    found = only(DrivenRun(chain(node("a"))), agent(enabled=False), agent("coder-2", enabled=False))
    assert found.code == "disabled"
    assert found.message.startswith(
        "everybody with the role 'backend-engineer' is disabled: coder-1, coder-2; if it stays so,"
    )
    assert 'PATCH /api/v1/agents/coder-1 with {"enabled": true}' in found.hint


def test_every_agent_of_the_role_is_offline():
    d = DrivenRun(chain(node("a")))
    d.now += timedelta(minutes=5)
    names = [agent(f"coder-{i}", beat_at=iso(NOON + timedelta(seconds=i))) for i in range(5)]
    found = only(d, *names)
    assert found.code == "offline"
    assert found.message.startswith(
        "everybody with the role 'backend-engineer' is offline: coder-0, coder-1, coder-2, 2 more; "
        "coder-4 was last heard of at 2026-01-01 12:00:04 UTC; if it stays so,"
    )
    assert found.hint == "start coder-4 again, and see `handrail agents`"


def test_everybody_has_as_much_as_they_can():
    found = only(DrivenRun(chain(node("a"))), agent(), busy={"s-coder-1": 1})
    assert found.code == "full"
    assert found.message == (
        "coder-1 could take it, and works on 1 of 1 things at once; if it stays so, a person is "
        "asked at 2026-01-02 12:00:00 UTC"
    )
    assert found.hint == "wait, or start another agent with the role 'backend-engineer'"


def test_somebody_is_free_and_has_not_asked():
    found = only(DrivenRun(chain(node("a"))), agent(), agent("coder-2"), busy={"s-coder-1": 1})
    assert found.code == "asking"
    assert found.message == "coder-2 could take it and has not asked for work yet"


def test_who_is_given_work_and_leaves_it_is_not_named_as_somebody_who_could_take_it():
    d = DrivenRun(chain(node("a")))
    builtin = agent("backend-engineer@9e0e834e", engine="e1")
    assert only(d, builtin).code == "asking", "it may be given it in a moment"
    d.now += timedelta(seconds=30)
    found = only(d, builtin)
    assert found.code == "not_theirs"
    assert found.message == (
        "nobody who works as backend-engineer takes 'w': backend-engineer@9e0e834e is there, is "
        "free and leaves it (built-in agents take built-in definitions only); if it stays so, a "
        "person is asked at 2026-01-02 12:00:00 UTC"
    )
    assert found.hint == (
        "start an agent with the role 'backend-engineer': `handrail worker MODULE:NAME`"
    )
    own = only(d, builtin, agent(), busy={"s-coder-1": 1})
    assert own.code == "full"
    assert own.message.startswith("coder-1 could take it, and works on 1 of 1 things")
    silent = agent("coder-0", beat_at=iso(NOON - timedelta(minutes=1)))
    asking = only(d, builtin, silent, agent())
    assert asking.message == "coder-1 could take it and has not asked for work yet"


def test_whoever_committed_does_not_verify():
    d = DrivenRun(COMMITTING)
    d.do(c.GrantLock(step_id="c", lock=1))
    d.succeed("c", agent="m-1")
    found = only(d, agent("m-1", "qa-engineer"))
    assert found.code == "own_commit"
    assert found.message == (
        "it verifies what m-1 committed in this run, and nobody else with the role 'qa-engineer' "
        "is there"
    )
    assert found.hint == "start another agent with the role 'qa-engineer'"


def at_work(d: DrivenRun, **rest: Any) -> WaitReason:
    d.claim(agent="coder-1")
    row = DispatchRow(
        execution_id="r1", fence=1, place="a", role=ROLE, priority=0, offered_at="",
        agent="coder-1", session="s-coder-1", claimed_at="",
    )  # fmt: skip
    return only(d, agent(**rest), dispatches=[row])


def test_an_agent_is_at_work_and_has_until_then():
    found = at_work(DrivenRun(chain(node("a"))))
    assert found.code == "claimed"
    assert found.message == (
        "coder-1 is at work on it, and has until 2026-01-01 12:30:00 UTC; a person is asked then"
    )
    assert found.hint == (
        "wait for its result, or take it away from coder-1: `handrail override r1 move --node a "
        "--reason TEXT`"
    )


def test_an_agent_is_at_work_once_more():
    d = DrivenRun(chain(node("a")))
    d.fail("a")
    assert "is at work on it for the 2nd time of 3, and has until" in at_work(d).message
    d = DrivenRun(team({"a": ["a"]}, terminator="a"))
    d.report(outcome=None)
    message = at_work(d).message
    assert "for the 2nd time (the last answer could not be used: Say explicitly: " in message
    assert message.endswith("it is offered again then")


@pytest.mark.parametrize(("number", "said"), [(3, "3rd"), (4, "4th"), (11, "11th"), (21, "21st")])
def test_attempts_are_counted_in_words(number: int, said: str):
    d = DrivenRun(chain(node("a", max_attempts=30)))
    for _ in range(number - 1):
        d.fail("a")
    assert f"for the {said} time of 30" in at_work(d).message


def test_an_agent_took_it_and_is_gone():
    found = at_work(DrivenRun(chain(node("a"))), session="another stay")
    assert found.code == "lost"
    assert found.message == "coder-1 took it and is gone; it is offered again in a moment"


def test_a_person_is_asked():
    d = DrivenRun(chain(node("ok", "approval", approvers=["ceo", "bob"], quorum=2, deadline="1d")))
    found = only(d)
    assert found.code == "asked"
    assert found.message == "a person is asked: Approve 'ok'?"
    assert found.hint == (
        "answer (ceo or bob, 2 of them): `handrail answer r1.q1 TEXT`; unanswered, the run ends at "
        "2026-01-02 12:00:00 UTC"
    )
    plain = only(DrivenRun(chain(node("ok", "approval"))))
    assert plain.hint.startswith("answer (ceo or above): `handrail answer r1.q1 TEXT`; ")


def test_the_run_is_paused():
    d = DrivenRun(chain(node("a")))
    d.now += timedelta(seconds=5)
    d.do(c.Pause(by=ANA, reason="lunch"))
    found = only(d)
    assert (found.code, found.since) == ("paused", d.now)
    assert found.message == (
        "the run is paused, and nobody works on it; it ends by itself at 2026-01-31 12:00:05 UTC"
    )
    assert found.hint == "let it go on: `handrail override r1 resume --reason TEXT`"


def test_it_waits_for_the_commit_lock():
    d = DrivenRun(COMMITTING)
    assert only(d).message == (
        "it waits for the commit lock of 'shop', which is free; it is given in a moment"
    )
    first, second, third = (LockRequest(run=name, asked_at=NOON) for name in ("x", "y", "r1"))
    holder = LockHolder(request=first, fence=1, granted_at=NOON, beat_at=NOON)
    lock = CommitLock(repository="shop", holder=holder, queue=(second, third))
    found = only(d, locks={"shop": lock})
    assert found.code == "lock"
    assert found.message == (
        "it waits for the commit lock of 'shop', which run x has had since "
        "2026-01-01 12:00:00 UTC, and 1 more are before it"
    )
    assert found.hint == "wait for its turn; `handrail why x` says what that run does"
    alone = CommitLock(repository="shop", holder=holder, queue=(third,))
    assert "before it" not in only(d, locks={"shop": alone}).message


def test_an_ended_run_waits_for_nothing():
    d = DrivenRun(chain(node("a")))
    d.succeed("a")
    assert wait_reasons(d.plan, d.run, RunSurroundings(now=d.now, offline_after=60)) == ()


# What to do next


@pytest.mark.parametrize(
    "rule", [rule for rule in StopRule if rule not in ("terminated", "completed")]
)
def test_every_rule_says_what_to_do_next(rule: StopRule):
    d = histories.looping()
    found = explain(_stopped_by(d, rule), (), 1)
    assert found.next.startswith(NEXT_BY_RULE[rule])
    assert found.next.endswith("start another run of the bead: POST /api/v1/beads/b1/executions")


def test_a_guarded_run_is_done_again_by_its_program():
    told = _stopped_by(histories.looping(), StopRule.MAX_HANDOFFS)
    found = explain(told, (), 1, guarded=True)
    assert (
        found.next
        == f"{NEXT_BY_RULE[StopRule.MAX_HANDOFFS]}; then run that program again, under guard"
    )
    lost = explain(_stopped_by(histories.looping(), StopRule.AGENT_LOST), (), 1, guarded=True)
    assert lost.next == (
        "look in the report where the program was last heard of; mend why it raised an error, "
        "or fell silent; then run that program again, under guard"
    )


def _stopped_by(d: DrivenRun, rule: StopRule) -> Any:
    told = build_report(d.events)
    assert told.stop is not None
    return replace(told, stop=replace(told.stop, rule=rule.value))


@pytest.mark.parametrize(
    ("make", "next_"),
    [
        (histories.bug, "nothing is left to do"),
        (histories.terminated, "see what is left, and file it as another bead"),
    ],
)
def test_what_is_done_is_done(make: Callable[[], DrivenRun], next_: str):
    assert explain(build_report(make().events), (), 1).next == next_


def test_what_is_stuck_at_an_end_of_the_definition_points_to_the_report():
    d = DrivenRun(chain(node("a")))
    d.succeed("a")
    told = _stopped_by(d, StopRule.COMPLETED)
    stuck = replace(told, terminal_status="aborted_stuck")
    assert explain(stuck, (), 1).next.startswith("see the report, `handrail report`; then ")


def test_a_newer_version_of_the_definition_is_noted():
    d = DrivenRun(chain(node("a")))
    waiting = wait_reasons(d.plan, d.run, RunSurroundings(now=d.now, offline_after=60))
    found = explain(build_report(d.events), waiting, 3)
    assert found.next == waiting[0].hint
    assert found.notes == (
        "the run keeps version 1 of 'w'; version 3 is newer, and "
        "`handrail override r1 migrate --version 3 --reason TEXT` takes it there",
    )
    assert explain(build_report(d.events), waiting, 1).notes == ()
    d.succeed("a")
    assert explain(build_report(d.events), (), 3).notes == ()


def test_the_engine_tells_all_of_it(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            run = await start_run(engine, chain(node("a")))
            agent = await register_worker(engine)
            dispatch = await agent.get()
            other = await engine.start("w")
            found = await engine.run_queries.why(other.id)
            assert [one.code for one in found.waiting] == ["full"]
            assert found.next == found.waiting[0].hint
            await engine.define(chain(node("a"), node("b")))
            assert len((await engine.run_queries.why(run.id)).notes) == 1
            await agent.report(dispatch, DONE)
            assert (await engine.run_queries.why(run.id)).next == "nothing is left to do"

    run_async(play())


def test_the_text_of_an_agents_question_says_who_may_answer():
    d = DrivenRun(team({"a": ["a"]}, terminator="a"))
    d.report(outcome=Outcome.ASK, question="Which file?")
    assert only(d).hint.startswith("answer (operator or above): ")
