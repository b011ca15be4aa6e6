"""Two servers with the built-in agents heal one service on one PostgreSQL: what one of them had
begun when it was killed, the other ends. With HANDRAIL_LONG=1."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from tests.commits.server_processes import Servers, open_servers
from tests.teams.healing_shop import PATIENCE, HealingShop, error_report

pytest_plugins = ["tests.fixtures_postgres"]

BUGS = ("missing-self", "misspelt-attribute", "wrong-comparison")
IMPATIENT = {"HANDRAIL_LEASE": "5s", "HANDRAIL_HEARTBEAT": "1s", "HANDRAIL_PULSE": "0.1s"}


def begin(servers: Servers, shop: HealingShop, folder: Path) -> None:
    """Two servers, each with a home of its own."""
    for name in ("one", "two"):
        service = replace(shop.service, home=str(folder / name))
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(msgspec.to_builtins(service)))
        words = ["-m", "handrail", "serve", "--database", servers.url, "--port", "0"]
        known = {**IMPATIENT, "HANDRAIL_SERVICE": str(file)}
        servers.begin([*words, "--builtin-agents"], known)


async def approved(servers: Servers, number: int) -> None:
    """So many fixes, as they are proposed."""
    async with asyncio.timeout(PATIENCE):
        while number:
            for asked in (await servers.client.approvals.list(status="open")).items:
                assert asked.type == "approval", asked.question
                await servers.client.approvals.answer(asked.id, decision="approve")
                number -= 1
            await asyncio.sleep(0.2)


@pytest.mark.heavy
@pytest.mark.skipif(not os.environ.get("HANDRAIL_LONG"), reason="set HANDRAIL_LONG=1")
@pytest.mark.requirement("L4.6", "L12.1", "L16")
def test_what_a_killed_server_was_healing_is_healed_by_the_other(tmp_path: Path, postgres_url: str):
    shop = HealingShop(tmp_path, *BUGS)
    before = len(shop.log())

    async def play() -> None:
        async with open_servers(postgres_url, tmp_path) as servers:
            begin(servers, shop, tmp_path)
            await servers.heard()
            for bug in BUGS:
                await servers.client.bugs.report(error_report(bug))
            await approved(servers, 1)
            await servers.kill(servers.alive[0])
            await approved(servers, len(BUGS) - 1)
            servers.filed = len(BUGS)
            assert await servers.ended() == ["done_success"] * len(BUGS)
            await asyncio.to_thread(servers.command, "verify")
            await asyncio.to_thread(servers.command, "doctor")

    asyncio.run(play())
    told = shop.log("%s|%an|%(trailers:key=Approved-by,valueonly,separator=%x2C)")
    assert len(told) == before + len(BUGS)
    assert {line.rpartition("|")[2] for line in told[: len(BUGS)]} == {"ana"}
