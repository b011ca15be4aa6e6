"""A run as a task, without anybody's SDK."""

import pytest
from tests.a2a.speaking import ROLE, colleague, go
from tests.client.serving import Server
from tests.kernel.driving import team

import handrail
from handrail.a2a.tasks import build_artifacts
from handrail.client.clients import SyncClient

DESK = team({"a": ["a"]}, terminator="a", name="desk", agents={"a": {"role": ROLE}})


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("Resolved:\n\n- the VPN\n\nTERMINATE_WORKFLOW\n", "Resolved:\n\n- the VPN"),
        ("Resolved.\n**TERMINATE_WORKFLOW: it was the MTU.**", "Resolved.\nit was the MTU"),
        ("TERMINATE_WORKFLOW: it was the MTU", "it was the MTU"),
    ],
)
def test_a_partner_sees_what_a_team_said_without_its_stop_word(
    said: str, seen: str, server: Server, office: SyncClient
):
    office.definitions.create(DESK)
    run_id = office.beads.create("no VPN", workflow_id="desk").execution_id or ""
    with colleague(server) as worker:
        worker.does("terminate", reason="done", text=said)

    async def shown() -> list[str | None]:
        async with handrail.Client(server.url, server.token("viewer", "vic")) as client:
            found = await build_artifacts(client, await client.runs.get(run_id))
        return [part.text for one in found for part in one.parts]

    assert go(shown()) == [seen]
