"""Guard a program's own agent loop with the kernel's stop rules.

    guard = Guard(StopRules(max_handoffs=20))
    with guard.run("ticket 4711") as run:
        run.handoff("planner", "coder", reason="tests are red")

A guarded run is a ledger and a history of the same events that the engine records, so reports and
replays are the same. Evidence from the host program counts as measured: it is the host's own
observation, not an agent's claim. A run belongs to one thread or task at a time.
"""

import functools
import logging
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from handrail.guard.boundary import NO_USAGE, GuardErrors, OnError
from handrail.guard.budgets import (
    Budget,
    GuardBudgets,
    RunBudgets,
    ServerSpending,
    SpendingPlace,
)
from handrail.guard.call_limits import CallLimits
from handrail.guard.errors import StoppedError, exception_text, stop_error
from handrail.guard.fast_path import FastPath
from handrail.guard.prices import (
    ModelPrices,
    RunPricing,
    choose_prices,
)
from handrail.guard.sanitising import (
    RecordTexts,
    describe_text,
    safe_name,
    safe_text,
    safe_texts,
)
from handrail.guard.step_reader import StepReader
from handrail.guard.threads import ThreadState, ThreadStates
from handrail.guard.tool_calls import ToolCall
from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import (
    UNLIMITED,
    Ladder,
    Limits,
    ProfileName,
    StopRules,
    resolve_limits,
)
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.reader import read_stop_rules
from handrail.kernel.result import NO_EVIDENCE, Evidence, Result, Usage
from handrail.kernel.run.events import (
    Ended,
    HandedOff,
    Reported,
    RunEvent,
    Started,
    Warned,
    nudge_event,
)
from handrail.kernel.run.lookahead import apply_guarded_events, begin_guarded_ledger
from handrail.kernel.run.state import Stop, build_stop, stop_question
from handrail.kernel.stop.early_warnings import (
    ON_HANDOFF,
    ON_RESULT,
    WarningJudges,
    judge_warnings,
)
from handrail.kernel.stop.findings import FindingKind, FindingReader, StepFinding, digest_text
from handrail.kernel.stop.ladder import (
    CONCLUDING_TEXT,
    CONCLUSION_CHARS_MAX,
    Judge,
    describe_nudge,
    is_due,
    judge_early,
    may_ask,
    may_conclude,
)
from handrail.kernel.stop.ledger import (
    Ledger,
    assess_result,
    continue_thread,
    find_edge,
    read_evidence,
    renew,
    short_key,
)
from handrail.kernel.stop.repetition import unrepeated_handoffs
from handrail.kernel.stop.rules import (
    RULES_BY_NAME,
    FiredRule,
    Nudge,
    RuleContext,
    StopRule,
    is_handoff_made,
    judge_handoff,
    judge_result,
    judge_step,
    terminal_status_of,
)
from handrail.kernel.validation_messages import explain_validation_error
from handrail.views.report import RunReport, build_report

if TYPE_CHECKING:
    from handrail.guard.server_recorder import HumanReply, ServerRecorder
    from handrail.guard.tracing import RunSpan

log = logging.getLogger("handrail.guard")

SERVER_URL_PREFIXES = ("http://", "https://")
ANSWER_SECONDS_DEFAULT = 24 * 3600.0
"""How long a person has for an answer by default."""
REASON_CHARS_MAX, TITLE_CHARS_MAX = 2_000, 200
"""Characters of a reason, and of a run's title."""
NEVER_SECONDS = 10**9
"""More seconds than any run takes: the limit where the rules set none."""
Clock = Callable[[], datetime]

_utc_now = functools.partial(datetime.now, UTC)

V = TypeVar("V", Evidence, Usage)


def _convert(value: V | Mapping[str, Any], cls: type[V]) -> V:
    """Convert the host's dictionary to `cls`; the error for a wrong one names the field."""
    try:
        return msgspec.convert(safe_texts(msgspec.to_builtins(value)), cls)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        where = f" at {path}" if path else ""
        raise ValueError(
            f"{cls.__name__.lower()}{where}: {explain_validation_error(reason)}"
        ) from None


def _is_storable(reason: str) -> bool:
    """Return whether the reason can be stored unchanged."""
    return len(reason) <= REASON_CHARS_MAX and reason.isascii() and "\0" not in reason


Rung = Literal["nudge", "ask", "conclude", "stop"]


class WouldHave(Value):
    """What a rule would have done in a dry run: nudged an agent, or stopped the run."""

    rung: Rung
    rule: StopRule
    step: int
    reason: str


def _judge_clock(ctx: RuleContext) -> list[FiredRule]:
    return [fired for fired in judge_step(ctx) if fired.rule is StopRule.MAX_DURATION]


def _early_warnings(judges: WarningJudges, ctx: RuleContext, now: datetime) -> list[Warned]:
    """Return the warnings that are due; they stop nothing."""
    if not ctx.limits.judges_findings:
        return []
    return [
        Warned(at=now, code=warning.code, message=warning.message, step=ctx.step)
        for warning in judge_warnings(judges, ctx)
    ]


