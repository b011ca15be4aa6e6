"""A guarded run on a server: there while it goes on, with people's answers, the same at last."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from tests.client.live_server import Server, free_port
from tests.guard.test_recording import STORIES
from tests.patience import PATIENCE, wait_until

import handrail
from handrail import Guard, Stopped, StopRules
from handrail.client.clients import Client, SyncClient
from handrail.client.errors import AccessDeniedError, ConflictError, InvalidRequestError
from handrail.engine.audit.doctor import check_database
from handrail.engine.audit.verification import verify
from handrail.guard import server_recorder
from handrail.guard.server_recorder import HumanReply
from handrail.kernel.definition.limits import STRICT
from handrail.kernel.run.events import HandedOff, Started
from handrail.store.urls import open_maintenance_store


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    database = f"sqlite:///{tmp_path_factory.mktemp('server') / 'work.db'}"
    with Server(database) as one:
        yield one


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    monkeypatch.setattr(server_recorder, "FLUSH_SECONDS", PATIENCE)


@pytest.fixture
def person(server: Server) -> Iterator[SyncClient]:
    with Client(server.url, server.token("ceo", "ann")) as client:
        yield client


def guard_on(server: Server, **given: Any) -> Guard:
    token = server.token("operator", "program")
    return Guard(record=server.url, token=token, **{"answer_seconds": 3 * PATIENCE, **given})


def open_question(person: SyncClient, run: handrail.GuardedRun) -> Any:
    def look() -> Any:
        items = person.approvals.list(status="open").items
        return next((one for one in items if one.execution_id == run.recorded), None)

    return wait_until(look)


def test_a_question_may_be_the_first_act_of_a_run(server, person):
    with (
        guard_on(server).run("ticket 1", team="pair") as run,
        ThreadPoolExecutor(1) as pool,
    ):
        reply = pool.submit(run.ask, "may it begin?")
        question = open_question(person, run)
        assert question.question == "may it begin?"
        person.approvals.answer(question.id, "yes, begin")
        answered = reply.result(PATIENCE)
        assert answered is not None
        assert answered.text == "yes, begin"
        assert run.handoff("planner", "coder") is None


def test_a_run_is_there_while_it_goes_on(server, person):
    with guard_on(server).run("ticket 1", task="why?", team="pair") as run:
        run.handoff("planner", "coder", reason="tests are red")
        wait_until(lambda: run.recorded)
        seen = wait_until(lambda: (it := person.runs.get(run.recorded)).handoff_sequence and it)
        assert (seen.status, seen.current_node_id) == ("running", "coder")
        assert run.recorded in [item.id for item in person.runs.list(status="running").items]
        assert "elsewhere" in person.runs.explain(run.recorded).waiting[0].message
        run.handoff("coder", "tester")
        with closing(person.runs.follow(run.recorded)) as told:
            handed = (event for event in told if event.type == "handed_off")
            assert [next(handed).data["target"] for _ in range(2)] == ["coder", "tester"]
        run.result("tester", text="done", usage={"tokens": 7})
    ended = person.runs.get(run.recorded)
    assert (ended.terminal_status, ended.usage.tokens) == ("done_success", 7)
    assert ended.final_agent == "tester"
    assert run.unrecorded == 0


def test_a_dry_run_is_on_the_server_with_what_the_rules_would_have_done(server, person):
    guard = guard_on(server, rules=StopRules(max_handoffs=8), dry_run=True)
    with guard.run("ticket 2", team="dry") as run:
        for _ in range(20):
            run.result("planner")
            run.handoff("planner", "coder")
            run.handoff("coder", "planner")
    seen = person.runs.get(run.recorded)
    assert (seen.dry_run, seen.terminal_status) == (True, "done_success")
    would_have = [(entry.rung, entry.rule.value, entry.step) for entry in run.would_have]
    assert [(entry.rung, entry.rule, entry.step) for entry in seen.would_have] == would_have
    assert {warning.code for warning in seen.warnings} == {"would_nudge", "would_stop"}
    assert f"dry run: {seen.would_have[0].rule} would" in person.runs.explain(run.recorded).notes[0]
    assert "| stop | max_handoffs |" in person.runs.get_report_markdown(run.recorded)
    headers = {"Authorization": f"Bearer {server.token('viewer')}"}
    metrics = httpx.get(f"{server.url}/metrics", headers=headers).text
    assert 'handrail_would_stop_total{rule="max_handoffs"} 1.0' in metrics


def test_an_unguarded_run_says_so_on_the_server(server, person):
    class Unreadable:
        def __repr__(self) -> str:
            raise RuntimeError("this value has no text")

    with guard_on(server).run("r", raises=False) as run:
        for n in range(3):
            run.handoff("a", "b")
            run.called("b", "look", n, Unreadable())
            run.errors.note(ValueError("a secret"), "a nudge could not be delivered")
    view = person.runs.get(run.recorded)
    assert view.unguarded == run.errors.unguarded != ""
    assert [warning.code for warning in view.warnings] == ["guard_error"]
    assert "secret" not in view.warnings[0].message


def test_a_result_waits_for_what_comes_after_its_warnings(server, person):
    with guard_on(server, rules=StopRules(profile="observed")).run("ticket 3", team="slow") as run:
        for n in range(5):
            run.called("coder", "bash", str(n), None, f"command {n} timed out")
            run.handoff("coder", "coder")
    seen = person.runs.get(run.recorded)
    codes = [(warning.code, warning.step) for warning in seen.warnings]
    assert codes == [("pattern_by_names", 3), ("timeouts", 4)]
    assert run.unrecorded == 0


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_it_ends_on_the_server_as_it_ended_here_and_replays_the_same(server, person, story):
    with guard_on(server).run(story.__name__, raises=False, team=story.__name__) as run:
        story(run)
    kept, seen = person.runs.get_report(run.recorded), run.report()
    assert kept.why == seen.why or kept.stop.rule == "terminated"
    assert kept.terminal_status == seen.terminal_status
    assert kept.totals.handoffs == seen.totals.handoffs
    assert kept.usage == seen.usage
    (replayed,) = person.runs.replay([run.recorded], "strict").items
    assert replayed.verdict == "same", replayed.told


def test_a_team_that_shows_more_of_itself_is_the_next_version_and_the_same_again_is_not(
    server, person
):
    def play(*ways: tuple[str, str]) -> Any:
        with guard_on(server).run("r", team="growing") as run:
            for source, target in ways:
                run.handoff(source, target)
        return person.runs.get(run.recorded).workflow_version

    first = play(("a", "b"))
    assert play(("a", "b")) == first
    assert play(("a", "b"), ("b", "c")) > first
    agents = {
        agent["id"]: agent for agent in person.definitions.get("growing").definition["agents"]
    }
    assert agents["b"]["hands_off_to"] == ["c"]


def test_a_persons_answer_comes_through_the_inbox_and_their_time_is_not_the_runs(server, person):
    guard = guard_on(server, rules=StopRules(max_duration=600))
    with ThreadPoolExecutor(1) as threads, guard.run("r", team="asking") as run:
        run.handoff("clerk", "buyer")
        asked = threads.submit(run.ask, "may I buy it?")
        question = open_question(person, run)
        assert (question.question, question.node_id) == ("may I buy it?", "buyer")
        assert person.runs.get(run.recorded).status == "waiting"
        person.approvals.answer(question.id, "for 10 euros at most")
        assert asked.result(PATIENCE) == HumanReply(text="for 10 euros at most", by="ann")
        run.handoff("buyer", "clerk")
    assert run.unrecorded == 0
    assert person.runs.get(run.recorded).terminal_status == "done_success"
    (replayed,) = person.runs.replay([run.recorded], "strict").items
    assert replayed.verdict == "same", replayed.told


def test_nobody_in_time_is_a_stop(server, person):
    guard = guard_on(server, answer_seconds=0.2)
    with pytest.raises(Stopped) as caught, guard.run("r", team="late") as run:
        run.handoff("clerk", "buyer")
        run.ask("may I buy it?")
    assert caught.value.stop.rule == "human_deadline"
    assert person.runs.get(run.recorded).stop.rule == "human_deadline"


def test_who_closes_the_run_on_the_server_stops_the_program(server, person, monkeypatch):
    monkeypatch.setattr(server_recorder, "HEARTBEAT_SECONDS", 0.1)
    with pytest.raises(Stopped) as caught, guard_on(server).run("r", team="closed") as run:
        run.handoff("a", "b")
        wait_until(lambda: run.recorded and person.runs.get(run.recorded).handoff_sequence)
        person.runs.override(run.recorded, "close", "enough of it")
        wait_until(lambda: run.server_end)
        run.handoff("b", "c")
    assert (caught.value.stop.rule, run.report().terminal_status) == ("closed", "closed_by_human")
    assert [event.target for event in run.events if isinstance(event, HandedOff)] == ["b"]
    assert run.unrecorded == 0
    (replayed,) = person.runs.replay([run.recorded], "strict").items
    assert replayed.verdict == "same", replayed.told


def test_a_pause_on_the_server_holds_the_record_up_and_not_the_program(server, person, monkeypatch):
    monkeypatch.setattr(server_recorder, "RETRY_SECONDS", 0.1)
    with guard_on(server).run("r", team="paused") as run:
        run.handoff("a", "b")
        wait_until(lambda: person.runs.list(q=run.recorded).items if run.recorded else None)
        person.runs.override(run.recorded, "pause", "let me look")
        run.handoff("b", "c")
        person.runs.override(run.recorded, "resume", "go on")
    assert run.unrecorded == 0
    assert person.runs.get(run.recorded).final_agent == "c"


def test_a_server_that_is_not_there_costs_nobody_a_result_and_it_is_told(monkeypatch, caplog):
    for name in ("FLUSH_SECONDS", "RETRY_SECONDS_MAX", "RETRY_SECONDS"):
        monkeypatch.setattr(server_recorder, name, 0.1)
    with Guard(record=f"http://127.0.0.1:{free_port()}", token="t").run("r") as run:
        run.handoff("a", "b")
    assert run.report().terminal_status == "done_success"
    assert (run.recorded, run.unrecorded) == ("", 2)
    assert "2 events of a guarded run were not recorded" in caplog.text


def test_a_server_that_comes_later_is_told_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(server_recorder, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(server_recorder, "RETRY_SECONDS_MAX", 0.1)
    server = Server(f"sqlite:///{tmp_path / 'work.db'}")
    with server:
        token = server.token("operator", "program")
    with Guard(record=server.url, token=token).run("r") as run:
        run.handoff("a", "b")
        run.handoff("b", "a")
        with server:
            wait_until(lambda: run.recorded)
            run.handoff("a", "c")
            run.complete()
            assert run.recorder is not None
            run.recorder.close()
            state = server.do(server.engine.runs.state(run.recorded))
    assert (state.ledger.handoffs, run.unrecorded) == (3, 0)


def test_only_who_began_it_tells_of_a_run_and_only_of_a_guarded_one(server, person):
    with guard_on(server).run("r", team="mine") as run:
        run.handoff("a", "b")
        wait_until(lambda: run.recorded)
        with (
            Client(server.url, server.token("operator", "other")) as other,
            pytest.raises(AccessDeniedError),
        ):
            other.guarded_runs.record(run.recorded, [], run.events[0].at)
    with (
        Client(server.url, server.token("operator", "program")) as program,
        pytest.raises(ConflictError, match="has ended"),
    ):
        program.guarded_runs.record(run.recorded, [], run.events[0].at)
    document = {
        "name": "their own",
        "kind": "team",
        "start": "a",
        "terminator": "a",
        "agents": [{"id": "a", "hands_off_to": []}],
    }
    server.do(server.engine.define(document))
    started = run.events[0]
    assert isinstance(started, Started)
    with pytest.raises(ConflictError, match="not a guarded run"):
        person.guarded_runs.record(server.file("their own"), [], started.at)
    with pytest.raises(ConflictError, match="not of a guarded program"):
        person.guarded_runs.begin("their own", started.limits, agent="a")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([{"type": "ended"}, {"type": "ended"}], "follows the one that ends"),
        ([{"type": "handed_off", "at": "2026-01-01T00:00:00"}], "no time zone"),
        ([{"type": "handed_off", "target": "b\0"}], "NUL"),
        ([{"type": "handed_off", "target": ""}], "agents"),
        ([{"type": "moved"}], "moved"),
        (
            [{"type": "warned", "code": "timeouts", "message": "", "unguarded": True}],
            "no error of a guard",
        ),
    ],
)
def test_what_cannot_have_been_is_refused_and_changes_nothing(server, person, events, told):
    now = "2026-01-01T00:00:00Z"
    common = {"at": now, "source": "a", "target": "b", "reason": "", "status": "done_success"}
    stop = {"rule": "completed", "reason": "done"}
    body = {"events": [{**common, "stop": stop, **event} for event in events], "at": now}
    with Client(server.url, server.token("operator", "program")) as program:
        run_id = program.guarded_runs.begin("odd", STRICT, agent="a").id
        with pytest.raises(InvalidRequestError, match=told):
            program.guarded_runs.record(run_id, **body)
        far = [HandedOff(at=datetime.max.replace(tzinfo=UTC), source="a", target="b", reason="")]
        program.guarded_runs.record(run_id, far, datetime.min.replace(tzinfo=UTC))
    assert [one.to_node_id for one in person.runs.list_transitions(run_id)] == ["a", "b"]


def test_what_is_on_record_is_verified_and_every_invariant_holds(server, person):
    with guard_on(server).run("r", team="checked") as run:
        run.handoff("a", "b")
        wait_until(lambda: person.runs.list(q=run.recorded).items if run.recorded else None)
        store = open_maintenance_store(server.database, read_only=True)
        try:
            found, wrong = verify(store), check_database(store)
        finally:
            store.close()
    assert (found.findings, [one for one in wrong if one.stream == run.recorded]) == ((), [])


def test_the_thread_that_tells_it_ends_with_the_run(server):
    def tells() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "handrail-guard"]

    with guard_on(server).run("r") as run:
        run.handoff("a", "b")
        assert len(tells()) == 1
    assert tells() == []


@pytest.mark.parametrize("handoffs", [3, 4])
def test_a_refused_handoff_is_told_together_with_the_end_it_brings(
    server, person, monkeypatch, handoffs
):
    monkeypatch.setattr(server_recorder, "BATCH_EVENTS_MAX", 2)
    rules = StopRules(max_handoffs=handoffs)
    with guard_on(server, rules=rules).run("r", raises=False, team="refused") as run:
        for n in range(handoffs + 1):
            run.handoff(f"{n}", f"{n + 1}")
    assert run.unrecorded == 0
    ended = person.runs.get(run.recorded)
    assert ended.stop.rule == "max_handoffs"
    assert [one.accepted for one in ended.handoff_sequence] == [True] * handoffs + [False]


def test_nudges_are_on_record_between_a_result_and_the_handoff_after_it(server, person):
    red = {"checks": [{"command": "pytest", "exit_code": 1, "stderr": "boom"}]}
    with guard_on(server).run("r", team="nudged") as run:
        run.result("a", evidence=red)
        run.handoff("a", "b")
        run.result("b", evidence=red)
        wait_until(lambda: run.recorded)
        run.handoff("b", "a")
    assert run.unrecorded == 0
    kept = person.runs.get(run.recorded)
    assert kept.nudges == 1
    assert [warning.code for warning in kept.warnings] == ["nudged"]
    outcomes = [step.outcome for step in person.runs.get_report(run.recorded).steps]
    assert outcomes[:2] == ["handoff", "handoff"]


@pytest.mark.parametrize("word", ["go on", "stop"])
def test_a_person_decides_whether_a_stopped_program_goes_on(server, person, word):
    guard = guard_on(server, ask=True)
    with ThreadPoolExecutor(1) as threads, guard.run("r", raises=False, team="asked") as run:
        for source, target in ("ab", "ba", "ab", "ba", "ab"):
            run.handoff(source, target)
        waiting = threads.submit(run.handoff, "b", "a")
        question = open_question(person, run)
        assert question.question.startswith("repeated_pattern: ")
        person.approvals.answer(question.id, word)
        stop = waiting.result(PATIENCE)
        if word == "go on":
            assert stop is None
            for source, target in ("ab", "ba", "ab", "ba"):
                run.handoff(source, target)
            run.result("a", text="done")
    kept = person.runs.get_report(run.recorded)
    assert run.unrecorded == 0
    if word == "stop":
        assert kept.stop.rule == "repeated_pattern"
        assert run.stop is not None
        assert run.stop.rule == "repeated_pattern"
    else:
        assert kept.terminal_status == "done_success"
        assert kept.totals.handoffs == 10
