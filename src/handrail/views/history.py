"""Projects a run's events to handoffs, transitions, reviews and acts of people.

Theory of operation. Events are the truth; each function here is a small pure projection from the
sequence to values. The report (`report.py`), the run in the API (`run_view.py`) and any other view
of a run are built from these, so they cannot disagree.

Counts by step are in `steps.py`, the types in `view_types.py`. Every function takes the events of
the engine and those of the in-process guard, which have no first step (see `steps.py`).

Rules of this file:
1. Nothing is cut or merged: refused handoffs, lost attempts and unanswered reviews
   are part of the history.
2. "step 7" and "handoff 4" of a stop's evidence are the entries with those numbers here.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from handrail.kernel.definition.limits import LIMITS
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Ended,
    HandedOff,
    Migrated,
    Moved,
    Patched,
    Paused,
    Reasked,
    Reported,
    Resumed,
    RunEvent,
    Started,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.lookahead import apply_guarded_events, begin_guarded_ledger
from handrail.kernel.run.state import ApprovalKind, PendingApproval, Run, RunStatus, Stop
from handrail.kernel.stop.alike import AlikeKind
from handrail.kernel.stop.best import BestResult
from handrail.kernel.stop.ledger import REASONS_KEPT, Ledger, edge_key
from handrail.kernel.stop.rules import counts_handoffs
from handrail.views.steps import Events, enumerate_events, started_event
from handrail.views.view_types import (
    Handoff,
    HumanAct,
    Iteration,
    LoopCounter,
    RedirectView,
    RunUsageView,
    TransitionView,
    View,
)


def rebuild_run(events: Events) -> tuple[Run, float]:
    """Return the run after its events, and its running time over all stretches in seconds."""
    first = started_event(events)
    if not first.step_id:
        return _rebuild_guarded_run(events), (events[-1].at - first.at).total_seconds()
    run = evolve(None, first)
    running_seconds = elapsed_before = 0.0
    for event in events[1:]:
        previous, run = run, evolve(run, event)
        elapsed = run.elapsed_seconds(event.at)
        running_seconds += (
            elapsed if run.stretch == previous.stretch else previous.elapsed_seconds(event.at)
        ) - elapsed_before
        elapsed_before = elapsed
    return run, running_seconds


def _rebuild_guarded_run(events: Events) -> Run:
    """Return a run recorded by a guard: it has a ledger, and no positions."""
    first = started_event(events)
    agent = phase = ""
    stop = status = ended_at = None
    for event in events:
        if isinstance(event, HandedOff):
            agent = event.source
        elif isinstance(event, Reported):
            agent, phase = event.agent, event.phase or phase
        elif isinstance(event, Ended):
            stop, status, ended_at = event.stop, event.status, event.at
            agent = event.stop.agent or agent
    return Run(
        id=first.run_id,
        bead_id=first.bead_id,
        definition_id=first.definition_id,
        version=first.version,
        kind=first.kind,
        started_at=first.at,
        limits=first.limits,
        seq=len(events),
        status=RunStatus.RUNNING if stop is None else RunStatus.ENDED,
        title=first.title,
        dry_run=first.dry_run,
        ledger=apply_guarded_events(
            begin_guarded_ledger(first.carried, first.budgets), first.limits, events
        ),
        phase=phase,
        final_agent=agent,
        terminal_status=status,
        stop=stop,
        ended_at=ended_at,
    )


class AlikeView(View):
    """One cited step, and what it had in common with the others; of kind `handoff`, `step` is the
    number of the handoff."""

    step: int
    kind: AlikeKind
    what: str


class EffectView(View):
    """A call of a tool with an effect outside of the run."""

    step: int
    agent: str
    tool: str


class LimitChange(View):
    """The line that raises the limit: in a program under guard, and in a definition."""

    guard: str
    definition: str


class StopView(View):
    """Why the run ended, every field in one form."""

    rule: str
    reason: str
    agent: str
    limit: int | float | str | None
    seen: int | float | str | None
    pattern: tuple[str, ...]
    evidence: tuple[str, ...]
    also: tuple[str, ...]
    remedy: str
    remaining: tuple[str, ...]
    conclusion: str
    code: str
    alike: tuple[AlikeView, ...]
    effects: tuple[EffectView, ...]
    """Calls of tools with effects since the last progress."""
    profile: str
    limit_name: str
    change: LimitChange | None
    best: BestResult | None
    """The best result whose evidence Handrail measured; None if there is none."""


def normalize_number(number: int | float | str | None) -> int | float | str | None:
    """Return 3 for 3.0, so that a limit is the same before and after JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def run_usage(ledger: Ledger) -> RunUsageView:
    return RunUsageView(
        tokens=ledger.tokens,
        cost=float(ledger.cost),
        input_tokens=ledger.input_tokens,
        output_tokens=ledger.output_tokens,
        unpriced_calls=ledger.unpriced_calls,
    )


