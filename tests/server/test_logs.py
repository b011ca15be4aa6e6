"""The log: what is written of runs, in which words, and that it harms nobody."""

import ast
import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import structlog
from tests.engine.engines import edge, node, team, workflow
from tests.server.captured_log import CapturedLog, capture_log
from tests.server.harness import ASKS, PLAIN, WORKER, ServerHarness, expect_json
from tests.server.http_agents import register_agent

from handrail.engine import log_events
from handrail.engine.engine import Engine
from handrail.engine.log_events import (
    CHANNEL_EVENTS,
    COMMON_FIELDS,
    FIELDS,
    LOG_EVENTS,
    RUN_EVENTS,
    log_event,
)
from handrail.engine.notifier import EngineNotification
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.events import RunEvent
from handrail.server import logs
from handrail.server.logs import capture_logs
from handrail.server.process import serve
from handrail.server.settings import ServerSettings
from handrail.store.rows import StoreError

SOURCE = Path(__file__).resolve().parents[2] / "src/handrail"
PAIR = team({"planner": ["coder"], "coder": ["planner"]}, terminator="planner", id="pair")


def hands(to: str, reason: str) -> Result:
    return Result(outcome=Outcome.HANDOFF, to=to, reason=reason)


def plays(harness: ServerHarness, **results: list[Result]) -> None:
    """Each agent of a team gives its results, one after the other, the last one again and again."""
    for name, said in results.items():
        left = list(said)
        harness.engine.add_agent(
            lambda _, left=left: left.pop(0) if len(left) > 1 else left[0], name, name=name
        )


@pytest.mark.requirement("H7.1", "H7.2", "H7.3", "H2.5")
async def test_the_start_each_handoff_and_the_end_of_a_run_are_logged(harness: ServerHarness):
    await harness.define(PAIR)
    ended = Result(outcome=Outcome.TERMINATE, reason="it works")
    plays(harness, planner=[hands("coder", "please fix"), ended], coder=[hands("planner", "fixed")])
    with capture_log() as log:
        bead = await harness.file("pair", title="500 on /invoices")
        await harness.quiet()
    start, end = log.of("started")[0], log.of("ended")[0]
    assert (start["first_agent"], start["bead_id"]) == ("planner", bead["id"])
    assert (start["execution_id"], start["seq"]) == (bead["execution_id"], 1)
    assert log.told("handed_off", "source", "target", "reason", "accepted") == [
        ("planner", "coder", "please fix", True),
        ("coder", "planner", "fixed", True),
    ]
    assert (end["reason"], end["final_agent"]) == ("it works", "planner")
    assert (end["terminal_status"], end["rule"]) == ("done_success", "terminated")
    assert end["seconds"] == 0
    assert {line["level"] for line in (start, end)} == {"info"}
    assert log.of("loop_detected") == []


@pytest.mark.requirement("H7.3")
async def test_the_end_says_how_long_the_run_took(harness: ServerHarness):
    await harness.define(PLAIN)
    with capture_log() as log:
        await harness.file("plain")
        harness.clock.advance(minutes=2)
        harness.works()
        await harness.quiet()
    assert log.told("ended", "seconds") == [(120.0,)]


@pytest.mark.requirement("H7.4")
async def test_a_loop_is_logged_with_the_pattern_that_repeats(harness: ServerHarness):
    await harness.define(PAIR)
    plays(harness, planner=[hands("coder", "again")], coder=[hands("planner", "again")])
    with capture_log("warning") as log:
        await harness.file("pair")
        await harness.quiet()
    (loop,) = log.of("loop_detected")
    assert loop["rule"] == "repeated_pattern"
    assert loop["pattern"] == ["planner -> coder", "coder -> planner"]
    assert loop["level"] == "warning"


