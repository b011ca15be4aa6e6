"""What docs/a2a.md shows of the SDK is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.a2a.a2a_server import open_worker, start_a2a_server
from tests.client.live_server import Server
from tests.patience import PATIENCE

from handrail.client.clients import SyncClient

PAGE = (Path(__file__).parents[2] / "docs/a2a.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_has_a_bead_taken_to_its_end(
    server: Server, admin_client: SyncClient, tmp_path: Path
):
    (program,) = re.findall(r"```python\n# partner.py\n(.*?)```", PAGE, re.DOTALL)
    file, token = tmp_path / "partner.py", server.token("operator", "partner")
    with start_a2a_server(server) as address, open_worker(server) as worker:
        file.write_text(program.replace("http://127.0.0.1:8091/helpdesk", f"{address}/one"))
        with subprocess.Popen(
            [sys.executable, str(file)],
            env={**os.environ, "HANDRAIL_TOKEN": token},
            stdout=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                worker.does("success", text="fixed")
                said, _ = running.communicate(timeout=5 * PATIENCE)
            finally:
                running.kill()
    assert said.splitlines()[-2:] == ["result: fixed", "TASK_STATE_COMPLETED"]
    (bead,) = admin_client.beads.list(type="work").items
    assert (bead.title, bead.filed_by) == ("500 on /invoices", "partner")
