"""Several servers on one PostgreSQL: each thing is told once."""

import asyncio
from typing import Any

from tests.engine.engines import ROLE, chain, manual_engine, node, run_async
from tests.server.webhook_receiver import Receiver

from handrail.engine.ids import uuid7
from handrail.kernel.result import Outcome, Result
from handrail.server.routes.webhooks import WebhookSender
from handrail.server.settings import ServerSettings
from handrail.store.notifications import WebhookRow
from handrail.store.rows import iso
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]


def test_servers_on_one_postgresql_tell_each_thing_once(postgres_url: str):
    async def play() -> None:
        clock = ManualClock()
        async with (
            manual_engine(postgres_url, clock) as first,
            manual_engine(postgres_url, clock) as second,
            Receiver().listening() as receiver,
        ):
            now = iso(clock.now())
            row = WebhookRow(
                id=uuid7().hex,
                url=receiver.url,
                events='["approval.opened"]',
                people="[]",
                secret="hrw_x",
                since=await first.feed.last_commit(),
                created_by="test",
                created_at=now,
                failures=0,
                next_at=now,
                busy_until=None,
                delivered_at=None,
                disabled_at=None,
                reason="",
            )
            await first.webhooks.add(row)
            await first.define(chain(node("fix"), node("look", "approval"), id="asks"), by="t")

            def fix(_: Any) -> Result:
                return Result(outcome=Outcome.SUCCESS, text="done")

            await first.local_agents.add(fix, ROLE, name="fixer")
            settings = ServerSettings(webhook_private=True)
            couriers = [WebhookSender(engine, settings) for engine in (first, second)]
            asked: list[str] = []
            for _ in range(8):
                run = await first.start("asks", title="a bug")
                (question,) = await run.questions(20)
                asked.append(question.id)
                await asyncio.gather(*(one.send_due() for one in couriers))
            for _ in range(3):
                await asyncio.gather(*(one.send_due() for one in couriers))
            for one in couriers:
                await one.close()
            assert [one.told["approval"]["id"] for one in receiver.received] == asked

    run_async(play())
