"""All that a client of the official SDK may call by protocol 1.0, and what it is answered."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest
from a2a.client import A2AClientError
from a2a.helpers import get_message_text, new_data_part
from a2a.types import (
    ContentTypeNotSupportedError,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    InvalidParamsError,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Part,
    PushNotificationNotSupportedError,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskNotFoundError,
    TaskPushNotificationConfig,
)
from tests.a2a.a2a_server import HandrailWorker
from tests.a2a.sdk_client import ASKS, DONE, WORKING, Caller, open_caller, report_result, run_scene
from tests.client.live_server import Server

from handrail.a2a import app
from handrail.client.clients import SyncClient


async def lists(caller: Caller, **wanted: Any) -> list[str]:
    return [task.id for task in (await pages(caller, **wanted))[0]]


async def pages(caller: Caller, **wanted: Any) -> tuple[list[Task], str, int]:
    found = await caller.client.list_tasks(ListTasksRequest(**wanted))
    return list(found.tasks), found.next_page_token, found.total_size


async def history(caller: Caller, task_id: str, **most: Any) -> list[tuple[Any, str]]:
    task = await caller.client.get_task(GetTaskRequest(id=task_id, **most))
    return [(one.role, get_message_text(one)) for one in task.history]


def test_a_caller_lists_what_it_began_here_the_last_to_change_first(
    server: Server, admin_client: SyncClient
):
    ola, olga = server.token("operator", "ola"), server.token("operator", "olga")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with (
            open_caller(address, ola, "one") as caller,
            open_caller(address, ola, "") as everywhere,
            open_caller(address, olga, "one") as other,
        ):
            assert await pages(caller) == ([], "", 0)
            first = await caller.says("first", context_id="talk")
            second = await caller.says("second", context_id="talk")
            third = await caller.says("third")
            hers = await other.says("hers", context_id="talk")
            fix = await everywhere.says("fix", metadata={"definition": "fix"})
            given = await report_result(worker, "success", text="fixed")
            assert given.execution_id == first.id
            newest = [first.id, third.id, second.id]
            assert await lists(caller) == newest
            assert await lists(other) == [hers.id]
            assert await lists(everywhere) == [first.id, fix.id, third.id, second.id]
            assert await lists(caller, context_id="talk") == [first.id, second.id]
            assert await lists(caller, context_id=third.context_id) == [third.id]
            assert await lists(caller, status=DONE) == [first.id]
            assert await lists(caller, status=WORKING) == [third.id, second.id]
            after = third.status.timestamp
            assert await lists(caller, status_timestamp_after=after) == [first.id, third.id]
            page, token, total = await pages(caller, page_size=2)
            assert ([one.id for one in page], total) == (newest[:2], 3)
            page, end, total = await pages(caller, page_size=2, page_token=token)
            assert ([one.id for one in page], end, total) == (newest[2:], "", 3)
            (bare, *_), _, _ = await pages(caller)
            assert (list(bare.artifacts), list(bare.history)) == ([], [])
            (full, *_), _, _ = await pages(caller, include_artifacts=True, history_length=1)
            assert full.artifacts[0].parts[0].text == "fixed"
            assert [get_message_text(one) for one in full.history] == ["first"]
            for wrong in ({"page_size": 101}, {"page_token": "e30="}, {"page_token": "\u00e9"}):
                with pytest.raises(InvalidParamsError):
                    await pages(caller, **wrong)

    run_scene(server, scene)


def test_a_task_tells_what_was_said_in_it_as_much_as_is_asked_for(
    server: Server, admin_client: SyncClient
):
    boss = server.token("ceo", "boss")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, boss) as caller:
            begun = await caller.says("500 on /invoices\nsince noon")
            assert [get_message_text(one) for one in begun.history] == [
                "500 on /invoices\nsince noon"
            ]
            await report_result(worker, "ask", question="Net or gross?")
            await caller.says("net", task_id=begun.id)
            await report_result(worker, "success", text="done")
            ended = await caller.says("approve", task_id=begun.id, at_once=False)
            said = await history(caller, begun.id)
            user, agent = Role.ROLE_USER, Role.ROLE_AGENT
            assert said[:3] == [
                (user, "500 on /invoices\nsince noon"), (agent, "Net or gross?"), (user, "net"),
            ]  # fmt: skip
            assert said[-1] == (user, "approve")
            assert [get_message_text(one) for one in ended.history] == [text for _, text in said]
            assert await history(caller, begun.id, history_length=2) == said[-2:]
            assert await history(caller, begun.id, history_length=0) == []
            with pytest.raises(InvalidParamsError, match="historyLength"):
                await history(caller, begun.id, history_length=-1)

    run_scene(server, scene)


def test_whoever_lost_a_stream_subscribes_again_and_hears_also_what_others_answer(
    server: Server, admin_client: SyncClient
):
    token = server.token("operator", "ola")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, token, streaming=True) as caller:
            async with aclosing(cast("Any", caller.tells("a bug"))) as lost:
                begun = (await anext(lost)).task
            await report_result(worker, "success", text="fixed")  # nobody listens
            watched = caller.client.subscribe(SubscribeToTaskRequest(id=begun.id))
            now = (await anext(watched)).task
            assert (now.id, now.status.state) == (begun.id, ASKS), "as it stands by now"
            (question,) = admin_client.approvals.list(status="open").items
            await asyncio.to_thread(admin_client.approvals.answer, question.id, "approve")
            *_, last = [one async for one in watched]
            assert last.status_update.status.state == DONE
            with pytest.raises(TaskNotFoundError):
                await anext(caller.client.subscribe(SubscribeToTaskRequest(id="nonesuch")))

    run_scene(server, scene)


def test_nobody_takes_all_the_streams(
    server: Server, admin_client: SyncClient, monkeypatch: pytest.MonkeyPatch
):
    ola, olga = server.token("operator", "ola"), server.token("operator", "olga")
    monkeypatch.setattr(app, "STREAMS_PER_CREDENTIAL_MAX", 1)

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with (
            open_caller(address, ola, "one", streaming=True) as caller,
            open_caller(address, olga, "one", streaming=True) as other,
            aclosing(cast("Any", caller.tells("a bug"))) as first,
        ):
            of = SubscribeToTaskRequest(id=(await anext(first)).task.id)
            with pytest.raises(A2AClientError, match="503"):
                await anext(caller.client.subscribe(of))
            async with aclosing(cast("Any", other.client.subscribe(of))) as hers:
                assert (await anext(hers)).task.id == of.id

    run_scene(server, scene)


def test_a_context_holds_tasks_together_and_an_answer_from_another_is_refused(
    server: Server, admin_client: SyncClient
):
    token = server.token("operator", "ola")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, token, "one") as caller:
            first = await caller.says("a bug")
            assert first.context_id, "one is made where none is given"
            more = await caller.says("and another", context_id=first.context_id)
            assert (more.context_id, more.id != first.id) == (first.context_id, True)
            await report_result(worker, "ask", question="Which?")
            with pytest.raises(InvalidParamsError, match="not of the context"):
                await caller.says("that one", task_id=first.id, context_id="elsewhere")
            answer: dict[str, Any] = {"task_id": first.id, "context_id": first.context_id}
            facts = caller.tells("that one", new_data_part({"which": 1}), **answer)
            with pytest.raises(ContentTypeNotSupportedError, match="an answer is text"):
                await anext(facts)
            assert (await caller.says("that one", **answer)).status.state == WORKING

    run_scene(server, scene)


def test_files_and_facts_reach_the_first_agent_and_what_lies_elsewhere_is_not_fetched(
    server: Server, admin_client: SyncClient
):
    token = server.token("operator", "ola")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, token, "one") as caller:
            trace = Part(
                raw=b"KeyError", filename="../logs/tr\u00e4ce.txt", media_type="text/plain"
            )
            sent = caller.tells("look", trace, new_data_part({"severity": 2}), message_id="m-1")
            begun = (await anext(sent)).task
            again = caller.tells("look", trace, new_data_part({"severity": 2}), message_id="m-1")
            assert (await anext(again)).task.id == begun.id, "it is the same message"
            assert await lists(caller) == [begun.id]
            given = await report_result(worker, "success", text="fixed")
            assert given.bead.context["severity"] == 2
            (file,) = given.bead.files
            assert (file.name, file.content_type) == ("tr-ce.txt", "text/plain")
            assert admin_client.beads.get_file(given.bead.id, file.name) == b"KeyError"
            only = (await anext(caller.tells("", new_data_part({"place": "x"})))).task
            assert [get_message_text(one) for one in only.history] == ['{"place":"x"}']
            there = caller.tells("look", Part(url="http://127.0.0.1/x", media_type="text/plain"))
            with pytest.raises(ContentTypeNotSupportedError, match="is not fetched"):
                await anext(there)
            with pytest.raises(ContentTypeNotSupportedError, match="JSON object"):
                await anext(caller.tells("look", new_data_part([1])))
            twice = caller.tells("look", Part(raw=b"x"), *[Part(raw=b"y", filename="a")] * 2)
            with pytest.raises(InvalidParamsError, match="a name of its own"):
                await anext(twice)
        async with open_caller(address, token, "") as caller:
            for named, why in (("nonesuch", "nothing was filed"), ("..", "does not say which")):
                with pytest.raises(InvalidParamsError, match=why):
                    await anext(caller.tells("look", trace, metadata={"definition": named}))

    run_scene(server, scene)
    assert len(admin_client.beads.list(type="work").items) == 2


def test_nothing_is_pushed_and_the_card_says_so(server: Server, admin_client: SyncClient):
    token = server.token("operator", "ola")
    wanted = TaskPushNotificationConfig(task_id="x", id="y", url="http://127.0.0.1:1/hook")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, token, "one") as caller:
            ask = caller.client
            of = {"task_id": "x", "id": "y"}
            calls = (
                ask.create_task_push_notification_config(wanted),
                ask.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**of)),
                ask.list_task_push_notification_configs(
                    ListTaskPushNotificationConfigsRequest(task_id="x")
                ),
                ask.delete_task_push_notification_config(
                    DeleteTaskPushNotificationConfigRequest(**of)
                ),
            )
            for call in calls:
                with pytest.raises(PushNotificationNotSupportedError, match="SubscribeToTask"):
                    await call
            how = SendMessageConfiguration(task_push_notification_config=wanted)
            message = SendMessageRequest(message=caller.message("a bug"), configuration=how)
            with pytest.raises(PushNotificationNotSupportedError):
                await anext(ask.send_message(message))

    run_scene(server, scene)
    assert not admin_client.beads.list(type="work").items
