"""Channels from Python: the calls of both clients, and workers that take turns."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.live_server import Server
from tests.patience import wait_until

from handrail import Worker
from handrail.client.channel_turns import TurnRunner, WorkerTurn
from handrail.client.errors import ConflictError, NotFoundError
from handrail.kernel.channel import events as ev
from handrail.views.channels import TurnView

PATIENCE = 60.0


@contextmanager
def working(worker: Worker) -> Iterator[None]:
    """The worker at work, in a loop of its own."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(worker.run())

    def run() -> None:
        loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(worker.stop)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the worker stops"


def seated(server: Server, name: str) -> Worker:
    return Worker(server.url, server.token("agent", name), heartbeat=0.2, grace=1)


def reads(
    admin_client: Any, wanted: Callable[[list[Any]], bool], channel: str = "reviews"
) -> list[Any]:
    """What was said, once it is what is wanted."""
    found: list[Any] = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        after = found[-1].id if found else 0
        found += admin_client.channels.list_messages(channel, after=after, wait=0.2).items
        if wanted([one.text for one in found if one.kind == "message"]):
            return found
    raise AssertionError([one.text for one in found])


def registered(admin_client: Any, agent: str) -> None:
    """Waits until it is."""
    wait_until(
        lambda: any(one.id == agent for one in admin_client.agents.list().items),
        message=f"{agent} registers",
    )


def join(admin_client: Any, *agents: str, channel: str = "reviews") -> None:
    """As soon as they have registered."""
    for agent in agents:
        registered(admin_client, agent)
        admin_client.channels.join(channel, agent)


def test_both_clients_have_every_call_about_channels(client: Any) -> None:
    view = client.channels.create("reviews", {"order": "manual"})
    assert (view.id, view.turn_config.order) == ("reviews", "manual")
    assert client.channels.configure("reviews", {}).turn_config.order == "round_robin"
    assert [one.id for one in client.channels.list().items] == ["reviews"]
    posted = client.channels.post("reviews", "hello")
    assert posted.disposition == "logged"
    assert [one.text for one in client.channels.list_messages("reviews").items] == ["hello"]
    assert client.channels.list_messages("reviews", after=posted.id).items == ()
    assert client.channels.control_turn("reviews", "pause").paused
    assert not client.channels.control_turn("reviews", "unpause").paused
    with pytest.raises(NotFoundError):
        client.channels.leave("reviews", "nobody")
    with pytest.raises(ConflictError):
        client.channels.create("reviews")
    client.channels.remove("reviews")
    with pytest.raises(NotFoundError):
        client.channels.get("reviews")


def test_a_claim_gives_a_turn(server: Server, admin_client: Any) -> None:
    from handrail import Client

    admin_client.channels.create("reviews")
    with Client(server.url, server.token("agent", "ada")) as ada:
        ada.agents.register("ada", ["talker"])
        admin_client.channels.join("reviews", "ada")
        admin_client.channels.post("reviews", "hello")
        turn = ada.dispatches.claim("ada")
        assert isinstance(turn, TurnView)
        assert [one.text for one in turn.messages] == ["hello"]
        ada.channels.post("reviews", "hi", turn=turn.turn)
        assert ada.channels.control_turn("reviews", "complete", turn=turn.turn).states == {
            "ada": "IDLE"
        }


@pytest.mark.requirement("T3")
def test_workers_take_turns_with_all_that_was_said_since_their_last_one(
    server: Server, admin_client: Any
) -> None:
    heard: dict[str, list[Any]] = {"ada": [], "bob": []}
    admin_client.channels.create("reviews", {"maxAgentTurns": 4})
    ada, bob = seated(server, "ada"), seated(server, "bob")

    @ada.channel("reviews")
    async def review(turn: Any) -> str:
        heard["ada"] += turn.messages
        await turn.say(f"looking ({turn.number})")
        return f"ada {turn.number}"

    @bob.channel("reviews")
    def answer(turn: Any) -> str:
        heard["bob"] += turn.messages
        turn.say(f"hm ({turn.number})")
        return f"bob {turn.number}"

    admin_client.channels.control_turn("reviews", "pause")
    with working(ada), working(bob):
        join(admin_client, "ada", "bob")
        admin_client.channels.control_turn("reviews", "unpause")
        said = reads(admin_client, lambda texts: len(texts) == 8)
        texts = [one.text for one in said if one.kind == "message"]
        assert texts[:4] == ["looking (1)", "ada 1", "hm (2)", "bob 2"]
        assert [one.text for one in heard["bob"][:2]] == ["looking (1)", "ada 1"]
        admin_client.channels.post("reviews", "and now?")
        reads(admin_client, lambda texts: len(texts) >= 11)
    assert "and now?" in [one.text for one in heard["ada"] + heard["bob"]]
    for mine in heard.values():
        ids = [one.id for one in mine]
        assert ids == sorted(set(ids)), "nothing comes twice"