@pytest.mark.requirement("L14.7")
async def test_the_transitions_of_a_run_are_logged_as_they_are_stored(harness: ServerHarness):
    forked = workflow(
        node("start", "start"),
        node("split", "decision", parallel=True),
        *(node("a"), node("b"), node("both", "merge"), node("end", "end")),
        edges=[
            edge("start", "split"),
            *(edge("split", "a", "true"), edge("split", "b")),
            *(edge("a", "both"), edge("b", "both"), edge("both", "end")),
        ],
        id="forked",
    )
    await harness.define(forked)
    harness.works()
    with capture_log() as log:
        bead = await harness.file("forked")
        await harness.quiet()
    fields = ("from_node_id", "to_node_id", "outcome", "reason", "actor")
    stored = expect_json(
        await harness.viewer.get(f"/executions/{bead['execution_id']}/transitions")
    )
    expected = [tuple(row[field] for field in fields) for row in stored if row["from_node_id"]]
    assert log.told("moved", *fields) == expected
    assert len(expected) > 5


async def test_what_people_do_is_logged_with_their_name(harness: ServerHarness):
    with capture_log() as log:
        question = await harness.asked()
        body = {"decision": "approve"}
        await harness.ceo.post(f"/approvals/{question['id']}/answer", json=body)
    assert log.told("asked", "question_id", "kind") == [(question["id"], "approval")]
    assert log.told("answered", "actor", "decision") == [("ana", "approve")]


async def test_lines_are_written_of_what_is_on_disk_alone(harness: ServerHarness):
    """A run whose commit fails has no line, and whoever asks again finds one."""
    await harness.define(PLAIN)
    commit = harness.engine.store.commit

    def fails(*_: Any) -> Any:
        raise StoreError("the disk is full")

    with capture_log() as log:
        harness.engine.store.commit = fails  # pyright: ignore[reportAttributeAccessIssue]
        try:
            with pytest.raises(StoreError):
                await harness.engine.start("plain")
        finally:
            harness.engine.store.commit = commit
    assert log.of(*RUN_EVENTS) == []


# Nothing can be forged, and nobody is harmed


async def test_a_text_of_an_agent_is_cut_and_cannot_look_like_another_line(harness: ServerHarness):
    evil = 'done\n{"event": "ended"}\r\x1b[2J\u2028\u202e\ud800' + "x" * 100_000
    await harness.define(PLAIN)
    harness.works(Result(outcome=Outcome.SUCCESS, text=evil.replace("\ud800", "")))
    with capture_log() as log:
        await harness.file("plain", title="a\nb\x1b[31m")
        await harness.quiet()
    (line,) = log.of("reported")
    assert line["text"].startswith('done\\n{"event": "ended"}\\r\\x1b[2J\\u2028\\u202e')
    assert len(line["text"]) < log_events.TEXT_CHARS_MAX + 100
    assert line["text"].endswith(" more")
    assert log.of("started")[0]["title"] == "a\\nb\\x1b[31m"
    assert all(json.loads(one)["event"] in LOG_EVENTS for one in log.text.splitlines())
    assert "\x1b" not in log.text


@pytest.mark.parametrize("style", ["json", "console"])
def test_no_line_of_either_form_can_be_forged(style: str):
    with capture_log(style=style) as log:
        for text in ("a\nb", "a\r\x1b[2Jb", "a\u2028b", "a\x85b", "\ud800", "\x00"):
            log_event(logging.getLogger("handrail.engine"), "database_away", reason=text)
            logging.getLogger("uvicorn.error").warning("%s", text)
            structlog.stdlib.get_logger("handrail.http").warning("answers_not_kept", reason=text)
        try:
            raise ValueError("a\nforged\x1b[2J")
        except ValueError as error:
            log_event(logging.getLogger("x"), "engine_failed", reason="r", error=error)
    text = log.text
    assert not any(not c.isprintable() for c in text.replace("\n", ""))
    beginnings = [line for line in text.split("\n") if line and not line.startswith("    ")]
    assert len(beginnings) == 6 * 3 + 1


