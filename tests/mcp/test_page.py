"""What docs/mcp.md shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

from tests.client.live_server import Server
from tests.mcp.mcp_clients import PATIENCE, environment

from handrail.client.clients import SyncClient
from handrail.mcp.tools import TOOLS

PAGE = (Path(__file__).parents[2] / "docs/mcp.md").read_text(encoding="utf-8")


def test_the_page_names_every_tool():
    assert [name for name in TOOLS if f"`{name}`" not in PAGE] == []


def test_the_program_of_the_page_takes_a_bead_to_its_end(
    server: Server, admin_client: SyncClient, tmp_path: Path
):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "agent.py"
    file.write_text(program)
    filed = admin_client.beads.create("500 on /invoices", workflow_id="one")
    done = subprocess.run(
        [sys.executable, str(file)],
        env=environment(server, server.token("agent", "coder-1")),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert "500 on /invoices" in done.stdout
    assert "It was accepted. The run has ended: done_success." in done.stdout
    assert admin_client.beads.get(filed.id).context["severity"] == 1