def stop_view(stop: Stop | None) -> StopView | None:
    if stop is None:
        return None
    return StopView(
        rule=stop.rule.value,
        reason=stop.reason,
        agent=stop.agent,
        limit=normalize_number(stop.limit),
        seen=normalize_number(stop.seen),
        pattern=stop.pattern,
        evidence=stop.evidence,
        also=tuple(rule.value for rule in stop.also),
        remedy=stop.remedy,
        remaining=stop.remaining,
        conclusion=stop.conclusion,
        code=stop.code or stop.rule.value,
        alike=tuple(AlikeView(step=a.step, kind=a.kind, what=a.what) for a in stop.alike),
        effects=tuple(EffectView(step=e.step, agent=e.agent, tool=e.tool) for e in stop.effects),
        profile=stop.profile,
        limit_name=stop.limit_name,
        change=_limit_change(stop.limit_name, stop.limit),
        best=stop.best,
    )


def _limit_change(name: str, limit: object) -> LimitChange | None:
    """Return the line that raises the limit by about half, to the next value that a tuner tries."""
    field, _, tool = name.partition(".")
    if isinstance(limit, bool) or not isinstance(limit, int | float) or field not in LIMITS:
        return None
    wanted = limit * 1.5
    value = normalize_number(next((n for n in LIMITS[field].grid if n >= wanted), 2 * limit))
    if tool:
        value = json.dumps({tool: value or 1}, ensure_ascii=False)
    return LimitChange(
        guard=f"Guard(StopRules({field}={value}))", definition=f"stop_rules: {{{field}: {value}}}"
    )


def handoff_sequence(events: Events) -> tuple[Handoff, ...]:
    """Return every proposed handoff in order; also a workflow's transitions if its rules count."""
    handoffs: list[Handoff] = []
    counts_moves, number = False, 0
    for event in events:
        if isinstance(event, Started | Migrated):
            counts_moves = counts_handoffs(event.limits)
        elif isinstance(event, HandedOff):
            number += event.accepted
            handoffs.append(
                Handoff(
                    from_=event.source,
                    to=event.target,
                    reason=event.reason,
                    at=event.at,
                    accepted=event.accepted,
                    already_done=event.already_done,
                    task=event.task,
                    number=number if event.accepted else 0,
                    proposed="".join(event.proposed[:1]),
                )
            )
        elif isinstance(event, Moved) and counts_moves and not event.renews and not event.spends:
            number += 1
            handoffs.append(
                Handoff(
                    from_=event.source,
                    to=event.targets[0],
                    reason=event.reason,
                    at=event.at,
                    accepted=True,
                    number=number,
                )
            )
    return tuple(handoffs)


def redirects(events: Events) -> tuple[RedirectView, ...]:
    """Return the handoffs that a rule led elsewhere."""
    return tuple(
        RedirectView(
            from_=event.source,
            proposed=event.proposed[0],
            to=event.target,
            rule=event.rule or "",
            step=step - event.already_done,
        )
        for _, step, event in enumerate_events(events)
        if isinstance(event, HandedOff) and event.accepted and event.proposed
    )


def last_redirect(events: Events) -> RedirectView | None:
    """Return the redirect that led to the present turn, if one did."""
    for event in reversed(events):
        if isinstance(event, HandedOff) and event.accepted:
            return redirects(events)[-1] if event.proposed else None
        if isinstance(event, Moved):
            return None
    return None


def transitions(events: Events) -> tuple[TransitionView, ...]:
    """Return the run's transitions: a row for each target of a fork, none for a refusal."""
    run_id = started_event(events).run_id
    return tuple(
        TransitionView(
            id=f"{run_id}.{seq}.{i}" if i else f"{run_id}.{seq}",
            from_node_id=source,
            to_node_id=target,
            outcome=outcome,
            reason=reason,
            actor=actor,
            timestamp=event.at,
        )
        for seq, event in enumerate(events, 1)
        for i, (source, target, outcome, reason, actor) in enumerate(event_transitions(event))
    )