async def test_a_listener_that_fails_is_told_once_and_the_engine_goes_on(harness: ServerHarness):
    heard: list[EngineNotification] = []

    def fails(what: EngineNotification) -> None:
        heard.append(what)
        raise ZeroDivisionError("a mistake")

    await harness.define(PLAIN)
    harness.engine.listeners.add(fails)
    with capture_log() as log:
        harness.works()
        bead = {}
        for _ in range(3):
            bead = await harness.file("plain")
            await harness.quiet()
    run = expect_json(await harness.viewer.get(f"/executions/{bead['execution_id']}"))
    assert run["terminal_status"] == "done_success"
    assert len(heard) > 3
    (line,) = log.of("listener_failed")
    assert "fails" in line["listener"]
    assert "ZeroDivisionError: a mistake" in line["exception"]
    assert len(log.of("ended")) == 3


class Stuck(io.StringIO):
    """Somebody who does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = threading.Event()

    def write(self, text: str) -> int:
        assert self.reads.wait(60), "the test is over"
        return super().write(text)


def test_whoever_reads_too_slowly_loses_lines_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(logs, "QUEUED_RECORDS_MAX", 100)
    stream = Stuck()
    log = logging.getLogger("handrail.engine")
    with capture_logs("info", "json", stream):
        for n in range(1_000):  # nothing of it waits
            log_event(log, "database_away", reason=str(n))
        stream.reads.set()
        for _ in range(3):
            log_event(log, "database_away", reason="later")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    dropped = sum(line["count"] for line in lines if line["event"] == "lines_dropped")
    kept = sum(line["event"] == "database_away" for line in lines)
    assert dropped >= 1_000 - 100 - logs.WRITE_LINES_MAX
    assert kept + dropped == 1_003


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_log_that_nobody_reads_any_more_ends_nothing():
    with capture_logs("info", "json", Broken()):
        log_event(logging.getLogger("handrail.engine"), "commit_unsure")


def test_logging_is_afterwards_as_it_was():
    root, level = logging.getLogger().handlers[:], logging.getLogger("httpx").level
    with capture_log():
        assert logging.getLogger().handlers != root
    assert logging.getLogger().handlers == root
    assert logging.getLogger("httpx").level == level


# One vocabulary, one formatter


def test_lines_of_all_loggers_have_one_form():
    with capture_log() as log:
        log_event(logging.getLogger("handrail.engine"), "outage_found", began="a", ended="b")
        structlog.stdlib.get_logger("handrail.server").info("server_draining", seconds=2)
        logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
        try:
            raise KeyError("gone")
        except KeyError:
            structlog.stdlib.get_logger("handrail.http").exception(
                "request_failed", method="GET", path="/x"
            )
            logging.getLogger("asyncio").exception("a task failed")
    head = list(COMMON_FIELDS)
    assert [list(line)[: len(head)] for line in log.lines] == [head] * 5
    assert [(line["event"], line["logger"]) for line in log.lines] == [
        ("outage_found", "handrail.engine"),
        ("server_draining", "handrail.server"),
        ("message", "uvicorn.error"),
        ("request_failed", "handrail.http"),
        ("message", "asyncio"),
    ]
    assert log.lines[2]["message"] == "Started server process [7]"
    assert all("KeyError: 'gone'" in line["exception"] for line in log.lines[3:])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("style", "stream", "json_lines"),
    [
        ("auto", io.StringIO, True),
        ("auto", Terminal, False),
        ("json", Terminal, True),
        ("console", io.StringIO, False),
    ],
)
def test_people_at_a_terminal_read_lines_and_programs_read_json(
    style: Any, stream: type[io.StringIO], json_lines: bool
):
    out = stream()
    with capture_logs("info", style, out):
        log_event(logging.getLogger("handrail.engine"), "database_away", reason="no route")
    assert out.getvalue().startswith("{") is json_lines
    assert "database_away" in out.getvalue()
    assert "no route" in out.getvalue()


def test_embedded_in_another_program_lines_are_plain_records(caplog: pytest.LogCaptureFixture):
    log_event(
        logging.getLogger("handrail.engine"), "database_away", reason="no route\nto it\x1b[2J"
    )
    assert caplog.messages == ["database_away reason=no route\\nto it\\x1b[2J"]


def test_every_event_of_a_run_has_a_line():
    tags = {event.__struct_config__.tag for event in get_args(RunEvent)}
    assert set(RUN_EVENTS) == tags | {"loop_detected"}


def test_every_field_is_explained_and_every_explanation_is_of_use():
    used = {field for line in LOG_EVENTS.values() for field in line.names} | {"execution_id", "seq"}
    assert used == set(FIELDS)


def calls(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Lines that a module writes: the name, and the fields that it gives."""
    methods = {"debug", "info", "warning", "error", "critical", "exception"}
    for one in ast.walk(tree):
        if not isinstance(one, ast.Call):
            continue
        given = {keyword.arg or "" for keyword in one.keywords}
        match one.func, one.args:
            case ast.Name(id="log_event"), [_, ast.Constant(value=str(name)), *_]:
                yield name, given - {"at", "error"}
            case ast.Attribute(value=ast.Name(id="log"), attr=method), [first, *_]:
                if method in methods:
                    assert isinstance(first, ast.Constant), ast.unparse(one)
                    yield str(first.value), given
            case _:
                pass


