"""Both clients against a real server: the same calls, the same answers, the same errors."""

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import FIX, ONE
from tests.client.flaky_transport import Flaky, Mishap
from tests.client.live_server import PATIENCE, Server, free_port

from handrail import AsyncClient, Client, ClientError, SyncClient
from handrail.api.calls import OPERATIONS
from handrail.api.operation import CallGroup, Operation
from handrail.client.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnreachableError,
)
from handrail.client.sse import StreamPosition
from handrail.views.dispatches import DispatchView

ROLE = "backend-engineer"


def signatures(client: Any) -> dict[str, list[Any]]:
    """Every public method of a client and of its subjects: its parameters."""
    methods = {name: value for name, value in inspect.getmembers(client) if callable(value)}
    for subject, group in vars(client).items():
        for name in vars(type(group)) if isinstance(group, CallGroup) else ():
            if isinstance(getattr(type(group), name), Operation):
                methods[f"{subject}.{name}"] = getattr(group, name)
    return {
        name: [
            (one.name, one.kind, one.default)
            for one in inspect.signature(method).parameters.values()
        ]
        for name, method in methods.items()
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods_with_the_same_parameters():
    with Client("http://127.0.0.1:1") as of_threads:
        found = signatures(of_threads)
    assert signatures(AsyncClient(Client("http://127.0.0.1:1"))) == found
    assert len(found) > 80


def test_the_client_has_a_method_for_every_call_of_the_api_and_no_others():
    with Client("http://127.0.0.1:1") as client:
        found = {name for name in signatures(client) if "." in name}
    assert found == {one.name for one in OPERATIONS} | {"runs.get_report_markdown"}


def test_every_call_says_what_it_does_and_what_it_gives():
    for one in OPERATIONS:
        assert one.doc, one.name
        assert one.signature.return_annotation is not inspect.Signature.empty, one.name


def test_a_method_of_either_client_tells_its_own_signature(client: Any):
    one = client.client.beads.get if hasattr(client, "client") else client.beads.get
    assert list(inspect.signature(one).parameters) == ["bead_id"]


@contextmanager
def at_work(server: Server, name: str = "worker-1", role: str = ROLE) -> Iterator[SyncClient]:
    """A client of an agent that has registered."""
    with Client(server.url, server.token("agent", name)) as client:
        client.agents.register(name, [role])
        yield client


def test_a_bead_is_filed_worked_approved_and_looked_at(client: Any, server: Server):
    assert client.sessions.get_me().name == "ana"
    assert client.definitions.validate({"name": "x"}).valid is False
    defined = client.definitions.create(FIX)
    assert (defined.id, defined.version) == ("fix", 1)
    assert client.definitions.update("fix", {**FIX, "metadata": {"a": 1}}).version == 2
    assert client.definitions.get("fix").definition["metadata"] == {"a": 1}
    assert client.definitions.get("fix", version=1).version == 1
    assert [one.version for one in client.definitions.list_versions("fix").items] == [2, 1]
    assert [one.id for one in client.definitions.list().items] == ["fix"]

    bead = client.beads.create("500 on /invoices", workflow_id="fix", context={"severity": 3})
    assert bead.execution_id
    client.beads.add_file(bead.id, "log.txt", b"Traceback", content_type="text/plain")
    assert [one.size for one in client.beads.list_files(bead.id).items] == [9]
    assert client.beads.get_file(bead.id, "log.txt") == b"Traceback"
    assert client.beads.patch(bead.id, {"severity": 2}).context["severity"] == 2
    assert client.runs.explain(bead.execution_id).waiting[0].place == "fix"

    with at_work(server) as agent:
        dispatch = agent.dispatches.claim("worker-1", wait=PATIENCE)
        assert isinstance(dispatch, DispatchView)
        assert (dispatch.bead.title, dispatch.node, dispatch.role) == (
            "500 on /invoices",
            "fix",
            ROLE,
        )
        assert [one.name for one in dispatch.bead.files] == ["log.txt"]
        assert agent.beads.get_file(bead.id, "log.txt") == b"Traceback"
        assert not agent.dispatches.heartbeat(dispatch.id, dispatch.fence).ended
        assert agent.agents.heartbeat("worker-1", holding=[dispatch.id]).held == (dispatch.id,)
        said = {"outcome": "success", "text": "fixed", "data": {"fixed": True}}
        taken = agent.dispatches.report(dispatch.id, dispatch.fence, said)
        assert taken.accepted
        assert taken.execution.id == bead.execution_id
        assert agent.dispatches.claim("worker-1") is None

    (asked,) = client.approvals.list(status="open").items
    assert client.approvals.get(asked.id).result == "fixed"
    answered = client.approvals.answer(asked.id, "ok", digest=asked.digest)
    assert answered.approval.status == "answered"
    run = client.result(bead.execution_id, timeout=PATIENCE)
    assert run.terminal_status == "done_success"
    assert client.runs.get(bead.execution_id, wait=1) == run
    assert [one.to_node_id for one in client.runs.list_transitions(run.id)][-1] == "end"
    assert client.runs.list_steps(run.id).items[0].result.text == "fixed"
    assert client.runs.get_report(run.id).terminal_status == "done_success"
    assert "fixed" in client.runs.get_report_markdown(run.id)
    assert client.runs.explain(run.id).stop.rule == "completed"
    assert client.runs.get_details(run.id).run == run
    assert client.runs.list_summaries([run.id]).items[0].total_steps == run.total_steps
    assert [one.id for one in client.runs.list(status="ended").items] == [run.id]
    assert [one.id for one in client.beads.list_runs(bead.id).items] == [run.id]
    assert client.beads.get(bead.id).status == "closed"
    assert client.beads.list_history(bead.id).items[0]["type"] == "started"
    assert [one.id for one in client.beads.list(status="closed", type="work").items] == [bead.id]
    assert client.definitions.get_metrics(workflow_id="fix").items[0].runs == 1

    again = client.runs.start(bead.id)
    assert client.runs.override(again.id, "pause", "lunch").status == "paused"
    assert client.runs.override(again.id, "resume", "back").status == "running"
    assert client.runs.override(again.id, "close", "enough").terminal_status == "closed_by_human"
    acts = client.each(client.audit.list, people=True, actor="ana", limit=5)
    assert [one["type"] for one in acts if one.get("execution_id") == again.id][:2] == [
        "ended",
        "resumed",
    ]
    assert client.audit.verify().ok


def test_tokens_agents_and_settings(client: Any, server: Server):
    made = client.tokens.create("agent", agent="curl-1", works_as=[ROLE], expires="1d")
    assert made.token
    assert made.agent == "curl-1"
    assert made.id in [one.id for one in client.tokens.list().items]
    with Client(server.url, made.token) as agent:
        assert agent.sessions.get_me().role == "agent"
        agent.agents.register("curl-1", [ROLE], capacity=3)
        assert agent.agents.get("curl-1").capacity == 3
        with pytest.raises(AccessDeniedError, match="does not allow the roles"):
            agent.agents.register("curl-1", ["qa-engineer"])
    assert [one.id for one in client.agents.list().items] == ["curl-1"]
    assert client.agents.enable("curl-1", enabled=False).enabled is False
    client.agents.remove("curl-1")
    assert client.agents.list().items == ()
    client.tokens.revoke(made.id)
    with Client(server.url, made.token) as agent, pytest.raises(AccessDeniedError):
        agent.sessions.get_me()
    assert {"lease", "heartbeat"} <= {one.name for one in client.settings.list().items}


def test_a_list_is_gone_through_page_by_page(client: Any):
    for number in range(7):
        client.beads.create(f"bead {number}")
    page = client.beads.list(limit=3)
    assert len(page.items) == 3
    assert page.next_cursor
    found = [one.title for one in client.each(client.beads.list, limit=3)]
    assert found == [f"bead {number}" for number in reversed(range(7))]


def test_a_wait_that_is_too_short_is_told(client: Any):
    client.definitions.create(ONE)
    bead = client.beads.create("x", workflow_id="one")
    with pytest.raises(TimeoutError, match="is running after"):
        client.result(bead.execution_id, timeout=0.1)


def test_what_the_server_refuses_is_one_line_with_all_of_it(
    client: Any, server: Server, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(InvalidRequestError) as invalid:
        client.definitions.create({**FIX, "nodes": FIX["nodes"][1:]})
    assert invalid.value.code == "invalid_definition"
    assert invalid.value.errors
    with pytest.raises(NotFoundError, match=r"GET /api/v1/beads/nope \(404\)"):
        client.beads.get("nope")
    client.definitions.create(ONE)
    bead = client.beads.create("x", workflow_id="one")
    with pytest.raises(ConflictError) as conflict:
        client.runs.start(bead.id)
    assert conflict.value.code == "bead_busy"
    with Client(server.url, "hr_wrong") as stranger, pytest.raises(AccessDeniedError) as denied:
        stranger.beads.list()
    assert denied.value.status == 401
    monkeypatch.delenv("HANDRAIL_TOKEN", raising=False)
    with Client(server.url) as nobody, pytest.raises(AccessDeniedError) as missing:
        nobody.beads.list()
    assert str(missing.value).endswith(
        "the request has no API token; create one with `handrail token create` and set "
        "HANDRAIL_TOKEN to it"
    )
    with (
        Client(server.url, server.token("viewer", "vic")) as viewer,
        pytest.raises(AccessDeniedError) as less,
    ):
        viewer.beads.create("x")
    assert less.value.status == 403
    for error in (invalid, conflict, denied, less):
        assert "\n" not in str(error.value)


def test_a_file_that_is_no_definition_is_told_before_anything_is_sent(client: Any, tmp_path: Path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: [")
    with pytest.raises(InvalidRequestError, match=r"nothing was sent: the file .*wrong.yaml"):
        client.definitions.create(wrong)


def test_nobody_there_is_another_error_than_a_refusal():
    nowhere = Client(f"http://127.0.0.1:{free_port()}", "t", patience=0.2)
    with nowhere as client, pytest.raises(UnreachableError) as raised:
        client.sessions.get_me()
    assert isinstance(raised.value, ClientError)
    assert "GET /api/v1/me: no server answers at http://127.0.0.1:" in str(raised.value)


def test_server_and_token_come_from_the_environment(
    server: Server, admin: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HANDRAIL_SERVER", f"http://127.0.0.1:{free_port()}, {server.url}")
    monkeypatch.setenv("HANDRAIL_TOKEN", admin)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with Client() as client:
        assert client.sessions.get_me().name == "ana"


def test_a_token_that_cannot_be_one_is_told_before_anything_is_sent():
    with pytest.raises(ValueError, match="set HANDRAIL_TOKEN again"):
        Client(token="hr_ü")
    assert Client(token="hr_x\n").retry_policy.token == "hr_x"


MISHAPS: list[list[Mishap]] = [
    ["lost", "lost"],
    ["deaf"],
    ["twice"],
    ["busy", "deaf"],
    ["slow"],
    ["deaf", "twice", "lost", "slow", "deaf", "busy"],
]


@pytest.mark.requirement("L8.7")
@pytest.mark.parametrize("mishaps", MISHAPS, ids="-".join)
def test_a_call_that_is_tried_again_does_nothing_twice(
    server: Server, admin: str, admin_client: Any, mishaps: list[Mishap]
):
    """Every POST of a run's life, each of them with all that can go wrong on the way."""
    admin_client.definitions.create(FIX)
    agent_token = server.token("agent", "worker-1")
    with Flaky(server.port) as flaky:

        def through(token: str) -> Any:
            return Client(flaky.url, token, timeout=1 if "slow" in mishaps else PATIENCE)

        with through(admin) as client, through(agent_token) as agent:

            def mishap() -> None:
                flaky.mishaps.extend(mishaps)

            mishap()
            bead = client.beads.create("once", workflow_id="fix")
            mishap()
            agent.agents.register("worker-1", [ROLE])
            mishap()
            dispatch = agent.dispatches.claim("worker-1", holding=[])
            assert dispatch is not None
            mishap()
            agent.dispatches.report(
                dispatch.id, dispatch.fence, {"outcome": "success", "text": "ok"}
            )
            (asked,) = admin_client.approvals.list(status="open").items
            mishap()
            client.approvals.answer(asked.id, "ok", digest=asked.digest)
        keys = [key for key in flaky.keys if key]
    assert len(set(keys)) == 5
    assert len(keys) > 5 or mishaps == ["twice"]
    assert [one.id for one in admin_client.each(admin_client.beads.list, type="work")] == [bead.id]
    run = admin_client.result(bead.execution_id, timeout=PATIENCE)
    assert run.terminal_status == "done_success"
    kinds = [one["type"] for one in admin_client.beads.list_history(bead.id).items]
    assert kinds == ["started", "moved", "offered", "claimed", "reported", "moved", "asked",
                     "answered", "moved", "ended"]  # fmt: skip


def test_the_same_key_means_the_same_bead(client: Any):
    first = client.beads.create("once", key="ticket 4711")
    assert client.beads.create("once", key="ticket 4711").id == first.id
    assert len(client.beads.list().items) == 1
    with pytest.raises(InvalidRequestError) as raised:
        client.beads.create("another", key="ticket 4711")
    assert raised.value.code == "key_reused"


def worked(server: Server, execution: str) -> None:
    """Another hand finishes the run of one task."""
    with at_work(server) as agent:
        dispatch = agent.dispatches.claim("worker-1", wait=PATIENCE)
        assert isinstance(dispatch, DispatchView)
        agent.dispatches.report(dispatch.id, dispatch.fence, {"outcome": "success"})


def test_a_run_is_followed_event_by_event_to_its_end(client: Any, server: Server):
    client.definitions.create(ONE)
    bead = client.beads.create("x", workflow_id="one")
    events = client.runs.follow(bead.execution_id)
    seen = [next(events).type for _ in range(3)]
    assert seen == ["started", "moved", "offered"]
    working = threading.Thread(target=worked, args=(server, bead.execution_id), daemon=True)
    working.start()
    rest = list(events)
    working.join(PATIENCE)
    assert [one.type for one in rest][-1] == "ended"
    assert [one.seq for one in rest] == list(range(4, 4 + len(rest)))
    assert rest[0].actor == "worker-1"
    last = rest[-1].seq
    assert [one.seq for one in client.runs.follow(bead.execution_id, after=last - 1)] == [last]
    assert list(client.runs.follow(bead.execution_id, after=last)) == []
    with pytest.raises(NotFoundError):
        list(client.runs.follow("nope"))


def test_events_go_on_across_a_restart_of_the_server_without_a_gap(client: Any, server: Server):
    client.definitions.create(ONE)
    first, second = (client.beads.create("x", workflow_id="one") for _ in range(2))
    feed = client.events.follow("0")
    seen = [next(feed) for _ in range(4)]
    run = client.runs.follow(first.execution_id)
    numbers = [next(run).seq]
    server.stop()
    server.start()
    worked(server, first.execution_id)
    numbers += [one.seq for one in run]
    assert numbers == list(range(1, len(numbers) + 1))
    while seen[-1].type != "ended":
        seen.append(next(feed))
    places = [(one.execution_id, one.seq) for one in seen]
    assert len(places) == len(set(places))
    assert sorted(seq for run_id, seq in places if run_id == first.execution_id) == numbers
    after = next(one.id for one in seen if one.execution_id == second.execution_id)
    assert (
        next(client.events.follow(after)).id == seen[[one.id for one in seen].index(after) + 1].id
    )


def test_the_feed_goes_on_from_where_it_began_even_if_nothing_had_happened_yet(
    client: Any, server: Server, monkeypatch: pytest.MonkeyPatch
):
    client.definitions.create(ONE)
    before = client.beads.create("before", workflow_id="one")
    feed, filed, heard, take = (
        client.events.follow(),
        list[str](),
        threading.Event(),
        StreamPosition.accept,
    )

    def taken(self: StreamPosition, frame: Any) -> Any:
        heard.set()
        return take(self, frame)

    def restart() -> None:
        """Once the client knows where it is: something happens while no server is there."""
        heard.wait()
        server.stop()
        server.start(before=lambda: filed.append(server.file("one")))

    monkeypatch.setattr(StreamPosition, "accept", taken)
    restarting = threading.Thread(target=restart, daemon=True)
    restarting.start()
    first = next(feed)
    restarting.join()
    assert first.type == "started"
    assert filed == [first.execution_id]
    assert first.execution_id != before.execution_id
