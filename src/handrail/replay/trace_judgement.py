"""Judges runs that other programs recorded by the stop rules, as if a guard had watched them.

A step is one answer of a model with the calls that it made; another agent's step is a handoff. The
rules see what they would have seen under guard, findings or claims as the profile has it, so the
verdict is that of a guarded run with the same limits. Where a trace has no times, no clock can end
it.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence, Usage
from handrail.kernel.stop.early_warnings import (
    ON_HANDOFF,
    ON_RESULT,
    WarningJudges,
    judge_warnings,
)
from handrail.kernel.stop.findings import FindingReader, StepFinding
from handrail.kernel.stop.ladder import is_due, judge_early
from handrail.kernel.stop.ledger import (
    Ledger,
    add_handoff,
    add_nudge,
    add_result,
    add_warning,
    assess_result,
    find_edge,
)
from handrail.kernel.stop.rules import (
    RULE_ORDER,
    FiredRule,
    Nudge,
    RuleContext,
    judge_handoff,
    judge_result,
    judge_step,
)
from handrail.kernel.stop.tool_claims import ToolClaim, check_tool_call, claim_tool_calls
from handrail.replay.traces.model import Trace, TraceStep, TraceView
from handrail.replay.traces.reader import TraceFormat, read_traces


class TraceWarning(Value, omit_defaults=False):
    """A warning, and how many steps had been made when it came."""

    step: int
    code: str


class TraceJudgement(Value, omit_defaults=False):
    """What the rules say to one recorded run. `step` is how many steps had been made when the stop
    came; the run was stopped only if another one would have followed."""

    file: str
    dataset: str
    id: str
    success: bool | None
    steps: int
    stopped: bool = False
    step: int | None = None
    rule: str | None = None
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    warnings: tuple[TraceWarning, ...] = ()
    nudges: tuple[int, ...] = ()
    """Steps after which the agent would have been told that a rule is near."""
    asks: tuple[int, ...] = ()
    """Steps after which a person would have been asked: none, as a recording has nobody to ask."""
    tokens_saved: int | UnsetType = UNSET
    """Left out where the trace has no tokens."""


class GroupJudgement(Value, omit_defaults=False):
    """The verdicts on the runs of one dataset: good runs that were cut, failed runs that were
    caught, and how many of the failed runs' steps would not have been made."""

    dataset: str
    good: int = 0
    cut: int = 0
    failed: int = 0
    caught: int = 0
    steps_failed: int = 0
    steps_saved: int = 0


class TraceJudgements(Value, omit_defaults=False):
    """All verdicts, in the order of the files, and one row for each dataset."""

    profile: str
    view: TraceView
    items: tuple[TraceJudgement, ...]
    groups: tuple[GroupJudgement, ...]


