"""History: what a run's events say, in the shapes that people and programs are shown.

Theory of operation. Events are the truth; everything here is a projection of them, a small pure
function from the sequence to values. The report (`report.py`), the run as the API gives it
(`view.py`) and whatever shows a run later are built from these, so they cannot disagree. Recorded
or decoded from JSON, the same events give the same bytes: numbers that JSON cannot tell apart (3
and 3.0) are shown in one form.

Two recorders write the same events. The engine's begin at a place and have an `Offered` for each
dispatch; those of the in-process guard begin nowhere (`Started.place` is empty) and have handoffs
and results only, where a result's `fence` is its step. Every function takes both.

Rules of this file:
1. Nothing is cut and nothing is collapsed: refused handoffs, lost attempts and unanswered reviews
   are part of the history.
2. "step 7" and "handoff 4" of a stop's evidence are the entries with those numbers here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from handrail.kernel import ledger as ledgers
from handrail.kernel.decision import Value
from handrail.kernel.limits import Limits
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Claimed,
    Ended,
    Faulted,
    HandedOff,
    Lost,
    Migrated,
    Moved,
    Offered,
    Patched,
    Paused,
    Reasked,
    Reported,
    Resumed,
    RunEvent,
    Started,
    TimedOut,
    Warned,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import Question, QuestionKind, Run, RunStatus, Stop


class Shown(Value, omit_defaults=False):
    """Base of what is shown: every field is written, set or not."""


class Handoff(Shown, frozen=True, kw_only=True):
    """One proposed handoff. `number` counts the accepted ones from 1; 0 was refused."""

    from_: str = msgspec.field(name="from")
    to: str
    reason: str
    at: datetime
    accepted: bool
    already_done: bool = False
    task: str = ""
    number: int = 0


class Transition(Shown):
    """The run went from one place to another; "" is outside: before the start, after the end."""

    id: str
    from_node_id: str
    to_node_id: str
    outcome: str
    reason: str
    actor: str
    timestamp: datetime


class Step(Shown):
    """One step: a dispatch, or the earlier answer of a once-only task. No outcome: still open."""

    n: int
    place: str
    attempt: int
    agent: str = ""
    outcome: str = ""
    reason: str = ""
    text: str = ""
    offered_at: datetime | None = None
    claimed_at: datetime | None = None
    ended_at: datetime | None = None


class Warning_(Shown):  # noqa: N801 - the plain name is a builtin
    """Something doubtful; `step` is the last one begun when it was seen."""

    code: str
    message: str
    step: int
    at: datetime


class Iteration(Shown):
    """One round of review: what was asked for, what came, what the person said to it.

    `task` is the original task in the first round, the revision's text in those after it. No
    decision: nobody has settled it, or the question was withdrawn; `at` is then when it was asked.
    """

    n: int
    task: str
    agent: str
    result: str
    decision: str | None
    text: str
    by: str
    at: datetime


class HumanAct(Shown):
    """What a person did to the run, and why."""

    act: str
    by: str
    reason: str
    place: str
    at: datetime


class LoopCounter(Shown):
    """One way of handing over or going back: since the last progress, in all, the last reasons."""

    count: int
    total: int
    limit: int | None
    reasons: tuple[str, ...]


class Progress(Shown):
    """The last step that brought the run forward, and by what."""

    step: int
    agent: str
    what: tuple[str, ...]
    at: datetime


class Command(Shown):
    """The last command that a check ran; `seen` is how often its failure was met in the run."""

    command: str
    exit_code: int
    signature: str
    seen: int
    step: int


class StopShown(Shown):
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


Events = Sequence[RunEvent]


def plain(number: int | float | str | None) -> int | float | str | None:
    """3 for 3.0: a limit reads the same before and after JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def started(events: Events) -> Started:
    first = events[0] if events else None
    assert isinstance(first, Started), "a run begins with Started"
    return first


