"""A definition as an agent that others reach by A2A, asked by the official SDK's client."""

from typing import Any

import httpx
import pytest
from a2a.helpers import get_artifact_text, new_data_part
from a2a.types import (
    GetExtendedAgentCardRequest,
    InvalidParamsError,
    SubscribeToTaskRequest,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from tests.a2a.a2a_server import HandrailWorker
from tests.a2a.sdk_client import (
    ASKS,
    CANCELED,
    DONE,
    FAILED,
    WORKING,
    open_caller,
    report_result,
    run_scene,
    status_text,
)
from tests.client.live_server import Server
from tests.patience import PATIENCE

from handrail.client.clients import SyncClient


def test_a_message_files_a_bead_and_questions_are_answered_by_who_may(
    server: Server, admin_client: SyncClient
):
    boss, ola = server.token("ceo", "boss"), server.token("operator", "ola")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, boss) as ceo, open_caller(address, ola) as operator:
            begun = await operator.says("500 on /invoices\nsince noon", context_id="talk-1")
            assert (begun.status.state, begun.context_id) == (WORKING, "talk-1")
            given = await report_result(worker, "ask", question="Net or gross?")
            assert given.bead.title == "500 on /invoices"
            asked = await operator.task(begun.id)
            assert (asked.status.state, asked.context_id) == (ASKS, "talk-1")
            assert status_text(asked).startswith("Net or gross?")
            net: dict[str, Any] = {"task_id": begun.id, "message_id": "answer-1"}
            for _ in range(2):  # the second time it did not hear that the first was taken
                assert (await operator.says("net", **net)).status.state == WORKING
            with pytest.raises(UnsupportedOperationError):
                await operator.says("net", task_id=begun.id)  # another message
            given = await report_result(worker, "success", text="the total is net")
            assert given.answer == "net"
            asked = await operator.task(begun.id)
            assert asked.status.state == ASKS
            assert "May be answered by: ceo" in status_text(asked)
            assert "the total is net" in status_text(asked)
            with pytest.raises(InvalidParamsError, match="was used for another message"):
                await operator.says("net", **net)  # it came late, and means the first question
            with pytest.raises(UnsupportedOperationError, match="ceo"):
                await operator.says("approve", task_id=begun.id)
            with pytest.raises(InvalidParamsError, match="approve"):
                await ceo.says("hm", task_id=begun.id)
            ended = await ceo.says("approve", task_id=begun.id, at_once=False)
            assert ended.status.state == DONE
            assert [get_artifact_text(one) for one in ended.artifacts] == ["the total is net"]
            with pytest.raises(UnsupportedOperationError, match="has ended"):
                await ceo.says("again", task_id=begun.id)
            with pytest.raises(TaskNotCancelableError):
                await ceo.cancels(begun.id)

    run_scene(server, scene)
    (bead,) = admin_client.beads.list(type="work").items
    assert (bead.filed_by, bead.description) == ("ola", "500 on /invoices\nsince noon")
    answers = [
        event["actor"] for event in admin_client.audit.list().items if event["type"] == "answered"
    ]
    assert sorted(answers) == ["boss", "ola"]


def test_a_stream_tells_every_change_until_nothing_more_happens_by_itself(
    server: Server, admin_client: SyncClient
):
    token = server.token("operator", "ola")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, token, "one", streaming=True) as caller:
            facts = new_data_part({"severity": 2})
            first = caller.tells("a bug", facts)
            begun = (await anext(first)).task
            assert begun.status.state == WORKING
            given = await report_result(worker, "ask", question="Which?")
            assert given.bead.context["severity"] == 2
            told = [one async for one in first]
            assert [one.status_update.status.state for one in told] == [ASKS]
            second = caller.tells("that one", task_id=begun.id)
            assert (await anext(second)).task.status.state == WORKING
            watched = caller.client.subscribe(SubscribeToTaskRequest(id=begun.id))
            assert (await anext(watched)).task.id == begun.id
            await report_result(worker, "success", text="fixed")
            for stream in (second, watched):
                artifact, end = [one async for one in stream]
                assert get_artifact_text(artifact.artifact_update.artifact) == "fixed"
                assert end.status_update.status.state == DONE

    run_scene(server, scene)


