"""An agent made with the official SDK, on loopback, that does what a test says."""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette
from tests.client.live_server import free_port
from tests.client.protocol_servers import serve_app

Play = Callable[["Agent", TaskUpdater, str], Awaitable[None]]
"""What the agent does when it is told that."""


class Agent(AgentExecutor):
    def __init__(self, plays: Play) -> None:
        self.plays, self.url = plays, ""
        self.heard: list[tuple[str, str]] = []
        """(task, text) of every message."""
        self.cancelled: list[str] = []
        self.tokens: set[str] = set()
        """What each request said of who it is from."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        assert context.message is not None
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        said = context.get_user_input()
        self.heard.append((context.task_id, said))
        await self.plays(self, updater, said)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        self.cancelled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def words(text: str) -> Any:
    return new_text_message(text)


async def complete_with(updater: TaskUpdater, text: str) -> None:
    """The task is done, and that came of it."""
    await updater.add_artifact([new_text_part(text)])
    await updater.complete()


@asynccontextmanager
async def serve_agent(plays: Play) -> AsyncIterator[Agent]:
    agent, port = Agent(plays), free_port()
    agent.url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="triage",
        description="sorts tickets",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"{agent.url}/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="triage", name="triage", description="sorts", tags=["tickets"])],
    )
    handler = DefaultRequestHandler(agent, InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
    app = Starlette(routes=routes)

    async def noting(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        found = [value for name, value in scope["headers"] if name == b"authorization"]
        agent.tokens.add(b",".join(found).decode())
        await app(scope, receive, send)

    async with serve_app(noting, port):
        try:
            yield agent
        finally:
            await handler.aclose()
