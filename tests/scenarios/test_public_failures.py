"""What went wrong in public projects, each a test that Handrail owes. Named after what happened."""

from datetime import datetime, timedelta
from itertools import count

import msgspec
import pytest
from tests.kernel.driven_run import ANA, NOON, OLA, DrivenRun, chain, files, node, red, team, used

from handrail import Guard, StopRules
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.decide import decide as channel_decide
from handrail.kernel.channel.evolve import disposition, evolve
from handrail.kernel.channel.state import Channel, TurnConfig
from handrail.kernel.definition.plan import check_definition
from handrail.kernel.result import Check, Evidence, Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.answer_text import AnswerIntent, classify_answer
from handrail.kernel.run.decide import decide
from handrail.kernel.run.events import HandedOff, Offered, RunEvent, Warned
from handrail.kernel.run.evolve import replay
from handrail.kernel.run.state import Person
from handrail.kernel.stop.rules import StopRule
from handrail.views.report import build_report

HUB = team(
    {"orchestrator": ["memory", "ticketing"], "memory": ["orchestrator"], "ticketing": []},
    terminator="ticketing",
)


@pytest.mark.parametrize("period", [1, 2, 3, 5, 8, 64])
def test_agents_hand_over_to_each_other_for_ever(period: int) -> None:
    agents = [f"agent{i}" for i in range(period)]
    rules = StopRules(max_handoffs=None, max_steps=None, max_edge=None)
    with Guard(rules).run("loop", raises=False) as run:
        stopped_at = next(
            i for i in count() if run.handoff(agents[i % period], agents[(i + 1) % period])
        )
    assert run.stop is not None
    assert run.stop.rule == "repeated_pattern"
    assert len(run.stop.pattern) == period
    assert stopped_at + 1 == 3 * period


def test_rules_that_were_only_prompt_text_are_enforced_whatever_the_agent_says() -> None:
    run = DrivenRun(HUB)
    run.report(outcome=Outcome.TERMINATE, text="TERMINATE_WORKFLOW", reason="I decide")
    run.report(outcome=Outcome.HANDOFF, to="network")
    assert not run.run.has_ended
    assert [w.code for w in run.of(Warned)] == ["terminate_refused", "bad_target"]


def test_a_handoff_limit_that_equals_the_happy_path_is_warned_about() -> None:
    chainlike = {f"a{i}": [f"a{i + 1}"] for i in range(12)} | {"a12": []}
    document = team(chainlike, terminator="a12", stop_rules={"max_handoffs": 12})
    _, checked = check_definition(document)
    (warning,) = [w for w in checked.warnings if w.path.endswith("max_handoffs")]
    assert warning.code == "slack_0"
    assert "12" in warning.message


def test_the_handoff_log_keeps_every_repeat() -> None:
    run = DrivenRun(team({"a": ["a", "b"], "b": ["a"]}, terminator="a"))
    run.hand("a", reason="one")
    run.hand("a", reason="two")
    run.hand("b", reason="three")
    kept = [(h.source, h.target, h.reason) for h in run.of(HandedOff)]
    assert kept == [("a", "a", "one"), ("a", "a", "two"), ("a", "b", "three")]


def test_the_cause_of_a_stop_is_typed_and_never_guessed_from_a_text() -> None:
    run = DrivenRun(team({"a": ["a"]}, terminator="a"))
    run.report(outcome=Outcome.TERMINATE, text="loop detected, timeout", reason="endless loop")
    assert run.run.stop is not None
    assert run.run.stop.rule is StopRule.TERMINATED
    assert run.run.terminal_status == "done_success"


def test_a_counter_of_repeats_inside_the_failure_does_not_hide_that_it_is_the_same() -> None:
    run = DrivenRun(team({"v": ["v"]}, terminator="v", stop_rules={"repeat_limit": None}))
    for i in range(3):
        run.hand("v", evidence=red("npm test", f"attempt {i + 1}\nAssertionError: total is wrong"))
    assert run.run.stop is not None
    assert (run.run.stop.rule, run.run.stop.seen) == ("same_error", 3)


@pytest.mark.requirement("S9")
def test_a_time_or_an_address_in_an_error_does_not_make_it_new() -> None:
    run = DrivenRun(team({"v": ["v"]}, terminator="v", stop_rules={"repeat_limit": None}))
    for i in range(3):
        stderr = (
            f"2026-02-04T21:00:0{i}Z ValueError: <obj at 0x7f00{i}a> took 0.{i}3s /tmp/x{i}/a.py"
        )
        run.hand("v", evidence=red("pytest", stderr))
    assert run.run.stop is not None
    assert run.run.stop.rule == "same_error"


