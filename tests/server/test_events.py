"""Server-sent events: none missed, none doubled, wherever and whenever the reader comes back."""

import asyncio
import json
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.engine.engines import chain, node
from tests.server.harness import PLAIN, WORKER, ServerHarness, expect_problem
from tests.server.http_agents import wait_for_long_polls
from tests.server.raw_connection import CHUNKS_MAX, RawConnection

from handrail.kernel.result import Outcome, Result
from handrail.server.routes import event_streams
from handrail.server.settings import ServerSettings
from handrail.testing.clock import ManualClock

pytest_plugins = ["tests.fixtures_postgres"]
STEPS = chain(*(node(f"step{n}") for n in range(6)), id="steps")


class Frame(NamedTuple):
    id: str
    event: str
    data: dict[str, Any]


class Reader:
    """Reads frames as a browser does: what is not complete when the line is cut is forgotten."""

    def __init__(self, harness: ServerHarness, path: str) -> None:
        self.harness, self.path = harness, path
        self.seen: list[Frame] = []
        self.comments = 0
        self.retry = ""
        self.line: RawConnection | None = None
        self._rest = b""

    async def open(self, **headers: str) -> int:
        last = {"Last-Event-ID": self.seen[-1].id} if self.seen else {}
        given = {"Authorization": self.harness.viewer.headers["Authorization"], **last, **headers}
        self.line, self._rest = RawConnection(self.harness.served, "GET", self.path, given), b""
        return await self.line.answered()

    async def take(self) -> bool:
        """The next piece; False at the end."""
        assert self.line is not None
        chunk = await self.line.read()
        *whole, self._rest = (self._rest + chunk).split(b"\n\n")
        for text in whole:
            self._hear(text.decode())
        return bool(chunk)

    def _hear(self, text: str) -> None:
        lines = text.split("\n")
        if lines[0].startswith(":"):
            self.comments += 1
        elif lines[0].startswith("retry:"):
            self.retry = lines[0]
        else:
            fields = dict(line.split(": ", 1) for line in lines)
            self.seen.append(Frame(fields["id"], fields["event"], json.loads(fields["data"])))

    async def to_the_end(self) -> None:
        while await self.take():
            pass

    async def until(self, n: int) -> None:
        while len(self.seen) < n:
            assert await self.take(), f"it ended after {len(self.seen)} events"

    async def cut(self) -> None:
        assert self.line is not None
        await self.line.cut()


async def history(harness: ServerHarness, execution_id: str) -> list[dict[str, Any]]:
    run = await harness.engine.runs.state(execution_id)
    return json.loads(
        json.dumps(await harness.engine.run_queries.events(execution_id, 0, max(1, run.seq)))
    )


async def finished(harness: ServerHarness) -> str:
    """A run that has ended."""
    await harness.define(STEPS)
    harness.works()
    run = (await harness.file("steps"))["execution_id"]
    await harness.quiet()
    return run


@pytest.mark.requirement("H7.2", "L4.4")
async def test_a_runs_stream_has_its_history_and_ends_with_it(harness: ServerHarness) -> None:
    run = await finished(harness)
    reader = Reader(harness, f"/executions/{run}/events")
    assert await reader.open() == 200
    await reader.to_the_end()
    kept = await history(harness, run)
    assert [frame.data for frame in reader.seen] == kept
    assert [frame.id for frame in reader.seen] == [str(n + 1) for n in range(len(kept))]
    assert [frame.event for frame in reader.seen] == [event["type"] for event in kept]
    assert {"execution_id", "seq", "type", "at", "actor"} <= set(reader.seen[0].data)
    assert reader.seen[-1].event == "ended"
    assert reader.line is not None
    assert reader.line.headers["content-type"] == "text/event-stream"
    assert reader.line.headers["cache-control"] == "no-store"
    assert reader.line.headers["x-accel-buffering"] == "no"


