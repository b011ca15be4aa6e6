"""History: what a run's events say, in the shapes that people and programs are shown.

Theory of operation. Events are the truth; everything here is a projection of them, a small pure
function from the sequence to values. The report (`report.py`), the run as the API gives it
(`view.py`) and whatever shows a run later are built from these, so they cannot disagree.

What is counted by step stands in `steps.py`, the shapes in `shown.py`. Every function takes the
events of the engine and those of the in-process guard, which begin nowhere (see `steps.py`).

Rules of this file:
1. Nothing is cut and nothing is collapsed: refused handoffs, lost attempts and unanswered reviews
   are part of the history.
2. "step 7" and "handoff 4" of a stop's evidence are the entries with those numbers here.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from handrail.kernel.guarded import brought_forward
from handrail.kernel.ledger import REASONS_KEPT, Ledger, edge_key
from handrail.kernel.limits import Limits
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
from handrail.kernel.run.state import Question, QuestionKind, Run, RunStatus
from handrail.kernel.shown import Handoff, HumanAct, Iteration, LoopCounter, Transition
from handrail.kernel.steps import Events, started


def standing(events: Events) -> tuple[Run, float]:
    """The run after its events, and its running time over all stretches, in seconds."""
    first = started(events)
    if not first.place:
        return _guarded(events), (events[-1].at - first.at).total_seconds()
    run = evolve(None, first)
    ran = mark = 0.0
    for event in events[1:]:
        before, run = run, evolve(run, event)
        now = run.elapsed(event.at)
        ran += (now if run.stretch == before.stretch else before.elapsed(event.at)) - mark
        mark = now
    return run, ran


def _guarded(events: Events) -> Run:
    """The run that a guard recorded: it has a ledger, and nobody stands anywhere."""
    first = started(events)
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
        ledger=brought_forward(Ledger(steps=1), first.limits, events),
        phase=phase,
        final_agent=agent,
        terminal_status=status,
        stop=stop,
        ended_at=ended_at,
    )


def handoff_sequence(events: Events) -> tuple[Handoff, ...]:
    """Every proposed handoff, in order. A workflow's transitions are there if its rules count."""
    found: list[Handoff] = []
    counts, number = False, 0
    for event in events:
        if isinstance(event, Started | Migrated):
            counts = _counts_moves(event.limits)
        elif isinstance(event, HandedOff):
            number += event.accepted
            found.append(
                Handoff(
                    from_=event.source,
                    to=event.target,
                    reason=event.reason,
                    at=event.at,
                    accepted=event.accepted,
                    already_done=event.already_done,
                    task=event.task,
                    number=number if event.accepted else 0,
                )
            )
        elif isinstance(event, Moved) and counts and not event.renews and not event.spends:
            number += 1
            found.append(
                Handoff(
                    from_=event.source,
                    to=event.targets[0],
                    reason=event.reason,
                    at=event.at,
                    accepted=True,
                    number=number,
                )
            )
    return tuple(found)


def _counts_moves(of: Limits) -> bool:
    """As in the ledger: forward transitions count where a workflow sets a rule that counts them."""
    return any(limit is not None for limit in (of.max_handoffs, of.repeat_limit, of.max_edge))


def transitions(events: Events) -> tuple[Transition, ...]:
    """Where the run went, with times: a row for each target of a fork, none for a refusal."""
    run_id = started(events).run_id
    return tuple(
        Transition(
            id=f"{run_id}.{seq}.{i}" if i else f"{run_id}.{seq}",
            from_node_id=source,
            to_node_id=target,
            outcome=outcome,
            reason=reason,
            actor=actor,
            timestamp=event.at,
        )
        for seq, event in enumerate(events, 1)
        for i, (source, target, outcome, reason, actor) in enumerate(passages(event))
    )


def passages(event: RunEvent) -> Iterator[tuple[str, str, str, str, str]]:
    """(from, to, outcome, reason, who)"""
    match event:
        case Started(place=place, filed_by=by) if place:
            yield "", place, "started", "", by
        case HandedOff(source=source, target=target, reason=reason, accepted=True):
            if event.already_done:
                told = f"{target} has done this already: {reason}"
                yield source, source, "already_done", told, source
            else:
                yield source, target, "handoff", reason, source
        case Moved(source=source, targets=targets, outcome=outcome, reason=reason, by=by):
            for target in targets:
                yield source, target, outcome, reason, by
        case _:
            return