class RunSnapshot(Value):
    """A guarded run as it is kept between two processes; its events and the answers that its
    reader remembers are kept apart.
    """

    ledger: Ledger
    started_at: datetime
    has_result: bool = False
    last_agent: str = ""
    stop: Stop | None = None
    prompt: StepFinding | None = None
    nudge: str = ""
    first_wait: float | None = None
    concluding: Stop | None = None
    refused: HandedOff | None = None


def _check_choice(name: str, value: str, choice: Any) -> None:
    if value not in get_args(choice):
        raise ValueError(f"{name} is {value!r}; say {' or '.join(map(repr, get_args(choice)))}")


def _check_rules(rules: StopRules, record: str, *, ask: bool) -> StopRules:
    """Return the rules as they are judged; raise ValueError if a rule cannot be used."""
    checked, problems = read_stop_rules(msgspec.to_builtins(rules))
    if checked is None:
        raise ValueError("; ".join(str(problem) for problem in problems))
    if checked.budgets:
        message = "stop_rules.budgets is for definitions; a guard is given its budgets"
        raise ValueError(f"{message}: Guard(budgets=[Budget('{checked.budgets[0]}', ...)])")
    asks = ask or (checked.ladder is not UNSET and checked.ladder.ask)
    if asks and not record.startswith(SERVER_URL_PREFIXES):
        message = "people are asked through a server, and runs are recorded on none"
        raise ValueError(f"{message}; say Guard(ask=True, record='http://HOST:PORT')")
    if asks:
        ladder = Ladder() if checked.ladder is UNSET else checked.ladder
        return replace(checked, ladder=replace(ladder, ask=True))
    return checked


