"""The run report (S11): what happened, what was counted, which rule ended the run, and why.

Theory of operation. `build_report` is a function of the events alone: recomputed from the stored
history, the report is the same, byte for byte (`msgspec.json.encode(report, order="deterministic")`
is its JSON form). It combines the projections of `history.py` and `steps.py`; `report_markdown` and
`snitch_entry` are functions of the report, so no form can say what another does not. A run in
progress has a report too: without a terminal status and a stop.

The JSON contains texts of agents and people unchanged. In Markdown they can forge nothing: all of
them pass through `markdown.py`.

Rules of this file:
1. The reason is typed: `why` comes from the stop, the numbers and the cited events, and is never
   guessed from a text.
2. Cited events are shown with their content: "handoff 4" is the entry with that number.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run.events import Offered, RunEvent
from handrail.kernel.run.state import Run, RunStatus
from handrail.kernel.stop.rules import RULES_BY_NAME, StopRule
from handrail.views import history
from handrail.views import steps as stepping
from handrail.views.history import StopView, normalize_number, run_usage, stop_view
from handrail.views.markdown import bullet_list, code_block, escape_line, table
from handrail.views.stop_explanation import explain_stop
from handrail.views.view_types import (
    Handoff,
    HumanAct,
    Iteration,
    LastCommand,
    LastProgress,
    LoopCounter,
    RedirectView,
    RunTotals,
    RunUsageView,
    RunWarning,
    Step,
    TransitionView,
    View,
    WouldHaveDone,
)

WHY_CHARS_MAX = 300
NAMED_AGENTS_MAX = 4
"""Agents named in a sentence; the rest is a number."""
STATUS_TITLES = {
    TerminalStatus.DONE_SUCCESS: "Done",
    TerminalStatus.DONE_PARTIAL: "Partly done",
    TerminalStatus.ABORTED_STUCK: "Stuck",
    TerminalStatus.ABORTED_CONSTRAINT: "Constraint",
    TerminalStatus.CLOSED_BY_HUMAN: "Closed by a person",
}
SNITCH_STATUSES = ("aborted_stuck", "aborted_constraint")


class RunReport(View):
    """The report of a run."""

    run_id: str
    bead_id: str
    definition_id: str
    version: int
    kind: str
    title: str
    first_agent: str
    status: str
    terminal_status: str | None
    stop: StopView | None
    why: str
    profile: str
    limits: dict[str, Any]
    loop_counters: dict[str, LoopCounter]
    attempts: dict[str, int]
    retries: dict[str, int]
    totals: RunTotals
    last_progress: LastProgress | None
    final_agent: str
    phase: str
    phase_detail: str
    started_at: datetime
    ended_at: datetime | None
    duration: float
    """Seconds from the start to the last event; `running` without waits for people and pauses."""
    running: float
    usage: RunUsageView
    handoff_sequence: tuple[Handoff, ...]
    redirects: tuple[RedirectView, ...]
    warnings: tuple[RunWarning, ...]
    iterations: tuple[Iteration, ...]
    transitions: tuple[TransitionView, ...]
    acts: tuple[HumanAct, ...]
    steps: tuple[Step, ...]
    last_command: LastCommand | None
    dry_run: bool
    would_have: tuple[WouldHaveDone, ...]
    unguarded: str
    """Why only the hard limits judge a guarded run since an error of its guard; else empty."""


def build_report(events: Sequence[RunEvent]) -> RunReport:
    """Build the report of a run from its events alone."""
    first = stepping.started_event(events)
    run, running = history.rebuild_run(events)
    handoffs = history.handoff_sequence(events)
    transitions = history.transitions(events)
    acts = history.human_acts(events)
    redirects = history.redirects(events)
    return RunReport(
        run_id=run.id,
        bead_id=run.bead_id,
        definition_id=run.definition_id,
        version=run.version,
        kind=run.kind,
        title=run.title,
        first_agent=first.step_id or next((h.from_ for h in handoffs), ""),
        status=run.status.value,
        terminal_status=run.terminal_status,
        stop=stop_view(run.stop),
        why=explain_run(run, handoffs, acts),
        profile=run.limits.profile,
        limits=limits_in_force(run.limits),
        loop_counters=history.loop_counters(run, events),
        attempts=stepping.attempts(events),
        retries=stepping.retries(events),
        totals=RunTotals(
            steps=run.ledger.steps,
            handoffs=run.ledger.handoffs,
            dispatches=sum(isinstance(event, Offered) for event in events),
            transitions=len(transitions),
            questions=run.approvals_opened,
            stretches=run.stretch,
            nudges=stepping.count_nudges(events),
            redirects=len(redirects),
            waits=stepping.count_waits(events),
        ),
        last_progress=stepping.last_progress(events),
        final_agent=run.final_agent,
        phase=run.phase,
        phase_detail=run.phase_detail,
        started_at=run.started_at,
        ended_at=run.ended_at,
        duration=(events[-1].at - run.started_at).total_seconds(),
        running=running,
        usage=run_usage(run.ledger),
        handoff_sequence=handoffs,
        redirects=redirects,
        warnings=stepping.warnings(events),
        iterations=history.iterations(events),
        transitions=transitions,
        acts=acts,
        steps=stepping.steps(events),
        last_command=stepping.last_command(events),
        dry_run=run.dry_run,
        would_have=stepping.would_have(events),
        unguarded=stepping.unguarded(events),
    )


NAMED_LIMITS = ("budgets", "constraints", "tool_limits", "ladder", "profile")
"""Limits that are no single figure."""


def limits_in_force(limits: Limits) -> dict[str, Any]:
    """Return every limit that is on, by name."""
    limits_by_name: dict[str, Any] = {}
    for name in Limits.__struct_fields__:
        value = getattr(limits, name)
        if value is None or not limits.has_effect(name):
            continue
        if value != "claims" and name not in NAMED_LIMITS:
            limits_by_name[name] = normalize_number(value)
    for tool, limit in limits.tool_limits.items():
        limits_by_name[f"tool_limits.{tool}"] = limit
    if limits.budgets:
        limits_by_name["budgets"] = ", ".join(limits.budgets)
    for name in ("paths", "commands"):
        patterns: tuple[str, ...] = getattr(limits.constraints, name)
        if patterns:
            limits_by_name[f"constraints.{name}"] = list(patterns)
    return limits_by_name


def explain_run(run: Run, handoffs: Sequence[Handoff], acts: Sequence[HumanAct]) -> str:
    """Return one or two plain sentences: why the run stopped, or what it is doing."""
    stop, status = run.stop, run.terminal_status
    if stop is None or status is None:
        return f"{_shorten(_describe_open_run(run, acts))}."
    if stop.rule is StopRule.REPEATED_PATTERN:
        reason = _describe_pattern(stop.evidence, handoffs, normalize_number(stop.seen))
    elif RULES_BY_NAME[stop.rule].may_be_partial and status is TerminalStatus.DONE_PARTIAL:
        reason = f"the goal is met, but {stop.reason}"
    else:
        reason = stop.reason
    limit = "" if stop.limit is None else f" (limit {normalize_number(stop.limit)})"
    remaining_text = (
        f" Left to do: {_shorten('; '.join(stop.remaining))}." if stop.remaining else ""
    )
    return f"{STATUS_TITLES[status]}: {_shorten(reason)}{limit}.{remaining_text}"


def _shorten(text: str) -> str:
    """Return the text short, on one line, without the last full stop; the report has it in full."""
    words = " ".join(text.split()).rstrip(".")
    return words if len(words) <= WHY_CHARS_MAX else f"{words[:WHY_CHARS_MAX]}…"


def _describe_pattern(evidence: Sequence[str], handoffs: Sequence[Handoff], times: object) -> str:
    cited_names = set(evidence)
    cited_handoffs = [h for h in handoffs if f"handoff {h.number}" in cited_names]
    agents = list(dict.fromkeys(name for h in cited_handoffs for name in (h.from_, h.to)))
    if len(agents) == 1:
        return f"{agents[0]} handed over to itself {times} times in a row without progress"
    if len(agents) > NAMED_AGENTS_MAX:
        agents[NAMED_AGENTS_MAX - 1 :] = [f"{len(agents) - NAMED_AGENTS_MAX + 1} others"]
    return (
        f"{', '.join(agents[:-1])} and {agents[-1]} handed over the same way {times} times "
        "in a row without progress"
    )


def _describe_open_run(run: Run, acts: Sequence[HumanAct]) -> str:
    if run.status is RunStatus.PAUSED:
        act = next(act for act in reversed(acts) if act.act == "pause")
        return f"Paused by {act.by}: {act.reason}"
    if run.status is RunStatus.WAITING:
        questions_text = "; ".join(approval.text for approval in run.pending_approvals.values())
        return f"Waiting for a person: {questions_text}"
    step_ids = ", ".join(run.positions)
    return f"Running: the next result comes from {step_ids}" if step_ids else "Running"


def report_markdown(report: RunReport) -> str:
    """Return the report as Markdown, for people."""
    parts = [
        f"# Run {escape_line(report.run_id)}: {escape_line(report.title) or 'untitled'}",
        escape_line(report.why),
        _facts_table(report),
    ]
    for title, body in _sections(report):
        if body:
            parts += [f"## {title}", body]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts_table(report: RunReport) -> str:
    usage_text = f"{report.usage.tokens} tokens, cost {report.usage.cost:g}"
    if report.usage.unpriced_calls:
        usage_text += f" without {report.usage.unpriced_calls} calls of models without a price"
    last = report.last_progress
    rows = [
        ("status", report.terminal_status or report.status),
        ("stop rule", report.stop.rule if report.stop else "none"),
        ("bead", report.bead_id),
        ("definition", f"{report.definition_id}, version {report.version} ({report.kind})"),
        ("profile", report.profile),
        ("dry run", "yes: no rule ended it" if report.dry_run else ""),
        ("unguarded", report.unguarded),
        ("first agent", report.first_agent),
        ("final agent", report.final_agent),
        (
            "phase",
            f"{report.phase} ({report.phase_detail})" if report.phase_detail else report.phase,
        ),
        ("started", _format_time(report.started_at)),
        ("ended", _format_time(report.ended_at)),
        ("total time", f"{report.duration:g} s, of it running {report.running:g} s"),
        ("steps", f"{report.totals.steps} ({report.totals.dispatches} dispatches)"),
        ("handoffs", report.totals.handoffs),
        ("transitions", report.totals.transitions),
        ("questions", report.totals.questions),
        ("short of a stop", format_ladder(report.totals)),
        ("usage", usage_text),
        ("last progress", f"step {last.step}: {', '.join(last.what)}" if last else "none"),
    ]
    return table(("what", "value"), [(name, value) for name, value in rows if value != ""])


def format_ladder(totals: RunTotals) -> str:
    """Return what came short of a stop: "2 nudges, 1 redirect"."""
    counts = {"nudge": totals.nudges, "redirect": totals.redirects, "wait": totals.waits}
    return ", ".join(f"{n} {noun}{'s' * (n != 1)}" for noun, n in counts.items() if n)


def _sections(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield the sections in order; the caller omits empty ones."""
    yield "Why it stopped", _stop_section(report)
    yield (
        "What the rules would have done",
        _table_or_empty(
            ("rung", "rule", "step"), [(w.rung, w.rule, w.step) for w in report.would_have]
        ),
    )
    counter_rows = [
        (edge, c.count, c.total, _format_limit(c.limit), "; ".join(c.reasons))
        for edge, c in report.loop_counters.items()
    ]
    headers = ("edge", "since progress", "in all", "limit", "last reasons")
    yield "Loop counters", _table_or_empty(headers, counter_rows)
    handoff_rows = [
        (h.number or "refused", h.from_, h.to, h.reason, _format_task(h), _format_time(h.at))
        for h in report.handoff_sequence
    ]
    yield (
        "Handoffs",
        _table_or_empty(("number", "from", "to", "reason", "task", "at"), handoff_rows),
    )
    headers = ("step", "from", "proposed", "went to", "rule")
    redirect_rows = [(r.step, r.from_, r.proposed, r.to, r.rule) for r in report.redirects]
    yield "Redirects", _table_or_empty(headers, redirect_rows)
    yield (
        "Rounds of review",
        "\n\n".join(_iteration_section(iteration) for iteration in report.iterations),
    )
    yield (
        "Attempts",
        _table_or_empty(
            ("place", "dispatches", "retries"),
            [
                (step_id, n, report.retries.get(step_id, 0))
                for step_id, n in report.attempts.items()
            ],
        ),
    )
    yield from _record_sections(report)
    yield "Limits in force", table(("limit", "value"), sorted(report.limits.items()))


