"""The guard, in process: the kernel's stop rules around somebody's own loop, in three lines.

    guard = Guard(StopRules(max_handoffs=20))
    with guard.run("ticket 4711") as run:
        run.handoff("planner", "coder", reason="tests are red")

A guarded run is a ledger and a history of the same events that the engine records, so reports and
replays are the same. What the host program passes as evidence counts as measured: it is the host's
own observation, not an agent's claim. A run belongs to one thread or task at a time.
"""

import functools
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from handrail.guard.ahead import Ahead
from handrail.guard.errors import Stopped, stopped
from handrail.guard.texts import name_of, text_in, texts_in
from handrail.kernel.definition import StopRules, TerminalStatus
from handrail.kernel.guarded import brought_forward
from handrail.kernel.ledger import Ledger, short, way
from handrail.kernel.limits import limits
from handrail.kernel.misfit import in_words
from handrail.kernel.plain import are_plain_texts
from handrail.kernel.progress import weigh
from handrail.kernel.reading import read_rules
from handrail.kernel.repetition import unrepeated
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
TEXT_MAX, TITLE_MAX = 2_000, 200
"""Characters of a reason, and of what a run is called."""
YEARS = 10**9
"""Seconds that no run takes, where nothing is said of time."""
Clock = Callable[[], datetime]


_utc_now = functools.partial(datetime.now, UTC)

V = TypeVar("V", Evidence, Usage)
NO_USAGE = Usage()


def _read(given: V | Mapping[str, Any], cls: type[V]) -> V:
    """The host's dictionary as a value; a wrong one is the host's mistake and says where."""
    try:
        return msgspec.convert(texts_in(msgspec.to_builtins(given)), cls)
    except msgspec.ValidationError as error:
        told, _, place = str(error).partition(" - at ")
        where = f" at {place}" if place else ""
        raise ValueError(f"{cls.__name__.lower()}{where}: {in_words(told)}") from None


