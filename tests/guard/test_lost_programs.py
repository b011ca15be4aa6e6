"""Programs that die, fall silent or come back late while a server is told of them; servers that
come and go: the run ends with a reason, and nobody is asked for nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.client.live_server import Server
from tests.guard.test_server_recorder import guard_on, wait_until
from tests.patience import PATIENCE

from handrail.client.clients import Client, SyncClient
from handrail.client.errors import ConflictError
from handrail.engine.settings import EngineSettings
from handrail.guard import server_recorder

SILENCE = timedelta(minutes=6)
PROGRAM = """
import sys
import time
from handrail import Guard, Stopped
from handrail.guard import server_recorder
server_recorder.HEARTBEAT_SECONDS = server_recorder.POLL_SECONDS = 0.1
server_recorder.RETRY_SECONDS = 0.1
try:
    with Guard(record=sys.argv[1], token=sys.argv[2]).run("r", team=sys.argv[3]) as run:
        run.handoff("clerk", "buyer")
        while not run.recorded:
            time.sleep(0.01)
        print(run.recorded, flush=True)
        if sys.argv[4] == "ask":
            run.ask("may I buy it?")
        while run.server_end is None:
            time.sleep(0.01)
        run.handoff("buyer", "clerk")
except Stopped as stopped:
    print(stopped.stop.rule, flush=True)
"""


class Ahead:
    """The time, and more of it whenever a test cannot wait."""

    def __init__(self) -> None:
        self.by = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.by


@pytest.fixture(scope="module")
def clock() -> Ahead:
    return Ahead()


@pytest.fixture(scope="module")
def server(tmp_path_factory, clock: Ahead) -> Iterator[Server]:
    database = f"sqlite:///{tmp_path_factory.mktemp('server') / 'work.db'}"
    with Server(database, engine=EngineSettings(pulse=0.1), clock=clock) as one:
        yield one


@pytest.fixture
def person(server: Server) -> Iterator[SyncClient]:
    with Client(server.url, server.token("ceo", "ann")) as client:
        yield client


@contextmanager
def program(server: Server, team: str, does: str = "") -> Iterator[tuple[subprocess.Popen, str]]:
    """A real one, with the id of its run."""
    given = [server.url, server.token("operator", "program"), team, does]
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *given],
        stdout=subprocess.PIPE,
        text=True,
    )
    with started as one:
        try:
            assert one.stdout is not None
            yield one, one.stdout.readline().strip()
        finally:
            one.kill()


def ended(person: SyncClient, run_id: str, clock: Ahead) -> Any:
    """The run, once nothing was heard of it for long."""
    clock.by += SILENCE
    return wait_until(lambda: (it := person.runs.get(run_id)).stop and it)


def is_replayed_the_same(person: SyncClient, run_id: str) -> bool:
    (replayed,) = person.runs.replay([run_id], "strict").items
    return replayed.verdict == "same"


def test_a_program_that_is_killed_leaves_a_run_that_ends_and_says_why(server, person, clock):
    with program(server, "killed") as (one, run_id):
        one.kill()
        run = ended(person, run_id, clock)
    assert (run.stop.rule, run.terminal_status) == ("agent_lost", "aborted_stuck")
    assert "nothing was heard" in run.stop.reason
    assert is_replayed_the_same(person, run_id)


def test_the_question_of_a_program_that_is_killed_is_void_and_can_be_answered_no_more(
    server, person, clock
):
    with program(server, "asking", "ask") as (one, run_id):
        question = wait_until(
            lambda: [q for q in person.approvals.list().items if q.execution_id == run_id]
        )
        one.kill()
        assert ended(person, run_id, clock).stop.rule == "agent_lost"
    assert person.approvals.get(question[0].id).status == "void"
    with pytest.raises(ConflictError):
        person.approvals.answer(question[0].id, "yes, do")
    assert is_replayed_the_same(person, run_id)


def test_an_answer_that_comes_when_the_program_is_gone_keeps_no_run_alive(server, person, clock):
    with program(server, "answered", "ask") as (one, run_id):
        question = wait_until(
            lambda: [q for q in person.approvals.list().items if q.execution_id == run_id]
        )
        one.kill()
        one.wait(PATIENCE)
        person.approvals.answer(question[0].id, "yes, do")
        assert ended(person, run_id, clock).stop.rule == "agent_lost"
    assert is_replayed_the_same(person, run_id)


def test_a_program_that_comes_back_too_late_is_told_and_stops(server, person, clock):
    with program(server, "late") as (one, run_id):
        os.kill(one.pid, signal.SIGSTOP)
        try:
            assert ended(person, run_id, clock).stop.rule == "agent_lost"
        finally:
            os.kill(one.pid, signal.SIGCONT)
        said, _ = one.communicate(timeout=PATIENCE)
    assert said.strip() == "agent_lost"
    assert "buyer" not in [way.from_node_id for way in person.runs.list_transitions(run_id)]


def test_a_server_that_comes_and_goes_is_told_all_of_it(tmp_path, monkeypatch):
    for name in ("HEARTBEAT_SECONDS", "RETRY_SECONDS", "RETRY_SECONDS_MAX"):
        monkeypatch.setattr(server_recorder, name, 0.1)
    monkeypatch.setattr(server_recorder, "FLUSH_SECONDS", PATIENCE)
    one = Server(f"sqlite:///{tmp_path / 'work.db'}", engine=EngineSettings(pulse=0.1))
    with one:
        guard = guard_on(one)
    with guard.run("r", team="restarted") as run:
        for source, target in ("ab", "bc"):
            run.handoff(source, target)
            with one:
                wait_until(lambda: run.recorded)
                wait_until(
                    lambda at=target: at in one.do(one.engine.runs.state(run.recorded)).positions
                )
        one.start()
    try:
        with Client(one.url, one.token("ceo", "ann")) as person:
            assert person.runs.get(run.recorded).terminal_status == "done_success"
            assert is_replayed_the_same(person, run.recorded)
    finally:
        one.stop()
