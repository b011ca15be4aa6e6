"""A real server with the built-in coding team, and teams like it with some agents replaced."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from tests.client.live_server import Server

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.settings import EngineSettings
from handrail.kernel.result import Result
from handrail.server.settings import ServerSettings
from handrail.teams import install_teams, load_builtin
from handrail.teams.coding import MEASURING_ROLES, scripted_agents
from handrail.teams.coding.workspaces import write_sample

SECONDS = 60
"""A run of the team takes a few seconds; after so many something is wrong."""
API = "/api/v1"
Agent = Callable[[Dispatch], Result]


class CodingServer:
    """What a test is given: beads are filed over HTTP, and runs looked at over HTTP."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.issues = folder / "issues.md"
        wanted = EngineSettings(runs_folder=str(self.runs), issues_file=str(self.issues))
        self.server = Server(
            f"sqlite:///{folder / 'work.db'}", engine=wanted, settings=ServerSettings(drain=0)
        )
        self.workspaces = (str(folder),)

    def open(self) -> None:
        self.server.start(self._employ)
        self.operator = self._client("operator", "olga")
        self.viewer = self._client("viewer", "vera")
        self.ceo = self._client("ceo", "ana")

    def close(self) -> None:
        for client in (self.operator, self.viewer, self.ceo):
            client.close()
        self.server.stop()

    def _employ(self) -> None:
        team = ("coding",)
        self.server.do(install_teams(self.server.engine, team, workspaces=self.workspaces))

    def _client(self, role: str, name: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.server.token(role, name)}"}
        return httpx.Client(base_url=self.server.url + API, headers=headers, timeout=SECONDS)

    def hire(self, name: str, *, rules: dict[str, Any] | None = None, **instead: Agent) -> str:
        """A team like the built-in one with other limits, and these agents instead of some."""
        document = load_builtin("coding")
        document |= {"id": name, "name": name}
        document["stop_rules"] |= rules or {}
        agents = {**scripted_agents(self.workspaces), **instead}
        self.server.do(self._join(document, name, agents, instead))
        return name

    async def _join(
        self, document: Any, name: str, agents: dict[str, Any], instead: dict[str, Agent]
    ) -> None:
        engine = self.server.engine
        await engine.define(document)
        for role, agent in agents.items():
            trusted = role in MEASURING_ROLES and role not in instead
            await engine.add_agent(
                agent, role, name=f"{name}-{role}", trusted=trusted, only=(name,)
            )

    def project(self, name: str, *bugs: str) -> str:
        """A real folder with the sample project and these bugs."""
        place = self.folder / name
        place.mkdir()
        write_sample(place, bugs)
        return str(place)

    def plays(self, workflow: str = "coding", **bead: Any) -> dict[str, Any]:
        """A bead to the end of its run."""
        body = {"title": "Something is wrong", "workflow_id": workflow, **bead}
        filed = expect_json(self.operator.post("/beads", json=body), 201)
        run = expect_json(
            self.viewer.get(f"/executions/{filed['execution_id']}", params={"wait": SECONDS})
        )
        assert run["status"] == "ended", run["current_node_id"]
        self.server.do(asyncio.wait_for(self.server.engine.reports.wait_written(), SECONDS))
        return run

    def report(self, run: dict[str, Any]) -> dict[str, Any]:
        return expect_json(self.viewer.get(f"/executions/{run['id']}/report"))

    def steps(self, run: dict[str, Any], place: str = "") -> list[dict[str, Any]]:
        found = expect_json(self.viewer.get(f"/executions/{run['id']}/steps"))["items"]
        return [step for step in found if not place or step["place"] == place]

    def events(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        query = {"limit": 500}
        return expect_json(self.viewer.get(f"/beads/{run['bead_id']}/history", params=query))[
            "items"
        ]

    def progress(self, run: dict[str, Any]) -> list[str]:
        """Everything that counted as progress, in order."""
        weighed = [event.get("weighed") or {} for event in self.events(run)]
        return [what for one in weighed for what in one.get("progress", ())]

    def bead(self, run: dict[str, Any]) -> dict[str, Any]:
        return expect_json(self.viewer.get(f"/beads/{run['bead_id']}"))


def expect_json(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    return answer.json()


def rule(run: dict[str, Any]) -> str:
    return run["stop"]["rule"]
