"""The simulator: one integer, the seed, determines one whole run with all its faults.

A seed gives the definition, the agents' characters, the faults, the people and the times
(`seed_options.py`); the world plays them (`world.py`); the invariant checker watches every event
(`invariants.py`).

1. *Safety*: faults are on. Agents loop, lie, stall, crash, answer twice, late or for each other;
   people answer stale approvals, revise, move, pause; the process dies after any command and the
   run is rebuilt from what was stored. No invariant may break.
2. *Liveness*: faults stop. Agents and people do their part or do nothing at all, so that only
   clocks fire; the run must reach its end within as many events as its measure says.

Every failure carries the seed, its options and the last events; the same seed plays the same
history again. `handrail sim` calls `run_seeds`.
"""

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import Pool
from random import Random
from typing import Literal, TypeVar

from handrail.kernel.decision import Value
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import RunDecision
from handrail.kernel.run.events import RunEvent, is_measure_neutral, may_raise_measure
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import PositionPhase
from handrail.kernel.stop.budgets import BudgetPeriod, BudgetState
from handrail.testing.invariants import InvariantChecker, InvariantViolationError, encode, expect
from handrail.testing.seed_options import SeedOptions, describe_seed, draw_options
from handrail.testing.world import ADMIN, APPROVERS, World

SimulationLayer = Literal["kernel", "engine"]
T = TypeVar("T")
R = TypeVar("R")

BUDGET_COSTS = (None, 0.0, 1.0, 5.0, 50.0)
COMMANDS_AFTER_END = 6
"""Commands given to a run that has ended."""
FAILURE_EVENTS_SHOWN = 12
"""Last events in a failure report."""
FAILING_SEEDS_NAMED = 20
"""Failing seeds named in a summary."""
CHUNK_SEEDS = 20


class SeedResult(Value):
    """The result of one seed's run. `failure` is empty if nothing failed."""

    seed: int
    shape: str
    status: str = ""
    rule: str = ""
    events: int = 0
    stretches: int = 0
    failure: str = ""

    @property
    def ended(self) -> bool:
        return bool(self.status) and not self.failure


