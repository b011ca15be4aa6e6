"""evolve: a run after one more event. No policy: the one path for live and replay."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import to_builtins
from msgspec.structs import replace

from handrail.kernel import ledger as ledgers
from handrail.kernel.result import Outcome, merged
from handrail.kernel.run.events import (
    Claimed,
    Ended,
    Faulted,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reported,
    RunEvent,
    Started,
    TimedOut,
    Warned,
)
from handrail.kernel.run.evolve_outside import OUTSIDE, once
from handrail.kernel.run.state import (
    CLAIMED,
    NOT_FOR_AGENTS,
    OFFERED,
    Block,
    Phase,
    Run,
    RunStatus,
    Token,
)

ASKED, SETTLED = Phase.ASKED, Phase.SETTLED
CONTINUE, RUNNING = Outcome.CONTINUE, RunStatus.RUNNING


def evolve(run: Run | None, event: RunEvent) -> Run:
    """The run after the event; a run begins with `Started`."""
    if run is None:
        assert type(event) is Started, "a run begins with Started"
        return _with_status(_started(event), event)
    assert run.terminal_status is None, "nothing happens after the end"
    kind = type(event)
    after = APPLY[kind](run, event)
    if kind in GOES_ON and run.status is RUNNING:
        return after
    return _with_status(after, event)


def replay(events: Iterable[RunEvent], run: Run | None = None) -> Run:
    for event in events:
        run = evolve(run, event)
    assert run is not None, "a run has events"
    return run


def _with_status(run: Run, event: RunEvent) -> Run:
    """Status follows from the tokens; the running clock goes exactly while it is `running`."""
    status = _status(run)
    going = status is RUNNING
    if going == (run.ran_since is not None):
        return run if status is run.status else replace(run, status=status)
    if going:
        return replace(run, status=status, ran_since=event.at)
    return replace(run, status=status, ran=run.elapsed(event.at), ran_since=None)


def _status(run: Run) -> RunStatus:
    if run.terminal_status is not None:
        return RunStatus.ENDED
    if run.paused_at is not None:
        return RunStatus.PAUSED
    for token in run.tokens.values():
        if token.phase is not ASKED:
            return RUNNING
    return RunStatus.WAITING if run.tokens else RUNNING


def _started(event: Started) -> Run:
    token = Token(place=event.place, since=event.at, task=event.task)
    return Run(
        id=event.run_id,
        bead_id=event.bead_id,
        definition_id=event.definition_id,
        version=event.version,
        kind=event.kind,
        started_at=event.at,
        seq=1,
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


GOES_ON = frozenset({Offered, Claimed, Reported, Faulted, Lost, TimedOut, HandedOff, Warned})
"""Events that leave a running run running: a token stands where no person is asked."""
REVISED = ("revise", "once_more")


def isoformat(at: datetime) -> str:
    """`at.isoformat()`. For UTC, which is the rule, msgspec writes it five times as fast."""
    return to_builtins(at)[:-1] + "+00:00" if at.tzinfo is UTC else at.isoformat()


def _offered(run: Run, event: Offered) -> Run:
    step = run.ledger.steps + 1
    token = replace(
        run.tokens[event.place],
        phase=OFFERED,
        attempts=event.attempt,
        fence=event.fence,
        step=step,
        role=event.role,
        agent="",
        lock=event.lock,
        repository=event.repository,
    )
    return replace(
        run,
        seq=run.seq + 1,
        fence=event.fence,
        ledger=replace(run.ledger, steps=step),
        tokens={**run.tokens, event.place: token},
    )


def _claimed(run: Run, event: Claimed) -> Run:
    token = replace(run.tokens[event.place], phase=CLAIMED, agent=event.agent, since=event.at)
    context = run.context
    if context.get("redispatch_requested"):
        context = {**context, "redispatch_requested": False}
    tokens = {**run.tokens, event.place: token}
    return replace(run, seq=run.seq + 1, context=context, tokens=tokens)


def _reported(run: Run, event: Reported) -> Run:
    held, result = run.tokens[event.place], event.result
    if event.phase or event.done or event.committed:
        run = _achieved(run, event)
    context = dict(run.context)
    if result.data:
        data = {key: value for key, value in result.data.items() if key not in NOT_FOR_AGENTS}
        context = merged(context, data)
    context["last_run_at"] = isoformat(event.at)
    if result.outcome is CONTINUE:
        context["redispatch_requested"] = True
    token = replace(
        held,
        phase=Phase.ASKING if event.asking else SETTLED,
        since=event.at,
        result=run.seq + 1,
        refusal="",
        lock=None,
    )
    return replace(
        run,
        seq=run.seq + 1,
        ledger=ledgers.reported(
            run.ledger, run.limits, held.step, result.evidence, result.usage, event.weighed
        ),
        context=context,
        final_agent=event.place if run.kind == "team" else event.agent,
        asks=run.asks + event.asking,
        tokens={**run.tokens, event.place: token},
    )


def _achieved(run: Run, event: Reported) -> Run:
    """What only some results bring: a milestone, a task done for good, a commit."""
    return replace(
        run,
        phase=event.phase or run.phase,
        phase_detail=event.phase_detail if event.phase else run.phase_detail,
        done={**run.done, event.done: run.seq + 1} if event.done else run.done,
        committers=once(run.committers, event.agent) if event.committed else run.committers,
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
    return replace(_attempt_ended(run, event), ledger=ledger)


def _attempt_ended(run: Run, event: Faulted | Lost | TimedOut) -> Run:
    """Back to ready, an attempt poorer; what comes of it is the next event's business."""
    told = event.message if isinstance(event, Faulted) else ""
    held = run.tokens[event.place]
    token = replace(
        held,
        phase=Phase.READY,
        since=event.at,
        faults=held.faults + 1,
        lost=held.lost + (not isinstance(event, Faulted)),
        fault_steps=(*held.fault_steps[1 - ledgers.CITED_MAX :], held.step),
        refusal=told,
        agent="",
        lock=None,
    )
    return replace(run, seq=run.seq + 1, tokens={**run.tokens, event.place: token})


