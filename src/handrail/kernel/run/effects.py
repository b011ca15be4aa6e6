"""What the shell does once a decision is committed, worked out from the run before and after."""

from collections.abc import Iterator

from handrail.kernel.decision import Value
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.plan import Plan
from handrail.kernel.run.events import Asked, Lost, Reasked, Reported, RunEvent, TimedOut
from handrail.kernel.run.state import Phase, Run, Token
from handrail.kernel.run.workflow import needs_lock, repository_of


class CancelWork(Value, tag=True):
    """Tell the agent to stop: its dispatch counts no more (H5.5)."""

    fence: int
    agent: str


class SeekLock(Value, tag=True):
    """Queue for the repository's commit lock."""

    place: str
    repository: str
    attempt: int


class FreeLock(Value, tag=True):
    place: str
    repository: str


class Notify(Value, tag=True):
    """Somebody is asked."""

    question_id: str


class Conclude(Value, tag=True):
    """The run has ended: close the bead or mark its error, write the report, tell the snitch."""

    status: TerminalStatus


RunEffect = CancelWork | SeekLock | FreeLock | Notify | Conclude
OPEN = (Phase.OFFERED, Phase.CLAIMED)


def effects(
    plan: Plan, before: Run | None, after: Run, events: list[RunEvent]
) -> tuple[RunEffect, ...]:
    return (
        *_cancelled(before, after, events),
        *_locks(plan, before, after),
        *(Notify(question_id=e.question.id) for e in events if isinstance(e, Asked | Reasked)),
        *((Conclude(status=after.terminal_status),) if after.terminal_status is not None else ()),
    )


def _cancelled(before: Run | None, after: Run, events: list[RunEvent]) -> Iterator[RunEffect]:
    returned = {e.fence for e in events if isinstance(e, Reported | Lost)}
    timed_out = {e.fence for e in events if isinstance(e, TimedOut)}
    still = {t.fence for t in after.tokens.values() if t.phase in OPEN}
    for token in before.tokens.values() if before is not None else ():
        gone = token.fence not in still and token.fence not in returned
        if token.phase in OPEN and (gone or token.fence in timed_out):
            yield CancelWork(fence=token.fence, agent=token.agent)


def _locks(plan: Plan, before: Run | None, after: Run) -> Iterator[RunEffect]:
    old = {t.place: t for t in before.tokens.values()} if before is not None else {}
    for place, token in old.items():
        if token.lock is not None and _closed(after, token):
            yield FreeLock(place=place, repository=token.repository)
    if plan.kind != "workflow":
        return
    for place, token in after.tokens.items():
        seeking = _at_commit(plan, token) and token.phase not in (*OPEN, Phase.ASKED)
        known = old.get(place)
        resumed = before is not None and before.paused_at is not None
        same = not resumed and known is not None and known.since == token.since
        same = same and known is not None and known.phase not in (*OPEN, Phase.ASKED)
        if seeking and not same and after.paused_at is None:
            attempt = token.attempts + 1
            yield SeekLock(place=place, repository=repository_of(plan, place), attempt=attempt)


def _at_commit(plan: Plan, token: Token) -> bool:
    return plan.knows(token.place) and needs_lock(plan.node(token.place))


def _closed(after: Run, token: Token) -> bool:
    return all(t.fence != token.fence or t.phase not in OPEN for t in after.tokens.values())
