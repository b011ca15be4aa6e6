"""Credentials and kept answers go through the engine as they are; its clock decides."""

import asyncio

from tests.engine.engines import manual_engine, run_async

from handrail.testing import row_factories as a
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]


def test_a_sign_in_is_used_once_before_it_expires(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            good = a.credential("c1", kind="sign_in", expires_at=a.at(60))
            late = a.credential("c2", kind="sign_in", expires_at=a.at(60))
            for row in (good, late):
                await engine.credentials.add(row)
            used = await asyncio.gather(
                *(engine.credentials.use_sign_in(good.digest) for _ in range(5))
            )
            assert [row.id for row in used if row is not None] == ["c1"]
            clock.advance(60)
            assert await engine.credentials.use_sign_in(late.digest) is None

    run_async(play())


def test_tokens_are_listed_and_revoked(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            assert not await engine.credentials.has_tokens()
            await engine.credentials.add(a.credential("c1"))
            assert await engine.credentials.has_tokens()
            assert await engine.credentials.revoke("c1", by="ann")
            assert not await engine.credentials.revoke("c1", by="ann")
            (row,) = await engine.credentials.list("token")
            assert row.revoked_at == a.at()
            assert await engine.credentials.get(row.digest) == row
            assert not await engine.credentials.has_tokens()

    run_async(play())


def test_kept_answers_are_given_again_for_a_day(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            first = a.key("http:k1")
            await engine.stored_answers.put([first])
            await engine.stored_answers.put([a.key("http:k1", answer='"late"')])
            assert await engine.stored_answers.get("http:k1", "ola") == first
            assert await engine.stored_answers.get("http:k1", "eve") is None
            clock.advance(2 * 86_400)
            await engine.tick()
            assert await engine.stored_answers.get("http:k1", "ola") is None

    run_async(play())
