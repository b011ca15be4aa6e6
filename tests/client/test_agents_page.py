"""What docs/agents.md shows is what happens: its shell runs with real curl, its Python works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.client.conftest import ONE
from tests.client.live_server import Server
from tests.kernel.driven_run import chain, node

from handrail import Worker
from handrail.client.clients import URL_DEFAULT
from handrail.views.dispatches import DispatchView

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.S)
PYTHON = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, flags=re.S)
PATIENCE = 60.0

needs_curl = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is not installed"
)


def environment(server: Server) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **os.environ,
        "PATH": path,
        "HANDRAIL_DATABASE": server.database,
    }


def at(server: Server, text: str) -> str:
    """What the page shows, at this server's address."""
    assert URL_DEFAULT in text
    return text.replace(URL_DEFAULT, server.url)


def filed(admin_client: Any, definition: dict[str, Any] = ONE) -> str:
    admin_client.definitions.create(definition)
    return admin_client.beads.create("500", workflow_id=definition["name"]).execution_id


@needs_curl
@pytest.mark.requirement("L9.6")
def test_the_curl_commands_of_the_page_work_on_a_run_to_its_end(
    server: Server, admin_client: Any, tmp_path: Path
):
    execution = filed(admin_client)
    shown = "\n".join(one for one in SHELL if "handrail worker" not in one)
    script = "set -eu\n" + at(server, shown)
    assert script.count("\npost ") == 4
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=environment(server),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert msgspec.json.decode((tmp_path / "taken.json").read_bytes())["accepted"] is True
    assert msgspec.json.decode((tmp_path / "alive.json").read_bytes())["ended"] is False
    assert admin_client.result(execution, timeout=PATIENCE).terminal_status == "done_success"
    (step,) = admin_client.runs.list_steps(execution).items
    assert (step.agent, step.text) == ("curl-1", "fixed")


@needs_curl
def test_the_agent_in_shell_works_on_whatever_comes(
    server: Server, admin_client: Any, tmp_path: Path
):
    first = filed(admin_client)
    token = server.token("agent", "shell-1")
    env = environment(server) | {"HANDRAIL_TOKEN": token, "HANDRAIL_SERVER": server.url}
    command = [str(ROOT / "examples/agent.sh"), "shell-1", "backend-engineer", "jq -r .bead.title"]
    running = subprocess.Popen(command, cwd=tmp_path, env=env, start_new_session=True)
    try:
        for execution in (first, filed(admin_client)):
            assert (
                admin_client.result(execution, timeout=PATIENCE).terminal_status == "done_success"
            )
            assert admin_client.runs.list_steps(execution).items[0].text == "500\n"
    finally:
        os.killpg(running.pid, 15)
        running.wait(PATIENCE)


def test_the_python_of_the_page_works_with_the_command_it_shows(
    server: Server, admin_client: Any, tmp_path: Path
):
    ((name, text),) = PYTHON
    (tmp_path / name).write_text(text)
    steps = (node("fix"), node("check", role="qa-engineer"))
    execution = filed(admin_client, chain(*steps, name="two"))
    (line,) = (one for one in SHELL if "handrail worker" in one)
    command = at(server, line).split()
    env = environment(server) | {"HANDRAIL_TOKEN": server.token("agent", "python-1")}
    running = subprocess.Popen(command, cwd=tmp_path, env=env)
    try:
        run = admin_client.result(execution, timeout=PATIENCE)
    finally:
        running.terminate()
        running.wait(PATIENCE)
    assert run.terminal_status == "done_success"
    assert [one.text for one in admin_client.runs.list_steps(execution).items] == [
        "fixed: 500",
        "it holds",
    ]
    assert running.returncode == 0


def test_the_page_names_every_field_of_a_dispatch():
    table = PAGE.partition("## A dispatch")[2].partition("## A result")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert set(DispatchView.__struct_fields__) - {"kind", "phase", "step", "people"} <= named


def test_the_page_names_every_option_of_a_worker_that_it_tells_about():
    assert set(re.findall(r"Worker\((\w+)=", PAGE)) <= set(Worker.__init__.__annotations__)