class Simulation:
    """Plays one seed."""

    _in_liveness_phase = False

    def __init__(self, options: SeedOptions) -> None:
        self.options = options
        self.plan = make_plan(options)
        self.rng = Random(f"play {options.seed}")
        self.checker = InvariantChecker(self.plan)
        self.world = World(options, self.plan, self.rng)
        self._budget_rng = Random(f"budgets {options.seed}")
        self._budget_max: float | None = BUDGET_COSTS[-1]
        self._spent_by_others = 0.0

    def play(self) -> None:
        """Play the seed. Raise `InvariantViolationError` at the first violation."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Play the seed, a command or two at a time."""
        self._submit(self.world.start())
        yield from self._run_safety_phase()
        if not self.checker.run.has_ended:
            yield from self._run_liveness_phase()
        for _ in range(COMMANDS_AFTER_END):
            yield
            self._submit(self.world.next_command(self.checker.run))
            self.world.clock.advance(days=1)
        self.checker.rebuild_from_start()

    def _submit(self, command: c.RunCommand) -> RunDecision:
        now = self.world.clock.now()
        decision = self.checker.apply_command(command, now, self._known_budgets())
        self.world.note_effects(decision.effects)
        self.world.revisions = self.checker.stretches - 1
        return decision

    def _known_budgets(self) -> tuple[BudgetState, ...]:
        """Return the budgets as they stand: other runs spend, and people change or delete them."""
        checker, rng, names = self.checker, self._budget_rng, self.plan.limits.budgets
        if names and not self._in_liveness_phase:
            if rng.random() < 0.03:
                self._budget_max = rng.choice(BUDGET_COSTS)
            if rng.random() < 0.2:
                self._spent_by_others += rng.random()
        is_shared = checker.budget_per != "run"
        own = 0.0 if checker.current_run is None else float(checker.run.ledger.cost)
        cost = self._spent_by_others + own if is_shared else 0.0
        return tuple(
            BudgetState(name=name, per=checker.budget_per, cost=cost, cost_max=self._budget_max)
            for name in names
        )

    def _run_safety_phase(self) -> Iterator[None]:
        options, rng, checker = self.options, self.rng, self.checker
        for _ in range(options.commands):
            if checker.run.has_ended:
                return
            yield
            self._submit(self.world.next_command(checker.run))
            if rng.random() < options.crash:
                checker.rebuild_from_snapshot()
            self.world.pass_time(checker.run)

    def _run_liveness_phase(self) -> Iterator[None]:
        """Run to the end. Each round must bring an event, so the measure bounds the rounds."""
        checker, self._in_liveness_phase = self.checker, True
        events_max = measure(self.plan, checker.run)
        first = len(checker.events)
        for _ in range(events_max):
            if checker.run.has_ended:
                break
            events_before = len(checker.events)
            yield
            self._make_progress()
            expect(
                len(checker.events) > events_before, "a run that waits goes on when its time comes"
            )
        expect(checker.run.has_ended, "every run ends within its measure", events_max)
        counted_events = [
            e
            for e in checker.events[first:]
            if not is_measure_neutral(e) and not may_raise_measure(e)
        ]
        expect(
            len(counted_events) <= events_max,
            "no more events come than the measure says",
            events_max,
        )

    def _make_progress(self) -> None:
        """Do one piece of honest work, if this seed's ending has any; else fire the next clock."""
        ending = self.options.ending
        if ending == "diligent" or (ending == "mixed" and self.rng.random() < 0.5):
            for command in self._honest_commands():
                if self._submit(command).events:
                    return
        due = next_due(self.plan, self.checker.run)
        assert due is not None, "the auditor has seen that every wait has a deadline"
        self.world.clock.until(due)
        self._submit(c.Tick())

    def _honest_commands(self) -> Iterable[c.RunCommand]:
        run, world = self.checker.run, self.world
        if run.paused_at is not None:
            yield c.Resume(by=ADMIN, reason="go on")
            return
        for position in run.positions.values():
            if position.phase is PositionPhase.CLAIMED:
                yield c.Report(
                    fence=position.fence,
                    agent=position.agent,
                    result=world.results.best_result(position),
                )
            elif position.phase is PositionPhase.OFFERED:
                for agent in world.shuffled_workers():
                    yield c.Claim(fence=position.fence, agent=agent, roles=(position.role,))
            elif position.step_id in world.steps_seeking_lock:
                yield c.GrantLock(step_id=position.step_id, lock=run.fence + 1)
        for approval in run.pending_approvals.values():
            for person in (*APPROVERS, ADMIN):
                text = "stop" if approval.stop else "this one" if approval.own else "ok"
                yield c.Answer(
                    approval_id=approval.id, by=person, text=text, digest=approval.digest
                )


def make_plan(options: SeedOptions) -> Plan:
    plan, check_report = check_definition(options.definition, options.settings)
    expect(plan is not None, "generated definitions are valid", check_report.errors)
    assert plan is not None
    return plan


def history(seed: int, *, budgets: bool = True) -> list[RunEvent]:
    """Return all events of the run of this seed."""
    simulation = Simulation(draw_options(seed, budgets=budgets))
    simulation.play()
    return simulation.checker.events


def run_seed(
    seed: int, through: SimulationLayer = "kernel", *, budget_per: BudgetPeriod = "day"
) -> SeedResult:
    """Play one seed. Never raises: an error is reported in `failure`. Budgets are shared with other
    runs for a day, or are each run's own; through the engine they are always its own."""
    if through == "engine":
        from handrail.testing.engine_simulation import run_group

        return run_group((seed,))[0]
    simulation: Simulation | None = None
    options = draw_options(seed)
    failure: Exception | None = None
    try:
        simulation = Simulation(options)
        simulation.checker.budget_per = budget_per
        simulation.play()
    except Exception as error:  # the kernel never raises; if it does, that is a finding
        failure = error
    return make_seed_result(options, simulation, failure)


def make_seed_result(
    options: SeedOptions, simulation: Simulation | None, error: Exception | None
) -> SeedResult:
    """Build the result of a seed, with its failure if any."""
    failure = str(error) if error is not None else ""
    if error is not None and not isinstance(error, InvariantViolationError):
        failure = f"the kernel never raises: {type(error).__name__}: {error}"
    if simulation is None or simulation.checker.current_run is None:
        return SeedResult(
            seed=options.seed, shape=options.shape, failure=_failure_report(options, failure, [])
        )
    checker, run = simulation.checker, simulation.checker.current_run
    return SeedResult(
        seed=options.seed,
        shape=options.shape,
        status=str(run.terminal_status or ""),
        rule=str(run.stop.rule) if run.stop is not None else "",
        events=len(checker.events),
        stretches=checker.stretches,
        failure=_failure_report(options, failure, checker.events) if failure else "",
    )


