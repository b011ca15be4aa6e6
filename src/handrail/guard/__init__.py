"""The guard, in process: the kernel's stop rules around somebody's own loop, in three lines.

    guard = Guard(StopRules(max_handoffs=20))
    with guard.run("ticket 4711") as run:
        run.handoff("planner", "coder", reason="tests are red")

A guarded run is a ledger and a history of the same events that the engine records, so reports and
replays are the same. What the host program passes as evidence counts as measured: it is the host's
own observation, not an agent's claim. A run belongs to one thread or task at a time.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from handrail.guard.errors import Stopped, stopped
from handrail.kernel.definition import StopRules, TerminalStatus
from handrail.kernel.ledger import Ledger, Weighed, handed, reported, short, way
from handrail.kernel.limits import limits
from handrail.kernel.misfit import in_words
from handrail.kernel.progress import weigh
from handrail.kernel.reading import read_rules
from handrail.kernel.report import Report, report
from handrail.kernel.result import NO_EVIDENCE, Evidence, Result, Usage
from handrail.kernel.rules import (
    Fired,
    Moment,
    StopRule,
    judge_handoff,
    judge_result,
    judge_step,
    status_of,
)
from handrail.kernel.run.events import Ended, HandedOff, Reported, RunEvent, Started
from handrail.kernel.run.state import Stop, stop_of

if TYPE_CHECKING:
    from handrail.guard.live import Live, Reply

log = logging.getLogger("handrail.guard")

SERVER = ("http://", "https://")
ANSWER_SECONDS = 24 * 3600.0
"""That a person has for an answer, if nothing else is said."""
Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


V = TypeVar("V", Evidence, Usage)
NO_USAGE = Usage()


def _read(given: V | Mapping[str, Any], cls: type[V]) -> V:
    """The host's dictionary as a value; a wrong one is the host's mistake and says where."""
    try:
        return msgspec.convert(msgspec.to_builtins(given), cls)
    except msgspec.ValidationError as error:
        told, _, place = str(error).partition(" - at ")
        where = f" at {place}" if place else ""
        raise ValueError(f"{cls.__name__.lower()}{where}: {in_words(told)}") from None


class Guard:
    """Stop rules, checked once, for any number of runs."""

    def __init__(
        self,
        rules: StopRules | None = None,
        *,
        clock: Clock = _utc_now,
        record: str = "",
        token: str = "",
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Raises ValueError, naming the limit, if a rule cannot be used. `record` is a Handrail
        database, such as `sqlite:///work.db`, that every run is written to when it has ended; or a
        server, such as `http://127.0.0.1:8080`, that is told of it while it goes on, with `token`,
        else `HANDRAIL_TOKEN`. People who are asked there have `answer_seconds` for an answer."""
        checked, problems = read_rules(msgspec.to_builtins(rules or StopRules()))
        if checked is None:
            raise ValueError("; ".join(str(problem) for problem in problems))
        self.limits = limits(checked)
        self.clock, self.record, self.token = clock, record, token
        self.answer_seconds = answer_seconds
        self.last: GuardedRun | None = None
        """The run that was begun last: its report, its stop, its id where it was recorded."""

    @contextmanager
    def run(
        self,
        name: str,
        *,
        task: str = "",
        paths: tuple[str, ...] | None = None,
        goal: str = "",
        raises: bool = True,
        team: str = "guarded team",
    ) -> Generator["GuardedRun"]:
        """A run under guard. `paths`: files that exist at the start; `goal`: the command that
        decides whether a stopped run was a partial success. With `raises=False` a stop is not
        raised but returned by the call that met it. `team`: the name of its definition, where it is
        recorded."""
        guarded = GuardedRun(self, name, task=task, paths=paths, goal=goal, raises=raises)
        self.last = guarded
        if self.record.startswith(SERVER):
            from handrail.guard.live import Live  # only who records waits for a client

            guarded.live = Live(guarded, self.record, self.token, team)
        try:
            yield guarded
        except Stopped as stop:
            if stop.run is not guarded:
                guarded.fail(f"a run inside it was stopped: {stop}")
            raise
        except GeneratorExit:
            guarded.fail("the stream was left before its end")
            raise
        except BaseException as error:
            guarded.fail(f"{type(error).__name__}: {error}")
            raise
        else:
            guarded.complete()
        finally:
            if guarded.live is not None:
                guarded.live.close()
            elif self.record:
                guarded.recorded = _recorded(guarded.events, self.record, team)