def shown_stop(stop: Stop | None) -> StopShown | None:
    if stop is None:
        return None
    return StopShown(
        rule=stop.rule.value,
        reason=stop.reason,
        agent=stop.agent,
        limit=plain(stop.limit),
        seen=plain(stop.seen),
        pattern=stop.pattern,
        evidence=stop.evidence,
        also=tuple(rule.value for rule in stop.also),
        remedy=stop.remedy,
        remaining=stop.remaining,
    )


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
    ledger, agent, phase = ledgers.Ledger(steps=1), "", ""
    stop = status = ended_at = None
    for event in events:
        if isinstance(event, HandedOff):
            agent, source, to = event.source, event.source, event.target
            if event.accepted:
                ledger = ledgers.handed(ledger, first.limits, source, to, event.reason, steps=1)
        elif isinstance(event, Reported):
            agent, phase, result = event.agent, event.phase or phase, event.result
            ledger = replace(ledger, steps=event.fence)
            ledger = ledgers.reported(
                ledger, first.limits, event.fence, result.evidence, result.usage, event.weighed
            )
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
        ledger=ledger,
        phase=phase,
        final_agent=agent,
        terminal_status=status,
        stop=stop,
        ended_at=ended_at,
    )


def numbered(events: Events) -> Iterator[tuple[int, int, RunEvent]]:
    """Each event with its sequence number and the last step begun by then."""
    guarded = not started(events).place
    step = 1 if guarded else 0
    for seq, event in enumerate(events, 1):
        if isinstance(event, Offered):
            step += 1
        elif isinstance(event, HandedOff):
            step += event.accepted and (guarded or event.already_done)
        elif guarded and isinstance(event, Reported):
            step = event.fence
        yield seq, step, event


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
        for i, (source, target, outcome, reason, actor) in enumerate(_passages(event))
    )


def _passages(event: RunEvent) -> Iterator[tuple[str, str, str, str, str]]:
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


def steps(events: Events) -> tuple[Step, ...]:
    """Every step with what became of it, by number."""
    book = _StepBook(guarded=not started(events).place)
    for _, number, event in numbered(events):
        book.take(number, event)
    return tuple(book.found[n] for n in sorted(book.found))


class _StepBook:
    """Steps by number; `open` are those that somebody may still answer, by fence."""

    def __init__(self, *, guarded: bool) -> None:
        self.guarded = guarded
        self.found: dict[int, Step] = {}
        self.open: dict[int, int] = {}

    def take(self, number: int, event: RunEvent) -> None:
        match event:
            case Offered(place=place, fence=fence, attempt=attempt, at=at):
                self.open[fence] = number
                self.found[number] = Step(n=number, place=place, attempt=attempt, offered_at=at)
            case Claimed(fence=fence, agent=agent, at=at):
                n = self.open[fence]
                self.found[n] = replace(self.found[n], agent=agent, claimed_at=at)
            case Reported() | Faulted() | Lost() | TimedOut():
                self.end(event)
            case HandedOff(already_done=True, source=place, target=target, at=at):
                told = f"{target} has done this already"
                step = Step(n=number, place=place, attempt=0, outcome="already_done", reason=told)
                self.found[number] = replace(step, ended_at=at)
            case Moved(source=source, cancels=cancels, at=at):
                self.cancel({source, *cancels}, at)
            case Ended(at=at):
                self.cancel({self.found[n].place for n in self.open.values()}, at)
            case _:
                pass

    def end(self, event: Reported | Faulted | Lost | TimedOut) -> None:
        """A clock may also run out before anything was offered: that ends no step."""
        n = self.open.pop(event.fence, event.fence if self.guarded else 0)
        if not n:
            return
        outcome, reason, text = _ending(event)
        step = self.found.get(n, Step(n=n, place=event.place, attempt=1))
        agent = event.agent or step.agent
        self.found[n] = replace(
            step, agent=agent, outcome=outcome, reason=reason, text=text, ended_at=event.at
        )

    def cancel(self, places: set[str], at: datetime) -> None:
        for fence, n in list(self.open.items()):
            if self.found[n].place in places:
                self.found[n] = replace(self.found[n], outcome="cancelled", ended_at=at)
                del self.open[fence]


def _ending(event: Reported | Faulted | Lost | TimedOut) -> tuple[str, str, str]:
    """(outcome, reason, text)"""
    match event:
        case Reported(result=result):
            said = result.outcome.value if result.outcome is not None else "reported"
            return said, result.reason, result.text
        case Faulted(fault=fault, message=message, result=result):
            return fault, message, result.text
        case Lost(reason=reason):
            return "lost", reason, ""
        case TimedOut(clock=clock):
            return "timed_out", f"the {clock} clock ran out", ""