@pytest.mark.requirement("S6")
def test_a_new_scratch_file_every_turn_is_not_progress() -> None:
    run = DrivenRun(team({"p": ["c"], "c": ["p"]}, terminator="p"), paths=("app.py",))
    for i in range(30):
        if run.run.has_ended:
            break
        scratch = Evidence(files={f"scratch{i}.txt": str(i)}, measured=True)
        run.hand("c" if "p" in run.run.positions else "p", evidence=scratch)
    assert run.run.stop is not None
    assert run.run.stop.rule == "repeated_pattern"
    assert run.run.ledger.handoffs <= 8


def test_a_pending_approval_survives_a_restart_and_can_still_be_answered() -> None:
    run = DrivenRun(chain(node("a"), node("ok", "approval")))
    run.succeed("a")
    stored = [msgspec.json.encode(event) for event in run.events]
    again = replay(msgspec.json.decode(raw, type=RunEvent) for raw in stored)
    question = next(iter(again.pending_approvals))
    decision = decide(run.plan, again, c.Answer(approval_id=question, by=ANA, text="ok"), NOON)
    assert decision.refusal is None
    assert replay(decision.events, again).terminal_status == "done_success"


def test_an_old_answer_does_not_approve_the_newest_result() -> None:
    run = DrivenRun(chain(node("a"), node("ok", "approval", revise_to="a")))
    run.succeed("a", text="first")
    old = run.question().id
    run.answer("not like that, sort it")
    run.succeed("a", text="second")
    decision = run.do(c.Answer(approval_id=old, by=ANA, text="ok"))
    assert decision.refusal is not None
    assert decision.refusal.code == "not_open"
    assert run.run.status == "waiting"


@pytest.mark.parametrize("text", ["OK.", "looks good", "Looks good to me!", "yes please", "👍"])
def test_plain_approvals_became_revisions(text: str) -> None:
    assert classify_answer(text) is AnswerIntent.APPROVE


@pytest.mark.parametrize("text", ["{", "null", "", "approve=maybe", "ok, but change the date"])
def test_a_malformed_answer_became_an_approval(text: str) -> None:
    assert classify_answer(text) is not AnswerIntent.APPROVE


@pytest.mark.requirement("R2.2", "R2.4")
def test_history_was_cut_to_a_hundred_characters_a_step() -> None:
    long = "line of the result, " * 500
    run = DrivenRun(team({"p": ["i"], "i": []}, review={"after": ["i"], "back_to": "p"}))
    run.hand("i")
    run.hand("review", text=long)
    run.answer("shorter, please", by=OLA)
    (iteration,) = build_report(run.events).iterations
    assert long in iteration.result
    assert iteration.text == "shorter, please"


def test_a_node_that_succeeded_on_its_last_attempt_was_escalated() -> None:
    run = DrivenRun(chain(node("a", max_attempts=3), node("b")))
    run.fail("a")
    run.fail("a")
    run.succeed("a")
    assert set(run.run.positions) == {"b"}
    assert run.run.approvals_opened == 0


def test_the_default_bug_workflow_was_cyclic() -> None:
    document = chain(node("apply"), node("verify"))
    document["edges"].append({"from_node_id": "verify", "to_node_id": "apply"})
    plan, checked = check_definition(document)
    assert plan is None
    (cycle,) = [p for p in checked.errors if p.code == "cycle"]
    assert "apply -> verify -> apply" in cycle.message or "verify -> apply -> verify" in (
        cycle.message
    )
    assert "on_failure" in cycle.hint


def test_any_file_read_counted_as_progress_and_one_bead_took_260_dispatches() -> None:
    document = chain(
        node("investigate", max_attempts=400, multi_dispatch=True),
        stop_rules={"max_tokens": 50_000},
    )
    run = DrivenRun(document, paths=("app.py",))
    while not run.run.has_ended and not run.run.pending_approvals:
        run.report(outcome=Outcome.CONTINUE, evidence=Evidence(files={}), usage=used(tokens=2_950))
    assert run.run.stop is not None
    assert run.run.stop.rule == "no_change"
    assert len(run.of(Offered)) == 3
    silent = DrivenRun(document)
    while not silent.run.has_ended and not silent.run.pending_approvals:
        silent.report(outcome=Outcome.CONTINUE, usage=used(tokens=2_950))
    assert silent.run.stop is not None
    assert silent.run.stop.rule == "budget"
    assert len(silent.of(Offered)) == 17


def test_a_graph_paused_to_approve_1_paid_82000_and_ran_the_code_twice() -> None:
    run = DrivenRun(
        chain(node("prepare"), node("ok", "approval"), node("pay")), context={"amount": 1}
    )
    run.succeed("prepare")
    shown = run.question()
    run.do(c.Patch(by=OLA, patch={"amount": 82_000}))
    refused = run.do(
        c.Answer(approval_id=shown.id, by=ANA, decision="approve", digest=shown.digest)
    )
    assert refused.refusal is not None
    assert set(run.run.positions) == {"ok"}
    run.answer(decision="approve", digest=run.question().digest)
    assert [o.step_id for o in run.of(Offered)] == ["prepare", "pay"]


