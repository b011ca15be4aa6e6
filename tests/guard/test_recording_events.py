"""What a guard tells a server, whatever happens on the way: the record is what the guard saw, it
ends with a reason, and it replays as it was."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from handrail import Guard, StopRules
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.opening import open as open_engine
from handrail.guard import GuardedRun, recording
from handrail.guard.team_definition import guard_events
from handrail.kernel.definition.limits import Ladder
from handrail.kernel.definition.plan import check_definition
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import HeardOf, Reported, Started
from handrail.kernel.run.state import Person
from handrail.replay.replay_report import Verdict, replay_report
from handrail.testing.clock import ManualClock
from handrail.views.guarded_run import GuardedRunStatus

SEEDS = range(1_500 if os.environ.get("HANDRAIL_LONG") else 60)
ANN = Person(name="ann", role="ceo")
AGENTS = ("a", "b", "c")
SILENCE = 300


class Told:
    """A guarded program and the engine that hears of it, by hand."""

    def __init__(
        self, engine: Engine, clock: ManualClock, rules: StopRules, *, goal: str = "", **given: Any
    ) -> None:
        self.engine, self.clock = engine, clock
        guard = Guard(rules, clock=clock.now)
        self.run = GuardedRun(guard, limits=guard.limits(), goal=goal, raises=False)
        self.run.begin("r", task="t", **given)
        self.id, self.count = "", 1
        self.asked = ""

    async def begin(self) -> None:
        started = self.run.events[0]
        assert isinstance(started, Started)
        limits, paths = started.limits, started.paths
        heard = await recording.begin_run(
            self.engine, "team", limits, by="program", agent="a", paths=paths, key="begin"
        )
        self.id = heard.id

    async def tell(self, *, all_of_it: bool = False) -> GuardedRunStatus:
        """As `Live` does: a result waits for what comes after it."""
        events = self.run.events
        end = len(events)
        if not all_of_it and isinstance(events[-1], Reported):
            end -= 1
        heard = await recording.record_events(
            self.engine,
            self.id,
            guard_events(events[self.count : end]),
            by="program",
            sent_at=self.clock.now(),
            key=f"{self.count}-{end}" if end > self.count else "",
        )
        self.count = max(end, self.count)
        return heard

    async def ask(self) -> None:
        await self.tell(all_of_it=True)
        heard = await recording.open_approval(self.engine, self.id, "may I?", 3_600, by="program")
        self.asked = heard.question

    async def replayed(self, rules: dict[str, Any] | None = None) -> Any:
        def plan_of(workflow_id: str, version: int) -> Any:
            row = self.engine.store.definitions.get(workflow_id, version)
            assert row is not None
            return check_definition(
                msgspec.json.decode(row.definition), self.engine.settings.kernel
            )[0]

        return replay_report(await self.engine.runs.history(self.id), plan_of, rules)

    async def status(self, question: str) -> str:
        return (await self.engine.approvals.get(question)).status


@asynccontextmanager
async def told(rules: StopRules, **given: Any) -> AsyncIterator[Told]:
    clock = ManualClock()
    async with open_engine("sqlite://", clock=clock.now, background=False) as engine:
        one = Told(engine, clock, rules, **given)
        await one.begin()
        yield one


def rules_of(chance: random.Random) -> StopRules:
    some = {
        "max_handoffs": (3, 8),
        "max_steps": (1, 4, 9, None),
        "max_duration": (40, 200, None),
        "max_edge": (2, 3),
        "repeat_limit": (2, 3),
        "same_error_limit": (2, 3),
        "no_change_limit": (2, 3),
        "oscillation_limit": (1, 2),
        "research_limit": (1, 2),
        "max_tokens": (0, 20, 60, None),
    }
    names = chance.sample(sorted(some), 3)
    ladder = Ladder(nudge=chance.random() < 0.5, conclude=chance.random() < 0.5)
    return StopRules(**{name: chance.choice(some[name]) for name in names}, ladder=ladder)


def a_result(chance: random.Random) -> dict[str, Any]:
    code = chance.choice((0, 1))
    evidence: dict[str, Any] = {}
    if chance.random() < 0.5:
        evidence["checks"] = [{"command": "pytest", "exit_code": code, "stderr": "E assert 1"}]
    if chance.random() < 0.5:
        evidence["files"] = {f"f{chance.randrange(2)}": f"{chance.randrange(3)}" * 64}
    if chance.random() < 0.3:
        evidence["score"] = chance.choice((0.1, 0.5))
    return {
        "text": chance.choice(("", "so far, so good")),
        "evidence": evidence,
        "usage": {"tokens": chance.randrange(9)},
        "milestone": chance.choice(("", "", "", "half")),
        "task": chance.choice(("", "look")),
    }


async def goes_by(one: Told, chance: random.Random) -> None:
    one.clock.advance(seconds=chance.choice((1, 20, 250)))
    await one.engine.tick()


async def falls_silent(one: Told, chance: random.Random) -> None:
    one.clock.advance(seconds=SILENCE + 1)
    await one.engine.tick()


async def is_acted_on(one: Told, chance: random.Random) -> None:
    act = chance.choice(
        (
            c.Pause(by=ANN, reason="look"),
            c.Resume(by=ANN, reason="go on"),
            c.Patch(by=ANN, patch={"note": 1}),
            c.PushClocks(seconds=5),
        )
    )
    await one.engine.runs.command(one.id, act)


async def is_closed(one: Told, chance: random.Random) -> None:
    await one.engine.runs.command(one.id, c.Close(by=ANN, reason="enough"))


async def is_answered(one: Told, chance: random.Random) -> None:
    asked, one.asked = one.asked, ""
    if asked and chance.random() < 0.15:
        await one.engine.approvals.answer(asked, by=ANN, decision="reject")
    elif asked:
        await one.engine.approvals.answer(asked, "10 euros at most", by=ANN)


async def is_told(one: Told, chance: random.Random) -> None:
    await one.tell()


async def asks(one: Told, chance: random.Random) -> None:
    if not one.asked:  # else the program waits
        await one.ask()


async def hands_off(one: Told, chance: random.Random) -> None:
    if not one.asked:
        one.run.handoff(*chance.sample(AGENTS, 2), reason="your turn")


async def reports(one: Told, chance: random.Random) -> None:
    if not one.asked:
        one.run.result(chance.choice(AGENTS), **a_result(chance))


HAPPENS = {
    hands_off: 9,
    reports: 9,
    is_told: 5,
    goes_by: 5,
    is_acted_on: 4,
    is_answered: 4,
    asks: 3,
    is_closed: 0.5,
    falls_silent: 0.2,
}
"""What the program, a person, or the time does, and how often."""


async def play(seed: int) -> None:
    chance = random.Random(seed)
    paths = chance.choice((None, ("f0",)))
    goal = chance.choice(("", "pytest"))
    async with told(rules_of(chance), paths=paths, goal=goal) as one:
        for _ in range(chance.randrange(40)):
            (happens,) = chance.choices(list(HAPPENS), list(HAPPENS.values()))
            with suppress(RefusedError):  # what comes too late
                await happens(one, chance)
            if one.run.stop is not None:
                break
        else:
            chance.choice((one.run.complete, lambda: one.run.fail("ValueError: x")))()
        with suppress(RefusedError):
            await one.tell(all_of_it=True)
        one.clock.advance(days=40)
        await one.engine.tick()
        await one.engine.tick()
        state, here = await one.engine.runs.state(one.id), one.run.stop
        assert state.stop is not None, "it has ended"
        found = await one.replayed()
        assert found.verdict is Verdict.SAME, (seed, found.told)
        assert (await one.replayed({})).verdict is Verdict.SAME, seed
        if one.count == len(one.run.events) and here is not None:  # it was told to the last word
            told_as = "terminated" if here.rule == "completed" else here.rule
            assert (state.stop.rule, state.stop.evidence) == (told_as, here.evidence), seed
            seen_here = one.run.report()
            assert state.terminal_status == seen_here.terminal_status, seed
            assert state.ledger.handoffs == seen_here.totals.handoffs, seed
            assert state.ledger.tokens == seen_here.usage.tokens, seed


def test_every_guarded_run_ends_and_replays_as_it_was_whatever_ended_it():
    async def all_of_them() -> None:
        for seed in SEEDS:
            await play(seed)

    asyncio.run(all_of_them())


def test_a_program_lives_as_long_as_it_is_heard_of_and_not_much_longer():
    async def story() -> None:
        async with told(StopRules(max_duration=None)) as one:
            for _ in range(100):
                one.clock.advance(seconds=60)
                await one.tell()
                await one.engine.tick()
            heard = [e for e in await one.engine.runs.history(one.id) if isinstance(e, HeardOf)]
            assert len(heard) == 50  # not each of them is worth a line
            one.clock.advance(seconds=SILENCE - 1)
            await one.engine.tick()
            assert not (await one.engine.runs.state(one.id)).has_ended
            one.clock.advance(seconds=2)
            await one.engine.tick()
            state = await one.engine.runs.state(one.id)
            assert state.stop is not None
            assert (state.stop.rule, state.stop.agent) == ("agent_lost", "a")

    asyncio.run(story())


def test_who_comes_back_too_late_is_refused_though_nobody_looked_at_the_clock():
    async def story() -> None:
        async with told(StopRules()) as one:
            await one.ask()
            one.clock.advance(seconds=SILENCE)
            one.run.handoff("a", "b")
            with pytest.raises(RefusedError, match="has ended"):
                await one.tell()
            assert await one.status(one.asked) == "void"

    asyncio.run(story())


def test_a_program_that_waits_for_a_person_gives_signs_of_life_too():
    async def story() -> None:
        async with told(StopRules()) as one:
            await one.ask()
            for _ in range(30):
                one.clock.advance(seconds=SILENCE / 2)
                with suppress(RefusedError):  # once nobody has answered
                    await one.tell()
            state = await one.engine.runs.state(one.id)
            assert state.stop is not None
            assert state.stop.rule == "human_deadline"

    asyncio.run(story())


def test_nobody_starts_a_run_of_a_guarded_team_nor_moves_one():
    async def story() -> None:
        async with told(StopRules()) as one:
            with pytest.raises(RefusedError, match="guarded"):
                await one.engine.start("team")
            for act in (
                c.Move(by=ANN, step_id="a", reason="back"),
                c.Migrate(by=ANN, definition_id="team", version=1, step_id="a", reason="back"),
            ):
                with pytest.raises(RefusedError, match="guarded"):
                    await one.engine.runs.command(one.id, act)

    asyncio.run(story())


def test_a_word_that_is_told_again_is_taken_once_though_its_answer_was_lost():
    async def story() -> None:
        async with told(StopRules()) as one:
            first = one.id
            await one.begin()
            assert one.id == first
            one.run.handoff("a", "b")
            for _ in range(3):
                one.count = 1
                await one.tell()
            assert (await one.engine.runs.state(one.id)).ledger.handoffs == 1

    asyncio.run(story())


def test_the_time_without_a_server_is_no_silence_of_the_program(tmp_path):
    clock, url = ManualClock(), f"sqlite:///{tmp_path / 'work.db'}"

    async def ended_after(seconds: float, one: Told) -> bool:
        clock.advance(seconds=seconds)
        await one.engine.tick()
        return (await one.engine.runs.state(one.id)).has_ended

    async def story() -> None:
        async with open_engine(url, clock=clock.now, background=False) as engine:
            one = Told(engine, clock, StopRules(max_duration=None))
            await one.begin()
            assert not await ended_after(SILENCE - 10, one)
        clock.advance(hours=5)
        async with open_engine(url, clock=clock.now, background=False) as engine:
            one.engine = engine
            assert not await ended_after(5, one)
            assert await ended_after(10, one)
            assert (await one.replayed()).verdict is Verdict.SAME

    asyncio.run(story())


RED = {"checks": [{"command": "pytest", "exit_code": 1, "stderr": "boom"}]}


def fails_twice(run: GuardedRun) -> None:
    run.result("a", evidence=RED)
    run.result("a", evidence=RED)


def goes_in_circles(run: GuardedRun) -> None:
    for source, target in ("ab", "ba", "ab", "ba"):
        run.handoff(source, target)


def hands_off_too_often(run: GuardedRun) -> None:
    run.result("a", text="here")
    for source, target in ("ab", "bc", "ca"):
        run.handoff(source, target)


def takes_all_steps(run: GuardedRun) -> None:
    for text in ("one", "two"):
        run.result("a", text=text)


@pytest.mark.requirement("K29")
@pytest.mark.parametrize(
    ("story", "rule", "limit"),
    [
        (fails_twice, "same_error_limit", 2),
        (goes_in_circles, "repeat_limit", 2),
        (hands_off_too_often, "max_handoffs", 2),
        (takes_all_steps, "max_steps", 3),
    ],
)
@pytest.mark.parametrize("conclusion", ["all of it is left", ""])
def test_a_concluded_run_replays_to_its_last_word(
    story: Any, rule: str, limit: int, conclusion: str
):
    async def verdicts() -> list[Verdict]:
        limits: dict[str, Any] = {rule: limit}
        rules = StopRules(ladder=Ladder(conclude=True), **limits)
        async with told(rules) as one:
            story(one.run)
            assert one.run.stop is None, "it is asked for its last word"
            one.run.result("a", text=conclusion)
            await one.tell(all_of_it=True)
            assert one.run.stop is not None
            assert (await one.engine.runs.state(one.id)).stop is not None
            ladder = Ladder(conclude=True)
            overrides: list[dict[str, Any] | None] = [
                None,
                {rule: limit, "ladder": ladder, "max_cost": 5.0},
                {rule: limit, "ladder": Ladder()},
                {rule: 9, "ladder": ladder},
            ]
            return [(await one.replayed(given)).verdict for given in overrides]

    # Of max_steps the last is an ordinary one where nobody concludes.
    unconcluded = Verdict.SAME if rule == "max_steps" else Verdict.SOONER
    expected = [Verdict.SAME, Verdict.SAME, unconcluded, Verdict.BEYOND]
    assert asyncio.run(verdicts()) == expected


def test_a_run_that_concludes_with_its_last_step_replays_to_its_last_word():
    async def verdict() -> Verdict:
        rules = StopRules(same_error_limit=2, max_steps=3, ladder=Ladder(conclude=True))
        async with told(rules) as one:
            fails_twice(one.run)  # the second time with the last of its ordinary steps
            one.run.result("a", text="all of it is left")
            await one.tell(all_of_it=True)
            return (await one.replayed()).verdict

    assert asyncio.run(verdict()) is Verdict.SAME
