"""evolve: a run after one more event. No policy: the one path for live and replay."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec.structs import replace

from handrail.kernel import ledger as ledgers
from handrail.kernel.result import Outcome, merged
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Claimed,
    ClocksPushed,
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
from handrail.kernel.run.state import (
    ENGINE_KEYS,
    NOT_FOR_AGENTS,
    Block,
    Phase,
    Question,
    Run,
    RunStatus,
    Token,
    seconds,
)


def evolve(run: Run | None, event: RunEvent) -> Run:
    """The run after the event; a run begins with `Started`."""
    if isinstance(event, Started):
        after = _started(event)
    else:
        assert run is not None, "a run begins with Started"
        assert not run.ended, "nothing happens after the end"
        after = APPLY[type(event)](run, event)
    return _with_status(replace(after, seq=after.seq + 1), event)


def replay(events: Iterable[RunEvent], run: Run | None = None) -> Run:
    for event in events:
        run = evolve(run, event)
    assert run is not None, "a run has events"
    return run


def _with_status(run: Run, event: RunEvent) -> Run:
    """Status follows from the tokens; the running clock goes exactly while it is `running`."""
    if run.ended:
        status = RunStatus.ENDED
    elif run.paused_at is not None:
        status = RunStatus.PAUSED
    elif run.tokens and all(t.phase is Phase.ASKED for t in run.tokens.values()):
        status = RunStatus.WAITING
    else:
        status = RunStatus.RUNNING
    going = status is RunStatus.RUNNING
    if going == (run.ran_since is not None):
        return run if status is run.status else replace(run, status=status)
    if going:
        return replace(run, status=status, ran_since=event.at)
    return replace(run, status=status, ran=run.elapsed(event.at), ran_since=None)


def _started(event: Started) -> Run:
    token = Token(place=event.place, since=event.at, task=event.task)
    return Run(
        id=event.run_id,
        bead_id=event.bead_id,
        definition_id=event.definition_id,
        version=event.version,
        kind=event.kind,
        started_at=event.at,
        limits=event.limits,
        title=event.title,
        description=event.description,
        filed_by=event.filed_by,
        context=event.context,
        review=event.review,
        hands=(event.filed_by,) if event.filed_by else (),
        paths=event.paths,
        phase=event.phase,
        tokens={event.place: token},
        blocks=event.blocks,
    )


REVISED = ("revise", "once_more")


def _once(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def _token(run: Run, place: str, **changes: Any) -> Run:  # noqa: ANN401 - a token's fields
    return replace(run, tokens={**run.tokens, place: replace(run.tokens[place], **changes)})


def _offered(run: Run, event: Offered) -> Run:
    step = run.ledger.steps + 1
    run = replace(run, fence=event.fence, ledger=replace(run.ledger, steps=step))
    return _token(
        run,
        event.place,
        phase=Phase.OFFERED,
        attempts=event.attempt,
        fence=event.fence,
        step=step,
        role=event.role,
        agent="",
        lock=event.lock,
        repository=event.repository,
    )


def _claimed(run: Run, event: Claimed) -> Run:
    if run.context.get("redispatch_requested"):
        run = replace(run, context={**run.context, "redispatch_requested": False})
    return _token(run, event.place, phase=Phase.CLAIMED, agent=event.agent, since=event.at)


def _reported(run: Run, event: Reported) -> Run:
    token, result = run.tokens[event.place], event.result
    ledger = ledgers.reported(
        run.ledger, run.limits, token.step, result.evidence, result.usage, event.weighed
    )
    data = {key: value for key, value in result.data.items() if key not in NOT_FOR_AGENTS}
    context = merged(run.context, data)
    context["last_run_at"] = event.at.isoformat()
    if result.outcome is Outcome.CONTINUE:
        context["redispatch_requested"] = True
    run = replace(
        run,
        ledger=ledger,
        context=context,
        phase=event.phase or run.phase,
        phase_detail=event.phase_detail if event.phase else run.phase_detail,
        done={**run.done, event.done: run.seq + 1} if event.done else run.done,
        committers=_once(run.committers, event.agent) if event.committed else run.committers,
        final_agent=event.place if run.kind == "team" else event.agent,
        asks=run.asks + event.asking,
    )
    phase = Phase.ASKING if event.asking else Phase.SETTLED
    return _token(
        run,
        event.place,
        phase=phase,
        since=event.at,
        result=run.seq + 1,
        refusal="",
        lock=None,
    )


def _faulted(run: Run, event: Faulted) -> Run:
    ledger = ledgers.reported(
        run.ledger,
        run.limits,
        run.tokens[event.place].step,
        event.result.evidence,
        event.result.usage,
        event.weighed,
    )
    return _attempt_ended(replace(run, ledger=ledger), event)


def _attempt_ended(run: Run, event: Faulted | Lost | TimedOut) -> Run:
    """Back to ready, an attempt poorer; what comes of it is the next event's business."""
    told = event.message if isinstance(event, Faulted) else ""
    held = run.tokens[event.place]
    return _token(
        run,
        event.place,
        phase=Phase.READY,
        since=event.at,
        faults=held.faults + 1,
        lost=held.lost + (not isinstance(event, Faulted)),
        fault_steps=(*held.fault_steps[1 - ledgers.CITED_MAX :], held.step),
        refusal=told,
        agent="",
        lock=None,
    )