def test_the_stop_word_in_the_users_own_task_ended_the_team_at_once() -> None:
    run = DrivenRun(HUB, title="TERMINATE_WORKFLOW", description="TERMINATE_WORKFLOW")
    run.hand("memory", text="The user wrote: TERMINATE_WORKFLOW", data={"note": "TERMINATE"})
    run.hand("orchestrator", text="found: 'TERMINATE_WORKFLOW'")
    assert not run.run.has_ended


def test_an_expired_approval_could_be_approved_until_a_sweeper_ran() -> None:
    run = DrivenRun(chain(node("ok", "approval", deadline=60)))
    question = run.question()
    run.now = question.deadline
    decision = run.answer("ok")
    assert decision.refusal is not None
    assert run.run.terminal_status == "aborted_stuck"


def test_the_approvers_name_came_from_the_client() -> None:
    run = DrivenRun(chain(node("ok", "approval")))
    agent = Person(name="ana", role="agent")  # type: ignore[arg-type]
    decision = run.answer("ok", by=agent)
    assert decision.refusal is not None
    assert decision.refusal.code == "not_allowed"


def test_work_claimed_by_a_dead_agent_stayed_claimed() -> None:
    run = DrivenRun(chain(node("a", timeout=60)))
    dead = run.claim(agent="dead")
    run.do(c.Lose(fence=dead, reason="no heartbeat"))
    alive = run.claim(agent="alive")
    assert alive > dead
    late = run.do(c.Report(fence=dead, agent="dead"))
    assert late.refusal is not None
    assert run.run.positions["a"].agent == "alive"


def test_live_work_was_taken_away_while_its_agent_was_heartbeating() -> None:
    run = DrivenRun(chain(node("a")))
    fence = run.claim(agent="busy")
    taken = run.do(c.Claim(fence=fence, agent="thief", roles=("backend-engineer",)))
    assert taken.refusal is not None
    assert run.run.positions["a"].agent == "busy"


def test_going_back_to_an_earlier_state_is_oscillation() -> None:
    run = DrivenRun(
        team({"p": ["c"], "c": ["p"]}, terminator="p", stop_rules={"repeat_limit": None})
    )
    for digest in ("1", "2", "1", "2", "1", "2"):
        if not run.run.has_ended:
            run.hand("c")
            run.hand("p", evidence=files(app_py=digest))
    assert run.run.stop is not None
    assert run.run.stop.rule == "oscillation"


def test_a_check_that_flaps_is_no_progress() -> None:
    run = DrivenRun(team({"v": ["v"]}, terminator="v", stop_rules={"max_handoffs": 100}))
    flips = 0
    while not run.run.has_ended:
        flips += 1
        code = flips % 2
        evidence = Evidence(checks=(Check(command="t", exit_code=code, stderr="E"),), measured=True)
        run.hand("v", evidence=evidence)
    assert run.run.stop is not None
    assert flips < 10


@pytest.mark.requirement("T5")
def test_a_late_turn_complete_ended_the_next_agents_turn() -> None:
    channel = open_channel("pm", "qa")
    late = channel.turn
    assert late is not None
    channel = after(channel, ev.ChannelTick(), NOON + timedelta(seconds=61))
    assert channel.turn is not None
    assert channel.turn.agent_id == "qa"
    command = ev.CompleteTurn(agent_id="pm", turn=late.number)
    decision = channel_decide(channel, command, NOON + timedelta(seconds=62))
    assert decision.refusal is not None
    assert decision.refusal.code == "stale_turn"
    assert decision.events == ()


@pytest.mark.requirement("T8", "T9")
def test_the_next_turn_went_to_an_agent_that_was_offline_and_an_empty_queue_crashed() -> None:
    channel = open_channel("pm", "qa", "dev")
    channel = after(channel, ev.TakeOffline(agent_id="qa", detail="gone"), NOON)
    assert channel.turn is not None
    done = ev.CompleteTurn(agent_id="pm", turn=channel.turn.number)
    channel = after(channel, done, NOON)
    assert channel.turn is not None
    assert channel.turn.agent_id == "dev"
    for agent in ("dev", "pm"):
        channel = after(channel, ev.TakeOffline(agent_id=agent, detail="gone"), NOON)
    assert channel.turn is None
    message = ev.PostMessage(message_id="m1", author="ana", text="anybody?")
    decision = channel_decide(channel, message, NOON)
    assert decision.refusal is None
    (posted,) = [e for e in decision.events if isinstance(e, ev.MessagePosted)]
    assert disposition(posted, decision.events) == "logged"


def open_channel(*agents: str) -> Channel:
    channel = Channel(id="reviews", config=TurnConfig())
    for agent in agents:
        channel = after(channel, ev.AddMember(agent_id=agent, online=True), NOON)
    return channel


def after(channel: Channel, command: ev.ChannelCommand, now: datetime) -> Channel:
    for event in channel_decide(channel, command, now).events:
        channel = evolve(channel, event)
    return channel
