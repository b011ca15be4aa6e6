"""The simulator: one integer is one whole run, with everything that can go wrong in it.

A seed gives the definition, the agents' characters, the faults, the people and the times
(`options.py`); the world plays them (`world.py`); the auditor watches every event (`audit.py`).

1. *Safety*: faults are on. Agents loop, lie, stall, crash, answer twice, late or for each other;
   people answer stale questions, revise, move, pause; the process dies after any command and the
   run is built again from what was stored. Nothing that the auditor forbids may happen.
2. *Liveness*: faults stop. Agents and people do their part or do nothing at all, so that only
   clocks fire; the run must reach its end within as many events as its measure says.

Whatever goes wrong, a failure carries the seed, what was drawn from it and the last events; the
same seed plays the same history again. `run_seeds` is what `handrail sim` calls.
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
from handrail.kernel.plan import Plan, check
from handrail.kernel.run import commands as c
from handrail.kernel.run import machine
from handrail.kernel.run.events import RunEvent, raises, records
from handrail.kernel.run.machine import RunDecision
from handrail.kernel.run.state import Phase
from handrail.testing.audit import Auditor, Violation, encode, expect
from handrail.testing.options import Options, describe, draw
from handrail.testing.world import ADMIN, BOSSES, World

Through = Literal["kernel", "engine"]
T = TypeVar("T")
R = TypeVar("R")

AFTER_THE_END = 6
"""Commands given to a run that has ended."""
SHOWN = 12
"""How many of the last events a failure shows."""
NAMED = 20
"""How many failing seeds a summary names."""
CHUNK = 20


class SeedResult(Value):
    """How the run of one seed went. `failure` is empty if all was well."""

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
    """One seed being played."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.plan = plan_of(options)
        self.rng = Random(f"play {options.seed}")
        self.auditor = Auditor(self.plan)
        self.world = World(options, self.plan, self.rng)

    def play(self) -> None:
        """Raises `Violation` at the first thing that must not happen."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """The same, a command or two at a time."""
        self._do(self.world.start())
        yield from self._safety()
        if not self.auditor.run.ended:
            yield from self._liveness()
        for _ in range(AFTER_THE_END):
            yield
            self._do(self.world.next_command(self.auditor.run))
            self.world.clock.advance(days=1)
        self.auditor.rebuild_from_the_start()

    def _do(self, command: c.RunCommand) -> RunDecision:
        decision = self.auditor.take(command, self.world.clock.now())
        self.world.heard(decision.effects)
        self.world.revisions = self.auditor.stretches - 1
        return decision

    def _safety(self) -> Iterator[None]:
        options, rng, auditor = self.options, self.rng, self.auditor
        for _ in range(options.commands):
            if auditor.run.ended:
                return
            yield
            self._do(self.world.next_command(auditor.run))
            if rng.random() < options.crash:
                auditor.rebuild()
            self.world.pass_time(auditor.run)

    def _liveness(self) -> Iterator[None]:
        """Each round must bring an event, so there are no more rounds than the measure says."""
        auditor = self.auditor
        left = machine.measure(self.plan, auditor.run)
        first = len(auditor.events)
        for _ in range(left):
            if auditor.run.ended:
                break
            known = len(auditor.events)
            yield
            self._help()
            expect(len(auditor.events) > known, "a run that waits goes on when its time comes")
        expect(auditor.run.ended, "every run ends within its measure", left)
        counted = [e for e in auditor.events[first:] if not records(e) and not raises(e)]
        expect(len(counted) <= left, "no more events come than the measure says", left)

    def _help(self) -> None:
        """One piece of honest work, if this seed's ending has any; else the next clock."""
        ending = self.options.ending
        if ending == "diligent" or (ending == "mixed" and self.rng.random() < 0.5):
            for command in self._work():
                if self._do(command).events:
                    return
        due = machine.next_due(self.plan, self.auditor.run)
        assert due is not None, "the auditor has seen that every wait has a deadline"
        self.world.clock.until(due)
        self._do(c.Tick())

    def _work(self) -> Iterable[c.RunCommand]:
        run, world = self.auditor.run, self.world
        if run.paused_at is not None:
            yield c.Resume(by=ADMIN, reason="go on")
            return
        for token in run.tokens.values():
            if token.phase is Phase.CLAIMED:
                yield c.Report(fence=token.fence, agent=token.agent, result=world.best(token))
            elif token.phase is Phase.OFFERED:
                for agent in world.workers():
                    yield c.Claim(fence=token.fence, agent=agent, roles=(token.role,))
            elif token.place in world.seeking:
                yield c.GrantLock(place=token.place, lock=run.fence + 1)
        for question in run.questions.values():
            for by in (*BOSSES, ADMIN):
                text = "this one" if question.own else "ok"
                yield c.Answer(question_id=question.id, by=by, text=text, digest=question.digest)