def _record_sections(report: RunReport) -> Iterator[tuple[str, str]]:
    """Yield the sections that list what happened, one row each."""
    headers = ("step", "place", "attempt", "agent", "outcome", "reason", "ended")
    step_rows = [
        (s.n, s.place, s.attempt, s.agent, s.outcome or "open", s.reason, _format_time(s.ended_at))
        for s in report.steps
    ]
    yield "Steps", _table_or_empty(headers, step_rows)
    headers = ("from", "to", "outcome", "reason", "by", "at")
    transition_rows = [
        (t.from_node_id, t.to_node_id, t.outcome, t.reason, t.actor, _format_time(t.timestamp))
        for t in report.transitions
    ]
    yield "Transitions", _table_or_empty(headers, transition_rows)
    yield (
        "What people did",
        _table_or_empty(
            ("act", "by", "reason", "place", "at"),
            [(a.act, a.by, a.reason, a.place, _format_time(a.at)) for a in report.acts],
        ),
    )
    yield (
        "Warnings",
        _table_or_empty(
            ("code", "message", "step", "at"),
            [(w.code, w.message, w.step, _format_time(w.at)) for w in report.warnings],
        ),
    )


def _stop_section(report: RunReport) -> str:
    stop = report.stop
    if stop is None:
        return ""
    rule, *rest = explain_stop(stop)
    fields = bullet_list(
        [
            rule,
            ("reason", stop.reason),
            ("agent", stop.agent),
            *rest,
            ("last command", _format_command(report.last_command)),
        ]
    )
    evidence_list = bullet_list(_cited_events(report, stop))
    return f"{fields}\n\nEvidence:\n\n{evidence_list}" if evidence_list else fields


