"""Dispatches that agents outside of this process hold: kept alive, reported, or handed back.

A dispatch is known by its id, RUN.dFENCE. A result that is late, doubled or foreign is refused,
changes nothing, and is kept as a note.
"""

from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX
from handrail.engine.commit.gateway import CommandGateway
from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX, decode_lock
from handrail.engine.dispatch.agent_results import (
    NO_USAGE,
    data_problem,
    lost_command,
    refused_note,
    without_measured,
)
from handrail.engine.dispatch.dispatch import Dispatch, dispatch_view
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import RefusedError, refuse
from handrail.engine.queries.runs import RunReader
from handrail.kernel import lock as locks
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Run
from handrail.store.rows import DispatchRow
from handrail.views.dispatches import DispatchView

if TYPE_CHECKING:
    from handrail.engine.dispatch.registry import AgentService

FENCE_DIGITS_MAX = 15
UNUSABLE_RESULT_CODES = frozenset(
    {
        *("bad_ask", "bad_outcome", "bad_wait", "no_waits", "not_multi_dispatch", "unusable"),
        *("result_too_large", "context_too_large"),
    }
)
"""Refusals of input that is not a result at all: the dispatch stays open, and no note is kept."""


class ReportOutcome(Value):
    """The outcome of a result that came in time. Not accepted: it could not be used, the attempt is
    spent, and `reason` goes to the agent with its next dispatch."""

    accepted: bool
    run: Run
    reason: str = ""


class HeartbeatReply(Value):
    """Whether to go on working. `code` says why not: ended, late, foreign."""

    may_continue: bool
    code: str = ""
    message: str = ""
    lease_expires_at: datetime | None = None


