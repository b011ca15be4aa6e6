"""The sessions of one process: the server says which agent a credential belongs to.

Over stdio there is one session. Over HTTP every request brings its own credential, and with it its
own session, whose key is the digest of the credential; the credential is kept nowhere else.
"""

import asyncio
import hashlib
from types import TracebackType
from typing import Self

from handrail.client.clients import Client
from handrail.client.errors import ClientError, ProblemDocument
from handrail.mcp.agent_session import HEARTBEAT_SECONDS, SILENCE_SECONDS, AgentSession

SESSIONS_MAX = 200
PATIENCE_SECONDS = 5.0
"""How long one call is retried: the model hears that the server is unreachable, and calls again."""
EVICT_IDLE_SECONDS = 5.0
"""An agent that called more recently may be about to call again."""
GONE_REASON = "the agent went away"


class SessionRefusedError(Exception):
    """No session can be opened now; `status` is that of the HTTP response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AgentSessions:
    def __init__(
        self,
        url: str,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.url, self.heartbeat_seconds, self.silence_seconds = (
            url,
            heartbeat_seconds,
            silence_seconds,
        )
        self._sessions: dict[str, tuple[Client, AgentSession]] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process's sessions without releasing: the agents may be there still, and hold
        their work for a lease.
        """
        for digest in list(self._sessions):
            await self._close_session(digest)

    async def open_session(self, token: str) -> AgentSession:
        """Return the session of that credential. Raises `SessionRefusedError`."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        existing = self._sessions.get(digest)
        if existing is not None and not existing[1].is_rejected:
            return existing[1]
        async with self._lock:
            if existing is not None and self._sessions.get(digest) is existing:
                await self._close_session(digest)
        opened = await self._connect(token)
        try:
            async with self._lock:
                return await self._register(digest, opened)
        finally:
            if (
                self._sessions.get(digest) is not opened
            ):  # another request of the same agent was faster
                await opened[0].__aexit__(None, None, None)

    async def _register(self, digest: str, opened: tuple[Client, AgentSession]) -> AgentSession:
        if digest not in self._sessions:
            await self._evict_idle()
            self._sessions[digest] = opened
        return self._sessions[digest][1]

    async def end_all(self, reason: str = GONE_REASON) -> None:
        """End all sessions and release what they hold. Concurrent callers wait for the same end."""
        async with self._lock:
            for digest in list(self._sessions):
                await self._close_session(digest, reason)

    async def _connect(self, token: str) -> tuple[Client, AgentSession]:
        try:
            client_context = Client(self.url, token, patience=PATIENCE_SECONDS)
        except ValueError as error:
            raise SessionRefusedError(401, str(error)) from error
        client = await client_context.__aenter__()
        try:
            me = await client.sessions.get_me()
            if me.role != "agent":
                message = f"the token is of {me.name}, who is no agent; make one with"
                raise SessionRefusedError(
                    403, f"{message} `handrail token create --role agent --agent ID`"
                )
        except ClientError as error:
            await client.close()
            raise SessionRefusedError(
                error.status or 503, _error_detail(error.problem, str(error))
            ) from error
        except BaseException:
            await client.close()
            raise
        return client_context, AgentSession(
            client,
            me.name,
            heartbeat_seconds=self.heartbeat_seconds,
            silence_seconds=self.silence_seconds,
        )

    async def _evict_idle(self) -> None:
        """End the session that has been silent for longest, to make room."""
        if len(self._sessions) < SESSIONS_MAX:
            return
        idle_times = [
            (session.idle_seconds, digest) for digest, (_, session) in self._sessions.items()
        ]
        evictable = [
            (seconds, digest)
            for seconds, digest in idle_times
            if not self._sessions[digest][1].held
        ]
        seconds, digest = max(evictable, default=(-1.0, ""))
        if seconds < EVICT_IDLE_SECONDS:
            raise SessionRefusedError(
                503, f"{SESSIONS_MAX} agents are at work here; try again in a while"
            )
        await self._close_session(digest)

    async def _close_session(self, digest: str, reason: str = "") -> None:
        client_context, session = self._sessions.pop(digest)
        await session.end(reason)
        await client_context.__aexit__(None, None, None)


def _error_detail(problem: ProblemDocument, line: str) -> str:
    return problem.detail or line
