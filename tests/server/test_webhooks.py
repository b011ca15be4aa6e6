"""Webhooks: who is told outside that something waits, over real sockets, and in order."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import PATIENCE, chain, node
from tests.server.harness import ADMIN, CEO, ServerHarness, expect_json, expect_problem, list_all
from tests.server.webhook_receiver import ReceivedRequest, Receiver

from handrail.api.operation import API_PREFIX
from handrail.engine.services import webhooks as making
from handrail.server.routes import webhooks as sending
from handrail.server.routes.webhooks import (
    ATTEMPTS_MAX,
    WebhookSender,
    WebhookTargetError,
    is_public,
    parse_target_url,
    resolve_target,
)
from handrail.server.settings import ServerSettings
from handrail.store.rows import parse_iso
from handrail.testing.clock import ManualClock
from handrail.views.webhooks import DEFAULT_EVENT_TYPES

REVIEW = Path(__file__).resolve().parents[2] / "docs/review.md"


@pytest.fixture
def inside(tmp_path: Path, clock: ManualClock) -> ServerHarness:
    """A server that may tell somebody on its own machine."""
    found = ServerHarness(f"sqlite:///{tmp_path / 'inside.db'}", clock)
    found.settings = ServerSettings(webhook_private=True, public_url="https://work.example")
    return found


@asynccontextmanager
async def receiving(
    harness: ServerHarness, **wanted: Any
) -> AsyncIterator[tuple[Receiver, dict[str, Any]]]:
    """Somebody who is told, from now on."""
    async with Receiver().listening() as receiver:
        made = expect_json(
            await harness.admin.post("/webhooks", json={"url": receiver.url, **wanted}), 201
        )
        yield receiver, made


async def look(harness: ServerHarness, times: int = 1) -> None:
    for _ in range(times):
        await harness.served.webhook_sender.send_due()


async def shown(harness: ServerHarness) -> dict[str, Any]:
    (row,) = expect_json(await harness.admin.get("/webhooks"))["items"]
    return row


async def approve(harness: ServerHarness, approval: dict[str, Any], **body: str) -> None:
    body = body or {"decision": "approve"}
    expect_json(await harness.ceo.post(f"/approvals/{approval['id']}/answer", json=body))


# What is told


@pytest.mark.requirement("R1.2")
async def test_a_question_its_answer_and_the_end_are_told_in_order(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        asked = await inside.asked(title="pay 12.00")
        await look(inside)
        await approve(inside, asked)
        await look(inside)
        assert receiver.kinds == ["approval.opened", "approval.answered", "run.ended"]
        opened, answered, ended = (one.told for one in receiver.received)
        assert opened["title"] == "pay 12.00"
        assert (
            opened["approval"] | {"status": "open", "digest": asked["digest"]}
            == (opened["approval"])
        )
        assert opened["approval"]["result"] == "done"
        assert opened["approval"]["deadline"] == asked["deadline"]
        assert answered["approval"] | {"decision": "approve", "by": CEO} == answered["approval"]
        assert ended["run"]["terminal_status"] == "done_success"
        assert ended["run"]["id"] == asked["execution_id"]
        assert (await shown(inside))["waiting"] == 0


async def test_only_what_was_asked_for_and_only_what_came_after_is_told(inside: ServerHarness):
    await approve(inside, await inside.asked())
    async with receiving(inside, events=["run.ended"]) as (receiver, made):
        assert made["events"] == ["run.ended"]
        asked = await inside.asked()
        await approve(inside, asked)
        await look(inside, 2)
        assert [one.told["id"] for one in receiver.received] == [
            f"run.ended:{asked['execution_id']}"
        ]


async def test_void_and_expired_questions_are_told(inside: ServerHarness):
    async with receiving(inside, events=["approval.void", "approval.expired"]) as (receiver, _):
        changed = await inside.asked()
        path = f"/beads/{changed['original_bead_id']}"
        expect_json(await inside.operator.patch(path, json={"context": {"amount": 2}}))
        (fresh,) = await list_all(inside.viewer, "/approvals", status="open")
        body = {"action": "close", "reason": "no more"}
        run = changed["execution_id"]
        expect_json(await inside.ceo.post(f"/executions/{run}/override", json=body))
        late = await inside.asked()
        inside.clock.until(parse_iso(late["deadline"]))
        await inside.quiet()
        await look(inside, 2)
        assert [(one.told["type"], one.told["approval"]["id"]) for one in receiver.received] == [
            ("approval.void", changed["id"]),
            ("approval.void", fresh["id"]),
            ("approval.expired", late["id"]),
        ]


async def test_a_moved_run_voids_its_question_and_says_so(inside: ServerHarness):
    async with receiving(inside, events=["approval.void"]) as (receiver, _):
        asked = await inside.asked()
        body = {"action": "move", "node": "fix", "reason": "again"}
        expect_json(
            await inside.ceo.post(f"/executions/{asked['execution_id']}/override", json=body)
        )
        await inside.quiet()
        await look(inside, 2)
        assert [one.told["approval"]["id"] for one in receiver.received] == [asked["id"]]


async def test_open_questions_are_reminded_of_at_half_time_and_a_day_before_once(
    inside: ServerHarness,
):
    async with receiving(inside, events=["approval.reminder"]) as (receiver, _):
        asked = await inside.asked()
        settled = await inside.asked()
        await look(inside)
        await approve(inside, settled)
        inside.clock.advance(days=3.5)
        await look(inside, 3)
        inside.clock.until(parse_iso(asked["deadline"]) - timedelta(days=1))
        await look(inside, 3)
        inside.clock.advance(hours=1)
        await look(inside, 2)
        assert [one.told["id"] for one in receiver.received] == [
            f"approval.reminder:{asked['id']}:half",
            f"approval.reminder:{asked['id']}:day",
        ]
        assert receiver.received[0].told["reminder"] == "half"


async def test_a_question_for_an_hour_has_no_reminder_a_day_before(inside: ServerHarness):
    await inside.define(chain(node("fix"), node("look", "approval", deadline="1h"), id="soon"))
    inside.works()
    async with receiving(inside, events=["approval.reminder"]) as (receiver, _):
        await inside.file("soon")
        await inside.quiet()
        await look(inside)
        assert receiver.received == []
        inside.clock.advance(minutes=30)
        await look(inside)
        (one,) = receiver.received
        assert one.told["reminder"] == "half"


# Signed


def _verify(secret: str, one: ReceivedRequest) -> bool:
    """With the very lines that the documentation shows."""
    (code,) = re.findall(r"```python\n(import hashlib.*?)```", REVIEW.read_text(), re.DOTALL)
    known: dict[str, Any] = {}
    exec(code, known)
    at = int(one.headers["handrail-signature"].split(",")[0].removeprefix("t="))
    return known["is_from_handrail"](secret, one.headers["handrail-signature"], one.body, at + 10)


async def test_what_is_told_is_signed_so_that_the_documented_lines_verify_it(inside: ServerHarness):
    async with receiving(inside) as (receiver, made):
        assert made["secret"].startswith("hrw_")
        await inside.asked()
        await look(inside)
        (one,) = receiver.received
        assert one.headers["handrail-delivery"] == one.told["id"]
        assert one.headers["handrail-event"] == "approval.opened"
        assert _verify(made["secret"], one)
        assert not _verify("another", one)
        assert not _verify(made["secret"], ReceivedRequest(one.path, one.headers, one.body + b" "))
        late = {**one.headers, "handrail-signature": f"t=1,{one.headers['handrail-signature']}"}
        assert not _verify(made["secret"], ReceivedRequest(one.path, late, one.body))


async def test_the_secret_is_shown_once(inside: ServerHarness):
    async with receiving(inside) as (_, made):
        assert made["secret"] not in (await inside.admin.get("/webhooks")).text
        key = {"Idempotency-Key": "k1"}
        body = {"url": made["url"]}
        second = expect_json(await inside.admin.post("/webhooks", json=body, headers=key), 201)
        assert second["secret"] not in (await inside.admin.get("/webhooks")).text


# At least once, and not twice without need


async def test_what_was_not_taken_is_tried_again_later_with_the_same_id(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        receiver.status = 500
        asked = await inside.asked()
        await look(inside, 3)
        assert len(receiver.received) == 1
        row = await shown(inside)
        assert (row["failures"], row["enabled"], row["reason"]) == (
            1,
            True,
            "the receiver answered 500",
        )
        waits = [5, 10, 20]
        for n, wait in enumerate(waits, 2):
            inside.clock.advance(wait - 0.001)
            await look(inside)
            assert len(receiver.received) == n - 1
            inside.clock.advance(0.001)
            receiver.status = 500 if n < 4 else 204
            await look(inside)
            assert len(receiver.received) == n
        await approve(inside, asked)
        await look(inside, 2)
        ids = [one.told["id"] for one in receiver.received]
        assert ids[:4] == [f"approval.opened:{asked['id']}"] * 4
        assert len({one.body for one in receiver.received[:4]}) == 1
        assert receiver.kinds[4:] == ["approval.answered", "run.ended"]
        assert (await shown(inside))["failures"] == 0


async def test_a_dead_receiver_is_disabled_with_the_reason_and_may_be_enabled(
    inside: ServerHarness,
):
    async with receiving(inside) as (receiver, made):
        receiver.status = 503
        asked = await inside.asked()
        for _ in range(ATTEMPTS_MAX + 5):
            await look(inside)
            inside.clock.advance(hours=1)
        assert len(receiver.received) == ATTEMPTS_MAX
        row = await shown(inside)
        assert (row["enabled"], row["waiting"]) == (False, 1)
        assert "12 attempts in a row failed, the last: the receiver answered 503" in row["reason"]
        missed = await inside.asked()
        await look(inside)
        receiver.status = 204
        path = f"/webhooks/{made['id']}/enable"
        assert expect_json(await inside.admin.post(path))["enabled"]
        after = await inside.asked()
        await look(inside, 2)
        ids = [one.told["id"] for one in receiver.received[ATTEMPTS_MAX:]]
        assert ids == [f"approval.opened:{asked['id']}", f"approval.opened:{after['id']}"]
        assert missed["id"] not in str(ids)


async def test_a_receiver_that_is_gone_says_so_and_is_asked_no_more(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        receiver.status = 410
        await inside.asked()
        await look(inside)
        assert not (await shown(inside))["enabled"]


async def test_what_happened_while_no_server_ran_is_told_once_after_it(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        first = await inside.asked()
        await look(inside)
        second = await inside.asked()  # the server ends before it could tell
        async with inside.opened() as again:
            await look(again, 3)
            assert [one.told["approval"]["id"] for one in receiver.received] == [
                first["id"],
                second["id"],
            ]


async def test_servers_on_one_database_tell_each_thing_once(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        others = [WebhookSender(inside.engine, inside.settings) for _ in range(3)]
        asked = [(await inside.asked())["id"] for _ in range(10)]
        for _ in range(4):
            await asyncio.gather(look(inside), *(one.send_due() for one in others))
        for one in others:
            await one.close()
        assert [one.told["approval"]["id"] for one in receiver.received] == asked


async def test_a_server_that_died_while_it_sent_is_waited_for_a_minute(inside: ServerHarness):
    async with receiving(inside) as (receiver, made):
        store, now = inside.engine.store, inside.clock.now()
        await inside.asked()
        until = now + timedelta(seconds=sending.LEASE_SECONDS)
        assert store.notifications.lease_webhook(made["id"], making.iso(now), making.iso(until))
        await look(inside, 2)
        assert receiver.received == []
        inside.clock.until(until)
        await look(inside)
        assert len(receiver.received) == 1


# A receiver that means no good


async def test_a_redirect_is_not_followed(inside: ServerHarness):
    async with receiving(inside) as (receiver, _), Receiver().listening() as elsewhere:
        location = f"HTTP/1.1 307 x\r\nlocation: {elsewhere.url}\r\ncontent-length: 0\r\n\r\n"
        receiver.raw = location.encode()
        await inside.asked()
        await look(inside)
        assert (len(receiver.received), elsewhere.received) == (1, [])
        assert (await shown(inside))["reason"] == "the receiver answered 307"


async def test_no_connection_is_kept_for_another_name_of_the_same_address(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        receiver.raw, receiver.stays = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True
        await approve(inside, await inside.asked())
        await look(inside)
        assert receiver.kinds == ["approval.opened", "approval.answered", "run.ended"]


async def test_an_endless_answer_is_cut(inside: ServerHarness):
    async with receiving(inside) as (receiver, _):
        receiver.raw = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n" + b"x" * 100_000
        await inside.asked()
        await look(inside)
        assert (await shown(inside))["failures"] == 0


async def test_a_receiver_that_never_answers_is_given_up_on(
    inside: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sending, "SEND_SECONDS_MAX", 0.05)
    async with receiving(inside) as (receiver, _):
        receiver.hangs = True
        await inside.asked()
        await look(inside)
        assert (await shown(inside))["reason"] == "the receiver took longer than 0.05 s"


async def test_one_that_hangs_does_not_hold_up_the_others(
    inside: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sending, "SEND_SECONDS_MAX", 2.0)
    async with receiving(inside) as (slow, _), receiving(inside) as (quick, _):
        slow.hangs = True
        await inside.asked()
        await look(inside)
        assert (len(slow.received), len(quick.received)) == (1, 1)


async def test_a_courier_that_is_told_to_end_as_it_is_woken_ends(
    inside: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sending, "POLL_SECONDS_MIN", 0)
    courier = inside.served.webhook_sender
    for turns in range(6):  # of the loop, between the one and the other
        going = asyncio.create_task(courier.run())
        async with asyncio.timeout(PATIENCE):
            while not courier._wake_event._waiters:  # pyright: ignore
                await asyncio.sleep(0.001)
        courier.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        going.cancel()
        await asyncio.wait((going,), timeout=PATIENCE)
        assert going.cancelled(), turns


async def test_nobody_there_is_a_reason(inside: ServerHarness):
    async with Receiver().listening() as gone:
        url = gone.url
    expect_json(await inside.admin.post("/webhooks", json={"url": url}), 201)
    await inside.asked()
    await look(inside)
    assert (await shown(inside))["reason"] == "the receiver cannot be reached: ConnectError"


async def test_a_webhook_for_which_too_much_waits_is_disabled(
    inside: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(making, "PENDING_DELIVERIES_MAX", 2)
    async with receiving(inside) as (receiver, _):
        receiver.status = 500
        for _ in range(4):
            await inside.asked()
            await look(inside)
        row = await shown(inside)
        assert (row["enabled"], row["reason"]) == (False, "more than 2 deliveries wait for it")


# Not into the own network


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "https://localhost/x",
        "https://[::1]/x",
        "https://[::ffff:10.0.0.1]/x",
        "https://[64:ff9b::a00:1]/x",
        "https://10.1.2.3/x",
        "https://169.254.169.254/latest/meta-data",
        "https://192.168.0.1/x",
        "https://100.64.0.1/x",
        "https://0.0.0.0/x",
        "https://192.0.0.8/x",
        "https://[fec0::1]/x",
        "https://[::127.0.0.1]/x",
        "https://[5f00::1]/x",
        "https://[3fff::1]/x",
        "https://[2002:7f00:1::]/x",
        "https://2130706433/x",
        "http://example.com/x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "https://user:password@example.com/x",
        "https:///x",
        "https://nowhere.invalid/x",
        "nonsense",
        "https://h:99999/x",
    ],
)
async def test_no_webhook_points_inside_or_nowhere_by_default(harness: ServerHarness, url: str):
    answer = await harness.admin.post("/webhooks", json={"url": url})
    assert expect_problem(answer, 422, "bad_url")["errors"][0]["path"] == "url"
    assert expect_json(await harness.admin.get("/webhooks"))["items"] == []


async def test_a_name_that_points_inside_later_is_not_followed_there(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    async def found(host: str, port: int, **_: Any) -> list[Any]:
        addresses = ("93.184.215.14", "10.0.0.7")
        return [(2, 1, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    with pytest.raises(WebhookTargetError, match="inside this network"):
        await resolve_target(
            parse_target_url("https://example.com/x", private=False), private=False
        )
    target = await resolve_target(
        parse_target_url("https://example.com:8443/x", private=True), private=True
    )
    assert str(target.url) == "https://93.184.215.14:8443/x"
    assert (target.host, target.name) == ("example.com:8443", "example.com")
    assert is_public("93.184.215.14")
    assert is_public("2606:2800:220:1::1")
    assert is_public("::ffff:93.184.215.14")


# Links for people


@pytest.mark.requirement("R3.4")
async def test_people_get_a_link_with_each_question_that_they_may_answer(inside: ServerHarness):
    people = [{"name": "bob", "role": "ceo"}, {"name": "pam", "role": "operator"}]
    async with receiving(inside, people=people) as (receiver, _):
        receiver.status = 500
        asked = await inside.asked()
        await look(inside)
        inside.clock.advance(5)
        receiver.status = 204
        await look(inside)
        first, second = receiver.received
        assert first.body == second.body  # the very same link at every attempt
        (link,) = second.told["links"]
        assert link["name"] == "bob"
        assert link["url"].startswith(f"https://work.example{API_PREFIX}/answer-links/hr_")
        path = link["url"].removeprefix(f"https://work.example{API_PREFIX}")
        done = expect_json(await inside.nobody.post(path, json={"text": "ok"}))
        assert done["approval"]["by"] == "bob"
        assert asked["id"] == done["approval"]["id"]
        expect_problem(await inside.nobody.post(path, json={"text": "ok"}), 410, "link_used")


async def test_no_link_lies_on_disk_in_clear(inside: ServerHarness, tmp_path: Path):
    people = [{"name": "bob", "role": "ceo"}]
    async with receiving(inside, people=people) as (receiver, _):
        await inside.asked()
        await look(inside)
        secret = receiver.received[0].told["links"][0]["url"].rsplit("/", 1)[1]
        files = [path.read_bytes() for path in tmp_path.glob("inside.db*")]
        assert files
        assert not any(secret.encode() in content for content in files)


# Who may


async def test_webhooks_are_made_listed_and_removed_by_admins(inside: ServerHarness):
    async with receiving(inside) as (receiver, made):
        assert made["events"] == list(DEFAULT_EVENT_TYPES)
        assert made["created_by"] == ADMIN
        expect_problem(await inside.ceo.get("/webhooks"), 403, "forbidden")
        expect_problem(
            await inside.ceo.post("/webhooks", json={"url": receiver.url}), 403, "forbidden"
        )
        expect_problem(await inside.admin.delete("/webhooks/nope"), 404, "unknown_webhook")
        expect_problem(await inside.admin.post("/webhooks/nope/enable"), 404, "unknown_webhook")
        bad = {"url": receiver.url, "events": ["run.began"]}
        expect_problem(await inside.admin.post("/webhooks", json=bad), 422, "bad_body")
        nameless = {"url": receiver.url, "people": [{"name": " "}]}
        expect_problem(await inside.admin.post("/webhooks", json=nameless), 422, "bad_name")
        assert (await inside.admin.delete(f"/webhooks/{made['id']}")).status_code == 204
        await inside.asked()
        await look(inside)
        assert (receiver.received, expect_json(await inside.admin.get("/webhooks"))["items"]) == (
            [],
            [],
        )


async def test_the_engine_does_not_wait_for_a_receiver(
    inside: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sending, "SEND_SECONDS_MAX", 20)
    async with receiving(inside) as (receiver, _):
        receiver.hangs = True
        asked = await inside.asked()
        looking = asyncio.create_task(look(inside))
        while not receiver.received:
            await asyncio.sleep(0)
        await approve(inside, asked)
        assert not looking.done()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def test_a_server_tells_by_itself_while_it_runs(inside: ServerHarness):
    async with receiving(inside) as (receiver, _), inside.served.lifespan():
        asked = await inside.asked()
        for _ in range(2_000):
            if receiver.received:
                break
            await asyncio.sleep(0.01)
        assert [one.told["approval"]["id"] for one in receiver.received] == [asked["id"]]


async def test_no_secret_of_a_link_or_a_webhook_is_logged(
    inside: ServerHarness, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    async with receiving(inside, people=[{"name": "bob", "role": "ceo"}]) as (receiver, made):
        await inside.asked()
        receiver.status = 500
        await look(inside)
        receiver.status = 204
        inside.clock.advance(5)
        await look(inside)
        url = receiver.received[-1].told["links"][0]["url"]
        path = url.removeprefix(f"https://work.example{API_PREFIX}")
        for _ in range(2):
            await inside.nobody.get(path)
            await inside.nobody.post(path, json={"text": "ok"})
        ours = [one for one in caplog.messages if "handrail.test" not in one]  # not the test's own
        assert any("webhook_failed" in one for one in ours)
        for secret in (url.rsplit("/", 1)[1], made["secret"], receiver.url):
            assert not [one for one in ours if secret in one]