def _recorded(events: Sequence[RunEvent], database: str, team: str) -> str:
    """The id of the run in the database. A database that cannot be used costs nobody a result that
    is there: it is logged, and the id is empty."""
    from handrail.guard.record import StoreError, record  # only who records waits for an engine

    try:
        return record(events, database, team)
    except StoreError as error:
        log.error("a guarded run was not recorded: %s", error)
        return ""


class GuardedRun:
    """One run: tell it each handoff and each result, and it tells when to stop."""

    def __init__(
        self,
        guard: Guard,
        name: str,
        *,
        task: str,
        paths: tuple[str, ...] | None,
        goal: str,
        raises: bool,
    ) -> None:
        self.name = name
        self.stop: Stop | None = None
        self.recorded = ""
        """Its id where it is recorded."""
        self.unrecorded = 0
        """Of a run on a server, the events that it could not be told."""
        self.live: Live | None = None
        self.opened_by = ""
        """Who has the turn first, where that is known before anything has happened."""
        self.outside: tuple[TerminalStatus, Stop] | None = None
        """How the run was ended on the server; it ends here at its next step."""
        self._answer_seconds = guard.answer_seconds
        self._limits, self._clock, self._raises, self._goal = (
            guard.limits,
            guard.clock,
            raises,
            goal,
        )
        self._paths = None if paths is None else frozenset(paths)
        self._ledger = Ledger(steps=1)
        self._answered = False
        self._agent = ""
        self._started = self._clock()
        self.events: list[RunEvent] = [
            Started(
                at=self._started,
                run_id=name,
                bead_id=name,
                definition_id="guard",
                version=1,
                kind="team",
                place="",
                limits=guard.limits,
                title=task or name,
                paths=paths,
            )
        ]

    def handoff(self, source: str, target: str, *, reason: str = "") -> Stop | None:
        """Before control goes from source to target."""
        if self.stop is not None or self.outside is not None:
            return self._over()
        now = self._clock()
        ledger = self._ledger
        elapsed = (now - self._started).total_seconds()
        edge = way(ledger, source, target)
        moment = Moment(
            ledger, self._limits, source, None, source, target, edge, ledger.steps, elapsed
        )
        found = judge_handoff(moment)
        full = judge_step(moment)
        accepted = not (found or full)
        if found and not full:  # the handoff that completes a repetition is still made
            accepted = all(f.rule is StopRule.REPEATED_PATTERN for f in found)
        self.events.append(
            HandedOff(
                at=now,
                source=source,
                target=target,
                reason=reason,
                accepted=accepted,
                number=ledger.handoffs + 1 if accepted else 0,
            )
        )
        self._agent = source
        if accepted:
            self._ledger = handed(ledger, self._limits, source, target, reason, steps=1)
            self._answered = False
        if found or full:
            return self._end([*found, *full], source, now)
        return None

    def result(
        self,
        agent: str,
        *,
        text: str = "",
        evidence: Evidence | Mapping[str, Any] | None = None,
        usage: Usage | Mapping[str, Any] | None = None,
        milestone: str = "",
        task: str = "",
    ) -> Stop | None:
        """After an agent's turn: what it rests on, what it used. Several in one turn are steps."""
        given = replace(_read(evidence, Evidence), measured=True) if evidence else NO_EVIDENCE
        spent = _read(usage, Usage) if usage else NO_USAGE
        return self.told(agent, text, given, spent, milestone=milestone, task=task)

    def told(
        self,
        agent: str,
        text: str,
        given: Evidence,
        spent: Usage,
        *,
        milestone: str = "",
        task: str = "",
    ) -> Stop | None:
        """As `result`, of values that need no reading: evidence is measured, or none."""
        if self.stop is not None or self.outside is not None:
            return self._over()
        now = self._clock()
        full = self._full(agent, now)
        if full:
            return self._end(full, agent, now)
        if self._answered:
            self._ledger = replace(self._ledger, steps=self._ledger.steps + 1)
        self._answered = True
        ledger, step = self._ledger, self._ledger.steps
        weighed: Weighed = weigh(
            ledger, self._limits, agent, given, task=task, milestone=milestone, paths=self._paths
        )
        result = Result(text=text, evidence=given, usage=spent)
        self.events.append(
            Reported(
                at=now,
                place=agent,
                fence=step,
                agent=agent,
                result=result,
                weighed=weighed,
                phase=milestone,
            )
        )
        self._agent = agent
        self._ledger = reported(ledger, self._limits, step, given, spent, weighed)
        fired = judge_result(
            Moment(ledger=self._ledger, limits=self._limits, agent=agent, evidence=given, step=step)
        )
        return self._end(fired, agent, now) if fired else None

    def ask(self, question: str) -> "Reply | None":
        """Asks a person, through the inbox of the server that the run is recorded on, and waits.
        None if nobody answered in time, or the run was closed: then it is stopped. Raises
        ClientError if the server cannot be asked, ValueError if there is none."""
        if self.live is None:
            told = "people are asked through a server, and this run is recorded on none"
            raise ValueError(f"{told}; say Guard(record='http://HOST:PORT')")
        before = self._clock()
        reply = self.live.ask(question, self._answer_seconds)
        self._started += self._clock() - before  # the time that people take is not the run's
        if reply is None:
            self._over()
        return reply

    def report(self) -> Report:
        """The run report so far: status, counters, the rule that fired, why."""
        return report(self.events)

    def complete(self, reason: str = "the guarded block ended") -> None:
        """The loop came to its own end. Nothing happens if a rule ended the run before."""
        self._conclude(TerminalStatus.DONE_SUCCESS, StopRule.COMPLETED, reason)

    def fail(self, reason: str) -> None:
        """The host program gave up."""
        self._conclude(TerminalStatus.ABORTED_STUCK, StopRule.AGENT_LOST, reason)

    def _conclude(self, status: TerminalStatus, rule: StopRule, reason: str) -> None:
        if self.stop is None:
            self.stop = Stop(rule=rule, reason=reason, agent=self._agent)
            self.events.append(Ended(at=self._clock(), status=status, stop=self.stop))

    def _full(self, agent: str, now: datetime) -> list[Fired]:
        """Rules against this result as such: time is up, or it would be one step too many."""
        elapsed, most = (now - self._started).total_seconds(), self._limits.max_duration
        if not self._answered and (most is None or elapsed < most):
            return []  # the first result of a turn, in time: as most are
        ledger = self._ledger
        moment = Moment(
            ledger=ledger, limits=self._limits, agent=agent, elapsed=elapsed, step=ledger.steps
        )
        found = judge_step(moment)
        return [f for f in found if self._answered or f.rule is StopRule.MAX_DURATION]

    def _over(self) -> Stop:
        """Nothing goes on after the end: the reason again, raised or as a value."""
        if self.stop is None and self.outside is not None:
            status, self.stop = self.outside
            self.events.append(Ended(at=self._clock(), status=status, stop=self.stop))
        assert self.stop is not None, "it is over"
        if self._raises:
            raise stopped(self.stop, self)
        return self.stop

    def _end(self, fired: list[Fired], agent: str, now: datetime) -> Stop:
        self.stop = stop_of(fired, agent, self._ledger.handoffs)
        goal_met = bool(self._goal) and self._ledger.measured.checks.get(short(self._goal)) == ""
        status = status_of(self.stop.rule, goal_met=goal_met)
        self.events.append(Ended(at=now, status=status, stop=self.stop))
        if self._raises:
            raise stopped(self.stop, self)
        return self.stop