def _handed_off(run: Run, event: HandedOff) -> Run:
    if not event.accepted:
        return run
    replayed = 1 if event.already_done else 0
    ledger = ledgers.handed(
        run.ledger, run.limits, event.source, event.target, event.reason, steps=replayed
    )
    held = run.tokens[event.source]
    if event.already_done:
        earlier = run.done.get(f"{event.target}/{event.task}", held.result)
        token = Token(place=event.source, since=event.at, task=held.task, result=earlier)
    else:
        token = Token(place=event.target, since=event.at, task=event.task, result=held.result)
    last_targets = {**run.last_targets, event.source: event.target}
    return replace(run, ledger=ledger, tokens={token.place: token}, last_targets=last_targets)


def _moved(run: Run, event: Moved) -> Run:
    gone = {event.source, *event.cancels}
    carried = max((t.result for t in run.tokens.values() if t.place in gone), default=0)
    tokens = {place: t for place, t in run.tokens.items() if place not in gone}
    for place in event.enters:
        tokens[place] = Token(place=place, since=event.at, result=carried, task=event.task)
    blocks = {fork: block for fork, block in run.blocks.items() if fork not in event.closes}
    blocks |= event.opens
    if event.arrives is not None:
        fork, head = event.arrives
        blocks[fork] = Block(heads=blocks[fork].heads, arrived=(*blocks[fork].arrived, head))
    reworks = {v: n for v, n in run.reworks.items() if v not in event.forgets}
    if event.spends:
        reworks[event.spends] = reworks.get(event.spends, 0) + 1
    questions = {q.id: q for q in run.questions.values() if q.place not in gone}
    run = replace(run, tokens=tokens, blocks=blocks, reworks=reworks, questions=questions)
    if not event.renews:
        return run if event.spends else replace(run, ledger=_walked(run, event))
    return replace(
        run,
        stretch=run.stretch + 1,
        ledger=ledgers.renewed(run.ledger),
        asks=0,
        done={},
        hands=_once(run.hands, event.by) if event.outcome in REVISED else run.hands,
        ran=0.0,
        ran_since=None if run.ran_since is None else event.at,
        last_targets={},
    )


def _walked(run: Run, event: Moved) -> ledgers.Ledger:
    """Forward transitions count as handoffs where a workflow sets the rules that count them."""
    limits = run.limits
    if limits.max_handoffs is None and limits.repeat_limit is None and limits.max_edge is None:
        return run.ledger
    ledger = run.ledger
    for target in event.targets:
        ledger = ledgers.handed(ledger, limits, event.source, target, event.reason)
    return ledger