@pytest.mark.requirement("T10")
def test_a_function_pauses_its_turn_and_goes_on(server: Server, admin_client: Any) -> None:
    admin_client.channels.create("reviews")
    worker, states = seated(server, "ada"), []

    @worker.channel("reviews")
    async def build(turn: Any) -> str:
        async with turn.wait("the build", seconds=30):
            states.append(
                (await asyncio.to_thread(admin_client.channels.get, "reviews")).states["ada"]
            )
        states.append((await asyncio.to_thread(admin_client.channels.get, "reviews")).states["ada"])
        return "built"

    with working(worker):
        join(admin_client, "ada")
        reads(admin_client, lambda texts: texts == ["built"])
    assert states == ["WAITING", "ACTIVE"]


@pytest.mark.requirement("T6")
@pytest.mark.parametrize("refused_first", [True, False], ids=["refused first", "resumed first"])
def test_an_interrupted_answer_is_said_when_the_person_lets_it_go_on(
    server: Server, admin_client: Any, monkeypatch: pytest.MonkeyPatch, *, refused_first: bool
) -> None:
    admin_client.channels.create("reviews", {"humanInterruptMode": "interrupt"})
    worker, begun = seated(server, "ada"), threading.Event()
    go_on, refused, look = threading.Event(), threading.Event(), WorkerTurn._fetch_messages

    async def looked(turn: WorkerTurn, position: int, wait: float) -> Any:
        found = await look(turn, position, wait)
        refused.set()
        return found

    monkeypatch.setattr(WorkerTurn, "_fetch_messages", looked)

    @worker.channel("reviews")
    def answer(turn: Any) -> str:
        begun.set()
        assert go_on.wait(PATIENCE)
        turn.say("part one")
        return ", ".join(one.text for one in turn.more()) or "nothing new"

    with working(worker):
        join(admin_client, "ada")
        assert begun.wait(PATIENCE)
        admin_client.channels.post("reviews", "stop")
        assert admin_client.channels.get("reviews").states == {"ada": "WAITING"}
        if refused_first:
            go_on.set()
            assert refused.wait(PATIENCE)
        admin_client.channels.control_turn("reviews", "resume", agent_id="ada")
        go_on.set()
        reads(admin_client, lambda texts: texts[:3] == ["stop", "part one", "stop"])


def test_a_function_that_raises_passes_the_turn_on(server: Server, admin_client: Any) -> None:
    admin_client.channels.create("reviews")
    ada, bob = seated(server, "ada"), seated(server, "bob")

    @ada.channel("reviews")
    async def breaks(turn: Any) -> str:
        raise RuntimeError(f"no model for turn {turn.number}")

    @bob.channel("reviews")
    async def works(turn: Any) -> str:
        return f"bob {turn.number}"

    with working(ada), working(bob):
        join(admin_client, "ada", "bob")
        reads(
            admin_client, lambda texts: len(texts) >= 2 and all(t.startswith("bob") for t in texts)
        )


@pytest.mark.requirement("T5")
def test_a_turn_that_times_out_cancels_its_function(server: Server, admin_client: Any) -> None:
    admin_client.channels.create("reviews", {"defaultTimeoutSeconds": 0.3})
    worker, cancelled = seated(server, "ada"), threading.Event()

    @worker.channel("reviews")
    async def sleeps(turn: Any) -> str:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    with working(worker):
        join(admin_client, "ada")
        assert cancelled.wait(PATIENCE)
    assert "never" not in [one.text for one in admin_client.channels.list_messages("reviews").items]