def iterations(events: Events) -> tuple[Iteration, ...]:
    """Every round of review. In a workflow: every question of an approval node that was settled."""
    first = started(events)
    rounds: dict[str, Iteration] = {}
    voices: dict[str, list[Answered]] = {}
    task = f"{first.title}\n\n{first.description}" if first.description else first.title
    for event in events:
        if isinstance(event, Asked) and _is_review(event.question):
            rounds[event.question.id] = _round(events, event.question, task)
        elif isinstance(event, Reasked) and event.question_id in rounds:
            rounds[event.question.id] = rounds.pop(event.question_id)
        elif isinstance(event, Answered) and event.question_id in rounds:
            said = voices.setdefault(event.question_id, [])
            said.append(event)
            if event.final:
                rounds[event.question_id] = _settled(rounds[event.question_id], said)
                task = event.text if event.decision == "revise" else task
    settled_only = first.kind == "workflow"
    kept = [r for r in rounds.values() if r.decision is not None or not settled_only]
    return tuple(replace(iteration, n=n) for n, iteration in enumerate(kept, 1))


def _is_review(question: Question) -> bool:
    return not question.own and question.kind is not QuestionKind.ESCALATION


def _round(events: Events, question: Question, task: str) -> Iteration:
    shown = events[question.result - 1] if question.result else None
    agent = result = ""
    if isinstance(shown, Reported):
        agent = shown.place if started(events).kind == "team" else shown.agent
        result = shown.result.text or shown.result.reason
    return Iteration(
        n=0, task=task, agent=agent, result=result, decision=None, text="", by="",
        at=question.asked_at,
    )  # fmt: skip


def _settled(iteration: Iteration, answers: Sequence[Answered]) -> Iteration:
    """Approval is everybody's who gave it (M of N); any other decision is the last one's alone."""
    last = answers[-1]
    said = answers if last.decision == "approve" else [last]
    return replace(
        iteration,
        decision=last.decision,
        text="\n".join(answer.text for answer in said if answer.text),
        by=", ".join(answer.by for answer in said),
        at=last.at,
    )


def human_acts(events: Events) -> tuple[HumanAct, ...]:
    """Answers and overrides, with the person and the reason. A rejection that closes is one act."""
    places: dict[str, str] = {}
    found: list[HumanAct] = []
    answered = False
    for event in events:
        if isinstance(event, Asked | Reasked):
            places[event.question.id] = event.question.place
        act = None if answered and isinstance(event, Ended) else _act(event, places)
        if act is not None:
            found.append(act)
        answered = isinstance(event, Answered)
    return tuple(found)


def _act(event: RunEvent, places: Mapping[str, str]) -> HumanAct | None:
    act = place = reason = ""
    by = getattr(event, "by", "")
    match event:
        case Answered(decision=act, text=reason, question_id=asked):
            place = places[asked]
        case Moved(outcome="move" as act, reason=reason, targets=targets):
            place = targets[0]
        case Migrated(reason=reason, definition_id=definition, version=version) if by:
            act, place = "migrate", f"{definition} version {version}"
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
    return HumanAct(act=act, by=by, reason=reason, place=place, at=event.at)


def loop_counters(
    run: Run, events: Events, rework_limits: Mapping[str, int] | None = None
) -> dict[str, LoopCounter]:
    """Per edge, in order of first use: accepted handoffs, and a workflow's ways back by rework.

    `rework_limits`: node -> `max` of its rework; events alone do not tell them.
    """
    ways: dict[str, list[str]] = {}
    limits: dict[str, int | None] = {}
    counts: dict[str, int] = {}
    for one in handoff_sequence(events):
        if one.accepted:
            key = f"{one.from_}_to_{one.to}"
            ways.setdefault(key, []).append(one.reason)
            held = run.ledger.edges.get(edge_key(one.from_, one.to))
            current = held is not None and held.epoch == run.ledger.epoch
            counts[key] = held.count if held is not None and current else 0
            limits[key] = run.limits.max_edge
    for event in events:
        if isinstance(event, Moved) and event.spends:
            key = f"{event.source}_to_{event.targets[0]}"
            ways.setdefault(key, []).append(event.reason)
            counts[key] = run.reworks.get(event.spends, 0)
            limits[key] = (rework_limits or {}).get(event.spends)
    return {
        key: LoopCounter(
            count=counts[key],
            total=len(reasons),
            limit=limits[key],
            reasons=tuple(reasons[-REASONS_KEPT:]),
        )
        for key, reasons in ways.items()
    }


def open_places(run: Run, events: Events) -> tuple[str, ...]:
    """Where the run stands, the place entered longest ago first."""
    entered: dict[str, int] = {}
    for seq, event in enumerate(events):
        match event:
            case Started(place=place):
                entered[place] = seq
            case HandedOff(source=source, target=target, accepted=True):
                entered[source if event.already_done else target] = seq
            case Moved(enters=enters):
                entered |= dict.fromkeys(enters, seq)
            case _:
                pass
    return tuple(sorted(run.tokens, key=lambda place: entered[place]))
