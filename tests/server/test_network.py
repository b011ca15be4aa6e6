"""A bad network changes nothing: with retries under the same key, every run comes to the same end.

Agents and people work many runs at once through the whole application. What each of them does
depends on the run alone, so the same load ends the same, if nothing is lost and nothing happens
twice: over a network that duplicates 20% of the requests, reorders 20% and drops 10%, too.
"""

import asyncio
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.engine.engines import chain, node
from tests.server.faulty_transport import Faulty
from tests.server.harness import ADDRESS, WORKER, ServerHarness
from tests.server.http_agents import HUB, SEATS

from handrail.api.operation import API_PREFIX, Role
from handrail.engine.ids import uuid7
from handrail.server.access import issue_credential
from handrail.server.settings import ServerSettings
from handrail.testing.clock import ManualClock

LONG = bool(os.environ.get("HANDRAIL_LONG"))
COMMANDS = 20_000 if LONG else 2_000
RUNS = COMMANDS // 14
TRIES_MAX = 50
SECONDS_MAX = 3_600 if LONG else 600
CREW = 3
"""Agents of each role."""
BUGS = chain(
    node("triage"),
    node("fix", max_attempts=3),
    node("verify", on_failure={"rework": "fix", "max": 2}),
    node("look", "approval", revise_to="fix"),
    id="bugs",
)

End = tuple[str, list[Any], list[Any]]


class Player:
    """Somebody with a token, who tries again under the same key until an answer comes."""

    def __init__(self, name: str, http: httpx.AsyncClient, met: Counter[str]) -> None:
        self.name, self.http, self.met = name, http, met

    async def post(self, path: str, **body: Any) -> httpx.Response:
        key = {"Idempotency-Key": str(uuid7())}
        answer = await self._tried("POST", path, json=body, headers=key)
        self.met["commands" if answer.status_code != 204 else "in vain"] += 1
        return answer

    async def get(self, path: str, **query: Any) -> Any:
        return (await self._tried("GET", path, params=query)).json()

    async def _tried(self, method: str, path: str, **request: Any) -> httpx.Response:
        for _ in range(TRIES_MAX):
            try:
                answer = await self.http.request(method, path, **request)
            except httpx.TransportError:
                continue
            assert answer.status_code < 300, f"{method} {path}: {answer.text}"
            return answer
        raise AssertionError(f"{method} {path} was never answered")


class Play:
    """One load from its beginning to its end."""

    def __init__(self, harness: ServerHarness, transport: httpx.AsyncBaseTransport) -> None:
        self.harness, self.transport = harness, transport
        self.met: Counter[str] = Counter()
        self.runs: dict[str, str] = {}
        self.over = False

    async def player(self, name: str, role: Role) -> Player:
        secret, row = issue_credential(
            "token", name=name, role=role, by="test", now=self.harness.clock.now()
        )
        await self.harness.engine.credentials.add(row)
        headers = {"Authorization": f"Bearer {secret}"}
        http = httpx.AsyncClient(
            transport=self.transport, base_url=ADDRESS + API_PREFIX, headers=headers, timeout=None
        )
        return Player(name, http, self.met)

    async def go(self) -> dict[str, End]:
        await self.harness.define(HUB, BUGS)
        filer, ceo = await self.player("olga-2", "operator"), await self.player("ana-2", "ceo")
        roles = [role for role in (WORKER, *SEATS) for _ in range(CREW)]
        agents = [(await self.player(f"{role}-{n}", "agent"), role) for n, role in enumerate(roles)]
        async with asyncio.TaskGroup() as group:
            for agent, role in agents:
                group.create_task(_work(self, agent, role))
            group.create_task(_answer(self, ceo))
            await asyncio.gather(*(self.file(filer, n) for n in range(RUNS)))
            await self._ended()
            self.over = True
        return {title: await self.end_of(run) for title, run in self.runs.items()}

    async def file(self, filer: Player, n: int) -> None:
        title, workflow_id = f"bead {n}", ("bugs", "hub")[n % 2]
        filed = await filer.post("/beads", title=title, workflow_id=workflow_id)
        self.runs[title] = filed.json()["execution_id"]

    async def _ended(self) -> None:
        for run in self.runs.values():
            while not (await self.harness.engine.runs.state(run)).has_ended:
                await asyncio.sleep(0.01)

    async def end_of(self, run: str) -> End:
        """How it ended, where it went, who handed to whom; not when, nor by which of the agents."""
        view = await self.harness.engine.run_queries.view(run)
        went = [
            (one.from_node_id, one.to_node_id, one.outcome, one.reason)
            for one in await self.harness.engine.run_queries.transitions(run)
        ]
        hands = [(one.from_, one.to, one.reason, one.accepted) for one in view.handoff_sequence]
        assert view.stop is not None
        return f"{view.terminal_status} {view.stop.rule}", went, hands


