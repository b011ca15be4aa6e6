"""Engines on one PostgreSQL: killed, cut off from it, and the database itself crashing."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest
from tests.crash import checks, load
from tests.crash.breaking_proxy import Proxy

from handrail.engine import opening
from handrail.engine.dispatch import local_agents
from handrail.testing.postgres import PostgresServer

pytest_plugins = ["tests.fixtures_postgres"]

LONG = bool(os.environ.get("HANDRAIL_LONG"))
FAULTS = 400 if LONG else 18
STEP = 3 if LONG else 47
SECONDS = 120  # a life takes one or two; on a busy machine many times that


@pytest.mark.heavy
@pytest.mark.requirement("L4.6", "K1")
def test_three_engines_through_kills_crashes_and_cuts(tmp_path: Path):
    command = [sys.executable, "-m", "tests.crash.postgres_campaign", "--faults", str(FAULTS)]
    done = subprocess.run(
        [*command, "--mean", "0.3", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1_200 + 3 * FAULTS,
        check=False,
    )
    assert done.stdout, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert set(found["faults"]) == {"kill", "crash", "cut"}
    assert found["acknowledged"] >= 20 * FAULTS, found
    assert found["lost_attempts"] > 0
    assert not any("\\n" in told for told in found["told"])
    good = sum(count for name, count in found["ends"].items() if name.endswith("done_success"))
    assert good >= 0.9 * found["runs"], found["ends"]


async def _life(url: str, folder: Path) -> None:
    async with asyncio.timeout(SECONDS):
        await load.live(url, folder, "cut", len(load.NAMES), lease=60, pulse=0.05)


def _lives(url: str, folder: Path) -> list[str]:
    """Opened again if it was cut off while it opened."""
    for _ in range(5):
        try:
            asyncio.run(_life(url, folder))
        except load.StoreError as error:
            if "\n" in str(error):
                return [f"not told in one line: {error!r}"]
        except TimeoutError:
            return [f"stuck: not over after {SECONDS} s"]
        else:
            return []
    return ["opened in vain"]


@pytest.mark.heavy
@pytest.mark.parametrize("heard", [False, True], ids=["not heard", "not answered"])
def test_the_connection_breaks_at_every_statement(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: bool
):
    monkeypatch.setattr(local_agents, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(opening, "open_store", opening.open_store)  # `load` puts its own there
    wrong, n = [], 20 if heard else 5
    with tempfile.TemporaryDirectory(prefix="hr-") as place:
        proxy: Proxy | None = None
        while not wrong:
            direct = postgres_server.create_database()
            server = parse_qs(urlsplit(direct).query)["host"][0]
            proxy = proxy or Proxy(Path(place), Path(server))
            url = re.sub(r"host=[^&]*", f"host={quote(place)}", direct)
            folder = tmp_path / str(n)
            folder.mkdir()
            proxy.arm(n, heard=heard)
            wrong += _lives(url, folder)
            with psycopg.connect(direct) as db:
                found = checks.look(folder, checks.postgres_rows(db))
            wrong += found.wrong
            if not proxy.cut:
                break
            n += STEP
        assert proxy is not None
        proxy.close()
    assert [f"{n}: {what}" for what in wrong] == []
    assert n > 150, "an engine says so much to its database"
