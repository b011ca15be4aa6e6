"""`handrail.Worker`: runs functions as agents of a server, over HTTP.

    worker = handrail.Worker("http://127.0.0.1:8080")

    @worker.agent("backend-engineer")
    async def fix(dispatch):
        return handrail.success(f"fixed: {dispatch.bead.title}")

    worker.serve()

Rules
1. A worker is one agent with the roles of all its functions. It works on `concurrency` dispatches
   at once; while it has capacity, one long poll at a time claims more.
2. One heartbeat renews the leases of all claimed dispatches. Its answer says which have ended; the
   worker cancels these (H5.5).
3. A function returns a result in any form that an engine's agent function may return. If it
   raises, or returns an unusable value, the worker releases the dispatch with the reason.
4. While no server answers, the worker retries all of them, for as long as it lives, and keeps
   finished results until then. A refused token ends the worker.
5. When stopped, the worker claims nothing new, gives claimed dispatches `grace` seconds, and hands
   back the rest. It does not deregister: it counts as offline once it is silent.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence

from handrail.client.channel_turns import TurnFunction
from handrail.client.clients import TIMEOUT_SECONDS, Client
from handrail.client.executor import AgentFunction, AgentHandler, roles_of
from handrail.client.worker_loop import WorkerLoop

HEARTBEAT_SECONDS, GRACE_SECONDS = 15.0, 30.0
PATIENCE_SECONDS = 5.0
"""Per call; after that the worker itself retries."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Runs agents for a server. Defaults of `url`, `token` and `agent_id`: `HANDRAIL_SERVER`,
    `HANDRAIL_TOKEN`, and the agent that the token belongs to."""

    def __init__(
        self,
        url: str | Sequence[str] = "",
        token: str = "",
        *,
        agent_id: str = "",
        concurrency: int = 0,
        heartbeat: float = HEARTBEAT_SECONDS,
        grace: float = GRACE_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.url, self.token, self.agent_id = url, token, agent_id
        self.concurrency = concurrency
        """Dispatches at once; 0: the sum of its functions' capacities."""
        self.heartbeat, self.grace, self.timeout = heartbeat, grace, timeout
        self._handlers: dict[str, AgentHandler] = {}
        self._channels: dict[str, TurnFunction] = {}
        self._stop_requested = asyncio.Event()

    def agent(
        self, *roles: str, capacity: int | None = None
    ) -> Callable[[AgentFunction], AgentFunction]:
        """Decorate a function that works as these roles, at most `capacity` times at once."""

        def register(function: AgentFunction) -> AgentFunction:
            self.add(function, *roles, capacity=capacity)
            return function

        return register

    def add(self, function: AgentFunction, *roles: str, capacity: int | None = None) -> None:
        """Add a function that works as these roles; default: those of its `handrail.agent` mark.
        Claimed dispatches beyond its capacity wait."""
        role_names = roles or roles_of(function)
        name = getattr(function, "__name__", "the function")
        if not role_names:
            raise ValueError(f"{name} works as no role; name one: add({name}, 'backend-engineer')")
        if capacity is not None and capacity < 1:
            raise ValueError(f"{name} has a capacity of {capacity}; it is at least 1")
        handler = AgentHandler(function, role_names, capacity)
        for role in handler.roles:
            if role in self._handlers:
                raise ValueError(f"two functions work as '{role}'; a worker has one for each role")
            self._handlers[role] = handler

    def channel(self, *channels: str) -> Callable[[TurnFunction], TurnFunction]:
        """Decorate a function that takes this agent's turns in these channels
        (`channel_turns.py`). An operator makes it a member; then it rejoins the queue by itself."""

        def register(function: TurnFunction) -> TurnFunction:
            for name in channels:
                if name in self._channels:
                    raise ValueError(f"two functions take turns in '{name}'; a channel has one")
                self._channels[name] = function
            return function

        return register

    async def run(self) -> None:
        """Run until `stop`, or until cancelled, which drops claimed dispatches at once."""
        if not self._handlers and not self._channels:
            raise ValueError("the worker has no function; add one with @worker.agent('ROLE')")
        unopened = Client(self.url, self.token, timeout=self.timeout, patience=PATIENCE_SECONDS)
        try:
            async with unopened as client:
                loop = WorkerLoop(
                    client,
                    self.agent_id,
                    self._handlers,
                    concurrency=self.concurrency or self._total_capacity(),
                    heartbeat=self.heartbeat,
                    grace=self.grace,
                    channels=self._channels,
                )
                await loop.run(self._stop_requested)
        finally:
            self._stop_requested = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing new; `run` returns when all dispatches are done or handed back."""
        self._stop_requested.set()

    def serve(self) -> None:
        """Run as the whole process: SIGTERM or SIGINT stops the worker, a second one kills it."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop_by_signal, loop)
        try:
            await self.run()
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _stop_by_signal(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self.stop()

    def _total_capacity(self) -> int:
        return max(1, sum(handler.capacity or 1 for handler in set(self._handlers.values())))