class DispatchService:
    """The dispatches of agents outside of this process."""

    def __init__(
        self,
        access: StoreAccess,
        gateway: CommandGateway,
        reader: RunReader,
        agents: "AgentService",
        clock: Clock,
    ) -> None:
        self._access, self._store, self._gateway = access, access.store, gateway
        self._reader, self._agents, self._clock = reader, agents, clock

    async def get(self, dispatch_id: str) -> Dispatch:
        """Return an open dispatch. Refused: unknown_dispatch."""
        dispatch = await self._reader.open_dispatch(*_parse_dispatch_id(dispatch_id))
        if dispatch is None:
            _refuse_unknown(dispatch_id)
        return dispatch

    async def view(self, dispatch: Dispatch) -> DispatchView:
        """Return the dispatch as it goes to its agent, in full."""
        position, row = dispatch.position, await self._agents.find_remote(dispatch.position.agent)
        lock = None
        if position.lock is not None:
            lock_rows = await self._access.call(self._store.locks.load, [position.repository])
            if position.repository in lock_rows:
                lock = decode_lock(lock_rows[position.repository].state)
        lease_expires_at = self._agents.lease_expires_at(row) if row is not None else None
        lock_expires_at = locks.next_due(lock) if lock is not None else None
        if self._access.has_short_history(dispatch.run):
            return dispatch_view(dispatch, lease_expires_at, lock_expires_at)
        return await self._access.query(
            lambda _: dispatch_view(dispatch, lease_expires_at, lock_expires_at)
        )

    async def is_held_by(self, agent_id: str, bead_id: str) -> bool:
        """Whether the agent works on the bead now."""
        run_id = await self._access.call(self._store.runs.get_active_id, bead_id)
        if run_id is None:
            return False
        rows = await self._access.call(self._store.dispatches.list, run_id)
        return any(row.agent == agent_id for row in rows)

    async def heartbeat(self, dispatch_id: str, agent_id: str, fence: int) -> HeartbeatReply:
        """Record a heartbeat: the agent still works on the dispatch."""
        run_id, own_fence = _parse_dispatch_id(dispatch_id)
        alive = await self._agents.heartbeat(agent_id)
        row = await self._find_row(run_id, own_fence) if own_fence == fence else None
        agent = await self._agents.find_remote(agent_id) if alive else None
        if row is not None and agent is not None and row.session == agent.session:
            return HeartbeatReply(
                may_continue=True, lease_expires_at=self._agents.lease_expires_at(agent)
            )
        code, message = await self._explain_loss(run_id, row, agent_id, own_fence)
        return HeartbeatReply(may_continue=False, code=code, message=message)

    async def hand_back(
        self, dispatch_id: str, agent_id: str, fence: int, reason: str, usage: Usage = NO_USAGE
    ) -> Run:
        """Hand a dispatch back: it is offered again; its usage is counted. Refused: late,
        foreign."""
        run_id, own_fence = _parse_dispatch_id(dispatch_id)
        row = await self._find_row(run_id, own_fence) if own_fence == fence else None
        if row is None or row.agent != agent_id:
            code, message = await self._explain_loss(run_id, row, agent_id, own_fence)
            refuse(code, message, "there is nothing to hand back")
        lost_reason = f"{agent_id} handed it back{f': {reason}' if reason else ''}"
        run = (
            await self._gateway.execute(run_id, lost_command(agent_id, fence, lost_reason, usage))
        ).run
        assert run is not None, "there is a run, else it was refused"
        return run

    async def _explain_loss(
        self, run_id: str, row: DispatchRow | None, agent_id: str, fence: int
    ) -> tuple[str, str]:
        subject = f"dispatch {fence} of run '{run_id}'"
        if row is not None and row.agent is None:
            return "late", f"{subject} was lost, and is on offer again"
        if row is not None:
            return (
                "foreign",
                f"{subject} is held by '{row.agent}', not by this registration of '{agent_id}'",
            )
        run = await self._reader.state(run_id)
        if run.has_ended:
            return "ended", f"run '{run_id}' has ended ({run.terminal_status})"
        return "late", f"{subject} was answered, lost, timed out or cancelled"

    async def report(self, run_id: str, fence: int, agent: str, result: Result) -> ReportOutcome:
        """Report the result of a dispatch; like every result from outside it was decoded from JSON.
        Refused: as the kernel says; a note keeps a late, doubled or foreign result."""
        command = _report_command(result, agent, fence)
        try:
            outcome = await self._gateway.execute(run_id, command)
        except RefusedError as refused:
            if refused.refusal.code not in UNUSABLE_RESULT_CODES:
                await self._add_note(run_id, command, refused.refusal.code)
            raise
        assert outcome.run is not None, "there is a run, else it was refused"
        return ReportOutcome(accepted=not outcome.fault, run=outcome.run, reason=outcome.fault)

    async def report_result(
        self, dispatch_id: str, agent_id: str, fence: int, result: Result
    ) -> ReportOutcome:
        """Like `report`, by the id of the dispatch. Refused: wrong_fence, too."""
        run_id, own_fence = _parse_dispatch_id(dispatch_id)
        if fence != own_fence:
            await self._add_note(run_id, _report_command(result, agent_id, fence), "wrong_fence")
            refuse(
                "wrong_fence",
                f"the result has the fence {fence}, which is not that of dispatch '{dispatch_id}'",
                "report with the fence of the dispatch",
            )
        return await self.report(run_id, fence, agent_id, result)

    async def _find_row(self, run_id: str, fence: int) -> DispatchRow | None:
        rows = await self._access.call(self._store.dispatches.list, run_id)
        return next((row for row in rows if row.fence == fence), None)

    async def _add_note(self, run_id: str, report: c.Report, code: str) -> None:
        await self._access.call(
            self._store.runs.add_note, refused_note(run_id, report, code, self._clock())
        )


def _report_command(result: Result, agent: str, fence: int) -> c.Report:
    if problem := data_problem(result.data, agent):
        return c.Report(fence=fence, agent=agent, malformed=problem)
    return c.Report(fence=fence, agent=agent, result=without_measured(result))


def _parse_dispatch_id(dispatch_id: str) -> tuple[str, int]:
    run_id, separator, fence = dispatch_id.rpartition(".d")
    is_run = bool(separator) and not run_id.startswith(
        (LOCK_STREAM_PREFIX, CHANNEL_STREAM_PREFIX)
    )  # these have no dispatches
    is_fence = fence.isascii() and fence.isdigit() and len(fence) <= FENCE_DIGITS_MAX
    if not is_run or not is_fence:
        _refuse_unknown(dispatch_id)
    return run_id, int(fence)


def _refuse_unknown(dispatch_id: str) -> NoReturn:
    refuse(
        "unknown_dispatch", f"there is no open dispatch '{dispatch_id[:200]}'", "claim another one"
    )
