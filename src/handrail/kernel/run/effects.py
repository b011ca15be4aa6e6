"""What the shell does once a decision is committed, worked out from the run before and after."""

from collections.abc import Iterator

from handrail.kernel.decision import Value
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.plan import Plan
from handrail.kernel.run.events import (
    Asked,
    Claimed,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reasked,
    Reported,
    RunEvent,
    TimedOut,
    Warned,
)
from handrail.kernel.run.state import CLAIMED, OFFERED, Phase, Run, Token
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
    lock: int


class Notify(Value, tag=True):
    """Somebody is asked."""

    question_id: str


class Conclude(Value, tag=True):
    """The run has ended: close the bead or mark its error, write the report, tell the snitch."""

    status: TerminalStatus


RunEffect = CancelWork | SeekLock | FreeLock | Notify | Conclude
QUIET = frozenset({Offered, Claimed, Reported, HandedOff, Moved, Warned})
"""Most decisions have no others: the one dispatch came back, the next one went out."""
OPEN = (OFFERED, CLAIMED)


def effects(
    plan: Plan, before: Run | None, after: Run, events: list[RunEvent]
) -> tuple[RunEffect, ...]:
    if (
        before is not None
        and len(before.tokens) == 1  # no branch that could be cancelled
        and before.stretch == after.stretch  # nobody moved the token
        and not plan.commits
        and QUIET.issuperset(map(type, events))
    ):
        return ()
    found: list[RunEffect] = []
    held = before.tokens.values() if before is not None else ()
    for token in held:
        if token.phase in OPEN and _is_cancelled(token, after, events):
            found.append(CancelWork(fence=token.fence, agent=token.agent))
    for token in held:
        if token.lock is not None and after.token_of(token.fence) is None:
            found.append(FreeLock(place=token.place, repository=token.repository, lock=token.lock))
    if plan.commits:
        found.extend(_sought(plan, before, after))
    for event in events:
        if type(event) is Asked or type(event) is Reasked:
            found.append(Notify(question_id=event.question.id))
    if after.terminal_status is not None:
        found.append(Conclude(status=after.terminal_status))
    return tuple(found)


def _is_cancelled(token: Token, after: Run, events: list[RunEvent]) -> bool:
    """Its clock ran out, or it is open no more and did not come back by itself."""
    returned = False
    for event in events:
        if type(event) is Reported or type(event) is Lost:
            returned = returned or event.fence == token.fence
        elif type(event) is TimedOut and event.fence == token.fence:
            return True
    return not returned and after.token_of(token.fence) is None


def _sought(plan: Plan, before: Run | None, after: Run) -> Iterator[RunEffect]:
    old = before.tokens if before is not None else {}
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