class TraceJudge:
    """Judges the steps of one trace in their order."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reader, self._ledger, self._agent = FindingReader(), Ledger(), ""
        self._near: list[Nudge] = []
        self.nudges: list[int] = []
        """Steps after which an agent was nudged."""
        self.warnings: list[TraceWarning] = []
        self._started_at: datetime | None = None
        self._first_wait: datetime | None = None
        self._handoff: RuleContext | None = None
        self._context = RuleContext(Ledger(), limits)
        """What the rules saw last: of the handoff before a step, if there was one, and of it."""

    def judge(self, step: TraceStep) -> list[FiredRule]:
        """Return the rules that fire at this step; with any, the run ends after it."""
        fired = self._hand_over(step.agent)
        number = self._ledger.steps + 1
        evidence = self._read(step)
        assessment = assess_result(self._ledger, self._limits, step.agent, evidence)
        usage = Usage(tokens=step.tokens or 0)
        ledger = replace(self._ledger, steps=number)
        self._ledger = add_result(ledger, self._limits, number, evidence, usage, assessment)
        context = RuleContext(
            self._ledger,
            self._limits.early,
            agent=step.agent,
            evidence=evidence,
            step=number,
            ran=self._elapsed(step.at),
            stops=self._limits,
            waited=self._waited(step.at),
        )
        self._context = context
        fired += judge_early(judge_result, context, self._near)
        fired += judge_early(judge_step, context, self._near)
        if not fired:
            self._nudge(number)
            self._warn(ON_RESULT, context, number)
        return fired

    def _waited(self, at: datetime | None) -> float | None:
        """Return the seconds since the first wait; None where no times are known."""
        if at is None or not self._ledger.waits:
            return None
        self._first_wait = self._first_wait or at
        return (at - self._first_wait).total_seconds()

    def judge_under(self, limits: Limits) -> list[FiredRule]:
        """Return the rules that would fire at the last step under other limits of this profile."""
        fired: list[FiredRule] = []
        if self._handoff is not None:
            fired = judge_handoff(replace(self._handoff, limits=limits, stops=None))
        context = replace(self._context, limits=limits, stops=None)
        return [*fired, *judge_result(context), *judge_step(context)]

    def _nudge(self, step: int) -> None:
        """Note that an agent is nudged after this step, if a rule is near."""
        nudges_before = self._ledger.nudges
        for nudge in self._near:
            if is_due(self._ledger, nudge):
                self._ledger = add_nudge(self._ledger, nudge.rule)
        if self._ledger.nudges > nudges_before:
            self.nudges.append(step)
        self._near.clear()

    def _warn(self, judges: WarningJudges, context: RuleContext, step: int) -> None:
        if not self._limits.judges_findings:
            return
        for warning in judge_warnings(judges, context):
            self.warnings.append(TraceWarning(step=step, code=warning.code))
            self._ledger = add_warning(self._ledger, warning.code)

    def _hand_over(self, agent: str) -> list[FiredRule]:
        source, self._agent, self._handoff = self._agent, agent, None
        if not source or source == agent:
            return []
        edge = find_edge(self._ledger, source, agent)
        context = RuleContext(
            self._ledger,
            self._limits.early,
            agent=source,
            source=source,
            target=agent,
            edge=edge,
            stops=self._limits,
        )
        self._handoff = context
        fired = judge_early(judge_handoff, context, self._near)
        if not fired:
            self._warn(ON_HANDOFF, context, self._ledger.steps)
        self._ledger = add_handoff(self._ledger, self._limits, source, agent, "")
        return fired

    def _elapsed(self, at: datetime | None) -> float:
        """Return the seconds since the first step whose time is known."""
        if at is None:
            return 0.0
        self._started_at = self._started_at or at
        return (at - self._started_at).total_seconds()

    def _read(self, step: TraceStep) -> Evidence:
        """Return the evidence that a guard with this profile would have had of the step."""
        keep_arguments = bool(self._limits.constraints.commands)
        claims = _claims_of(step) if keep_arguments or not self._limits.judges_findings else ()
        if not self._limits.judges_findings:
            return (
                claim_tool_calls(claims, keep_arguments=keep_arguments) if claims else NO_EVIDENCE
            )
        checks = tuple(check_tool_call(claim, keep_arguments=True) for claim in claims)
        return Evidence(checks=checks, measured=True, findings=self._read_findings(step))

    def _read_findings(self, step: TraceStep) -> tuple[StepFinding, ...]:
        findings = [self._reader.read_person(step.user_text)] if step.user_text else []
        for call in step.calls:
            findings.append(
                self._reader.read_call(
                    step.agent,
                    call.tool,
                    call.arguments or "",
                    None if call.arguments is None else call.result,  # like no other call
                    failed=call.failed,
                )
            )
        text = None if step.calls else self._reader.read_text(step.agent, step.text)
        return tuple(findings) if text is None else (*findings, text)


def _claims_of(step: TraceStep) -> tuple[ToolClaim, ...]:
    """Return the calls as claims, without those of which something is unknown: like no other."""
    return tuple(
        ToolClaim(
            agent=step.agent,
            tool=call.tool,
            arguments=call.arguments,
            result=call.result,
            error=call.result if call.failed else None,
        )
        for call in step.calls
        if call.arguments is not None and call.result is not None
    )


def judge_traces(
    contents: Iterable[tuple[str, bytes | Iterable[bytes]]],
    limits: Limits,
    *,
    view: TraceView = "B",
    format_: TraceFormat | None = None,
) -> TraceJudgements:
    """Judge every trace of these files, each a name and its content or its lines. Raises
    TraceFormatError."""
    items = tuple(
        judge_trace(trace, limits, file)
        for file, content in contents
        for trace in read_traces(content, file, format_=format_, view=view)
    )
    return TraceJudgements(
        profile=limits.profile, view=view, items=items, groups=tuple(group_judgements(items))
    )


def judge_trace(trace: Trace, limits: Limits, file: str = "") -> TraceJudgement:
    """Judge a whole trace. A rule that fires at its last step stops nothing."""
    judge = TraceJudge(limits)
    verdict = TraceJudgement(
        file=file,
        dataset=trace.dataset,
        id=trace.id,
        success=trace.success,
        steps=len(trace.steps),
    )
    for number, step in enumerate(trace.steps[:-1], 1):
        fired = judge.judge(step)
        if fired:
            first = min(fired, key=lambda fired_rule: RULE_ORDER[fired_rule.rule])
            later = trace.steps[number:]
            tokens = [step.tokens for step in later if step.tokens is not None]
            return replace(
                verdict,
                stopped=True,
                step=number,
                rule=first.rule.value,
                reason=first.reason,
                evidence=first.evidence,
                warnings=tuple(judge.warnings),
                nudges=tuple(judge.nudges),
                tokens_saved=sum(tokens) if tokens else UNSET,
            )
    return replace(verdict, warnings=tuple(judge.warnings), nudges=tuple(judge.nudges))


def group_judgements(verdicts: Iterable[TraceJudgement]) -> list[GroupJudgement]:
    """Return one row for each dataset, in the order in which the datasets first appear."""
    groups: dict[str, GroupJudgement] = {}
    for verdict in verdicts:
        group = groups.get(verdict.dataset, GroupJudgement(dataset=verdict.dataset))
        if verdict.success:
            group = replace(group, good=group.good + 1, cut=group.cut + verdict.stopped)
        elif verdict.success is False:
            saved = verdict.steps - (verdict.steps if verdict.step is None else verdict.step)
            group = replace(
                group,
                failed=group.failed + 1,
                caught=group.caught + verdict.stopped,
                steps_failed=group.steps_failed + verdict.steps,
                steps_saved=group.steps_saved + saved,
            )
        groups[verdict.dataset] = group
    return list(groups.values())
