"""A helpdesk on a real server: its own agents in most seats, and outsiders over HTTP in others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.client.live_server import PATIENCE, Server

from handrail import Client
from handrail.client.errors import ConflictError
from handrail.engine.engine import Engine
from handrail.engine.settings import EngineSettings
from handrail.teams import load_agents, load_builtin
from handrail.views.run_view import RunView

WAIT = 10.0


async def add_scripted_agents(engine: Engine, *without: str) -> None:
    """The built-in helpdesk, with nobody in these seats."""
    await engine.define(load_builtin("helpdesk"), by="handrail")
    own, _ = load_agents("helpdesk", engine)
    for role, agent in own.items():
        if role not in without:
            await engine.add_agent(agent, role, name=role)


class HttpWorker:
    """An agent that works one seat over HTTP, with a token of its own."""

    def __init__(self, server: Server, seat: str, client: Any) -> None:
        self.name, self.seat, self.client = f"{seat}-outside", seat, client
        client.agents.register(self.name, [seat])

    def claim(self, wait: float = WAIT) -> Any:
        """The next dispatch; None if there is none."""
        return self.client.dispatches.claim(self.name, wait=wait)

    def says(self, given: Any, text: str = "", **result: Any) -> Any:
        """Reports on a dispatch; what was answered."""
        body = {"text": text, **result}
        return self.client.dispatches.report(given.id, given.fence, body)

    def hands(self, given: Any, to: str, reason: str = "so", **result: Any) -> Any:
        return self.says(given, outcome="handoff", to=to, reason=reason, **result)

    def is_refused(self, given: Any, **result: Any) -> str:
        """That it came too late; the code of the problem."""
        try:
            self.says(given, **{"outcome": "handoff", "to": "memory", "reason": "so", **result})
        except ConflictError as conflict:
            return conflict.code
        raise AssertionError("it was taken")


class Helpdesk:
    """What a test is given."""

    def __init__(self, server: Server, client: Any, stack: ExitStack) -> None:
        self.server, self.client, self._stack = server, client, stack

    def outsider(self, seat: str) -> HttpWorker:
        token = self.server.token("agent", f"{seat}-outside")
        return HttpWorker(
            self.server, seat, self._stack.enter_context(Client(self.server.url, token))
        )

    def file(self, title: str, **more: Any) -> str:
        """A ticket; its run."""
        return self.client.beads.create(title, workflow_id="helpdesk", **more).execution_id

    def ended(self, run_id: str) -> RunView:
        return self.client.result(run_id, timeout=PATIENCE)

    def solved(self, title: str, **more: Any) -> RunView:
        return self.ended(self.file(title, **more))

    def again(self, run: RunView) -> RunView:
        """Its ticket is opened again, and worked to its end."""
        return self.ended(self.client.runs.start(run.bead_id).id)

    def resolution(self, run: RunView) -> str:
        return self.client.beads.get(run.bead_id).context["resolution"]

    def steps(self, run: RunView) -> Any:
        return self.client.runs.list_steps(run.id).items

    def events(self, run: RunView, kind: str) -> list[dict[str, Any]]:
        page = self.client.beads.list_history(run.bead_id, limit=500)
        found = [event for event in page.items if event["execution_id"] == run.id]
        return [event for event in found if event["type"] == kind]


def accepted_handoffs(run: RunView) -> list[tuple[str, str]]:
    """The handoffs that were accepted."""
    return [(one.from_, one.to) for one in run.handoff_sequence if one.accepted]


@contextmanager
def open_helpdesk(
    *without: str, database: str = "sqlite://", **settings: Any
) -> Iterator[Helpdesk]:
    wanted = EngineSettings(pulse=0.05, **settings)
    with ExitStack() as stack:
        server = stack.enter_context(Server(database, engine=wanted))
        client = stack.enter_context(Client(server.url, server.token("admin", "ana")))
        server.do(add_scripted_agents(server.engine, *without))
        yield Helpdesk(server, client, stack)