def attempts(events: Events) -> dict[str, int]:
    """Dispatches per node or agent, over the whole run."""
    return _per_place(event.place for event in events if isinstance(event, Offered))


def retries(events: Events) -> dict[str, int]:
    """Of the dispatches those that were not the first of their visit."""
    tried_again = (e.place for e in events if isinstance(e, Offered) and e.attempt > 1)
    return _per_place(tried_again)


def _per_place(places: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(places).items()))


def warnings(events: Events) -> tuple[Warning_, ...]:
    return tuple(
        Warning_(code=event.code, message=event.message, step=step, at=event.at)
        for _, step, event in numbered(events)
        if isinstance(event, Warned)
    )


def iterations(events: Events) -> tuple[Iteration, ...]:
    """Every round of review. In a workflow: every question of an approval node that was settled."""
    first = started(events)
    rounds: dict[str, Iteration] = {}
    voices: list[Answered] = []
    task = f"{first.title}\n\n{first.description}" if first.description else first.title
    for event in events:
        if isinstance(event, Asked) and _is_review(event.question):
            rounds[event.question.id] = _round(events, event.question, task)
        elif isinstance(event, Reasked) and event.question_id in rounds:
            rounds[event.question.id] = rounds.pop(event.question_id)
        elif isinstance(event, Answered) and event.question_id in rounds:
            voices.append(event)
            if event.final:
                rounds[event.question_id] = _settled(rounds[event.question_id], event, voices)
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


def _settled(iteration: Iteration, last: Answered, voices: Sequence[Answered]) -> Iteration:
    """Approval is everybody's who gave it (M of N); any other decision is the last one's alone."""
    of = [a for a in voices if a.question_id == last.question_id and last.decision == "approve"]
    said = of or [last]
    return replace(
        iteration,
        decision=last.decision,
        text="\n".join(a.text for a in said if a.text),
        by=", ".join(a.by for a in said),
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
        case Migrated(reason=reason, definition_id=definition, version=version):
            act, place = "migrate", f"{definition} version {version}"
        case Paused(reason=reason):
            act = "pause"
        case Resumed(reason=reason):
            act = "resume"
        case Patched(patch=patch):
            act, reason = "patch", ", ".join(sorted(patch))
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
            key = ledgers.edge_key(one.from_, one.to)
            ways.setdefault(key, []).append(one.reason)
            held = run.ledger.edges.get(key)
            current = held is not None and held.epoch == run.ledger.epoch
            counts[key] = held.count if held is not None and current else 0
            limits[key] = run.limits.max_edge
    for event in events:
        if isinstance(event, Moved) and event.spends:
            key = ledgers.edge_key(event.source, event.targets[0])
            ways.setdefault(key, []).append(event.reason)
            counts[key] = run.reworks.get(event.spends, 0)
            limits[key] = (rework_limits or {}).get(event.spends)
    return {
        key: LoopCounter(
            count=counts[key],
            total=len(reasons),
            limit=limits[key],
            reasons=tuple(reasons[-ledgers.REASONS_KEPT :]),
        )
        for key, reasons in ways.items()
    }


def last_progress(events: Events) -> Progress | None:
    found: Progress | None = None
    by_fence = {e.fence: step for _, step, e in numbered(events) if isinstance(e, Offered)}
    for event in events:
        if isinstance(event, Reported) and event.weighed.progress:
            step = by_fence.get(event.fence, event.fence)
            what = event.weighed.progress
            found = Progress(step=step, agent=event.agent, what=what, at=event.at)
    return found


def last_command(events: Events) -> Command | None:
    found: Command | None = None
    by_fence = {e.fence: step for _, step, e in numbered(events) if isinstance(e, Offered)}
    seen: Counter[str] = Counter()
    for event in events:
        if not isinstance(event, Reported):
            continue
        signatures = iter(event.weighed.signatures)
        for check in event.result.evidence.checks:
            signature = next(signatures, "") if check.exit_code else ""
            seen[signature] += 1
            found = Command(
                command=check.command,
                exit_code=check.exit_code,
                signature=signature,
                seen=seen[signature] if signature else 0,
                step=by_fence.get(event.fence, event.fence),
            )
    return found


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