def _is_kept(reason: str) -> bool:
    """Whether it can be kept as it is."""
    return len(reason) <= TEXT_MAX and are_plain_texts(reason)


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
        name, task, team = text_in(name, TITLE_MAX), text_in(task, TITLE_MAX), name_of(team)
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
    """The id of the run in the database. Whatever is wrong with that costs nobody a result that is
    there, or hides a stop: it is logged, and the id is empty."""
    from handrail.guard.record import StoreError, record  # only who records waits for an engine

    try:
        return record(events, database, team)
    except StoreError as error:
        log.error("a guarded run was not recorded: %s", error)
    except Exception:
        log.exception("a guarded run was not recorded; this should not happen, please report it")
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
        """As of its first `_known` events: what came after them went nowhere near a rule."""
        self._known = 1
        self._ahead = Ahead(self._ledger, self._limits)
        self._answered = False
        self._agent = ""
        self._asking, self._asks = Lock(), 0
        """Questions that people have not settled."""
        self._started = self._held_at = self._clock()
        self._until = self._end_of_time()
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
        return self.moved(source, target, reason)

    def moved(
        self,
        source: str,
        target: str,
        reason: str = "",
        agent: str = "",
        text: str = "",
        spent: Usage | None = None,
    ) -> Stop | None:
        """A handoff, right after a result of `agent` that shows nothing if `spent` says that there
        was one: of both together most go nowhere near a rule."""
        ahead = self._ahead
        symbol = ahead.ways.get((source, target)) or ahead.new_way(source, target)
        if (
            symbol
            and ahead.moves > 0
            and self.outside is None
            and (spent is None or (ahead.quiet and agent == source))
            and text.isascii()
            and "\0" not in text
            and (not reason or _is_kept(reason))
        ):
            now, room, made = self._clock(), ahead.room, ahead.handoffs
            steps, tokens, cost = ahead.steps, ahead.tokens, ahead.cost
            if spent is not None:
                steps += self._answered
                tokens += spent.tokens
                cost += spent.cost
            trail = symbol + ahead.trail
            apart = ahead.apart if symbol != ahead.last else 0
            if not apart:
                apart = unrepeated(trail, room.times, room.period_max)
            if apart and now < self._until and tokens < room.tokens and cost < room.cost:
                events = self.events
                if spent is not None:
                    said = Result(text=text, usage=spent)
                    events.append(
                        Reported(at=now, place=agent, fence=steps, agent=agent, result=said)
                    )
                    ahead.tokens, ahead.cost = tokens, cost
                ahead.handoffs, ahead.steps, ahead.trail = made + 1, steps + 1, trail[: room.trail]
                ahead.moves, ahead.apart, ahead.last = ahead.moves - 1, apart - 1, symbol
                self._agent, self._answered = source, False
                events.append(
                    HandedOff(at=now, source=source, target=target, reason=reason, number=made + 1)
                )
                return None
        stop = self.told(agent, text, NO_EVIDENCE, spent) if spent is not None else None
        return stop or self._judged(source, target, reason)

    def _judged(self, source: str, target: str, reason: str) -> Stop | None:
        """A handoff that is looked at closely."""
        if self.stop is not None or self.outside is not None:
            return self._over()
        source, target, reason = name_of(source), name_of(target), text_in(reason, TEXT_MAX)
        now, ledger = self._clock(), self._catch_up()
        moment = Moment(
            ledger,
            self._limits,
            source,
            None,
            source,
            target,
            way(ledger, source, target),
            ledger.steps,
            self._elapsed(now),
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
            self._answered = False
            self._catch_up()
        if found or full:
            return self._end([*found, *full], source, now)
        self._ahead.look(self._ledger, self._limits)
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
        milestone, task = milestone and name_of(milestone), task and name_of(task)
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
        agent, text = name_of(agent), text_in(text)
        now, ahead = self._clock(), self._ahead
        tokens, cost, room = ahead.tokens + spent.tokens, ahead.cost + spent.cost, ahead.room
        if (
            given is NO_EVIDENCE
            and ahead.quiet
            and not milestone
            and ahead.moves > 0
            and tokens < room.tokens
            and cost < room.cost
            and now < self._until
        ):
            ahead.steps += self._answered
            ahead.tokens, ahead.cost, ahead.moves = tokens, cost, ahead.moves - 1
            self._answered, self._agent = True, agent
            result = Result(text=text, usage=spent)
            self.events.append(
                Reported(at=now, place=agent, fence=ahead.steps, agent=agent, result=result)
            )
            return None
        return self._weighed(agent, now, text, given, spent, milestone, task)

    def _weighed(
        self,
        agent: str,
        now: datetime,
        text: str,
        given: Evidence,
        spent: Usage,
        milestone: str,
        task: str,
    ) -> Stop | None:
        """A result that is looked at closely."""
        ledger, limits = self._catch_up(), self._limits
        full = self._full(agent, now)
        if full:
            return self._end(full, agent, now)
        step = ledger.steps + self._answered
        self._answered = True
        weighed = weigh(
            ledger, limits, agent, given, task=task, milestone=milestone, paths=self._paths
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
        ledger = self._catch_up()
        moment = Moment(ledger=ledger, limits=limits, agent=agent, evidence=given, step=step)
        fired = judge_result(moment)
        if fired:
            return self._end(fired, agent, now)
        self._ahead.look(self._ledger, self._limits)
        return None

    def _catch_up(self) -> Ledger:
        """The ledger with every event in it."""
        if self._known == len(self.events):
            return self._ledger
        ledger = brought_forward(self._ledger, self._limits, self.events[self._known :])
        self._ledger, self._known = ledger, len(self.events)
        return ledger

    def _end_of_time(self) -> datetime:
        never = self._started + timedelta(seconds=YEARS)
        most = self._limits.max_duration
        end = never if most is None else self._started + timedelta(seconds=min(most, YEARS))
        return never if self._asks and self._held_at < end else end  # the clock stands, or was late

    def ask(self, question: str) -> "Reply | None":
        """Asks a person, through the inbox of the server that the run is recorded on, and waits.
        None if nobody answered in time, or the run was closed: then it is stopped. Raises
        ClientError if the server cannot be asked, ValueError if there is none."""
        if self.live is None:
            told = "people are asked through a server, and this run is recorded on none"
            raise ValueError(f"{told}; say Guard(record='http://HOST:PORT')")
        self._hold(1)
        try:
            reply = self.live.ask(text_in(question), self._answer_seconds)
        finally:
            self._hold(-1)
        if reply is None:
            self._over()
        return reply

    def _hold(self, more: int) -> None:
        """The time that people take is not the run's: it stands from the first of questions that
        are open together until the last is settled."""
        with self._asking:
            if not self._asks:
                self._held_at = self._clock()
            self._asks += more
            if not self._asks:
                self._started += self._clock() - self._held_at
            self._until = self._end_of_time()

    def _elapsed(self, now: datetime) -> float:
        return ((self._held_at if self._asks else now) - self._started).total_seconds()

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
            self._ahead.moves = 0
            self.stop = Stop(rule=rule, reason=text_in(reason, TEXT_MAX), agent=self._agent)
            self.events.append(Ended(at=self._clock(), status=status, stop=self.stop))

    def _full(self, agent: str, now: datetime) -> list[Fired]:
        """Rules against this result as such: time is up, or it would be one step too many."""
        ledger, limits, elapsed = self._ledger, self._limits, self._elapsed(now)
        moment = Moment(ledger, limits, agent, elapsed=elapsed, step=ledger.steps)
        found = judge_step(moment)
        return [f for f in found if self._answered or f.rule is StopRule.MAX_DURATION]

    def _over(self) -> Stop:
        """Nothing goes on after the end: the reason again, raised or as a value."""
        if self.stop is None and self.outside is not None:
            status, self.stop = self.outside
            self._ahead.moves = 0
            self.events.append(Ended(at=self._clock(), status=status, stop=self.stop))
        assert self.stop is not None, "it is over"
        if self._raises:
            raise stopped(self.stop, self)
        return self.stop

    def _end(self, fired: list[Fired], agent: str, now: datetime) -> Stop:
        """Whoever found that caught up before."""
        self._ahead.moves = 0
        self.stop = stop_of(fired, agent, self._ledger.handoffs)
        goal_met = bool(self._goal) and self._ledger.measured.checks.get(short(self._goal)) == ""
        status = status_of(self.stop.rule, goal_met=goal_met)
        self.events.append(Ended(at=now, status=status, stop=self.stop))
        if self._raises:
            raise stopped(self.stop, self)
        return self.stop
