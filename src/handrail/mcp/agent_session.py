"""The session of one agent: keeps its dispatches and turns alive while it works, and releases them
when it goes away.

Rules
1. From its first registration or claim on, a heartbeat in the background keeps alive all that the
   agent holds. What the server reports as over is dropped, and the agent hears of it with its next
   call.
2. An agent that has not called for `silence_seconds` has gone away, whatever became of its process:
   the heartbeats end, and what it holds is released and offered again.
3. A server that does not answer is asked again with the next heartbeat; the lease decides.
4. Nothing here has to be right for a run to be right. The server checks every call by credential
   and fence; a lost session costs a lease.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from handrail.client.clients import AsyncClient
from handrail.client.errors import AccessDeniedError, ClientError, ConflictError, NotFoundError
from handrail.client.worker import UNREGISTERED_CODES, is_turn_id
from handrail.engine.log_events import log_event
from handrail.kernel.agent_lifecycle import AgentState
from handrail.views.agents import AgentView
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView

log = logging.getLogger("handrail.worker")

HeldWork = DispatchView | TurnView
HEARTBEAT_SECONDS = 15.0
SILENCE_SECONDS = 900.0
"""Longer than most single steps of a coding agent; `progress` announces a longer one."""
RELEASE_SECONDS_MAX = 1.5
"""How long the release at the end may take: the parent process does not wait for ever."""
STATUS_UNAUTHORIZED = 401
CONCURRENT_CALLS_MAX = 8
"""Calls of one agent at once."""
NOTICES_MAX = 20
OVER_REASON = "its run has ended, or it was taken away"
RESTING_STATES = (AgentState.IDLE, AgentState.OFFLINE)
"""A member of a channel in these states is not in its queue."""


class ToolCallError(Exception):
    """Why a call failed, and what to do instead."""


class AgentSession:
    """The session of one agent. `clock` counts seconds."""

    def __init__(
        self,
        client: AsyncClient,
        agent_id: str,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.agent_id = client, agent_id
        self.heartbeat_seconds, self.silence_seconds, self.clock = (
            heartbeat_seconds,
            silence_seconds,
            clock,
        )
        self.held: dict[str, HeldWork] = {}
        self.last_read_message: dict[str, int] = {}
        """Channel -> the last message that the agent has read in its turn."""
        self._finishing: set[str] = set()
        """What the agent is about to finish itself: its end is no news."""
        self._notices: deque[str] = deque(maxlen=NOTICES_MAX)
        self._calls_running = 0
        self._last_call = clock()
        self._heartbeat_task: asyncio.Task[None] | None = None
        self.is_rejected = False
        """Whether the server rejects the agent's credential."""

    # Calls

    @contextmanager
    def track_call(self) -> Generator[None]:
        """Track a call of the agent, which is a sign of its life."""
        if self._calls_running >= CONCURRENT_CALLS_MAX:
            message = f"{CONCURRENT_CALLS_MAX} of your calls are under way"
            raise ToolCallError(f"{message}; wait for one of them, then call again")
        self._calls_running += 1
        self._last_call = self.clock()
        try:
            yield
        except ClientError as error:
            self._note_rejection(error)
            raise
        finally:
            self._calls_running -= 1
            self._last_call = self.clock()

    def _note_rejection(self, error: ClientError) -> None:
        self.is_rejected = self.is_rejected or error.status == STATUS_UNAUTHORIZED

    @property
    def idle_seconds(self) -> float:
        """Seconds since the agent's last call; 0 during one."""
        return 0.0 if self._calls_running else self.clock() - self._last_call

    def take_notices(self) -> list[str]:
        """Return the notices for the agent, once."""
        notices = list(self._notices)
        self._notices.clear()
        return notices

    # Held dispatches and turns

    def resolve_dispatch_id(self, requested_id: str) -> str:
        """Return the dispatch that is meant. The server decides whether the agent holds one that it
        names: this process may have been started after the claim.
        """
        if requested_id:
            return requested_id
        return self._require_one([name for name in self.held if not is_turn_id(name)], "dispatch")

    def held_dispatch(self, requested_id: str) -> DispatchView:
        name = self.resolve_dispatch_id(requested_id)
        work = self.held.get(name)
        if not isinstance(work, DispatchView):
            message = f"'{name[:200]}' is not in your hands here"
            raise ToolCallError(f"{message}; call `claim`, and what is yours is given to you again")
        return work

    def held_turn(self, channel: str) -> TurnView:
        turns = {work.channel_id: work for work in self.held.values() if isinstance(work, TurnView)}
        name = channel or self._require_one(list(turns), "turn in a channel")
        view = turns.get(name)
        if view is None:
            message = f"you do not have the turn in channel '{name[:200]}'"
            raise ToolCallError(f"{message}; call `claim` until you are given it")
        return view

    def _require_one(self, names: list[str], noun: str) -> str:
        if not names:
            raise ToolCallError(f"you have no {noun} in hand; call `claim` first")
        if len(names) > 1:
            raise ToolCallError(
                f"you have more than one {noun} in hand; say which: {', '.join(names)}"
            )
        return names[0]

    def hold(self, work: HeldWork) -> None:
        self.held[work.id] = work
        if isinstance(work, TurnView):
            self.last_read_message[work.channel_id] = work.position
        self.start_heartbeats()

    def drop(self, name: str, why: str = "") -> None:
        """Drop what the agent holds; with a reason, the agent gets a notice."""
        if self.held.pop(name, None) is not None and why:
            self._notices.append(f"{name} is over: {why}. Stop working on it.")

    @contextmanager
    def finishing(self, name: str) -> Generator[None]:
        """Drop what the agent finishes, unless that fails."""
        self._finishing.add(name)
        try:
            yield
            self.drop(name)
        finally:
            self._finishing.discard(name)

    async def join_channels(self, view: AgentView) -> list[str]:
        """Join the queues of this agent's channels again; return the channels that it is in."""
        joined: list[str] = []
        for name, state in view.channels.items():
            try:
                if state in RESTING_STATES:
                    await self.client.channels.join(name, self.agent_id)
                joined.append(name)
            except ClientError as error:
                log_event(log, "channel_not_joined", channel=name, reason=str(error))
        return joined

    # Heartbeats

    def start_heartbeats(self) -> None:
        """Start the heartbeats."""
        if self._heartbeat_task is None or self._heartbeat_task.done():
            self._heartbeat_task = asyncio.create_task(self._run_heartbeats())

    async def _run_heartbeats(self) -> None:
        while self.idle_seconds < self.silence_seconds:
            await asyncio.sleep(self.heartbeat_seconds)
            try:
                await self._send_heartbeat()
            except ClientError as error:
                self._note_rejection(error)
                if error.code in UNREGISTERED_CODES or isinstance(error, AccessDeniedError):
                    self._drop_all(f"the server does not know you any more ({error.detail})")
                    return
                log_event(log, "server_lost", reason=str(error))
        reason = f"the agent did not call for {self.silence_seconds:g} seconds"
        await self._release_all(reason)
        self._drop_all(
            f"you did not call for {self.silence_seconds:g} seconds; call `progress` meanwhile"
        )

    async def _send_heartbeat(self) -> None:
        held_ids = sorted(self.held)
        answer = await self.client.agents.heartbeat(self.agent_id, holding=held_ids)
        for name in set(answer.ended) - self._finishing:
            self.drop(name, OVER_REASON)
        if answer.state is AgentState.IDLE:
            await self.join_channels(await self.client.agents.get(self.agent_id))

    def _drop_all(self, why: str) -> None:
        for name in list(self.held):
            self.drop(name, why)

    # The end

    async def end(self, reason: str = "") -> None:
        """Stop the heartbeats; with a reason, release what the agent holds."""
        task, self._heartbeat_task = self._heartbeat_task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if reason:
            await self._release_all(reason)

    async def _release_all(self, reason: str) -> None:
        """Release everything, also what the server gave after its response was lost."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                for name in (await self.client.agents.heartbeat(self.agent_id)).held:
                    await self._release(name, reason)
        except (TimeoutError, ClientError) as error:
            log_event(log, "not_handed_back", reason=str(error) or "no server answers")

    async def _release(self, name: str, reason: str) -> None:
        log_event(log, "dispatch_given_back", dispatch_id=name, reason=reason)
        try:
            if is_turn_id(name):
                channel, _, number = name.rpartition(".t")
                await self.client.channels.control_turn(channel, "complete", turn=int(number))
            else:
                await self.client.dispatches.release(name, fence_of(name), reason)
        except (ConflictError, NotFoundError) as error:
            log_event(log, "result_dropped", dispatch_id=name, reason=str(error))


def fence_of(dispatch_id: str) -> int:
    """Return the fence of a dispatch, which its id ends with."""
    number = dispatch_id.rpartition(".d")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise ToolCallError(
            f"'{dispatch_id[:200]}' is no id of a dispatch; take it from what `claim` gave"
        )
    return int(number)