def event_transitions(event: RunEvent) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield (from, to, outcome, reason, actor)."""
    match event:
        case Started(step_id=step_id, filed_by=by) if step_id:
            yield "", step_id, "started", "", by
        case HandedOff(source=source, target=target, reason=reason, accepted=True):
            if event.already_done:
                yield (
                    source,
                    source,
                    "already_done",
                    f"{target} has done this already: {reason}",
                    source,
                )
            else:
                yield source, target, "handoff", reason, source
        case Moved(source=source, targets=targets, outcome=outcome, reason=reason, by=by):
            for target in targets:
                yield source, target, outcome, reason, by
        case _:
            return


def iterations(events: Events) -> tuple[Iteration, ...]:
    """Return every round of review; in a workflow, every settled approval of an approval node."""
    first = started_event(events)
    rounds: dict[str, Iteration] = {}
    answers_by_id: dict[str, list[Answered]] = {}
    task = f"{first.title}\n\n{first.description}" if first.description else first.title
    for event in events:
        if isinstance(event, Asked) and _is_review(event.approval):
            rounds[event.approval.id] = _open_iteration(events, event.approval, task)
        elif isinstance(event, Reasked) and event.approval_id in rounds:
            rounds[event.approval.id] = rounds.pop(event.approval_id)
        elif isinstance(event, Answered) and event.approval_id in rounds:
            answers = answers_by_id.setdefault(event.approval_id, [])
            answers.append(event)
            if event.final:
                rounds[event.approval_id] = _settle_iteration(rounds[event.approval_id], answers)
                task = event.text if event.decision == "revise" else task
    settled_only = first.kind == "workflow"
    listed = [r for r in rounds.values() if r.decision is not None or not settled_only]
    return tuple(replace(iteration, n=n) for n, iteration in enumerate(listed, 1))


def _is_review(approval: PendingApproval) -> bool:
    return not approval.own and approval.kind is not ApprovalKind.ESCALATION


def _open_iteration(events: Events, approval: PendingApproval, task: str) -> Iteration:
    shown_event = events[approval.result - 1] if approval.result else None
    agent = result = ""
    if isinstance(shown_event, Reported):
        agent = shown_event.step_id if started_event(events).kind == "team" else shown_event.agent
        result = shown_event.result.text or shown_event.result.reason
    return Iteration(
        n=0, task=task, agent=agent, result=result, decision=None, text="", by="",
        at=approval.asked_at,
    )  # fmt: skip


def _settle_iteration(iteration: Iteration, answers: Sequence[Answered]) -> Iteration:
    """Settle a round: an approval names all approvers (M of N), another decision the last only."""
    last = answers[-1]
    deciding_answers = answers if last.decision == "approve" else [last]
    return replace(
        iteration,
        decision=last.decision,
        text="\n".join(answer.text for answer in deciding_answers if answer.text),
        by=", ".join(answer.by for answer in deciding_answers),
        at=last.at,
    )


def human_acts(events: Events) -> tuple[HumanAct, ...]:
    """Return answers and overrides; a rejection that closes the run is one act."""
    step_ids: dict[str, str] = {}
    acts: list[HumanAct] = []
    after_answer = False
    for event in events:
        if isinstance(event, Asked | Reasked):
            step_ids[event.approval.id] = event.approval.step_id
        act = None if after_answer and isinstance(event, Ended) else _human_act(event, step_ids)
        if act is not None:
            acts.append(act)
        after_answer = isinstance(event, Answered)
    return tuple(acts)


def _human_act(event: RunEvent, step_ids: Mapping[str, str]) -> HumanAct | None:
    act = step_id = reason = ""
    by = getattr(event, "by", "")
    match event:
        case Answered(decision=act, text=reason, approval_id=approval_id):
            step_id = step_ids[approval_id]
        case Moved(outcome="move" as act, reason=reason, targets=targets):
            step_id = targets[0]
        case Migrated(reason=reason, definition_id=definition, version=version) if by:
            act, step_id = "migrate", f"{definition} version {version}"
        case Paused(reason=reason):
            act = "pause"
        case Resumed(reason=reason):
            act = "resume"
        case Patched(patch=patch, files=files):
            act, reason = "patch", ", ".join(sorted({*patch, *files}))
        case Ended(stop=stop) if by:
            act, reason = "close", stop.reason
        case _:
            return None
    return HumanAct(act=act, by=by, reason=reason, place=step_id, at=event.at)


def loop_counters(
    run: Run, events: Events, rework_limits: Mapping[str, int] | None = None
) -> dict[str, LoopCounter]:
    """Return counters per edge, in order of first use: accepted handoffs, and reworks.

    `rework_limits`: node -> `max` of its rework, which the events do not contain.
    """
    reasons_by_edge: dict[str, list[str]] = {}
    limits: dict[str, int | None] = {}
    counts: dict[str, int] = {}
    for handoff in handoff_sequence(events):
        if handoff.accepted:
            key = f"{handoff.from_}_to_{handoff.to}"
            reasons_by_edge.setdefault(key, []).append(handoff.reason)
            edge = run.ledger.edges.get(edge_key(handoff.from_, handoff.to))
            is_current = edge is not None and edge.epoch == run.ledger.epoch
            counts[key] = edge.count if edge is not None and is_current else 0
            limits[key] = run.limits.max_edge
    for event in events:
        if isinstance(event, Moved) and event.spends:
            key = f"{event.source}_to_{event.targets[0]}"
            reasons_by_edge.setdefault(key, []).append(event.reason)
            counts[key] = run.reworks.get(event.spends, 0)
            limits[key] = (rework_limits or {}).get(event.spends)
    return {
        key: LoopCounter(
            count=counts[key],
            total=len(reasons),
            limit=limits[key],
            reasons=tuple(reasons[-REASONS_KEPT:]),
        )
        for key, reasons in reasons_by_edge.items()
    }


def open_step_ids(run: Run, events: Events) -> tuple[str, ...]:
    """Return the step ids of the run's positions, the oldest first."""
    entered_at: dict[str, int] = {}
    for seq, event in enumerate(events):
        match event:
            case Started(step_id=step_id):
                entered_at[step_id] = seq
            case HandedOff(source=source, target=target, accepted=True):
                entered_at[source if event.already_done else target] = seq
            case Moved(enters=enters):
                entered_at |= dict.fromkeys(enters, seq)
            case _:
                pass
    return tuple(sorted(run.positions, key=lambda step_id: entered_at[step_id]))