def _failure_report(options: SeedOptions, failure: str, events: list[RunEvent]) -> str:
    """Return the failure with all details for an investigation."""
    first_shown = len(events) - min(FAILURE_EVENTS_SHOWN, len(events))
    event_lines = [
        f"{first_shown + i:5}  {encode(e).decode()[:300]}"
        for i, e in enumerate(events[first_shown:], 1)
    ]
    return "\n".join(
        (
            f"seed {options.seed}: {failure[:2_000]}",
            "the last events:",
            *event_lines,
            "what the seed drew:",
            describe_seed(options.seed),
        )
    )


class SimulationSummary(Value):
    """Counts of seeds by outcome, and the speed."""

    first: int
    seeds: int
    seconds: float
    ended: int
    events: int
    stretches: int
    rules: dict[str, int]
    statuses: dict[str, int]
    shapes: dict[str, int]
    failures: tuple[SeedResult, ...] = ()

    @property
    def seeds_per_second(self) -> float:
        return self.seeds / self.seconds if self.seconds else 0.0

    @property
    def all_ended(self) -> bool:
        return self.ended == self.seeds and not self.failures

    def table(self) -> str:
        """Format rules and statuses, the most frequent first, and the failing seeds."""
        lines = [
            f"{self.seeds:,} seeds from {self.first} in {self.seconds:.1f} s "
            f"({self.seeds_per_second:.0f} a second), {self.events:,} events, "
            f"{self.stretches:,} stretches",
            f"ended: {self.ended:,} of {self.seeds:,} ({100 * self.ended / self.seeds:.2f}%)",
        ]
        for title, counts in (("rule", self.rules), ("status", self.statuses)):
            lines += ["", f"{title:<22}runs"]
            ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            lines += [f"{name:<20}{count:>6,}" for name, count in ranked]
        if self.failures:
            seeds_named = ", ".join(
                str(failed.seed) for failed in self.failures[:FAILING_SEEDS_NAMED]
            )
            more = (
                f" and {len(self.failures) - FAILING_SEEDS_NAMED} more"
                if len(self.failures) > FAILING_SEEDS_NAMED
                else ""
            )
            lines += ["", f"failing seeds: {seeds_named}{more}"]
            lines += ["", self.failures[0].failure]
        return "\n".join(lines)


def run_seeds(
    first: int = 0,
    count: int = 1_000,
    processes: int = 2,
    through: SimulationLayer = "kernel",
) -> SimulationSummary:
    """Play `count` seeds from `first` on, in this number of processes, and sum up. Seeds played
    through the engine also use a database, and must end the same."""
    assert count > 0, "at least one seed"
    assert processes > 0, "at least one process"
    started = time.perf_counter()
    seeds = range(first, first + count)
    if through == "engine":
        from handrail.testing.engine_simulation import SEEDS_PER_ENGINE, run_group

        groups = [seeds[i : i + SEEDS_PER_ENGINE] for i in range(0, count, SEEDS_PER_ENGINE)]
        results = [
            result for group in _play_all(run_group, groups, processes, 1) for result in group
        ]
    else:
        results = _play_all(run_seed, seeds, processes, CHUNK_SEEDS)
    return summarize(results, first, time.perf_counter() - started)


def _play_all(
    play_one: Callable[[T], R], seeds: Iterable[T], processes: int, chunksize: int
) -> list[R]:
    if processes == 1:
        return [play_one(seed) for seed in seeds]
    with _process_pool(processes) as pool:
        return list(pool.imap(play_one, seeds, chunksize=chunksize))


def _process_pool(processes: int) -> Pool:
    """Return a pool that forks where that is safe: a process with threads must not fork."""
    forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    return multiprocessing.get_context("fork" if forks else "spawn").Pool(processes)


def summarize(results: list[SeedResult], first: int, seconds: float) -> SimulationSummary:
    return SimulationSummary(
        first=first,
        seeds=len(results),
        seconds=seconds,
        ended=sum(result.ended for result in results),
        events=sum(result.events for result in results),
        stretches=sum(result.stretches for result in results),
        rules=dict(Counter(result.rule for result in results if result.ended)),
        statuses=dict(Counter(result.status for result in results if result.ended)),
        shapes=dict(Counter(result.shape for result in results)),
        failures=tuple(result for result in results if not result.ended),
    )