class Guard:
    """Stop rules, checked once, for any number of runs."""

    def __init__(
        self,
        rules: StopRules | None = None,
        *,
        dry_run: bool = False,
        ask: bool = False,
        clock: Clock = _utc_now,
        record: str = "",
        record_texts: RecordTexts = "digests",
        token: str = "",
        answer_seconds: float = ANSWER_SECONDS_DEFAULT,
        prices: ModelPrices | None = None,
        on_error: OnError = "record",
        budgets: Sequence[Budget] = (),
    ) -> None:
        """Check the rules; raise ValueError, naming the limit, if a rule cannot be used.

        With `ask` (or `ladder.ask` in the rules) a person decides on the server whether a run goes
        on that a soft rule would stop; to go on is a new stretch, with all counts at zero.

        With `dry_run` no rule ends a run: `run.would_have` lists what each would have ended, and
        where. On record such a run has no limits.

        `record` is a Handrail database, such as `sqlite:///work.db`, to which every run is written
        when it has ended; or a server, such as `http://127.0.0.1:8080`, which receives the run's
        events while it goes on, with `token`, else `HANDRAIL_TOKEN`. People who are asked there
        have `answer_seconds` for an answer.

        Of the program's texts (what agents say, what tools are asked and answer, what is raised)
        only length and digest are recorded, unless `record_texts` is "full". Names, evidence that
        the host reports, its reasons of handoffs and its questions to people are recorded as they
        are.

        `prices` say what models cost: by model (input, output) of a million tokens, or a function
        of a `ModelCall`, which returns None where it does not know; else the extra
        `handrail[prices]` is asked. Calls are priced where `prices`, `max_cost` or a budget in
        money are set. `budgets` are limits that runs share, over days or months.

        An error of the guard itself is recorded and stops nothing (`boundary.py`), unless
        `on_error` is "raise".
        """
        _check_choice("on_error", on_error, OnError)
        _check_choice("record_texts", record_texts, RecordTexts)
        checked = _check_rules(rules or StopRules(), record, ask=ask)
        self.rules, self._limits = checked, dict[ProfileName, Limits]()
        self.dry_run, self.record_texts = dry_run, record_texts
        self.clock, self.record, self.token = clock, record, token
        self.answer_seconds = answer_seconds
        self.budgets = GuardBudgets(budgets, self._open_spending)
        has_max_cost = checked.max_cost is not UNSET and checked.max_cost is not None
        money_limit = "max_cost" if has_max_cost else self.budgets.money_budget
        self.prices = choose_prices(prices, money_limit)
        self.on_error: OnError = on_error
        self.threads = ThreadStates()
        self.last: GuardedRun | None = None
        """The run that began last: its report, its stop, its id where it was recorded."""

    def _open_spending(self) -> SpendingPlace | None:
        """Open the place where budgets are shared: that of the record."""
        if not self.record:
            return None
        if self.record.startswith(SERVER_URL_PREFIXES):
            from handrail.guard.server_recorder import open_client  # only where there is a server

            return ServerSpending(lambda: open_client(self.record, self.token))
        from handrail.engine.spending import open_spending_record  # only with a database

        record = open_spending_record(self.record)
        for budget in self.budgets.budgets:
            record.set_limits(budget.limits, self.clock())
        return record

    def limits(self, profile: ProfileName = "strict") -> Limits:
        """Return every limit; `profile` fills what the rules leave open if they name none."""
        if profile not in self._limits:
            self._limits[profile] = resolve_limits(self.rules, profile=profile)
        return self._limits[profile]

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
        profile: ProfileName = "strict",
        thread: str = "",
    ) -> Generator["GuardedRun"]:
        """Begin a guarded run.

        `paths`: files that exist at the start; `goal`: the command that decides whether a stopped
        run was a partial success. With `raises=False` a call returns the stop instead of raising
        it. `team`: the name of the recorded run's definition. `profile`: what fills the limits that
        the rules leave open, if they name no profile; adapters say `observed`. Runs of one
        `thread` of a team share soft counts and budgets, not hard limits; `task` is what a person
        asks in this run, and where it is new, the soft counts begin anew.
        """
        run = GuardedRun(self, limits=self.limits(profile), goal=goal, raises=raises)
        with run.errors.absorbing("the run could not begin", missed=True):
            team = safe_name(team)
            run.begin(
                safe_text(name, TITLE_CHARS_MAX),
                task=safe_text(task, TITLE_CHARS_MAX),
                paths=paths,
                thread_state=self.threads.take(team, thread) if thread else None,
            )
            if thread:
                run.read_prompt(task)
        self.last = run
        with run.errors.absorbing("the run could not be traced"):
            run.trace = _begin_trace(run, team)
        self._begin_recording(run, team)
        try:
            with run.errors.absorbing("the budgets could not be looked at"):
                _stop_if_spent(run)
            yield run
        except StoppedError as stop:
            if stop.run is not run:
                self._fail(run, stop)
            raise
        except BaseException as error:
            self._fail(run, error)
            raise
        else:
            with run.errors.absorbing("the end of the run could not be recorded"):
                run.complete()
        finally:
            self._end_run(run, team, thread)

    def callback(self, name: str = "") -> Any:
        """Return a LangChain callback handler that guards every graph it hears of, such as in
        `graph.with_config(callbacks=[guard.callback()])`. `name` is the team's; else the graph's.
        """
        from handrail.guard.langgraph import make_callback  # imported late: not all use LangGraph

        return make_callback(self, name)

    def middleware(self, name: str = "") -> Any:
        """Return a middleware for LangChain's `create_agent`, which guards the agent and tells its
        model of a rule that is near. `name` is the agent's; else its own.
        """
        from handrail.guard.langgraph import make_middleware  # imported late, as above

        return make_middleware(self, name)

    def _fail(self, run: "GuardedRun", error: BaseException) -> None:
        """End the run by the program's own error, which passes whatever becomes of its record."""
        try:
            if isinstance(error, StoppedError):
                run.fail(f"a run inside it was stopped: {error.stop.rule}: {error.stop.reason}")
            elif isinstance(error, GeneratorExit):
                run.fail("the stream was left before its end")
            else:
                text = run.recorded_text(exception_text(error))
                run.fail(f"{type(error).__name__}: {text}" if text else type(error).__name__)
        except Exception:
            log.exception("the end of a guarded run could not be recorded")

    def _end_run(self, run: "GuardedRun", team: str, thread: str) -> None:
        """Keep what the thread's next run begins with, and complete the record."""
        if thread:
            with run.errors.absorbing("what the thread's next run begins with is unknown"):
                self.threads.put_back(team, thread, run.thread_state())
        with run.errors.absorbing("the record could not be completed"):
            if run.recorder is not None:
                run.recorder.close()
            elif self.record and not self._reports_to_server:
                run.recorded = _record_run(run.events, self.record, team)
        with run.errors.absorbing("the end of the run could not be traced"):
            if run.trace is not None:
                run.trace.end(run.events, run.recorded)

    def _begin_recording(self, run: "GuardedRun", team: str) -> None:
        """Begin to report the run to a server, if there is one."""
        if not self._reports_to_server:
            return
        from handrail.guard.server_recorder import (
            ServerRecorder,  # imported late: only recorded runs need a client
        )

        try:
            run.recorder = ServerRecorder(run, self.record, self.token, team)
        except ValueError:  # an address or a token that cannot be used
            raise
        except Exception as error:
            run.errors.note(error, "the run could not be reported")

    @property
    def _reports_to_server(self) -> bool:
        return self.record.startswith(SERVER_URL_PREFIXES)


def _record_run(events: Sequence[RunEvent], database: str, team: str) -> str:
    """Write the run to the database and return its id there.

    A failure to record neither loses a result nor hides a stop: it is logged, and the id is empty.
    """
    from handrail.guard.recording import (  # imported late: only recorded runs need an engine
        StoreError,
        record_run,
    )

    try:
        return record_run(events, database, team)
    except StoreError as error:
        log.error("a guarded run was not recorded: %s", error)
    except Exception:
        log.exception("a guarded run was not recorded; this should not happen, please report it")
    return ""


