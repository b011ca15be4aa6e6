"""The run report (S11): what happened, what was counted, which rule ended the run, and why.

Theory of operation. `report` is a function of the events and of nothing else: recomputed from the
stored history it is the same, byte for byte (`msgspec.json.encode(report, order="deterministic")`
is its JSON form). It is put together from the projections of `history.py` and `steps.py`;
`markdown` and `snitch_entry` are functions of the report, so no form can say what another does not.
A run still going has a report too: without a terminal status and a stop.

Texts of agents and people stand in the JSON as they came. In Markdown they can forge nothing: every
one goes through `markdown.py`.

Rules of this file:
1. The reason is typed: `why` is written from the stop, the numbers and the cited events, never
   guessed from a text.
2. Cited events are shown with what they were: "handoff 4" is the entry with that number.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from handrail.kernel import history
from handrail.kernel import steps as stepping
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.limits import Limits
from handrail.kernel.markdown import bullets, fenced, line, table
from handrail.kernel.rules import PARTIAL, StopRule
from handrail.kernel.run.events import Offered, RunEvent
from handrail.kernel.run.state import Run, RunStatus
from handrail.kernel.shown import (
    Command,
    Handoff,
    HumanAct,
    Iteration,
    LoopCounter,
    Progress,
    Shown,
    Spent,
    Step,
    StopShown,
    Totals,
    Transition,
    Warning_,
    plain,
    shown_stop,
)

WHY_CHARS = 300
NAMED_MAX = 4
"""Agents named in a sentence; the others are counted."""
HEADS = {
    TerminalStatus.DONE_SUCCESS: "Done",
    TerminalStatus.DONE_PARTIAL: "Partly done",
    TerminalStatus.ABORTED_STUCK: "Stuck",
    TerminalStatus.ABORTED_CONSTRAINT: "Constraint",
    TerminalStatus.CLOSED_BY_HUMAN: "Closed by a person",
}
SNITCHED = ("aborted_stuck", "aborted_constraint")


class Report(Shown):
    """Everything that is reported of a run."""

    run_id: str
    bead_id: str
    definition_id: str
    version: int
    kind: str
    title: str
    first_agent: str
    status: str
    terminal_status: str | None
    stop: StopShown | None
    why: str
    profile: str
    limits: dict[str, Any]
    loop_counters: dict[str, LoopCounter]
    attempts: dict[str, int]
    retries: dict[str, int]
    totals: Totals
    last_progress: Progress | None
    final_agent: str
    phase: str
    phase_detail: str
    started_at: datetime
    ended_at: datetime | None
    duration: float
    """Seconds from the start to the last event; `running` without waits for people and pauses."""
    running: float
    usage: Spent
    handoff_sequence: tuple[Handoff, ...]
    warnings: tuple[Warning_, ...]
    iterations: tuple[Iteration, ...]
    transitions: tuple[Transition, ...]
    acts: tuple[HumanAct, ...]
    steps: tuple[Step, ...]
    last_command: Command | None


def report(events: Sequence[RunEvent]) -> Report:
    """The report of a run, from its events alone."""
    first = stepping.started(events)
    run, running = history.standing(events)
    handoffs = history.handoff_sequence(events)
    transitions = history.transitions(events)
    acts = history.human_acts(events)
    return Report(
        run_id=run.id,
        bead_id=run.bead_id,
        definition_id=run.definition_id,
        version=run.version,
        kind=run.kind,
        title=run.title,
        first_agent=first.place or next((h.from_ for h in handoffs), ""),
        status=run.status.value,
        terminal_status=run.terminal_status,
        stop=shown_stop(run.stop),
        why=why(run, handoffs, acts),
        profile=run.limits.profile,
        limits=limits_in_force(run.limits),
        loop_counters=history.loop_counters(run, events),
        attempts=stepping.attempts(events),
        retries=stepping.retries(events),
        totals=Totals(
            steps=run.ledger.steps,
            handoffs=run.ledger.handoffs,
            dispatches=sum(isinstance(event, Offered) for event in events),
            transitions=len(transitions),
            questions=run.questions_asked,
            stretches=run.stretch,
        ),
        last_progress=stepping.last_progress(events),
        final_agent=run.final_agent,
        phase=run.phase,
        phase_detail=run.phase_detail,
        started_at=run.started_at,
        ended_at=run.ended_at,
        duration=(events[-1].at - run.started_at).total_seconds(),
        running=running,
        usage=Spent(tokens=run.ledger.tokens, cost=float(run.ledger.cost)),
        handoff_sequence=handoffs,
        warnings=stepping.warnings(events),
        iterations=history.iterations(events),
        transitions=transitions,
        acts=acts,
        steps=stepping.steps(events),
        last_command=stepping.last_command(events),
    )


def limits_in_force(limits: Limits) -> dict[str, Any]:
    """Every limit that is on, by name."""
    found: dict[str, Any] = {}
    for name in Limits.__struct_fields__:
        value = getattr(limits, name)
        if value is not None and name not in ("constraints", "profile"):
            found[name] = plain(value)
    for name in ("paths", "commands"):
        forbidden: tuple[str, ...] = getattr(limits.constraints, name)
        if forbidden:
            found[f"constraints.{name}"] = list(forbidden)
    return found


def why(run: Run, handoffs: Sequence[Handoff], acts: Sequence[HumanAct]) -> str:
    """One or two plain sentences: why the run stopped, or what it is doing."""
    stop, status = run.stop, run.terminal_status
    if stop is None or status is None:
        return f"{_short(_going(run, acts))}."
    if stop.rule is StopRule.REPEATED_PATTERN:
        said = _pattern(stop.evidence, handoffs, plain(stop.seen))
    elif stop.rule in PARTIAL and status is TerminalStatus.DONE_PARTIAL:
        said = f"the goal is met, but {stop.reason}"
    else:
        said = stop.reason
    limit = "" if stop.limit is None else f" (limit {plain(stop.limit)})"
    left = f" Left to do: {_short('; '.join(stop.remaining))}." if stop.remaining else ""
    return f"{HEADS[status]}: {_short(said)}{limit}.{left}"


def _short(text: str) -> str:
    """On one line, without the last full stop, and short: the whole text stands elsewhere."""
    words = " ".join(text.split()).rstrip(".")
    return words if len(words) <= WHY_CHARS else f"{words[:WHY_CHARS]}…"


def _pattern(evidence: Sequence[str], handoffs: Sequence[Handoff], times: object) -> str:
    numbers = set(evidence)
    cited = [h for h in handoffs if f"handoff {h.number}" in numbers]
    agents = list(dict.fromkeys(name for h in cited for name in (h.from_, h.to)))
    if len(agents) == 1:
        return f"{agents[0]} handed over to itself {times} times in a row without progress"
    if len(agents) > NAMED_MAX:
        agents[NAMED_MAX - 1 :] = [f"{len(agents) - NAMED_MAX + 1} others"]
    named = f"{', '.join(agents[:-1])} and {agents[-1]}"
    return f"{named} handed over the same way {times} times in a row without progress"


def _going(run: Run, acts: Sequence[HumanAct]) -> str:
    if run.status is RunStatus.PAUSED:
        act = next(act for act in reversed(acts) if act.act == "pause")
        return f"Paused by {act.by}: {act.reason}"
    if run.status is RunStatus.WAITING:
        asked = "; ".join(question.text for question in run.questions.values())
        return f"Waiting for a person: {asked}"
    places = ", ".join(run.tokens)
    return f"Running: the next result comes from {places}" if places else "Running"


def markdown(of: Report) -> str:
    """The report for people."""
    parts = [f"# Run {line(of.run_id)}: {line(of.title) or 'untitled'}", line(of.why), _facts(of)]
    for title, body in _sections(of):
        if body:
            parts += [f"## {title}", body]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(of: Report) -> str:
    spent = f"{of.usage.tokens} tokens, cost {of.usage.cost:g}"
    last = of.last_progress
    rows = [
        ("status", of.terminal_status or of.status),
        ("stop rule", of.stop.rule if of.stop else "none"),
        ("bead", of.bead_id),
        ("definition", f"{of.definition_id}, version {of.version} ({of.kind})"),
        ("profile", of.profile),
        ("first agent", of.first_agent),
        ("final agent", of.final_agent),
        ("phase", f"{of.phase} ({of.phase_detail})" if of.phase_detail else of.phase),
        ("started", _time(of.started_at)),
        ("ended", _time(of.ended_at)),
        ("total time", f"{of.duration:g} s, of it running {of.running:g} s"),
        ("steps", f"{of.totals.steps} ({of.totals.dispatches} dispatches)"),
        ("handoffs", of.totals.handoffs),
        ("transitions", of.totals.transitions),
        ("questions", of.totals.questions),
        ("usage", spent),
        ("last progress", f"step {last.step}: {', '.join(last.what)}" if last else "none"),
    ]
    return table(("what", "value"), [(name, value) for name, value in rows if value != ""])


def _sections(of: Report) -> Iterator[tuple[str, str]]:
    """The sections in order; one without a body is left out."""
    yield "Why it stopped", _stopped(of)
    counters = [
        (edge, c.count, c.total, _or_off(c.limit), "; ".join(c.reasons))
        for edge, c in of.loop_counters.items()
    ]
    heads = ("edge", "since progress", "in all", "limit", "last reasons")
    yield "Loop counters", _table_if(heads, counters)
    handed = [
        (h.number or "refused", h.from_, h.to, h.reason, _done(h), _time(h.at))
        for h in of.handoff_sequence
    ]
    heads = ("number", "from", "to", "reason", "task", "at")
    yield "Handoffs", _table_if(heads, handed)
    yield "Rounds of review", "\n\n".join(_round(one) for one in of.iterations)
    tried = [(place, n, of.retries.get(place, 0)) for place, n in of.attempts.items()]
    yield "Attempts", _table_if(("place", "dispatches", "retries"), tried)
    heads = ("step", "place", "attempt", "agent", "outcome", "reason", "ended")
    ran = [
        (s.n, s.place, s.attempt, s.agent, s.outcome or "open", s.reason, _time(s.ended_at))
        for s in of.steps
    ]
    yield "Steps", _table_if(heads, ran)
    heads = ("from", "to", "outcome", "reason", "by", "at")
    went = [
        (t.from_node_id, t.to_node_id, t.outcome, t.reason, t.actor, _time(t.timestamp))
        for t in of.transitions
    ]
    yield "Transitions", _table_if(heads, went)
    acts = [(a.act, a.by, a.reason, a.place, _time(a.at)) for a in of.acts]
    yield "What people did", _table_if(("act", "by", "reason", "place", "at"), acts)
    warned = [(w.code, w.message, w.step, _time(w.at)) for w in of.warnings]
    yield "Warnings", _table_if(("code", "message", "step", "at"), warned)
    yield "Limits in force", table(("limit", "value"), sorted(of.limits.items()))


def _stopped(of: Report) -> str:
    stop = of.stop
    if stop is None:
        return ""
    fields = bullets(
        [
            ("rule", stop.rule),
            ("reason", stop.reason),
            ("agent", stop.agent),
            ("limit", stop.limit),
            ("seen", stop.seen),
            ("pattern", ", then ".join(stop.pattern)),
            ("also fired", ", ".join(stop.also)),
            ("what would have let it go on", stop.remedy),
            ("left to do", "; ".join(stop.remaining)),
            ("last command", _command(of.last_command)),
        ]
    )
    cited = bullets(_cited(of, stop))
    return f"{fields}\n\nEvidence:\n\n{cited}" if cited else fields


def _cited(of: Report, stop: StopShown) -> Iterator[tuple[str, str]]:
    """Each cited event with what it was."""
    known = {
        f"handoff {h.number}": f"{h.from_} → {h.to}: {h.reason or 'no reason given'}"
        for h in of.handoff_sequence
        if h.number
    }
    for s in of.steps:
        known[f"step {s.n}"] = f"{s.agent or s.place} at {s.place}: {s.outcome or 'open'}"
    for name in stop.evidence:
        yield name, known.get(name, "not in this history")


def _round(one: Iteration) -> str:
    parts = [
        f"### Round {one.n}",
        bullets([("decision", one.decision or "none yet"), ("by", one.by), ("at", _time(one.at))]),
        "Task:",
        fenced(one.task),
        f"Result of {line(one.agent) or 'nobody'}:",
        fenced(one.result),
    ]
    return "\n\n".join([*parts, "Answer:", fenced(one.text)] if one.text else parts)


def snitch_entry(of: Report) -> str:
    """S12: the entry for the issues file if the run was aborted; "" for any other run."""
    if of.terminal_status not in SNITCHED or of.stop is None:
        return ""
    stop = of.stop
    own = [h for h in of.handoff_sequence if h.from_ == stop.agent]
    last = next(reversed(own or of.handoff_sequence), None)
    first = next((h for h in reversed(of.handoff_sequence) if h.from_ == of.first_agent), None)
    planned = f"{first.from_} → {first.to}: {first.reason}" if first and first != last else ""
    loops = [f"{edge} ({c.total} times)" for edge, c in of.loop_counters.items() if c.total > 1]
    fields = bullets(
        [
            ("run", of.run_id),
            ("bead", f"{of.bead_id}: {of.title}" if of.title else of.bead_id),
            ("definition", f"{of.definition_id}, version {of.version}"),
            ("at", _time(of.ended_at)),
            ("why", of.why),
            ("loop", ", then ".join(stop.pattern) or ", ".join(loops) or "none"),
            ("last reason", f"{last.from_} → {last.to}: {last.reason}" if last else "none given"),
            (f"last reason of {line(of.first_agent)}", planned),
            ("last command", _command(of.last_command) or "none"),
            ("evidence", ", ".join(stop.evidence)),
            ("what would have let it go on", stop.remedy),
        ]
    )
    return (
        f"## {line(of.terminal_status)}: {line(stop.rule)} in run {line(of.run_id)}\n\n{fields}\n"
    )


def _command(of: Command | None) -> str:
    if of is None:
        return ""
    if not of.exit_code:
        return f"{of.command} (passed)"
    return f"{of.command} (exit code {of.exit_code}, met {of.seen}×): {of.signature}"


def _table_if(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return table(heads, rows) if rows else ""


def _done(of: Handoff) -> str:
    return f"{of.task} (already done)" if of.already_done else of.task


def _or_off(limit: int | None) -> object:
    return "none" if limit is None else limit


def _time(at: datetime | None) -> str:
    return at.isoformat() if at is not None else ""
