"""Runs of one thread, such as the turns of one chat: what they share, and what they do not."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from handrail import BudgetSpent, Guard, GuardedRun, NoProgress, StopRules
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.opening import open as open_engine
from handrail.guard import recording, threads
from handrail.guard.adapter import watching
from handrail.guard.team_definition import first_agent, guard_events
from handrail.kernel.definition.limits import Ladder
from handrail.kernel.definition.plan import check_definition
from handrail.kernel.run.events import Started
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.ledger import continue_thread
from handrail.replay.replay_report import Verdict, replay_report
from handrail.testing.clock import ManualClock
from handrail.views.history import rebuild_run

AGENTS = ("a", "b", "c")


def turn(guard: Guard, question: str, answer: str, *, thread: str = "chat 7") -> Stop | None:
    """One turn of a chat: a person asks, an agent answers."""
    with guard.run("chat", task=question, thread=thread, raises=False, profile="observed") as run:
        run.said("helper", answer)
    return run.stop if run.stop is not None and run.stop.rule != "completed" else None


def test_the_same_answer_to_the_same_question_in_turn_after_turn_is_a_loop() -> None:
    guard = Guard()
    stops = [turn(guard, "go on", "I am on it") for _ in range(4)]
    assert [stop and stop.rule for stop in stops] == [None, None, None, "no_change"]


def test_without_a_thread_every_run_stands_for_itself() -> None:
    guard = Guard()
    assert not any(turn(guard, "go on", "I am on it", thread="") for _ in range(20))


def test_a_chat_in_which_a_person_asks_something_new_goes_on() -> None:
    guard = Guard()
    assert not any(turn(guard, f"question {n}", "I do not know") for n in range(40))


def test_teams_do_not_share_a_thread_of_the_same_name() -> None:
    guard = Guard()
    for n in range(12):
        with guard.run("r", task="go", thread="1", team=f"team {n % 4}", profile="observed") as run:
            run.said("helper", "I am on it")


def test_hard_limits_count_each_run_of_a_thread_by_itself() -> None:
    guard = Guard(StopRules(max_steps=3, max_handoffs=2))
    for n in range(6):
        with guard.run("r", thread="t") as run:
            run.result("a", evidence={"files": {"app.py": f"{n}"}})
            run.handoff("a", "b")
            run.handoff("b", "a")
        assert run.report().totals.steps == 3
        assert run.report().totals.handoffs == 2


def test_the_budget_is_that_of_the_whole_thread() -> None:
    guard = Guard(StopRules(max_tokens=100))
    for _ in range(2):
        with guard.run("r", thread="t") as run:
            run.result("a", usage={"tokens": 45})
    with pytest.raises(BudgetSpent), guard.run("r", thread="t") as run:
        run.result("a", usage={"tokens": 45})
    assert run.report().usage.tokens == 135


def test_an_error_that_comes_in_every_turn_ends_the_third() -> None:
    guard, red = Guard(), {"checks": [{"command": "make", "exit_code": 2, "stderr": "no rule"}]}
    for _ in range(2):
        with guard.run("r", thread="t") as run:
            run.result("a", evidence=red)
    with pytest.raises(NoProgress) as caught, guard.run("r", thread="t") as run:
        run.result("a", evidence=red)
    assert caught.value.stop.evidence == ("step -1", "step 0", "step 1")
    assert run.report().stop is not None


def test_a_guard_remembers_a_bounded_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREADS_KEPT", 3)
    guard = Guard()
    for _ in range(6):
        assert not any(turn(guard, "go on", "I am on it", thread=f"{n}") for n in range(4))


def test_two_runs_of_one_thread_at_the_same_time_do_not_mix() -> None:
    guard = Guard()
    for _ in range(2):
        turn(guard, "go on", "I am on it")
    with guard.run("chat", task="go on", thread="chat 7", profile="observed") as outer:
        turn(guard, "go on", "I am on it")
        outer.said("helper", "I am on it")
    assert turn(guard, "go on", "I am on it") is not None, "the outer one ended last"


def test_by_names_alone_a_framework_s_thread_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for profile, carries in (("strict", False), ("observed", True)):
        monkeypatch.setattr("handrail.guard.adapter.DEFAULT_PROFILE", profile)
        guard = Guard()
        for _ in range(2):
            with watching(guard, "team", "go", thread=7) as watch:
                watch.activate("a")
                watch.record_answer("hm")
        assert guard.last is not None
        started = guard.last.events[0]
        assert isinstance(started, Started)
        assert (started.carried is not None) is carries


def moves(chance: random.Random, run: GuardedRun) -> None:
    """What a program does in one run."""
    for _ in range(chance.randrange(15)):
        agent = chance.choice(AGENTS)
        match chance.randrange(8):
            case 0:
                run.handoff(*chance.sample(AGENTS, 2), reason="your turn")
            case 1:
                run.called(agent, "look", chance.choice("xy"), chance.choice(("1", "2")))
            case 2:
                run.said(agent, chance.choice(("hm", "well")))
            case 3:
                run.called(agent, "make", chance.choice("xy"), None, error="ValueError: bad")
            case 4:
                run.called(agent, "write_todos", chance.choice("xy"), "saved")
            case 5:
                run.waiting(agent, "the build")
            case 6:
                run.state(agent, {"at": chance.choice("xy"), "n": chance.randrange(3)})
            case _:
                code = chance.choice((0, 1))
                check = {"command": "pytest", "exit_code": code, "stderr": "E assert 1"}
                files = {f"f{chance.randrange(2)}": f"{chance.randrange(3)}" * 64}
                evidence = chance.choice(({"checks": [check]}, {"files": files}, {"score": 0.5}))
                run.result(agent, evidence=evidence, usage={"tokens": chance.randrange(9)})
        if run.stop is not None:
            break


def rules_of(chance: random.Random) -> StopRules:
    profile = chance.choice(("strict", "yolo", "observed", "conversation"))
    limits = {"max_handoffs": 6, "max_steps": 8, "max_tokens": 60, "max_edge": 3}
    names = chance.sample(sorted(limits), 2)
    chosen: Any = {name: limits[name] for name in names}
    ladder = Ladder(nudge=chance.random() < 0.7, conclude=chance.random() < 0.3)
    return StopRules(profile=profile, ladder=ladder, **chosen)


async def record(engine: Engine, clock: ManualClock, run: GuardedRun) -> str:
    started = run.events[0]
    assert isinstance(started, Started)
    carried = None if started.carried is None else msgspec.to_builtins(started.carried)
    status = await recording.begin_run(
        engine, "team", started.limits, by="p", agent=first_agent(run.events), carried=carried
    )
    await recording.record_events(
        engine, status.id, guard_events(run.events), by="p", sent_at=clock.now()
    )
    return status.id


def test_every_run_of_a_thread_replays_as_it_was_from_its_own_events() -> None:
    async def story(engine: Engine, clock: ManualClock, seed: int) -> int:
        def plan_of(workflow_id: str, version: int) -> Any:
            row = engine.store.definitions.get(workflow_id, version)
            assert row is not None
            return check_definition(msgspec.json.decode(row.definition), engine.settings.kernel)[0]

        chance = random.Random(seed)
        guard, stops = Guard(rules_of(chance), clock=clock.now), 0
        for _ in range(4):
            task = chance.choice(("go on", "go on", "do more"))
            with guard.run("r", task=task, thread="t", raises=False) as run:
                moves(chance, run)
            live = run.thread_state().carried
            assert live is not None
            assert continue_thread(live) == live
            assert continue_thread(rebuild_run(run.events)[0].ledger) == live, seed
            run_id = await record(engine, clock, run)
            history, state = await engine.runs.history(run_id), await engine.runs.state(run_id)
            outcome = replay_report(history, plan_of, None)
            assert outcome.verdict is Verdict.SAME, (seed, outcome.told)
            assert run.stop is not None
            assert state.stop is not None
            rule = "terminated" if run.stop.rule == "completed" else run.stop.rule
            assert (state.stop.rule, state.stop.evidence) == (rule, run.stop.evidence), seed
            stops += rule != "terminated"
        return stops

    async def stories() -> list[int]:
        clock = ManualClock()
        async with open_engine("sqlite://", clock=clock.now, background=False) as engine:
            return [await story(engine, clock, seed) for seed in range(60)]

    stops = asyncio.run(stories())
    assert sum(stops) > 30, "rules fire in enough of them"


def test_what_is_carried_into_a_server_is_a_ledger_and_has_no_steps_of_its_own() -> None:
    async def story() -> None:
        clock = ManualClock()
        async with open_engine("sqlite://", clock=clock.now, background=False) as engine:
            limits = Guard().limits()
            with pytest.raises(RefusedError, match="no ledger"):
                await recording.begin_run(
                    engine, "team", limits, by="p", agent="a", carried={"epoch": "two"}
                )
            status = await recording.begin_run(
                engine, "team", limits, by="p", agent="a", carried={"steps": -500, "epoch": 2}
            )
            ledger = (await engine.runs.state(status.id)).ledger
            assert (ledger.steps, ledger.epoch) == (0, 2)

    asyncio.run(story())