def test_a_worker_that_stops_passes_its_turn_on_and_one_that_is_back_is_queued_again(
    server: Server, admin_client: Any
) -> None:
    admin_client.channels.create("reviews")
    first, begun = seated(server, "ada"), threading.Event()

    @first.channel("reviews")
    async def sleeps(turn: Any) -> str:
        begun.set()
        await asyncio.sleep(PATIENCE)
        return "never"

    first.grace = 0.1
    with working(first):
        join(admin_client, "ada")
        assert begun.wait(PATIENCE)
    assert admin_client.channels.get("reviews").turn is None
    second = seated(server, "ada")

    @second.channel("reviews")
    async def answers(turn: Any) -> str:
        return "here"

    with working(second):
        reads(admin_client, lambda texts: texts[:1] == ["here"])


def test_a_turn_whose_completion_is_on_its_way_is_not_told_as_lost(
    server: Server,
    admin_client: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The heartbeat hears that the turn is over before its own completion is answered."""
    complete, drop = WorkerTurn.complete, TurnRunner.drop
    heard, done = asyncio.Event(), threading.Event()

    async def answered_late(turn: WorkerTurn) -> None:
        await complete(turn)
        async with asyncio.timeout(PATIENCE):
            await heard.wait()
        done.set()

    def told(turns: TurnRunner, turn_id: str, why: str) -> None:
        drop(turns, turn_id, why)
        heard.set()

    monkeypatch.setattr(WorkerTurn, "complete", answered_late)
    monkeypatch.setattr(TurnRunner, "drop", told)
    admin_client.channels.create("reviews")
    worker = seated(server, "ada")
    worker.heartbeat = 0.05

    @worker.channel("reviews")
    async def answer(turn: Any) -> str:
        return "done"

    with caplog.at_level("INFO", "handrail.worker"), working(worker):
        join(admin_client, "ada")
        assert done.wait(PATIENCE)
    assert [one.message for one in caplog.records if "turn_lost" in one.message] == []


@pytest.mark.requirement("T4")
def test_a_worker_that_was_lost_in_one_of_its_channels_is_queued_there_again(
    server: Server, admin_client: Any
) -> None:
    worker = seated(server, "ada")
    worker.channel("reviews", "plans")(lambda turn: None)
    for name in ("reviews", "plans"):
        admin_client.channels.create(name)
        admin_client.channels.control_turn(name, "pause")
    with working(worker):
        for name in ("reviews", "plans"):
            join(admin_client, "ada", channel=name)
        lost = ev.TakeOffline(agent_id="ada", detail="the agent is offline")
        server.do(server.engine.channels.command("reviews", lost, by="engine"))
        wait_until(
            lambda: admin_client.channels.get("reviews").states == {"ada": "QUEUED"},
            message="it is queued again",
        )
        said = [one["type"] for one in _events(admin_client, "channel:reviews")]
        assert said.count("MemberAdded") == 2
    assert admin_client.channels.get("plans").states == {"ada": "QUEUED"}


def _events(admin_client: Any, stream: str) -> list[dict[str, Any]]:
    return [one for one in admin_client.audit.list(limit=100).items if one.get("stream") == stream]


def test_a_channel_has_one_function_of_a_worker() -> None:
    worker = Worker("http://127.0.0.1:1")
    worker.channel("reviews")(lambda turn: None)
    with pytest.raises(ValueError, match="two functions take turns in 'reviews'"):
        worker.channel("reviews")(lambda turn: None)


def test_the_examples_of_the_page_hold_a_conversation(
    server: Server, admin_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/channels.md").read_text(encoding="utf-8")
    examples = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", page, flags=re.DOTALL))
    monkeypatch.setenv("HANDRAIL_SERVER", server.url)
    made: dict[str, Any] = {}
    exec(examples["reviewers.py"], made)
    worker = made["worker"]
    worker.url, worker.token = server.url, server.token("agent", "ada")
    with working(worker):
        registered(admin_client, "ada")
        monkeypatch.setenv("HANDRAIL_TOKEN", server.token("operator", "olga"))
        exec(examples["room.py"], {})
        said = reads(admin_client, lambda texts: "I have read 1 messages" in texts)
    assert "reading …" in [one.text for one in said]