async def _work(play: Play, agent: Player, role: str) -> None:
    await agent.post("/agents", id=agent.name, roles=[role])
    while not play.over:
        got = await agent.post("/dispatches/claim", agent_id=agent.name, wait=0.05, holding=[])
        if got.status_code == 200:
            dispatch = got.json()
            result = _result(dispatch)
            path = f"/dispatches/{dispatch['id']}/result"
            await agent.post(path, fence=dispatch["fence"], **result)


def _result(dispatch: dict[str, Any]) -> dict[str, Any]:
    """What an agent says here, whoever it is."""
    place = dispatch["node"] or dispatch["agent"]
    step = len(dispatch["history"])
    chance = Random(f"{dispatch['bead']['title']}/{place}/{step}")
    told = f"step {step}"
    if dispatch["node"]:
        outcome = chance.choices(["success", "failure"], [4, 1])[0]
        return {"outcome": outcome, "text": told, "reason": told, "data": {place: step}}
    if chance.random() < 0.1:  # what it may not do
        return {"outcome": "terminate", "reason": told} if place == "memory" else {"text": told}
    if place == "ticketing" and step > 2:
        return {"text": f"{told}\nTERMINATE_WORKFLOW: {told}"}
    to = chance.choice(dispatch["allowed"]["to"])
    if chance.random() < 0.5:
        return {"text": f"{told}\n**HANDOFF: {to}: {told}**"}
    return {"outcome": "handoff", "to": to, "reason": told}


async def _answer(play: Play, ceo: Player) -> None:
    """Every question gets an answer that depends on the run alone, one after the other."""
    while not play.over:
        found = await ceo.get("/approvals", status="open", limit=100)
        for one in found["items"]:
            bead = await ceo.get(f"/beads/{one['bead_id']}")
            chance = Random(f"{bead['title']}/{one['id'].rpartition('.')[2]}")
            decision = chance.choices(["approve", "revise", "reject"], [6, 1, 1])[0]
            text = "once more" if decision == "revise" else ""
            path = f"/approvals/{one['id']}/answer"
            await ceo.post(path, decision=decision, text=text, digest=one["digest"])
        await asyncio.sleep(0.01)


def played(folder: Path, seed: int | None) -> tuple[dict[str, End], Counter[str]]:
    """The ends of all runs, and what was met on the way; without a seed the network is perfect."""
    folder.mkdir()
    harness = ServerHarness(f"sqlite:///{folder / 'work.db'}", ManualClock())
    harness.settings = ServerSettings(rate_limit=1e9)

    async def play() -> tuple[dict[str, End], Counter[str]]:
        async with harness.opened(), harness.served.lifespan():
            direct = httpx.ASGITransport(app=harness.served.asgi)  # pyright: ignore[reportArgumentType]
            transport = Faulty(direct, seed) if seed is not None else direct
            load = Play(harness, transport)
            ends = await load.go()
            if isinstance(transport, Faulty):
                await transport.settled()
                load.met.update(transport.met)
            after = {title: await load.end_of(run) for title, run in load.runs.items()}
            assert after == ends, "what arrives after the end changes nothing"
            return ends, load.met

    return asyncio.run(asyncio.wait_for(play(), SECONDS_MAX))


@pytest.mark.heavy
@pytest.mark.requirement("K21", "H1.5")
def test_every_run_ends_the_same_over_a_bad_network(tmp_path: Path) -> None:
    expected, clean = played(tmp_path / "good", None)
    ends, met = played(tmp_path / "bad", 1)
    assert clean["commands"] >= COMMANDS * 0.9
    assert met["commands"] >= COMMANDS * 0.9
    for what, share in (("duplicated", 0.2), ("reordered", 0.2), ("dropped", 0.1)):
        assert abs(met[what] / met["sent"] - share) < 0.03, met
    assert len(ends) == RUNS
    assert len({status for status, _, _ in ends.values()}) > 3
    assert {title: end for title, end in ends.items() if end != expected[title]} == {}