def _begin_trace(run: "GuardedRun", team: str) -> "RunSpan | None":
    """Begin a span, if the program uses OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from handrail.guard.tracing import begin_span  # imported late: only traces need it

    return begin_span(team, run.events[0].at)


def _stop_if_spent(run: "GuardedRun") -> None:
    """End the run before its first call if a budget is spent already."""
    ledger = begin_guarded_ledger(None, run.budgets.states)
    if ledger.budgets and not run.dry_run:
        fired = judge_result(RuleContext(ledger, run.limits, goes_on=True))
        if fired:
            run.end(build_stop(fired, "", ledger, run.limits.profile), run.budgets.at)


class GuardedRun:
    """One run: takes each handoff and each result, and returns or raises the stop."""

    trace: "RunSpan | None" = None
    """The run in the program's own trace, if it has one."""
    is_ending = False
    """Whether the program makes no further call, so that a spent budget changes nothing."""
    nudge_text: str | None = None
    """What the next agent should be told."""
    _concluding: Stop | None = None
    """Why the run ends with the next text."""
    _refused: HandedOff | None = None
    """The handoff on which a run was stopped that concludes: recorded with its end."""
    _first_wait: float | None = None
    """The running time at which the first wait began, in seconds."""

    def __init__(self, guard: Guard, *, limits: Limits, goal: str = "", raises: bool) -> None:
        self.name = ""
        self.stop: Stop | None = None
        self.recorded = ""
        """The run's id where it is recorded."""
        self.unrecorded = 0
        """Events that the server did not receive."""
        self.recorder: ServerRecorder | None = None
        self.first_agent = ""
        """The agent that has the turn first, if that is known before the first event."""
        self.server_end: tuple[TerminalStatus, Stop] | None = None
        """How the run was ended on the server; the run ends here at its next step."""
        self._answer_seconds, self.pricing = guard.answer_seconds, RunPricing(guard.prices)
        self.limits = limits
        self.dry_run, self.records_texts = guard.dry_run, guard.record_texts == "full"
        self.would_have: list[WouldHave] = []
        """What the rules would have done, in a dry run: each rule once on each rung."""
        self._near: list[Nudge] = []
        """Rules that are near, as judged last; recorded if the run goes on."""
        self._clock, self._raises, self._goal = guard.clock, raises, goal
        self.budgets = RunBudgets(guard.budgets, guard.clock())
        self._prompt: StepFinding | None = None
        """What a person asked of this run of a thread, until the first step shows it."""
        self._applied_count = 1
        self._has_result, self._last_agent = False, ""
        self._asks_lock, self._open_asks = Lock(), 0
        """Approvals that people have not settled."""
        self.events: list[RunEvent] = []
        self.errors = GuardErrors(
            self,
            raises=guard.on_error == "raise",
            clock=guard.clock,
            elapsed=self._elapsed,
            end=self.end,
        )
        self.call_limits = CallLimits(
            self,
            clock=guard.clock,
            catch_up=self._catch_up,
            judge=self._judge,
            stop=self._stop_run,
        )

    def begin(
        self,
        name: str,
        *,
        task: str = "",
        paths: tuple[str, ...] | None = None,
        thread_state: ThreadState | None = None,
    ) -> None:
        """Begin the run, with what earlier runs of its thread counted."""
        self.name = name
        carried, self.reader = thread_state or ThreadState(None, FindingReader())
        self.step_reader = StepReader(self.limits, self.reader, quotes=self.records_texts)
        self._paths = None if paths is None else frozenset(paths)
        self._ledger = begin_guarded_ledger(carried, self.budgets.states)
        """As of the first `_applied_count` events: later events came near no rule."""
        self._fast_path = FastPath(self._ledger, self.limits)
        self._started_at = self._asked_at = self._clock()
        self._deadline = self._compute_deadline()
        self.events.append(
            Started(
                at=self._started_at,
                run_id=name,
                bead_id=name,
                definition_id="guard",
                version=1,
                kind="team",
                step_id="",
                limits=UNLIMITED if self.dry_run else self.limits,
                title=task or name,
                paths=paths,
                carried=carried,
                dry_run=self.dry_run,
                budgets=self.budgets.states,
            )
        )

    def snapshot(self) -> RunSnapshot:
        """Return what `resume` needs to go on with the run in another process."""
        return RunSnapshot(
            ledger=self._catch_up(),
            started_at=self._started_at,
            has_result=self._has_result,
            last_agent=self._last_agent,
            stop=self.stop,
            prompt=self._prompt,
            nudge=self.nudge_text or "",
            first_wait=self._first_wait,
            concluding=self._concluding,
            refused=self._refused,
        )

    def resume(self, snapshot: RunSnapshot) -> None:
        """Go on, as a run that has just begun, with one that another process has counted for. Its
        events are those from here on.
        """
        self._ledger, self._started_at = snapshot.ledger, snapshot.started_at
        self._has_result, self._last_agent = snapshot.has_result, snapshot.last_agent
        self.stop, self._prompt = snapshot.stop, snapshot.prompt
        self.nudge_text, self._first_wait = snapshot.nudge or None, snapshot.first_wait
        self._concluding, self._refused = snapshot.concluding, snapshot.refused
        self._fast_path = FastPath(self._ledger, self.limits)
        self._deadline = self._compute_deadline()
        if self.stop is not None or self._concluding is not None:
            self._fast_path.moves_left = 0

    def thread_state(self) -> ThreadState:
        """Return what the next run of the same thread begins with."""
        return ThreadState(continue_thread(self._catch_up()), self.reader)

    def read_prompt(self, prompt: str) -> None:
        """Read what a person asks of this run of a thread; the first step shows it as a finding."""
        if prompt and self.limits.judges_findings:
            self._prompt = self.reader.read_person(prompt)

    def handoff(self, source: str, target: str, *, reason: str = "") -> Stop | None:
        """Check a handoff before control goes from source to target."""
        try:
            stop = self.record_handoff(source, target, reason)
        except StoppedError:
            raise
        except Exception as error:
            self.errors.lose(error, "a handoff could not be recorded", steps=1, handoffs=1)
            stop = None
        return self.errors.judge() if self.errors.unguarded else stop

    def record_handoff(
        self,
        source: str,
        target: str,
        reason: str = "",
        agent: str = "",
        text: str = "",
        usage: Usage | None = None,
    ) -> Stop | None:
        """Record a handoff; with `usage`, right after an empty result of `agent`, in one step."""
        fast_path = self._fast_path
        symbol = fast_path.edge_symbols.get((source, target)) or fast_path.add_edge(source, target)
        if (
            symbol
            and fast_path.moves_left > 0
            and self.server_end is None
            and not self.pricing.unknown
            and (usage is None or (fast_path.usage_only and agent == source))
            and (not self.records_texts or (text.isascii() and "\0" not in text))
            and (not reason or _is_storable(reason))
        ):
            now, handoffs = self._clock(), fast_path.handoffs
            steps, tokens, cost = fast_path.steps, fast_path.tokens, fast_path.cost
            if usage is not None:
                steps += self._has_result
                tokens += usage.tokens
                cost += usage.cost
            trail = symbol + fast_path.trail
            unrepeated_left = fast_path.unrepeated_left if symbol != fast_path.last_symbol else 0
            if not unrepeated_left and not fast_path.may_repeat:
                unrepeated_left = unrepeated_handoffs(
                    trail, fast_path.repeat_limit, fast_path.period_max
                )
            if (
                (fast_path.may_repeat or (unrepeated_left and fast_path.find_near(trail) is None))
                and now < self._deadline
                and tokens < fast_path.tokens_max
                and cost < fast_path.cost_max
            ):
                events = self.events
                if usage is not None:
                    result = Result(text=self.recorded_text(text), usage=usage)
                    events.append(
                        Reported(at=now, step_id=agent, fence=steps, agent=agent, result=result)
                    )
                    fast_path.tokens, fast_path.cost = tokens, cost
                fast_path.handoffs, fast_path.steps = handoffs + 1, steps + 1
                fast_path.trail = trail[: fast_path.trail_handoffs_max]
                fast_path.unrepeated_left = unrepeated_left - 1 if unrepeated_left else 0
                fast_path.last_symbol, fast_path.may_repeat = symbol, fast_path.may_repeat_blindly
                fast_path.moves_left -= 1
                self._last_agent, self._has_result = source, False
                events.append(
                    HandedOff(
                        at=now, source=source, target=target, reason=reason, number=handoffs + 1
                    )
                )
                return None
        stop = self.record_result(agent, text, NO_EVIDENCE, usage) if usage is not None else None
        return stop or self._judge_handoff(source, target, reason)

    def _judge_handoff(self, source: str, target: str, reason: str) -> Stop | None:
        """Check a handoff against all rules."""
        if self.stop is not None or self.server_end is not None:
            return self._repeat_stop()
        source, target, reason = (
            safe_name(source),
            safe_name(target),
            safe_text(reason, REASON_CHARS_MAX),
        )
        now, ledger = self._clock(), self._catch_up()
        if self._concluding is not None:
            return self.end(self._concluding, now)
        ctx = RuleContext(
            ledger,
            self.limits.early,
            source,
            None,
            source,
            target,
            find_edge(ledger, source, target),
            ledger.steps,
            self._elapsed(now),
            stops=self.limits,
        )
        handoff_fired = self._judge(judge_handoff, ctx)
        step_fired = self._judge(judge_step, ctx)
        fired, accepted = [*handoff_fired, *step_fired], not step_fired
        if self._may_ask(fired, now):
            return self._ask_to_go_on(fired, source) or self._judge_handoff(source, target, reason)
        accepted = accepted and is_handoff_made(handoff_fired)
        if not fired:
            self.events += _early_warnings(ON_HANDOFF, ctx, now)
        event = HandedOff(
            at=now,
            source=source,
            target=target,
            reason=reason,
            accepted=accepted,
            number=ledger.handoffs + 1 if accepted else 0,
        )
        self._last_agent = source
        if not accepted and self._may_conclude(fired, now):
            self._refused = event
            return self._stop_run(fired, source, now)
        self.events.append(event)
        if accepted:
            self._has_result = False
            self._catch_up()
        if fired:
            return self._stop_run(fired, source, now)
        self._record_nudges(now)
        self._refresh_fast_path()
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
        """Record an agent's turn: its evidence and its usage. Several in one turn are steps."""
        measured_evidence = (
            replace(_convert(evidence, Evidence), measured=True) if evidence else NO_EVIDENCE
        )
        if self.limits.judges_findings and measured_evidence is not NO_EVIDENCE:
            findings = read_evidence(agent, measured_evidence)
            measured_evidence = replace(measured_evidence, findings=findings)
        checked_usage = self.pricing.complete(_convert(usage, Usage)) if usage else NO_USAGE
        milestone, task = milestone and safe_name(milestone), task and safe_name(task)
        return self._record_step(
            agent, lambda: measured_evidence, text, checked_usage, milestone=milestone, task=task
        )

    def _record_step(
        self,
        agent: str,
        read_evidence: Callable[[], Evidence],
        text: str = "",
        usage: Usage = NO_USAGE,
        *,
        milestone: str = "",
        task: str = "",
    ) -> Stop | None:
        """Record a step that the host reports by hand."""
        try:
            evidence = read_evidence()
            stop = self.record_result(agent, text, evidence, usage, milestone=milestone, task=task)
        except StoppedError:
            raise
        except Exception as error:
            what = "a step could not be recorded"
            self.errors.lose(error, what, steps=1, usage=usage)
            stop = None
        return self.errors.judge() if self.errors.unguarded else stop

    def called(
        self,
        agent: str,
        tool: str,
        arguments: object,
        result: object,
        error: object = None,
        *,
        effect: bool = False,
    ) -> Stop | None:
        """Record a tool call: what was asked, and what came back or was raised; None as a result
        means that it is unknown. `effect`: the call changed something outside of the run.
        """
        call = ToolCall(agent, tool, arguments, result, error, effect)
        return self._record_step(agent, lambda: self.step_reader.tool_evidence([call]))

    def said(self, agent: str, text: str) -> Stop | None:
        """Record an answer of an agent that calls no tool."""
        return self._record_step(agent, lambda: self.step_reader.read_step(agent, text), text)

    def state(self, agent: str, state: Mapping[str, Any] | str) -> Stop | None:
        """Record the state that an agent left, or its digest."""
        return self._record_step(agent, lambda: self.step_reader.read_step(agent, "", state=state))

    def waiting(self, agent: str, for_: str, retry_after: float | None = None) -> Stop | None:
        """Record that an agent waits for something outside of the run: time counts, not calls,
        and `wait_deadline` after the first wait another one ends the run. In profiles that judge
        names and claims alone, a wait is a step like any other.
        """

        def read_wait() -> Evidence:
            key = digest_text(agent, for_)
            finding = StepFinding(kind=FindingKind.CALL, key=key, pending=True)
            return self.step_reader.findings(finding)

        return self._record_step(agent, read_wait)

    def recorded_text(self, text: str) -> str:
        """Return what is recorded of a text of the program."""
        return text if self.records_texts or not text else describe_text(text)

    def record_result(
        self,
        agent: str,
        text: str,
        evidence: Evidence,
        usage: Usage,
        *,
        milestone: str = "",
        task: str = "",
    ) -> Stop | None:
        """Like `result`, for values that are already validated: evidence is measured, or none."""
        if self.stop is not None or self.server_end is not None:
            return self._repeat_stop()
        conclusion = safe_text(text, CONCLUSION_CHARS_MAX) if self.limits.ladder.conclude else ""
        agent, text = safe_name(agent), safe_text(self.recorded_text(text))
        if self._prompt is not None:
            findings = (*evidence.findings, self._prompt)
            evidence, self._prompt = replace(evidence, measured=True, findings=findings), None
        now, fast_path = self._clock(), self._fast_path
        tokens, cost = fast_path.tokens + usage.tokens, fast_path.cost + usage.cost
        result = Result(text=text, evidence=evidence, usage=usage)
        if (
            fast_path.moves_left > 0
            and not self.pricing.unknown
            and not milestone
            and tokens < fast_path.tokens_max
            and cost < fast_path.cost_max
            and now < self._deadline
            and (assessment := fast_path.assess(evidence)) is not None
        ):
            fast_path.steps += self._has_result
            fast_path.tokens, fast_path.cost, fast_path.moves_left = (
                tokens,
                cost,
                fast_path.moves_left - 1,
            )
            self._has_result, self._last_agent = True, agent
            self.events.append(
                Reported(
                    at=now,
                    step_id=agent,
                    fence=fast_path.steps,
                    agent=agent,
                    result=result,
                    weighed=assessment,
                )
            )
            return None
        return self._judge_result(agent, now, result, conclusion, milestone, task)

    def _judge_result(
        self,
        agent: str,
        now: datetime,
        result: Result,
        conclusion: str,
        milestone: str,
        task: str,
    ) -> Stop | None:
        """Check a result against all rules."""
        ledger, limits, evidence = self._catch_up(), self.limits, result.evidence
        step_fired = self._judge_next_step(agent, now) if self._concluding is None else []
        if step_fired:
            self._stop_run(step_fired, agent, now)
        step = ledger.steps + self._has_result
        if self._concluding is not None:
            result = Result(text=result.text, usage=result.usage)
            event = Reported(at=now, step_id=agent, fence=step, agent=agent, result=result)
            self.events.append(replace(event, budgets=self.budgets.spend(result.usage, now)))
            return self.end(replace(self._concluding, conclusion=conclusion), now)
        if step_fired:
            return self.stop
        self._has_result = True
        assessment = assess_result(
            ledger, limits, agent, evidence, task=task, milestone=milestone, paths=self._paths
        )
        self.events.append(
            Reported(
                at=now,
                step_id=agent,
                fence=step,
                agent=agent,
                result=result,
                weighed=assessment,
                phase=milestone,
                budgets=self.budgets.spend(result.usage, now),
            )
        )
        self._last_agent = agent
        self.events += self.pricing.take_warnings(now, step) + self.budgets.warnings(now, step)
        ledger = self._catch_up()
        ctx = RuleContext(
            ledger,
            limits.early,
            agent=agent,
            evidence=evidence,
            step=step,
            stops=limits,
            goes_on=not self.is_ending,
            waited=self._waited(now) if ledger.waits else None,
        )
        fired = self._judge(judge_result, ctx)
        if self._may_ask(fired, now):
            return self._ask_to_go_on(fired, agent)
        if fired:
            return self._stop_run(fired, agent, now)
        self._record_nudges(now)
        self.events += _early_warnings(ON_RESULT, ctx, now)
        self._refresh_fast_path()
        return None

    def _waited(self, now: datetime) -> float:
        """Return the seconds since the first wait, which may be this one."""
        elapsed = self._elapsed(now)
        if self._first_wait is None:
            self._first_wait = elapsed
        return elapsed - self._first_wait

    def _catch_up(self) -> Ledger:
        """Return the ledger with every event applied."""
        if self._applied_count == len(self.events):
            return self._ledger
        ledger = apply_guarded_events(
            self._ledger, self.limits, self.events[self._applied_count :], self._goal
        )
        self._ledger, self._applied_count = ledger, len(self.events)
        return ledger

    def _refresh_fast_path(self) -> None:
        seconds = self._fast_path.seconds_max
        self._fast_path.refresh(self._ledger, self.limits)
        if self._fast_path.seconds_max != seconds:
            self._deadline = self._compute_deadline()

    def _compute_deadline(self) -> datetime:
        """Return when a rule may fire because of the time; never while the clock stands still."""
        seconds = min(self._fast_path.seconds_max, NEVER_SECONDS)
        end = self._started_at + timedelta(seconds=seconds)
        if self._open_asks and self._asked_at < end:
            return self._started_at + timedelta(seconds=NEVER_SECONDS)
        return end

    def ask(
        self, question: str, stop: Stop | None = None, *, options: tuple[str, ...] = ()
    ) -> "HumanReply | None":
        """Ask a person through the inbox of the server that records the run, and wait. With `stop`
        the question is whether the run goes on. `options` are answers to choose from.

        Returns None if no answer came in time, or the run was closed: then the run is stopped.
        Raises ClientError if the server cannot be asked, ValueError if there is none.
        """
        if self.recorder is None:
            message = "people are asked through a server, and this run is recorded on none"
            raise ValueError(f"{message}; say Guard(record='http://HOST:PORT')")
        self._change_open_asks(1)
        try:
            reply = self.recorder.ask(safe_text(question), self._answer_seconds, stop, options)
        finally:
            self._change_open_asks(-1)
        if self.trace is not None:
            self.trace.add_approval(reply.by if reply else "", answered=reply is not None)
        if reply is None:
            self._repeat_stop()
        return reply

    def _change_open_asks(self, change: int) -> None:
        """Count open approvals, and pause the run's clock from the first until the last is
        settled.
        """
        with self._asks_lock:
            if not self._open_asks:
                self._asked_at = self._clock()
            self._open_asks += change
            if not self._open_asks:
                self._started_at += self._clock() - self._asked_at
            self._deadline = self._compute_deadline()

    def _elapsed(self, now: datetime) -> float:
        return ((self._asked_at if self._open_asks else now) - self._started_at).total_seconds()

    def report(self) -> RunReport:
        """Return the run report so far: status, counters, the rule that fired, why."""
        return build_report(self.events)

    def complete(self, reason: str = "the guarded block ended") -> None:
        """End the run as completed; does nothing if a rule ended the run before."""
        self._finish(TerminalStatus.DONE_SUCCESS, StopRule.COMPLETED, reason)

    def fail(self, reason: str) -> None:
        """End the run as failed: the host program gave up."""
        self._finish(TerminalStatus.ABORTED_STUCK, StopRule.AGENT_LOST, reason)

    def _finish(self, status: TerminalStatus, rule: StopRule, reason: str) -> None:
        if self._concluding is not None:
            self.end(self._concluding, self._clock(), quietly=True)  # nothing was said any more
        elif self.stop is None:
            self._fast_path.moves_left = 0
            self.stop = Stop(
                rule=rule, reason=safe_text(reason, REASON_CHARS_MAX), agent=self._last_agent
            )
            self.events.append(Ended(at=self._clock(), status=status, stop=self.stop))

    def _judge_next_step(self, agent: str, now: datetime) -> list[FiredRule]:
        """Return the rules that this result breaks by itself: the time limit or the step limit."""
        ledger, limits, elapsed = self._ledger, self.limits, self._elapsed(now)
        ctx = RuleContext(ledger, limits.early, agent, ran=elapsed, step=ledger.steps, stops=limits)
        return self._judge(judge_step if self._has_result else _judge_clock, ctx)

    def _judge(self, judge: Judge, ctx: RuleContext) -> list[FiredRule]:
        """Return the rules that end the run, and note those that are near. In a dry run none ends
        it, and each rule is noted once.
        """
        fired = judge_early(judge, ctx, self._near)
        if self.errors.unguarded:
            self._near.clear()
            fired = [rule for rule in fired if not RULES_BY_NAME[rule.rule].is_soft]
        if not self.dry_run:
            return fired
        for rule in fired:
            if self.limits.ladder.ask and RULES_BY_NAME[rule.rule].is_soft:
                self._note("ask", rule.rule, ctx.step, rule.reason)
            if self.limits.ladder.conclude and RULES_BY_NAME[rule.rule].on_ladder:
                self._note("conclude", rule.rule, ctx.step, rule.reason)
            self._note("stop", rule.rule, ctx.step, rule.reason)
        for nudge in self._near:
            self._note("nudge", nudge.rule, ctx.step, describe_nudge(nudge))
        self._near.clear()
        return []

    def _note(self, rung: Rung, rule: StopRule, step: int, reason: str) -> None:
        """Note, and record, what a rule would have done, once."""
        if any((entry.rung, entry.rule) == (rung, rule) for entry in self.would_have):
            return
        self.would_have.append(WouldHave(rung=rung, rule=rule, step=step, reason=reason))
        self.events.append(
            Warned(
                at=self._clock(),
                code=f"would_{rung}",
                message=f"{rule}: {reason}",
                rule=rule,
                rung=rung,
                step=step,
            )
        )

    def _record_nudges(self, now: datetime) -> None:
        """Record which rules are near, for the agent whose turn is next."""
        texts: list[str] = []
        for nudge in self._near:
            if is_due(self._catch_up(), nudge):
                self.events.append(nudge_event(now, nudge))
                texts.append(describe_nudge(nudge))
        if texts:
            self.nudge_text = texts[0]
            self._catch_up()
        self._near.clear()

    def take_nudge(self) -> str | None:
        """Return what the agent should be told of a rule that is near, once; None if none is."""
        text, self.nudge_text = self.nudge_text, None
        return text

    def _repeat_stop(self) -> Stop:
        """Raise or return the stop again: nothing goes on after the end."""
        if self.stop is None and self.server_end is not None:
            status, self.stop = self.server_end
            self._fast_path.moves_left = 0
            self.events.append(Ended(at=self._clock(), status=status, stop=self.stop))
        assert self.stop is not None, "it is over"
        if self._raises:
            raise stop_error(self.stop, self)
        return self.stop

    def _stop_run(self, fired: list[FiredRule], agent: str, now: datetime) -> Stop | None:
        """End the run, or let the agent conclude it. The ledger has caught up before."""
        self._fast_path.moves_left = 0
        stop = build_stop(fired, agent, self._ledger, self.limits.profile)
        if self._may_conclude(fired, now):
            self._concluding, self.nudge_text = stop, CONCLUDING_TEXT
            return None
        return self.end(stop, now)

    def _may_ask(self, fired: list[FiredRule], now: datetime) -> bool:
        """Whether a person decides about the stop."""
        if not (fired and self.limits.ladder.ask) or self.recorder is None:
            return False
        ctx = RuleContext(self._ledger, self.limits, ran=self._elapsed(now))
        return may_ask(self.limits, fired, judge_step(ctx))

    def _ask_to_go_on(self, fired: list[FiredRule], agent: str) -> Stop | None:
        """Ask a person whether the run goes on; None if it does, in a new stretch."""
        stop = build_stop(fired, agent, self._ledger, self.limits.profile)
        reply = self.ask(stop_question(stop), stop)
        if reply is None:
            return self.stop
        steps = self._ledger.steps - (not self._has_result)
        self._ledger = replace(renew(replace(self._ledger, steps=steps)), steps=steps + 1)
        self._has_result, self._started_at = False, self._clock()
        self.errors.counts.begin_stretch()
        self._near.clear()
        self._refresh_fast_path()
        self._deadline = self._compute_deadline()
        return None

    def _may_conclude(self, fired: list[FiredRule], now: datetime) -> bool:
        ledger, limits = self._ledger, self.limits
        steps = ledger.steps - 1 + self._has_result  # the turn's first result is its step
        ctx = RuleContext(ledger, limits, ran=self._elapsed(now), step=ledger.steps)
        return may_conclude(limits, steps, [*fired, *judge_step(ctx)])

    def end(self, stop: Stop, now: datetime, *, quietly: bool = False) -> Stop:
        """Record the end, and raise or return the stop."""
        self.stop, self._concluding = stop, None
        goal_met = (
            bool(self._goal) and self._ledger.measured.checks.get(short_key(self._goal)) == ""
        )
        if self._refused is not None:
            self.events.append(replace(self._refused, at=now))
        status = terminal_status_of(stop.rule, goal_met=goal_met)
        recorded = replace(stop, conclusion=self.recorded_text(stop.conclusion))
        self.events.append(Ended(at=now, status=status, stop=recorded))
        self._fast_path.moves_left = 0
        if self._raises and not quietly:
            raise stop_error(stop, self)
        return stop
