"""The official SDK's client at the door of `handrail a2a`, in few words."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.helpers import get_message_text, new_text_part
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from tests.a2a.a2a_server import HandrailWorker, open_worker, run_async
from tests.client.live_server import Server, free_port
from tests.client.protocol_servers import serve_app
from tests.patience import PATIENCE

from handrail.a2a.app import A2aApp

WORKING, ASKS = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_INPUT_REQUIRED
DONE, FAILED = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED


class Caller:
    """The SDK's client, in few words."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def says(self, text: str, *, at_once: bool = True, **message: Any) -> Task:
        """The task as it stands after that message."""
        *_, last = [one async for one in self.tells(text, at_once=at_once, **message)]
        return last.task

    def tells(
        self, text: str, *parts: Part, at_once: bool = True, **message: Any
    ) -> AsyncIterator[StreamResponse]:
        how = SendMessageConfiguration(return_immediately=at_once)
        sent = self.message(text, *parts, **message)
        return self.client.send_message(SendMessageRequest(message=sent, configuration=how))

    def message(self, text: str, *parts: Part, **named: Any) -> Message:
        said = [new_text_part(text), *parts] if text else parts
        named = {"message_id": str(uuid4()), **named}
        return Message(role=Role.ROLE_USER, parts=said, **named)

    async def task(self, task_id: str) -> Task:
        return await self.client.get_task(GetTaskRequest(id=task_id))

    async def cancels(self, task_id: str) -> Task:
        return await self.client.cancel_task(CancelTaskRequest(id=task_id))


@asynccontextmanager
async def open_caller(
    address: str, token: str, name: str = "fix", *, streaming: bool = False
) -> AsyncIterator[Caller]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http:
        factory = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http))
        async with await factory.create_from_url(f"{address}/{name}") as client:
            yield Caller(client)


Scene = Callable[[str, HandrailWorker], Coroutine[Any, Any, None]]


def run_scene(server: Server, scene: Scene) -> None:
    """A scene at the door, with somebody at work."""
    port = free_port()
    door = A2aApp(server.url, f"http://127.0.0.1:{port}")

    async def played(worker: HandrailWorker) -> None:
        async with serve_app(door, port) as address:
            await scene(address, worker)

    with open_worker(server) as worker:
        run_async(played(worker))


async def report_result(worker: HandrailWorker, outcome: str, **result: Any) -> Any:
    return await asyncio.to_thread(worker.does, outcome, **result)


def status_text(task: Task) -> str:
    return get_message_text(task.status.message)
