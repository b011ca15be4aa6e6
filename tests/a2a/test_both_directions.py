"""Both directions at once: a definition of Handrail is a member of another one, by A2A."""

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.a2a.a2a_server import open_worker, run_async, start_a2a_server
from tests.cli.command_line import run_command
from tests.client.live_server import Server
from tests.kernel.driven_run import chain, node
from tests.patience import PATIENCE, wait_until

import handrail
from handrail.client.clients import SyncClient
from handrail.views.approvals import Approval

PAGE = (Path(__file__).parents[2] / "docs/a2a.md").read_text(encoding="utf-8")
TRIAGE = chain(node("triage", role="qa-engineer"), name="triage")


def worker_of_the_page(address: str) -> handrail.Worker:
    (program,) = re.findall(r"```python\n# with_an_a2a_agent.py\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program.replace("http://127.0.0.1:9100", f"{address}/one"), names)
    return names["worker"]


def asked_at(admin_client: SyncClient, node_id: str) -> Approval:
    """The open question of that node, once there is one."""

    def find() -> Approval | None:
        opened = admin_client.approvals.list(status="open").items
        return next((one for one in opened if one.node_id == node_id), None)

    return wait_until(find, 5 * PATIENCE)


def test_a_question_of_the_inner_run_is_answered_in_the_outer_and_both_end(
    server: Server, admin_client: SyncClient, monkeypatch: pytest.MonkeyPatch
):
    admin_client.definitions.create(TRIAGE)
    monkeypatch.setenv("TRIAGE_TOKEN", server.token("operator", "partner"))
    monkeypatch.setenv("HANDRAIL_SERVER", server.url)
    monkeypatch.setenv("HANDRAIL_TOKEN", server.token("agent", "worker-1"))

    async def play(address: str, does: Any) -> Any:
        working = worker_of_the_page(address)
        task = asyncio.create_task(working.run())
        try:
            bead = await asyncio.to_thread(
                admin_client.beads.create, "500 on /invoices", workflow_id="triage"
            )
            given = await asyncio.to_thread(does, "ask", question="Net or gross?")
            assert "500 on /invoices" in given.bead.description
            question = await asyncio.to_thread(asked_at, admin_client, "triage")
            assert question.question.startswith("Net or gross?")
            await asyncio.to_thread(admin_client.approvals.answer, question.id, "net")
            given = await asyncio.to_thread(does, "success", text="the total is net")
            assert given.answer == "net"
            run = await asyncio.to_thread(
                admin_client.result, bead.execution_id or "", timeout=5 * PATIENCE
            )
            assert run.terminal_status == "done_success"
            return bead
        finally:
            working.stop()
            await task

    with start_a2a_server(server) as address, open_worker(server) as worker:
        bead = run_async(play(address, worker.does))
    *_, last = admin_client.runs.list_steps(bead.execution_id).items
    assert (last.agent, last.text) == ("worker-1", "the total is net")
    assert not admin_client.beads.get(bead.id).context["a2a"]
    inner = next(run for run in admin_client.runs.list().items if run.workflow_id == "one")
    assert (inner.terminal_status, admin_client.beads.get(inner.bead_id).filed_by) == (
        "done_success", "partner",
    )  # fmt: skip


def test_an_address_that_nobody_could_be_told_is_refused():
    called = run_command("a2a", "--server", "http://127.0.0.1:1", "--host", "0.0.0.0")
    assert called.code == 2
    assert "name the public one with --url" in called.err


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        called = run_command("a2a", "--server", "http://127.0.0.1:1", "--port", str(port))
    assert called.code == 2
    assert f"port {port} on 127.0.0.1 cannot be opened" in called.err