def test_a_run_that_is_stuck_is_a_failed_task_and_one_that_is_cancelled_is_closed(
    server: Server, admin_client: SyncClient
):
    ola, olga = server.token("operator", "ola"), server.token("operator", "olga")
    agents = [
        {"id": one, "role": "backend-engineer", "hands_off_to": [other]}
        for one, other in (("ada", "bob"), ("bob", "ada"))
    ]
    pair = {"name": "pair", "kind": "team", "start": "ada", "terminator": "bob", "agents": agents}
    admin_client.definitions.create({**pair, "stop_rules": {"max_handoffs": 1}})

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, ola, "pair") as caller, open_caller(address, olga) as other:
            stuck = await caller.says("a riddle")
            await report_result(worker, "handoff", to="bob", reason="look")
            await report_result(worker, "handoff", to="ada", reason="no, you")
            failed = await caller.task(stuck.id)
            assert failed.status.state == FAILED
            assert "1 handoffs were made" in status_text(failed)
            begun = await caller.says("another")
            with pytest.raises(UnsupportedOperationError, match="olga"):
                await other.cancels(begun.id)
            assert (await caller.cancels(begun.id)).status.state == CANCELED

    run_scene(server, scene)
    ended = [run.terminal_status for run in admin_client.runs.list(status="ended").items]
    assert sorted(str(one) for one in ended) == ["aborted_stuck", "closed_by_human"]


def test_the_same_message_again_is_the_same_task_and_what_does_not_fit_is_refused(
    server: Server, admin_client: SyncClient
):
    token, other = server.token("operator", "ola"), server.token("operator", "olga")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with (
            open_caller(address, token, "one") as caller,
            open_caller(address, other, "one") as olga,
        ):
            first = await caller.says("a bug", message_id="m-1")
            assert (await caller.says("a bug", message_id="m-1")).id == first.id
            assert (await olga.says("a bug", message_id="m-1")).id != first.id, "it is hers"
            with pytest.raises(TaskNotFoundError):
                await caller.task("no-such-run")
            with pytest.raises(UnsupportedOperationError, match="asks nothing"):
                await caller.says("hurry", task_id=first.id)
            with pytest.raises(InvalidParamsError, match="needs text"):
                await caller.says(" ")
            with pytest.raises(InvalidParamsError, match="lacks `messageId`"):
                await caller.says("a bug", message_id="")
            with pytest.raises(InvalidParamsError, match="was used for another message"):
                await caller.says("another bug", message_id="m-1")
        async with open_caller(address, token, "") as caller:
            with pytest.raises(InvalidParamsError, match="does not say which"):
                await caller.says("a bug")
            assert (await caller.says("a bug", metadata={"definition": "one"})).id
            with pytest.raises(InvalidParamsError, match="nonesuch"):
                await caller.says("a bug", metadata={"definition": "nonesuch"})

    run_scene(server, scene)
    filed = [bead.filed_by for bead in admin_client.beads.list(type="work").items]
    assert sorted(filed) == ["ola", "ola", "olga"]


def test_a_card_says_what_its_token_may_ask_for_and_without_one_only_how_to_come_in(
    server: Server, admin_client: SyncClient
):
    ola, viewer = server.token("operator", "ola"), server.token("viewer", "vic")

    async def scene(address: str, worker: HandrailWorker) -> None:
        async with open_caller(address, ola, "") as caller:
            every = await caller.client.get_extended_agent_card(GetExtendedAgentCardRequest())
            assert {skill.id for skill in every.skills} == {"fix", "one"}
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as http:

            async def card(name: str, token: str = "") -> httpx.Response:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                where = f"{address}/{name}/.well-known/agent-card.json"
                return await http.get(where, headers=headers)

            mine = (await card("one", ola)).json()
            assert [skill["id"] for skill in mine["skills"]] == ["one"]
            assert mine["supportedInterfaces"][0]["url"] == f"{address}/one"
            closed = (await card("one")).json()
            assert "skills" not in closed
            assert "one" not in closed["name"]
            assert closed["securitySchemes"]
            assert (await card("nonesuch")).status_code == 200
            assert (await card("nonesuch", ola)).status_code == 404
            assert (await card("one", viewer)).status_code == 403
            assert (await card("one", "hr_wrong")).status_code == 401
            call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
            nobody = await http.post(f"{address}/one", json=call)
            assert nobody.status_code == 401
            assert nobody.headers["www-authenticate"].startswith("Bearer")
            known = {"Authorization": f"Bearer {ola}"}
            large = b'{"x": "' + b"x" * 3_000_000 + b'"}'
            refused = await http.post(f"{address}/one", content=large, headers=known)
            assert refused.status_code == 413
            old = {**known, "A2A-Version": "0.3"}
            told = (await http.post(f"{address}/one", json=call, headers=old)).json()
            assert told["error"]["code"] == -32009

    run_scene(server, scene)