def _cited_events(report: RunReport, stop: StopView) -> Iterator[tuple[str, str]]:
    """Yield each cited event with its description."""
    descriptions = {
        f"handoff {h.number}": f"{h.from_} → {h.to}: {h.reason or 'no reason given'}"
        for h in report.handoff_sequence
        if h.number
    }
    for s in report.steps:
        descriptions[f"step {s.n}"] = f"{s.agent or s.place} at {s.place}: {s.outcome or 'open'}"
    for name in stop.evidence:
        yield name, descriptions.get(name, "not in this history")


def _iteration_section(iteration: Iteration) -> str:
    parts = [
        f"### Round {iteration.n}",
        bullet_list(
            [
                ("decision", iteration.decision or "none yet"),
                ("by", iteration.by),
                ("at", _format_time(iteration.at)),
            ]
        ),
        "Task:",
        code_block(iteration.task),
        f"Result of {escape_line(iteration.agent) or 'nobody'}:",
        code_block(iteration.result),
    ]
    return "\n\n".join([*parts, "Answer:", code_block(iteration.text)] if iteration.text else parts)


def snitch_entry(report: RunReport) -> str:
    """Return the issues-file entry of an aborted run (S12); "" for any other run."""
    if report.terminal_status not in SNITCH_STATUSES or report.stop is None:
        return ""
    stop = report.stop
    agent_handoffs = [h for h in report.handoff_sequence if h.from_ == stop.agent]
    last_handoff = next(reversed(agent_handoffs or report.handoff_sequence), None)
    first_handoff = next(
        (h for h in reversed(report.handoff_sequence) if h.from_ == report.first_agent), None
    )
    first_reason = (
        f"{first_handoff.from_} → {first_handoff.to}: {first_handoff.reason}"
        if first_handoff and first_handoff != last_handoff
        else ""
    )
    loops = [f"{edge} ({c.total} times)" for edge, c in report.loop_counters.items() if c.total > 1]
    fields = bullet_list(
        [
            ("run", report.run_id),
            ("bead", f"{report.bead_id}: {report.title}" if report.title else report.bead_id),
            ("definition", f"{report.definition_id}, version {report.version}"),
            ("at", _format_time(report.ended_at)),
            ("why", report.why),
            ("loop", ", then ".join(stop.pattern) or ", ".join(loops) or "none"),
            (
                "last reason",
                f"{last_handoff.from_} → {last_handoff.to}: {last_handoff.reason}"
                if last_handoff
                else "none given",
            ),
            (f"last reason of {escape_line(report.first_agent)}", first_reason),
            ("last command", _format_command(report.last_command) or "none"),
            ("evidence", ", ".join(stop.evidence)),
            ("what would have let it go on", stop.remedy),
        ]
    )
    return (
        f"## {escape_line(report.terminal_status)}: {escape_line(stop.rule)} in run "
        f"{escape_line(report.run_id)}\n\n{fields}\n"
    )


def _format_command(command: LastCommand | None) -> str:
    if command is None:
        return ""
    if not command.exit_code:
        return f"{command.command} (passed)"
    return (
        f"{command.command} (exit code {command.exit_code}, met {command.seen}×): "
        f"{command.signature}"
    )


def _table_or_empty(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return table(headers, rows) if rows else ""


def _format_task(handoff: Handoff) -> str:
    return f"{handoff.task} (already done)" if handoff.already_done else handoff.task


def _format_limit(limit: int | None) -> object:
    return "none" if limit is None else limit


def _format_time(at: datetime | None) -> str:
    return at.isoformat() if at is not None else ""