def test_whoever_logs_uses_the_words_of_the_table():
    found: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] not in ("client", "engine", "server", "store"):
            continue
        for name, given in calls(ast.parse(path.read_text(encoding="utf-8"))):
            assert name in LOG_EVENTS, f"{path.name}: '{name}' is not in log_events.py"
            wanted = set(LOG_EVENTS[name].names) - {"exception"}
            assert given == wanted, f"{path.name}: '{name}' has {given}, the table {wanted}"
            found.add(name)
    written_otherwise = {
        *RUN_EVENTS,
        *CHANNEL_EVENTS,
        "state_transition",
        "lines_dropped",
        "message",
    }
    written_otherwise |= {"forged_author", "replayed_answer"}  # a parameter says which
    assert found == set(LOG_EVENTS) - written_otherwise


async def test_what_a_run_logs_has_the_fields_of_the_table(harness: ServerHarness):
    await harness.define(ASKS)
    agent = await register_agent(harness, "coder-7", WORKER)
    with capture_log() as log:
        await harness.file("asks", title="é")
        await agent.work("success", text="done")
    names = set()
    for line in log.lines:
        fields = list(log_events.LOG_EVENTS[line["event"]].names)
        head = (
            list(COMMON_FIELDS) if line["event"] != "state_transition" else ["timestamp", "event"]
        )
        run = ["execution_id", "seq"] if line["event"] in RUN_EVENTS else []
        assert list(line) == [*head, *run, *fields]
        names.add(line["event"])
    assert {"started", "offered", "claimed", "reported", "moved", "asked", "request"} <= names


def test_a_line_that_cannot_be_written_is_counted_and_the_next_is_written():
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    log = CapturedLog()
    with capture_logs("info", "json", log.stream):
        log_event(logging.getLogger("handrail.engine"), "database_away", reason=Odd())
        log_event(logging.getLogger("handrail.engine"), "commit_unsure")
    assert len(log.of("commit_unsure")) == 1
    assert log.told("lines_dropped", "count") == [(1,)]


async def test_a_server_that_listens_logs_its_life_and_each_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    async def visit(engine: Engine, url: str) -> bool:
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/api/v1/beads/x?token=secret")).status_code == 401
        engine.add_agent(lambda _: Result(), WORKER, name="f")
        return False  # and that was it

    settings = ServerSettings(log_level="debug", drain=0)
    database = f"sqlite:///{tmp_path / 'w.db'}"
    assert await serve(database, port=0, settings=settings, ready=visit) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    names = [line["event"] for line in lines]
    assert names[-1] == "server_ended"
    assert "server_started" in names
    assert {"uvicorn.error"} <= {line.get("logger") for line in lines}
    asked = [(line["path"], line["status"]) for line in lines if line["event"] == "request"]
    assert asked == [("/healthz", 200), ("/api/v1/beads/{bead_id}", 401)]
    moved = [(line["from"], line["to"]) for line in lines if line["event"] == "state_transition"]
    assert moved == [("OFFLINE", "IDLE"), ("IDLE", "OFFLINE")]
    assert "secret" not in json.dumps(lines)