def _asked(run: Run, event: Asked) -> Run:
    question = event.question
    run = replace(
        run,
        questions={**run.questions, question.id: question},
        questions_asked=run.questions_asked + 1,
    )
    return _token(run, question.place, phase=Phase.ASKED, question=question.id)


def _answered(run: Run, event: Answered) -> Run:
    question = run.questions[event.question_id]
    if not event.final:
        counted = replace(question, approved_by=(*question.approved_by, event.by))
        return replace(run, questions={**run.questions, question.id: counted})
    questions = {q.id: q for q in run.questions.values() if q.id != question.id}
    run = replace(run, questions=questions)
    again = Phase.READY if question.own else Phase.LEAVING
    return _token(run, question.place, phase=again, question="", since=event.at)


def _reasked(run: Run, event: Reasked) -> Run:
    questions = {q.id: q for q in run.questions.values() if q.id != event.question_id}
    questions[event.question.id] = event.question
    run = replace(run, questions=questions, questions_asked=run.questions_asked + 1)
    return _token(run, event.question.place, question=event.question.id)


def _paused(run: Run, event: Paused) -> Run:
    return replace(run, paused_at=event.at, pause_deadline=event.deadline)


def _resumed(run: Run, event: Resumed) -> Run:
    assert run.paused_at is not None
    tokens = {
        p: replace(t, since=t.since + (event.at - max(run.paused_at, t.since)))
        for p, t in run.tokens.items()
    }
    questions = {
        i: replace(q, deadline=q.deadline + (event.at - max(run.paused_at, q.asked_at)))
        for i, q in run.questions.items()
    }
    return replace(run, tokens=tokens, questions=questions, paused_at=None, pause_deadline=None)


def _patched(run: Run, event: Patched) -> Run:
    patch = {key: value for key, value in event.patch.items() if key not in ENGINE_KEYS}
    return replace(run, context=merged(run.context, patch), hands=_once(run.hands, event.by))


def _migrated(run: Run, event: Migrated) -> Run:
    return replace(
        run, definition_id=event.definition_id, version=event.version, limits=event.limits
    )


def _clocks_pushed(run: Run, event: ClocksPushed) -> Run:
    by = seconds(event.seconds)
    run = _pushed(run, event.seconds)
    if run.ran_since is not None:
        run = replace(run, ran_since=min(run.ran_since + by, event.at))
    if run.paused_at is not None and run.pause_deadline is not None:
        run = replace(run, paused_at=run.paused_at + by, pause_deadline=run.pause_deadline + by)
    return run


def _pushed(run: Run, amount: float) -> Run:
    """Every clock of dispatches and questions later by so much."""
    by = seconds(amount)
    tokens = {p: replace(t, since=t.since + by) for p, t in run.tokens.items()}
    questions: dict[str, Question] = {
        i: replace(q, deadline=q.deadline + by) for i, q in run.questions.items()
    }
    return replace(run, tokens=tokens, questions=questions)


def _warned(run: Run, event: Warned) -> Run:
    return run


def _ended(run: Run, event: Ended) -> Run:
    return replace(
        run,
        terminal_status=event.status,
        stop=event.stop,
        ended_at=event.at,
        final_agent=event.stop.agent or run.final_agent,
        tokens={},
        blocks={},
        questions={},
        phase="terminated" if run.kind == "team" else run.phase,
    )


APPLY: dict[type[RunEvent], Callable[[Run, Any], Run]] = cast(
    "dict[type[RunEvent], Callable[[Run, Any], Run]]",
    {
        Offered: _offered,
        Claimed: _claimed,
        Reported: _reported,
        Faulted: _faulted,
        Lost: _attempt_ended,
        TimedOut: _attempt_ended,
        HandedOff: _handed_off,
        Moved: _moved,
        Asked: _asked,
        Answered: _answered,
        Reasked: _reasked,
        Paused: _paused,
        Resumed: _resumed,
        Patched: _patched,
        Migrated: _migrated,
        ClocksPushed: _clocks_pushed,
        Warned: _warned,
        Ended: _ended,
    },
)
