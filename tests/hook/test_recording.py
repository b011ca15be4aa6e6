"""Hook sessions where people look: ended runs in a database, running ones on a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.live_server import Server
from tests.hook.agent_forms import AgentForm, GeminiForm
from tests.patience import PATIENCE, wait_until

from handrail.client.clients import Client, SyncClient
from handrail.engine.audit.doctor import check_database
from handrail.engine.audit.verification import verify
from handrail.engine.opening import open as open_engine
from handrail.guard import server_recorder
from handrail.hook import recording
from handrail.hook.options import HookOptions
from handrail.hook.recording import RunRecorders, write_ended_runs
from handrail.hook.service import HookService
from handrail.store.urls import open_maintenance_store
from handrail.testing.clock import ManualClock

COMMAND = {"command": "pytest -q"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(f"sqlite:///{tmp_path_factory.mktemp('server') / 'work.db'}") as running:
        yield running


@pytest.fixture
def person(server: Server) -> Iterator[SyncClient]:
    with Client(server.url, server.token("ceo", "ann")) as client:
        yield client


@pytest.fixture
def on_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> HookOptions:
    monkeypatch.setattr(server_recorder, "FLUSH_SECONDS", PATIENCE)
    monkeypatch.setenv(recording.TOKEN_VARIABLE, server.token("operator", "hooks"))
    return HookOptions(record=server.url)


class Daemon:
    """What the daemon does at each request, in this process."""

    def __init__(self, folder: Path, options: HookOptions) -> None:
        self.clock = ManualClock()
        self.service, self.options = HookService(folder, self.clock.now), options
        self.recorders = RunRecorders(self.service)

    def send(self, payload: bytes) -> bytes:
        answer = self.service.answer(payload, self.options)
        self.recorders.follow()
        self.recorders.tick()
        return answer.stdout

    @property
    def recorded(self) -> str:
        """The id of the last conversation's run on the server."""
        run = next(reversed(self.service.conversations.values())).conversation.run
        return wait_until(lambda: run is not None and run.recorded)

    def close(self) -> None:
        self.recorders.close()
        self.service.store.close()


def stop_by_a_loop(daemon: Daemon, form: AgentForm) -> None:
    daemon.send(form.prompt("make the tests pass"))
    for _ in range(5):
        daemon.send(form.done("Bash", COMMAND, "1 failed: test_cart"))
    assert form.is_denied(daemon.send(form.proposed("Bash", COMMAND)))


@pytest.mark.parametrize("make_form", [AgentForm, GeminiForm])
def test_ended_runs_are_in_the_database_like_any_other(
    make_form: type[AgentForm], tmp_path: Path
) -> None:
    form, url = make_form(), f"sqlite:///{tmp_path}/work.db"
    daemon = Daemon(tmp_path / "hook", HookOptions(record=url))
    stop_by_a_loop(daemon, form)
    daemon.send(form.prompt("then read the page"))
    daemon.close()  # the second run goes on in another process
    daemon = Daemon(tmp_path / "hook", HookOptions(record=url))
    daemon.send(form.done("Read", {"path": "page"}, "a page"))
    daemon.send(form.end("I have read it."))
    daemon.send(form.session_end())
    daemon.close()
    assert write_ended_runs(daemon.service.store) == ""
    assert daemon.service.store.ended_runs() == []
    with open_engine(url, visit=True) as opened:
        runs = opened.do(opened.engine.run_queries.list()).items
    assert {run.terminal_status for run in runs} == {"aborted_stuck", "done_success"}
    store = open_maintenance_store(url, read_only=True)
    try:
        assert (verify(store).findings, check_database(store)) == ((), [])
    finally:
        store.close()


def test_a_run_is_on_the_server_while_it_goes_on(
    on_server: HookOptions, person: SyncClient, tmp_path: Path
) -> None:
    daemon, form = Daemon(tmp_path, on_server), AgentForm()
    daemon.send(form.prompt("make the tests pass"))
    daemon.send(form.done("Bash", COMMAND, "1 failed: test_cart"))
    daemon.send(form.done("Read", {"path": "cart.py"}, "class Cart"))
    run_id = daemon.recorded
    running = person.runs.get(run_id)
    assert (running.status, running.current_node_id) == ("running", "claude-code")
    wait_until(lambda: person.runs.get(run_id).total_steps >= 1)
    daemon.send(form.end("It fails because of the cart."))
    daemon.send(form.session_end())
    ended = wait_until(lambda: (run := person.runs.get(run_id)).terminal_status and run)
    assert (ended.terminal_status, ended.total_steps) == ("done_success", 3)
    daemon.close()


def test_a_stop_is_on_the_server_with_its_reason(
    on_server: HookOptions, person: SyncClient, tmp_path: Path
) -> None:
    daemon = Daemon(tmp_path, on_server)
    stop_by_a_loop(daemon, AgentForm())
    run_id = daemon.recorded
    ended = wait_until(lambda: (run := person.runs.get(run_id)).stop and run)
    assert ended.stop is not None
    assert (ended.stop.rule, ended.stop.profile) == ("no_change", "observed")
    assert "test_cart" not in person.runs.get_report_markdown(run_id)
    daemon.close()


def test_a_person_who_closes_the_run_stops_the_agent(
    on_server: HookOptions, person: SyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_recorder, "HEARTBEAT_SECONDS", 0.1)
    daemon, form = Daemon(tmp_path, on_server), AgentForm()
    daemon.send(form.prompt("make the tests pass"))
    daemon.send(form.done("Bash", COMMAND, "1 failed"))
    person.runs.override(daemon.recorded, "close", reason="enough")
    wait_until(lambda: form.is_denied(daemon.send(form.proposed("Bash", COMMAND))))
    daemon.close()
    later = Daemon(tmp_path, HookOptions())  # the end was kept
    assert form.is_denied(later.send(form.proposed("Bash", COMMAND)))
    later.send(form.prompt("go on"))
    assert later.send(form.proposed("Bash", COMMAND)) == b""


def test_a_turn_that_was_quiet_after_its_end_is_over(
    on_server: HookOptions, person: SyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "TICK_SECONDS", 0.0)
    daemon, form = Daemon(tmp_path, on_server), AgentForm()
    daemon.send(form.prompt("read the page"))
    daemon.send(form.done("Read", {"path": "page"}, "a page"))
    daemon.send(form.end("Read."))
    run_id = daemon.recorded
    daemon.recorders.tick()
    assert person.runs.get(run_id).status == "running"
    daemon.clock.advance(seconds=recording.QUIET_SECONDS + 1)
    daemon.recorders.tick()
    wait_until(lambda: person.runs.get(run_id).terminal_status == "done_success")
    daemon.close()


def test_a_server_that_is_away_lets_the_agent_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_recorder, "FLUSH_SECONDS", 0.0)
    options = HookOptions(record="http://127.0.0.1:9")
    daemon, form = Daemon(tmp_path, options), AgentForm()
    assert daemon.send(form.prompt("x")) == b""
    assert daemon.send(form.done("Bash", COMMAND, "1 failed")) == b""
    daemon.close()


@pytest.mark.parametrize("record", ["sqlite:////proc/none/work.db", "http://["])
def test_a_record_that_cannot_be_is_said_to_the_user(record: str, tmp_path: Path) -> None:
    daemon, form = Daemon(tmp_path, HookOptions(record=record)), AgentForm()
    daemon.send(form.prompt("read"))
    daemon.send(form.session_end())
    daemon.close()
    assert b"runs are not recorded" in daemon.send(form.prompt("again"))
    assert daemon.send(form.done("Bash", COMMAND, "x")) == b""
    daemon.close()