def plan_of(options: Options) -> Plan:
    plan, checked = check(options.definition, options.settings)
    expect(plan is not None, "generated definitions are valid", checked.errors)
    assert plan is not None
    return plan


def history(seed: int) -> list[RunEvent]:
    """Everything that happens in the run of this seed."""
    simulation = Simulation(draw(seed))
    simulation.play()
    return simulation.auditor.events


def run_seed(seed: int, through: Through = "kernel") -> SeedResult:
    """Play one seed. Never raises: what went wrong stands in `failure`."""
    if through == "engine":
        from handrail.testing.through_engine import run_group

        return run_group((seed,))[0]
    simulation: Simulation | None = None
    options = draw(seed)
    failure: Exception | None = None
    try:
        simulation = Simulation(options)
        simulation.play()
    except Exception as error:  # the kernel never raises; if it does, that is the finding
        failure = error
    return result_of(options, simulation, failure)


def result_of(
    options: Options, simulation: Simulation | None, error: Exception | None
) -> SeedResult:
    """How it went, and what went wrong."""
    failure = str(error) if error is not None else ""
    if error is not None and not isinstance(error, Violation):
        failure = f"the kernel never raises: {type(error).__name__}: {error}"
    if simulation is None or simulation.auditor.live is None:
        return SeedResult(
            seed=options.seed, shape=options.shape, failure=_told(options, failure, [])
        )
    auditor, run = simulation.auditor, simulation.auditor.live
    return SeedResult(
        seed=options.seed,
        shape=options.shape,
        status=str(run.terminal_status or ""),
        rule=str(run.stop.rule) if run.stop is not None else "",
        events=len(auditor.events),
        stretches=auditor.stretches,
        failure=_told(options, failure, auditor.events) if failure else "",
    )


def _told(options: Options, failure: str, events: list[RunEvent]) -> str:
    """The failure with everything one needs to look into it."""
    first = len(events) - min(SHOWN, len(events))
    last = [f"{first + i:5}  {encode(e).decode()[:300]}" for i, e in enumerate(events[first:], 1)]
    return "\n".join(
        (
            f"seed {options.seed}: {failure[:2_000]}",
            "the last events:",
            *last,
            "what the seed drew:",
            describe(options.seed),
        )
    )


class Summary(Value):
    """How many seeds went how, and how fast."""

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
        """Rules and statuses by number, most frequent first, and the failing seeds."""
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
            named = ", ".join(str(failed.seed) for failed in self.failures[:NAMED])
            more = f" and {len(self.failures) - NAMED} more" if len(self.failures) > NAMED else ""
            lines += ["", f"failing seeds: {named}{more}"]
            lines += ["", self.failures[0].failure]
        return "\n".join(lines)


def run_seeds(
    first: int = 0,
    count: int = 1_000,
    processes: int = 2,
    through: Through = "kernel",
) -> Summary:
    """Play `count` seeds from `first` on, in so many processes, and sum up. Through the engine they
    go through a database as well, and must end the same."""
    assert count > 0, "at least one seed"
    assert processes > 0, "at least one process"
    began = time.perf_counter()
    seeds = range(first, first + count)
    if through == "engine":
        from handrail.testing.through_engine import SIDE_BY_SIDE, run_group

        groups = [seeds[i : i + SIDE_BY_SIDE] for i in range(0, count, SIDE_BY_SIDE)]
        results = [one for group in _mapped(run_group, groups, processes, 1) for one in group]
    else:
        results = _mapped(run_seed, seeds, processes, CHUNK)
    return summed(results, first, time.perf_counter() - began)


def _mapped(play: Callable[[T], R], seeds: Iterable[T], processes: int, chunksize: int) -> list[R]:
    if processes == 1:
        return [play(seed) for seed in seeds]
    with _workers(processes) as pool:
        return list(pool.imap(play, seeds, chunksize=chunksize))


def _workers(processes: int) -> Pool:
    """Forked where that is safe; a process with threads must not be."""
    forks = "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1
    return multiprocessing.get_context("fork" if forks else "spawn").Pool(processes)


def summed(results: list[SeedResult], first: int, seconds: float) -> Summary:
    return Summary(
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