async def test_events_come_as_they_happen_until_the_run_has_ended(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    run = (await harness.file("plain"))["execution_id"]
    reader = Reader(harness, f"/executions/{run}/events")
    await reader.open()
    await reader.until(2)
    assert [frame.event for frame in reader.seen][:1] == ["started"]
    harness.works()
    await harness.quiet()
    await reader.to_the_end()
    assert [frame.data for frame in reader.seen] == await history(harness, run)
    assert harness.served.long_polls.count == 0


async def test_the_stream_of_everything_begins_now(harness: ServerHarness) -> None:
    before = await finished(harness)
    reader = Reader(harness, "/events")
    assert await reader.open() == 200
    await wait_for_long_polls(harness)
    run = (await harness.file("steps"))["execution_id"]
    await harness.quiet()
    kept = await history(harness, run)
    await reader.until(len(kept))
    await reader.cut()
    assert [frame.data for frame in reader.seen] == kept
    assert before not in {frame.data["execution_id"] for frame in reader.seen}


async def test_the_stream_of_everything_can_begin_at_the_beginning(harness: ServerHarness) -> None:
    runs = [await finished(harness), (await harness.file("steps"))["execution_id"]]
    await harness.quiet()
    kept = [event for run in runs for event in await history(harness, run)]
    reader = Reader(harness, "/events?after=0")
    await reader.open()
    await reader.until(len(kept))
    await reader.cut()
    assert [frame.data for frame in reader.seen] == kept


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("what", ["run", "everything"])
async def test_a_reader_that_is_cut_anywhere_sees_every_event_once(
    harness: ServerHarness, what: str, seed: int
) -> None:
    """Pieces are cut to a few bytes, so that the connection breaks in the middle of frames too."""
    chance = Random(seed)
    use_settings(harness, heartbeat=0.01, pulse=0.01)
    await harness.define(STEPS)
    run = (await harness.file("steps"))["execution_id"]
    reader = Reader(harness, f"/executions/{run}/events" if what == "run" else "/events?after=0")
    working = asyncio.create_task(_working(harness, chance))
    for _ in count():
        status = await reader.open()
        if status == 204 or (reader.seen and reader.seen[-1].event == "ended"):
            break
        for _ in range(chance.randrange(4)):
            if not await _maybe_cut_inside(reader, chance):
                break
        await reader.cut()
    await working
    if reader.line is not None:
        await reader.cut()
    assert [frame.data for frame in reader.seen] == await history(harness, run)


async def _maybe_cut_inside(reader: Reader, chance: Random) -> bool:
    """A piece, or only the first part of it."""
    assert reader.line is not None
    chunk = await reader.line.read()
    given = chunk[: chance.randrange(len(chunk) + 1)] if chunk and chance.random() < 0.5 else chunk
    *whole, reader._rest = (reader._rest + given).split(b"\n\n")
    for text in whole:
        reader._hear(text.decode())
    return given == chunk and bool(chunk)


async def _working(harness: ServerHarness, chance: Random) -> None:
    """Now and then a step is done."""
    harness.works()
    while harness.engine.local_executor.active_count:
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
    await harness.quiet()


@pytest.fixture(params=["file", "postgres"])
def twins(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> list[ServerHarness]:
    """Two servers on one database."""
    url = f"sqlite:///{tmp_path / 'work.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    return [ServerHarness(url, clock), ServerHarness(url, clock)]


def use_settings(harness: ServerHarness, **changes: float) -> None:
    engine = harness.engine
    engine.settings = engine.runs._settings = replace(engine.settings, **changes)


def only_told(harness: ServerHarness) -> None:
    """Whoever waits there looks up when it is told to, and not by itself."""
    harness.engine._notifier.is_watched = True
    use_settings(harness, heartbeat=3_600)


@pytest.mark.parametrize("what", ["run", "everything"])
async def test_a_reader_goes_on_at_another_server_of_the_database(
    twins: list[ServerHarness], what: str
) -> None:
    async with twins[0].opened() as here, twins[1].opened() as there:
        await here.define(STEPS)
        run = (await here.file("steps"))["execution_id"]
        path = f"/executions/{run}/events" if what == "run" else "/events?after=0"
        reader = Reader(here, path)
        await reader.open()
        await reader.until(2)
        await reader.cut()
        reader.harness = there
        only_told(there)
        await reader.open()
        await wait_for_long_polls(there)
        for _ in range(2):  # it waits, and knows how far the record goes
            await there.engine.tick()
        here.works()
        await here.quiet()
        await there.engine.tick()
        kept = await history(here, run)
        await reader.until(len(kept))
        await reader.cut()
        assert [frame.data for frame in reader.seen] == kept


async def test_whoever_has_seen_the_end_of_a_run_need_not_come_back(harness: ServerHarness) -> None:
    run = await finished(harness)
    last = str((await harness.engine.runs.state(run)).seq)
    path = f"/executions/{run}/events"
    answer = await harness.viewer.get(path, headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await harness.viewer.get(path, params={"after": last})).status_code == 204


async def test_the_header_goes_before_the_query(harness: ServerHarness) -> None:
    run = await finished(harness)
    reader = Reader(harness, f"/executions/{run}/events?after=2")
    await reader.open(**{"Last-Event-ID": "5"})
    await reader.to_the_end()
    assert reader.seen[0].id == "6"


@pytest.mark.parametrize("last", ["-1", "x", "1-1", "1.0", "٣", "999", "9" * 16, " ", "1;2"])
async def test_a_position_that_is_none_in_the_run_is_refused(
    harness: ServerHarness, last: str
) -> None:
    await harness.define(PLAIN)
    run = (await harness.file("plain"))["execution_id"]
    path = f"/executions/{run}/events"
    answer = await harness.viewer.get(path, params={"after": last})
    assert answer.status_code == 422, answer.text
    if last.isascii():
        answer = await harness.viewer.get(path, headers={"Last-Event-ID": last})
        assert answer.status_code == 422, answer.text


@pytest.mark.parametrize("last", ["-1", "x", "1", "1-", "-", "1-x", "1--1", "999-0", "9" * 50])
async def test_a_position_that_is_none_in_the_record_is_refused(
    harness: ServerHarness, last: str
) -> None:
    answer = await harness.viewer.get("/events", headers={"Last-Event-ID": last})
    assert answer.status_code == 422, answer.text
    answer = await harness.viewer.get("/events", params={"after": last})
    assert answer.status_code == 422, answer.text


async def test_only_who_may_look_can_follow(harness: ServerHarness) -> None:
    run = await finished(harness)
    expect_problem(await harness.viewer.get("/executions/nothing/events"), 404, "unknown_run")
    for path in ("/events", f"/executions/{run}/events"):
        expect_problem(await harness.nobody.get(path), 401, "no_token")
        expect_problem(await harness.agent.get(path), 403, "forbidden")
        expect_problem(await harness.reporter.get(path), 403, "forbidden")


async def test_while_nothing_happens_there_is_a_comment_now_and_then(
    harness: ServerHarness,
) -> None:
    use_settings(harness, heartbeat=0.001, pulse=0.001)
    await harness.define(PLAIN)
    run = (await harness.file("plain"))["execution_id"]
    for path in (f"/executions/{run}/events", "/events"):
        reader = Reader(harness, path)
        await reader.open()
        while reader.comments < 3:
            assert await reader.take()
        await reader.cut()


async def test_streams_end_when_the_server_does_and_ask_to_come_back(
    harness: ServerHarness,
) -> None:
    await harness.define(PLAIN)
    run = (await harness.file("plain"))["execution_id"]
    readers = [Reader(harness, f"/executions/{run}/events"), Reader(harness, "/events")]
    for reader in readers:
        await reader.open()
    await wait_for_long_polls(harness, 2)
    harness.served.long_polls.draining.set()
    for reader in readers:
        await reader.to_the_end()
        assert reader.retry == "retry: 1000"
    assert harness.served.long_polls.count == 0


async def test_a_stream_does_not_last_for_ever(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "LIFE_SECONDS_MAX", 0.01)
    reader = Reader(harness, "/events")
    await reader.open()
    await reader.to_the_end()
    assert reader.retry == "retry: 1000"


async def test_a_place_is_free_again_as_soon_as_its_reader_has_gone(harness: ServerHarness) -> None:
    await harness.define(PLAIN)
    run = (await harness.file("plain"))["execution_id"]
    for path in (f"/executions/{run}/events", "/events"):
        reader = Reader(harness, path)
        await reader.open()
        assert harness.served.long_polls.count == 1
        await reader.cut()
        assert harness.served.long_polls.count == 0


async def test_there_are_no_more_streams_than_places(harness: ServerHarness) -> None:
    harness.served.long_polls.settings = ServerSettings(waiting_max=2)
    readers = [Reader(harness, "/events") for _ in range(2)]
    for reader in readers:
        assert await reader.open() == 200
    await wait_for_long_polls(harness, 2)
    refused = await harness.viewer.get("/events")
    expect_problem(refused, 503, "too_many_waiting")
    assert refused.headers["retry-after"] == "1"
    for reader in readers:
        await reader.cut()


BIG = Result(outcome=Outcome.CONTINUE, text="x" * 100_000)


async def test_a_slow_reader_holds_up_only_its_own_stream(harness: ServerHarness) -> None:
    await harness.define(chain(node("fix", multi_dispatch=True, max_attempts=40), id="long"))
    bead = await harness.file("long")
    run = bead["execution_id"]
    slow, quick = (Reader(harness, f"/executions/{run}/events") for _ in range(2))
    await slow.open()
    await quick.open()
    harness.engine.add_agent(lambda dispatch: BIG, WORKER, name="talker")
    last = 0
    while last < 40:
        assert await quick.take()
        last = sum(frame.event == "reported" for frame in quick.seen)
    assert slow.line is not None
    assert slow.line.sent <= CHUNKS_MAX
    kept = await history(harness, run)
    await slow.until(len(kept))
    assert [frame.data for frame in slow.seen] == kept
    await slow.cut()
    await quick.cut()


async def test_a_reader_that_takes_nothing_is_cut_off(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "STALL_SECONDS_MAX", 0.05)
    monkeypatch.setattr(event_streams, "CHUNK_BYTES", 10)
    run = await finished(harness)
    reader = Reader(harness, f"/executions/{run}/events")
    await reader.open()
    assert reader.line is not None
    await reader.line.task
    assert reader.line.sent == CHUNKS_MAX
    assert harness.served.long_polls.count == 0
