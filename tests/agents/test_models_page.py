"""What docs/models.md shows is what happens: its Python runs, against a stub and a real server."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agents.agent_runs import FIX
from tests.agents.helpdesk_replies import KEY, agent_name
from tests.agents.model_stub import ModelReply, ModelRequest, Stub, call, say
from tests.client.live_server import Server
from tests.engine.engines import chain, manual_engine, node, run_async, start_run

import handrail
from handrail.agents.commands import INHERITED_VARIABLES
from handrail.agents.http import ServiceLimits
from handrail.agents.model import ModelLimits
from handrail.engine.settings import EngineSettings
from handrail.testing.clock import ManualClock

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")
PYTHON = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, flags=re.S))
SERVICE = "http://127.0.0.1:9000/turn"
PATIENCE = 60.0
TRIAGE = chain(node("triage", role="qa-engineer"), name="triage")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With all files of the page."""
    for name, text in PYTHON.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def story(asked: ModelRequest) -> ModelReply:
    if agent_name(asked) == "writer":
        return say("Once upon a time.\nHANDOFF: editor: the story is written")
    return call("answer", outcome="terminate", reason="it is good", text="Good.")


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OPENAI_API_KEY": KEY, **more}


async def run(folder: Path, *command: str, **env: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment(**env), stdout=pipe, stderr=pipe
    )


def test_the_story_is_written_in_one_process(folder: Path):
    async def play() -> None:
        async with Stub(story) as stub:
            running = await run(folder, sys.executable, "story.py", OPENAI_BASE_URL=stub.url)
            out, err = await asyncio.wait_for(running.communicate(), PATIENCE)
            assert out.decode() == "done_success it is good 240\n", err.decode()
            assert stub.asked[0].body["model"] == "gpt-4o-mini"

    asyncio.run(play())


async def at_a_worker(
    folder: Path, name: str, definition: dict[str, Any], title: str, **env: str
) -> Any:
    """A run of the definition at a server, worked by the worker of that file."""
    url = f"sqlite:///{folder / 'work.db'}"
    server = Server(url, engine=EngineSettings(pulse=0.05))
    await asyncio.to_thread(server.__enter__)
    try:
        token = await asyncio.to_thread(server.token, "agent", "worker-1")
        person = await asyncio.to_thread(server.token, "operator", "ola")
        env |= {"HANDRAIL_SERVER": server.url, "HANDRAIL_TOKEN": token}
        working = await run(folder, "handrail", "worker", f"{name}:worker", **env)
        try:
            async with handrail.Client(server.url, person) as admin_client:
                await admin_client.definitions.create(definition)
                bead = await admin_client.beads.create(title, workflow_id=definition["name"])
                assert bead.execution_id is not None
                return await admin_client.result(bead.execution_id, timeout=PATIENCE)
        finally:
            working.terminate()
            await working.communicate()
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


def team_of_the_page() -> dict[str, Any]:
    text = PYTHON["story.py"]
    names: dict[str, Any] = {}
    exec(text[text.index("TEAM = ") : text.index("async def main")], names)
    return names["TEAM"]


def test_the_story_is_written_by_a_worker(folder: Path):
    async def play() -> None:
        async with Stub(story) as stub:
            more = {"OPENAI_BASE_URL": stub.url}
            told = await at_a_worker(folder, "story_worker", team_of_the_page(), "x", **more)
            assert (told.terminal_status, told.usage.tokens) == ("done_success", 240)

    asyncio.run(play())


def test_the_program_of_the_page_works(folder: Path):
    told = asyncio.run(at_a_worker(folder, "with_a_program", TRIAGE, "500 on /invoices"))
    assert told.terminal_status == "done_success"


def test_the_service_of_the_page_works(folder: Path):
    async def play() -> None:
        def triage(asked: ModelRequest) -> ModelReply:
            found = {"severity": len(asked.body["bead"]["title"])}
            return ModelReply(msgspec.json.encode({"outcome": "success", "data": found}))

        async with Stub(triage) as stub:
            file = folder / "with_a_service.py"
            assert SERVICE in file.read_text()
            file.write_text(file.read_text().replace(SERVICE, stub.url))
            told = await at_a_worker(folder, "with_a_service", TRIAGE, "500")
            assert told.terminal_status == "done_success"

    asyncio.run(play())


def test_the_tools_of_the_page_are_used(monkeypatch: pytest.MonkeyPatch):
    def asks_the_price(asked: ModelRequest) -> ModelReply:
        if not asked.results:
            assert "Name prices." in asked.system
            return call("price_of", part="lens")
        return call("answer", outcome="success", text=asked.results[0])

    async def play() -> None:
        async with (
            Stub(asks_the_price) as stub,
            manual_engine("sqlite://", ManualClock()) as engine,
        ):
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            names: dict[str, Any] = {}
            exec(PYTHON["lookup.py"], names)
            engine.add_agent(names["agent"], "backend-engineer")
            run = await start_run(engine, FIX)
            assert (await run.result(PATIENCE)).terminal_status == "done_success"
            assert stub.asked[1].results == ["lens: 900"]

    run_async(play())


def test_the_page_names_every_limit_with_its_default():
    table = PAGE.partition("### Limits and cost")[2].partition("### When it fails")[0]
    for name, value in msgspec.structs.asdict(ModelLimits()).items():
        assert f"`{name}`" in table
        assert f"{value:g}" in table or f"{value}" in table
    assert set(re.findall(r"ServiceLimits\((\w+)=", PAGE)) <= set(ServiceLimits.__struct_fields__)


def test_the_page_names_every_kind_of_agent_and_the_variable_of_the_model():
    for name in ("model_agent", "program_agent", "http_agent", "HANDRAIL_MODEL", "text_only"):
        assert name in PAGE
    assert "PATH" in INHERITED_VARIABLES
