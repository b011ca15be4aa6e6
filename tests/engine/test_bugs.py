"""Reported errors on every store: counted, filed once by whoever is first, again after a close."""

import asyncio
import time

from tests.engine.engines import ANA, chain, manual_engine, node, run_async

from handrail.engine.redaction import redact
from handrail.engine.services.bugs import BUG_WORKFLOW_ID
from handrail.testing.clock import ManualClock
from handrail.views.bugs import ErrorReport

pytest_plugins = ["tests.fixtures_postgres"]

ERROR = ErrorReport(service="shop", type="KeyError", message="'apple'", status=500, route="/cart/7")
HEALS = {**chain(node("fix")), "id": BUG_WORKFLOW_ID, "name": BUG_WORKFLOW_ID}


def test_a_signature_has_one_bead_until_that_is_closed(url: str, clock: ManualClock):
    async def play():
        async with manual_engine(url, clock) as engine:
            await engine.define(HEALS)
            first = await engine.bugs.report(ERROR, by="rudi")
            clock.advance(60)
            *_, again = [await engine.bugs.report(ERROR, by="rudi") for _ in range(3)]
            assert (first.filed, again.filed, again.count) == ("new", "known", 4)
            (bug,) = (await engine.bugs.list()).items
            assert (bug.last_seen - bug.first_seen).total_seconds() == 60
            assert first.execution_id is not None
            await engine.run(first.execution_id).close(by=ANA, reason="fixed by hand")
            back = await engine.bugs.report(ERROR, by="rudi")
            assert (back.filed, back.earlier_bead_id) == ("regression", first.bead_id)
            (bug,) = (await engine.bugs.list()).items
            assert (bug.bead_id, bug.count) == (back.bead_id, 1)

    run_async(play())


def test_two_engines_that_hear_of_it_at_once_file_one_bead(shared_url: str, clock: ManualClock):
    async def play():
        async with manual_engine(shared_url, clock) as one, manual_engine(shared_url, clock) as two:
            reports = (engine.bugs.report(ERROR, by="rudi") for engine in (one, two) * 10)
            found = await asyncio.gather(*reports)
            assert len({answer.bead_id for answer in found}) == 1
            assert len((await one.beads.list()).items) == 1
            (bug,) = (await two.bugs.list()).items
            assert bug.count == 20

    run_async(play())


def test_a_bead_that_was_filed_before_a_crash_is_found_again(
    shared_url: str, clock: ManualClock, monkeypatch
):
    async def play():
        async with manual_engine(shared_url, clock) as engine:
            with monkeypatch.context() as patch:
                patch.setattr(engine.store.bugs, "put", lambda row: False)  # it dies before
                patch.setattr("handrail.engine.services.bugs.WRITE_ATTEMPTS_MAX", 1)
                await engine.bugs.report(ERROR, by="rudi")
            other = ErrorReport(**{**asdict(ERROR), "count": 7, "release": "2"})
            answer = await engine.bugs.report(other, by="rudi")
            assert (answer.filed, answer.count) == ("new", 7)
            assert len((await engine.beads.list()).items) == 1

    run_async(play())


def asdict(report: ErrorReport) -> dict:
    return {name: getattr(report, name) for name in report.__struct_fields__}


def test_what_is_scrubbed_stays_readable_and_takes_no_time_on_hostile_texts():
    assert redact("KeyError: 'apple' in cart.py") == "KeyError: 'apple' in cart.py"
    assert redact("api_key = 'abc'; x = 1") == "api_key = [hidden]; x = 1"
    for text in (
        "password" * 5_000,
        "a@" * 20_000,
        "1 " * 20_000,
        "eyJ" + "a" * 50_000,
        "\0\ud800",
    ):
        assert len(redact(text)) <= 21_000


def test_a_hostile_text_is_scrubbed_in_the_time_that_it_is_long():
    plain = cost("some words that say nothing of it, " * 600)
    for text in ("pass-" * 4_000, "a-" * 10_000):
        assert cost(text) < 12 * plain, text[:10]


def cost(text: str) -> float:
    """Of the processor, in seconds, at best."""
    spent: list[float] = []
    for _ in range(3):
        before = time.thread_time()
        redact(text)
        spent.append(time.thread_time() - before)
    return min(spent)
