"""A server under test: an engine to which nothing happens by itself, everybody with a token.

    async def test_a_viewer_files_nothing(harness: ServerHarness):
        answer = await harness.viewer.post("/beads", json={"title": "a bug"})
        assert answer.status_code == 403

Requests go through the whole application, without a socket, and are checked against the OpenAPI
document (`document_check.py`). `harness.ceo` is a client of the person `CEO`, and so on;
`harness.client(name, role)` lets anybody else in.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
from tests.engine.engines import PATIENCE, chain, node
from tests.server.document_check import check_against_document

from handrail.api.operation import API_PREFIX, Role
from handrail.engine import opening
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Outcome, Result
from handrail.server.access import issue_credential
from handrail.server.app import ServerApp
from handrail.server.settings import ServerSettings
from handrail.testing.clock import ManualClock

ADDRESS = "http://handrail.test"
VIEWER, OPERATOR, OTHER_OPERATOR, CEO, ADMIN = "vera", "olga", "oskar", "ana", "adam"
AGENT, REPORTER = "coder-1", "rudi"
WORKER = "backend-engineer"
LOOKS = 3
DONE = Result(outcome=Outcome.SUCCESS, text="done")

PLAIN = chain(node("fix"), id="plain")
"""One task."""
ASKS = chain(node("fix"), node("look", "approval", revise_to="fix"), id="asks")
"""A task, and the CEO looks at it."""


class ServerHarness:
    """What a test is given; open from the first line of the test to its last."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url, self.clock = url, clock
        self.settings = ServerSettings()
        self.kernel = Settings()
        self._open: AsyncExitStack | None = None
        self._clients: dict[tuple[str, str], httpx.AsyncClient] = {}
        self._results: dict[str, Result] = {}

    engine: Engine
    served: ServerApp

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["ServerHarness"]:
        wanted = EngineSettings(kernel=self.kernel)
        async with AsyncExitStack() as self._open:
            self.engine = await self._open.enter_async_context(
                opening.open(self.url, clock=self.clock.now, background=False, settings=wanted)
            )
            self.served = ServerApp(self.engine, self.settings)
            self.nobody = await self._enter({})
            self.viewer = await self.client(VIEWER, "viewer")
            self.operator = await self.client(OPERATOR, "operator")
            self.other_operator = await self.client(OTHER_OPERATOR, "operator")
            self.ceo = await self.client(CEO, "ceo")
            self.admin = await self.client(ADMIN, "admin")
            self.agent = await self.client(AGENT, "agent")
            self.reporter = await self.client(REPORTER, "reporter")
            yield self

    async def client(self, name: str, role: Role) -> httpx.AsyncClient:
        """A client with a token of its own."""
        if (name, role) not in self._clients:
            secret, row = issue_credential(
                "token", name=name, role=role, by="test", now=self.clock.now()
            )
            await self.engine.credentials.add(row)
            client = await self._enter({"Authorization": f"Bearer {secret}"})
            self._clients[name, role] = client
        return self._clients[name, role]

    async def _enter(self, headers: dict[str, str]) -> httpx.AsyncClient:
        assert self._open is not None, "opened"
        transport = httpx.ASGITransport(app=self.served.asgi)  # pyright: ignore[reportArgumentType]
        client = httpx.AsyncClient(
            transport=transport,
            base_url=ADDRESS + API_PREFIX,
            headers=headers,
            event_hooks={"response": [check_against_document]},
        )
        return await self._open.enter_async_context(client)

    # What nearly every test begins with

    async def define(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            await self.engine.define(document, by=CEO)

    async def file(self, workflow_id: str = "", **wanted: Any) -> dict[str, Any]:
        """A bead that the operator files; with a definition it runs."""
        body = {"title": "a bug", **wanted}
        body |= {"workflow_id": workflow_id} if workflow_id else {}
        return expect_json(await self.operator.post("/beads", json=body), 201)

    def works(self, result: Result = DONE, *roles: str) -> None:
        """From now on somebody does all work of these roles, always with this result."""
        for role in roles or (WORKER,):
            if role not in self._results:
                self.engine.add_agent(self._worker(role), role, name=f"the-{role}")
            self._results[role] = result

    def _worker(self, role: str) -> Callable[[Dispatch], Result]:
        return lambda dispatch: self._results[role]

    async def quiet(self) -> None:
        """Until all work on offer is done: nobody is at work, however often one looks."""
        idle = 0
        for _ in range(10_000):
            await self.engine.tick()
            idle = 0 if self.engine.local_executor.active_count else idle + 1
            if idle == LOOKS:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the work does not end")

    async def asked(self, **wanted: Any) -> dict[str, Any]:
        """The open question of a new run of `ASKS`."""
        await self.define(ASKS)
        self.works()
        bead = await self.file("asks", **wanted)
        (question,) = await self.engine.run(bead["execution_id"]).questions(PATIENCE)
        return expect_json(await self.viewer.get(f"/approvals/{question.id}"))

    async def notes(self, execution_id: str) -> list[tuple[str, str]]:
        """The evidence kept of a run: (who, code)."""
        kept, _ = self.engine.store.runs.list_notes(execution_id)
        return [(note.actor, note.code) for note in kept]


def expect_json(answer: httpx.Response, status: int = 200) -> Any:
    """What was answered, if it was answered so."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    return answer.json()


def expect_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document, if it is that one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found = answer.json()
    assert (answer.status_code, found["code"]) == (status, code), answer.text
    assert found["status"] == status
    assert {"type", "title", "detail"} <= set(found)
    return found


async def list_all(client: httpx.AsyncClient, path: str, **query: Any) -> list[dict[str, Any]]:
    """All items of a list, page by page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    for _ in range(1_000):
        page = expect_json(
            await client.get(path, params={**query, **({"cursor": cursor} if cursor else {})})
        )
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError(f"{path} does not end")
