"""A run as a task, without anybody's SDK."""

import pytest
from tests.a2a.a2a_server import ROLE, open_worker, run_async
from tests.client.live_server import Server
from tests.kernel.driven_run import team

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
    said: str, seen: str, server: Server, admin_client: SyncClient
):
    admin_client.definitions.create(DESK)
    run_id = admin_client.beads.create("no VPN", workflow_id="desk").execution_id or ""
    with open_worker(server) as worker:
        worker.does("terminate", reason="done", text=said)

    async def shown() -> list[str | None]:
        async with handrail.Client(server.url, server.token("viewer", "vic")) as client:
            found = await build_artifacts(client, await client.runs.get(run_id))
        return [part.text for one in found for part in one.parts]

    assert run_async(shown()) == [seen]
