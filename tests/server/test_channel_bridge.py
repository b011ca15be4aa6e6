"""Bridges: what is said in a channel goes out by webhook, and comes in under a key, once."""

import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from tests.client.live_server import PATIENCE, Server
from tests.server.harness import ServerHarness, expect_json, expect_problem
from tests.server.test_channels import log, posted, room
from tests.server.webhook_receiver import Receiver

from handrail import Client
from handrail.server.routes.webhooks import sign
from handrail.server.settings import ServerSettings
from handrail.testing.clock import ManualClock

DOCS = Path(__file__).resolve().parents[2] / "docs"
TALK = {"events": ["channel.message"]}


@pytest.fixture
def inside(tmp_path: Path, clock: ManualClock) -> ServerHarness:
    """A server that may tell somebody on its own machine."""
    found = ServerHarness(f"sqlite:///{tmp_path / 'inside.db'}", clock)
    found.settings = ServerSettings(webhook_private=True)
    return found


@asynccontextmanager
async def bridged(
    harness: ServerHarness, **wanted: Any
) -> AsyncIterator[tuple[Receiver, dict[str, Any]]]:
    async with Receiver().listening() as receiver:
        body = {"url": receiver.url, **wanted}
        yield receiver, expect_json(await harness.admin.post("/webhooks", json=body), 201)


def example(page: str, name: str) -> dict[str, Any]:
    """What an example of a page defines; by its first line, or by the function that it has."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), flags=re.DOTALL)
    (block,) = [one for one in blocks if name in one]
    made: dict[str, Any] = {}
    exec(block, made)
    return made


@pytest.mark.requirement("T6")
async def test_what_people_and_agents_say_goes_out_signed_and_in_order(inside: ServerHarness):
    (ada,) = await room(inside, "ada")
    await posted(inside, "before anybody listened")
    async with bridged(inside, **TALK) as (receiver, hook):
        await posted(inside, "please look", to="ada")
        turn = await ada.turn()
        expect_json(await ada.say("looks good", turn=turn["turn"]), 201)
        await ada.done(turn)
        await inside.served.webhook_sender.send_due()
        await inside.served.webhook_sender.send_due()
        first, second = (one.told for one in receiver.received)
        assert (
            first["message"] | {"channel": "reviews", "human": True, "to": "ada"}
            == (first["message"])
        )
        assert (first["message"]["author"], first["message"]["text"]) == ("ana", "please look")
        assert second["message"]["author"] == "ada"
        assert second["message"]["human"] is False
        assert first["id"] != second["id"]
        read = expect_json(await inside.viewer.get("/channels/reviews/messages"))["items"]
        said = [one["id"] for one in read if one["kind"] == "message"]
        assert [first["message"]["id"], second["message"]["id"]] == said[1:]
        for one in receiver.received:
            stamp, given = one.headers["handrail-signature"].removeprefix("t=").split(",v1=")
            assert given == sign(hook["secret"], int(stamp), one.body)
            assert one.headers["handrail-event"] == "channel.message"


async def test_who_does_not_ask_for_talk_is_told_none(inside: ServerHarness):
    await room(inside)
    async with bridged(inside) as (receiver, hook):
        assert "channel.message" not in hook["events"]
        await posted(inside, "hello")
        await inside.served.webhook_sender.send_due()
        assert receiver.received == []


async def test_what_a_bridge_could_not_take_comes_again_under_the_same_id(inside: ServerHarness):
    await room(inside)
    async with bridged(inside, **TALK) as (receiver, _):
        receiver.status = 503
        await posted(inside, "hello")
        await inside.served.webhook_sender.send_due()
        receiver.status = 204
        inside.clock.advance(60)
        await inside.served.webhook_sender.send_due()
        first, again = (one.told for one in receiver.received)
        assert first == again


async def test_a_bridges_token_speaks_for_the_bridge_alone(inside: ServerHarness):
    await room(inside)
    bridge = await inside.client("chat", "operator")
    forged = {"text": "approved", "author": "ana"}
    expect_problem(
        await bridge.post("/channels/reviews/messages", json=forged), 403, "forged_author"
    )
    for _ in range(2):
        answer = await bridge.post(
            "/channels/reviews/messages", json={"text": "hi"}, headers={"Idempotency-Key": "m-1"}
        )
        assert expect_json(answer, 201)["author"] == "chat"
    assert await log(inside) == ["hi"]


def test_the_examples_of_the_pages_bring_messages_out_and_in_once(tmp_path: Path):
    """Over real sockets, with the signature checked as the other page shows."""
    bridge, review = example("channels.md", "# bridge.py"), example("review.md", "is_from_handrail")
    chat: list[str] = []
    deliveries: Queue[tuple[str, bytes]] = Queue()
    server = Server(
        f"sqlite:///{tmp_path / 'work.db'}", settings=ServerSettings(drain=0, webhook_private=True)
    )
    with (
        server,
        hooked(deliveries) as url,
        Client(server.url, server.token("admin")) as admin_client,
    ):
        secret = admin_client.webhooks.create(url, events=TALK["events"]).secret
        admin_client.channels.create("reviews")
        admin_client.channels.create("plans")
        with Client(server.url, server.token("operator", bridge["OWN"])) as client:
            for _ in range(2):  # the chat system is not sure that it was heard
                bridge["to_channel"](client, "m-1", "bob", "please look")
        admin_client.channels.post("plans", "not for them")
        admin_client.channels.post("reviews", "looking")
        for _ in range(3):
            signed, body = deliveries.get(timeout=PATIENCE)
            assert review["is_from_handrail"](secret, signed, body)
            bridge["to_chat"](body, chat.append)
        said = [one.text for one in admin_client.channels.list_messages("reviews").items]
    assert chat == ["test: looking"]
    assert said == ["bob: please look", "looking"]


@contextmanager
def hooked(deliveries: "Queue[tuple[str, bytes]]") -> Iterator[str]:
    """An address that takes deliveries."""

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            deliveries.put((self.headers["handrail-signature"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as hook:
        thread = threading.Thread(target=hook.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{hook.server_port}/"
        finally:
            hook.shutdown()
            thread.join()