def _handed_off(run: Run, event: HandedOff) -> Run:
    if not event.accepted:
        return replace(run, seq=run.seq + 1)
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
    last_targets = run.last_targets
    if last_targets.get(event.source) != event.target:
        last_targets = {**last_targets, event.source: event.target}
    return replace(
        run,
        seq=run.seq + 1,
        ledger=ledger,
        tokens={token.place: token},
        last_targets=last_targets,
    )


def _moved(run: Run, event: Moved) -> Run:
    gone = {event.source, *event.cancels}
    carried = 0
    tokens: dict[str, Token] = {}
    for place, token in run.tokens.items():
        if place not in gone:
            tokens[place] = token
        elif token.result > carried:
            carried = token.result
    for place in event.enters:
        tokens[place] = Token(place=place, since=event.at, result=carried, task=event.task)
    questions = run.questions
    if questions:
        questions = {q.id: q for q in questions.values() if q.place not in gone}
    after = replace(
        run,
        seq=run.seq + 1,
        tokens=tokens,
        blocks=_blocks(run, event),
        reworks=_reworks(run, event),
        questions=questions,
        ledger=run.ledger if event.spends or event.renews else _walked(run, event),
    )
    return _renewed(after, event) if event.renews else after


def _blocks(run: Run, event: Moved) -> dict[str, Block]:
    if not (event.closes or event.opens or event.arrives):
        return run.blocks
    blocks = {fork: block for fork, block in run.blocks.items() if fork not in event.closes}
    blocks |= event.opens
    if event.arrives is not None:
        fork, head = event.arrives
        blocks[fork] = Block(heads=blocks[fork].heads, arrived=(*blocks[fork].arrived, head))
    return blocks


def _reworks(run: Run, event: Moved) -> dict[str, int]:
    if not (event.forgets or event.spends):
        return run.reworks
    reworks = {v: n for v, n in run.reworks.items() if v not in event.forgets}
    if event.spends:
        reworks[event.spends] = reworks.get(event.spends, 0) + 1
    return reworks


def _renewed(run: Run, event: Moved) -> Run:
    """A new stretch: what counts begins anew."""
    return replace(
        run,
        stretch=run.stretch + 1,
        ledger=ledgers.renewed(run.ledger),
        asks=0,
        done={},
        hands=once(run.hands, event.by) if event.outcome in REVISED else run.hands,
        ran=0.0,
        ran_since=None if run.ran_since is None else event.at,
        last_targets={},
    )


def _walked(run: Run, event: Moved) -> ledgers.Ledger:
    """Forward transitions count as handoffs where a workflow sets the rules that count them."""
    limits, ledger = run.limits, run.ledger
    if not limits.count_handoffs:
        return ledger
    for target in event.targets:
        ledger = ledgers.handed(ledger, limits, event.source, target, event.reason)
    return ledger


def _warned(run: Run, event: Warned) -> Run:
    return replace(run, seq=run.seq + 1)


def _ended(run: Run, event: Ended) -> Run:
    return replace(
        run,
        seq=run.seq + 1,
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
        Warned: _warned,
        Ended: _ended,
        **OUTSIDE,
    },
)
"""Each gives the run with this event in it: the sequence number is one higher."""
