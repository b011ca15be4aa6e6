"""What agents are called and say is theirs, and hostile: it costs nobody a result or the record."""

import logging
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.live_server import Server
from tests.patience import PATIENCE, wait_until

from handrail import Guard, LoopDetected, Stopped, StopRules
from handrail.client.clients import Client, SyncClient
from handrail.guard.adapter import RunWatch, watching
from handrail.guard.plain import agent
from handrail.guard.sanitising import NAME_CHARS_MAX, safe_name, safe_text, safe_texts
from handrail.kernel.run.events import HandedOff
from handrail.kernel.stop.tool_claims import mask_words_with_digits
from handrail.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the profile in which texts count for nothing."""
    monkeypatch.setattr("handrail.guard.adapter.DEFAULT_PROFILE", "strict")


ODD = ["a\0b", "a\udcffb", "\n", "", "  ", "b -> a\n## forged | x", "n" * 5_000, "名" * 150]


def test_a_name_that_can_be_kept_is_kept_and_others_are_told_apart() -> None:
    for one in ("planner", "Ana María", "研究", "a -> b", "n" * NAME_CHARS_MAX):
        assert safe_name(one) == one
    names = [safe_name(one) for one in ODD]
    assert all(one.isprintable() and 0 < len(one) <= NAME_CHARS_MAX for one in names)
    assert safe_name("n" * 500) != safe_name("n" * 501)
    assert [safe_name(one) for one in names] == names


def test_a_text_keeps_all_that_can_be_stored() -> None:
    assert safe_text("größer 👍\n") == "größer 👍\n"
    assert safe_text("a\0b\udcffc") == "a\N{REPLACEMENT CHARACTER}b?c"
    assert safe_text("abcdef", 4) == "abc…"
    assert safe_texts({"a\0": ["b\0", 1, None]}) == {safe_text("a\0"): [safe_text("b\0"), 1, None]}


@pytest.mark.parametrize("odd", ODD)
def test_whatever_an_agent_is_called_a_loop_is_raised_and_on_record(
    odd: str, tmp_path: Path
) -> None:
    guard = Guard(record=f"sqlite:///{tmp_path / 'work.db'}")
    with pytest.raises(LoopDetected), guard.run(f"ticket {odd}", task=odd, team=odd) as run:
        for _ in range(50):
            run.result("a", text=odd, evidence={"checks": [{"command": odd, "exit_code": 0}]})
            run.handoff("a", odd, reason=odd)
            run.handoff(odd, "a")
    assert run.recorded
    assert [one.number for one in run.events if isinstance(one, HandedOff)] == [*range(1, 7)]


def test_a_record_that_cannot_be_written_costs_no_result_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def broken(*_: object) -> str:
        raise ValueError("no")

    monkeypatch.setattr("handrail.guard.recording.record_run", broken)
    with Guard(record=f"sqlite:///{tmp_path / 'work.db'}").run("r") as run:
        run.handoff("a", "b")
    assert (run.stop and run.stop.rule, run.recorded) == ("completed", "")
    assert "was not recorded" in caplog.text


@pytest.mark.parametrize("text", ["x" * 1_000_000, "汉字" * 500_000, "a1" * 500_000, "\u3000" * 9])
def test_a_long_text_of_a_tool_is_looked_at_once(text: str) -> None:
    with Guard().run("r", raises=False) as run:
        watch = RunWatch(run)
        watch.activate("a")
        began = time.process_time()
        watch.record_tool_call("search", text, text)
        assert time.process_time() - began < 5  # it took hours


@given(st.text("ab1 \n\u3000", max_size=30))
def test_words_with_figures_in_them_are_left_out(text: str) -> None:
    assert mask_words_with_digits(text) == re.sub(r"\S*\d\S*", "#", text)


def test_a_run_inside_an_agent_of_another_one_has_agents_of_its_own() -> None:
    outer = Guard()
    with watching(outer, "outer") as watch:

        @agent("inner")
        def inner() -> str:
            return "done"

        @agent("asks")
        def asks() -> None:
            with watching(Guard(), "a team of its own"):
                for _ in range(4):
                    inner()

        asks()
        assert watch.stop is None


def test_questions_that_are_open_together_hold_the_clock_once() -> None:
    class People:
        def __init__(self) -> None:
            self.both, self.settled = threading.Barrier(2), threading.Event()

        def ask(self, *_: object) -> None:
            self.both.wait(PATIENCE)
            assert self.settled.wait(PATIENCE)

    clock = ManualClock()
    guard = Guard(StopRules(max_duration=10), clock=clock.now)
    with guard.run("r", raises=False) as run:
        people = People()
        run.recorder = people  # type: ignore[assignment] - all that is asked of it
        run.server_end = None

        def ask() -> None:
            with suppress(AssertionError):  # nobody answered, and no server said why
                run.ask("may I?")

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for one in threads:
            one.start()
        wait_until(lambda: run._open_asks == 2)
        clock.advance(seconds=100)
        assert run.handoff("a", "b") is None  # people take as long as they take
        people.settled.set()
        for one in threads:
            one.join(PATIENCE)
        clock.advance(seconds=9)
        assert run.handoff("b", "a") is None
        clock.advance(seconds=1)
        stop = run.handoff("a", "b")
        run.recorder = None
    assert stop is not None
    assert stop.rule == "max_duration"


@pytest.mark.parametrize(
    "odd", [{"text": "a\0b"}, {"text": "a\udcff"}, {"reason": "r" * 300_000}, {"name": "n\nx" * 99}]
)
def test_whatever_agents_say_a_person_can_close_the_run_on_the_server(
    odd: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    far = StopRules(max_handoffs=10**6, max_edge=10**6, repeat_limit=None, max_steps=10**6)
    with (
        Server(f"sqlite:///{tmp_path / 'work.db'}") as server,
        Client(server.url, server.token("ceo", "ann")) as person,
    ):
        guard = Guard(far, record=server.url, token=server.token("operator", "program"))
        with pytest.raises(Stopped) as caught, watching(guard, "team", "a task") as watch:
            said(watch, odd, person)
        assert caught.value.stop.rule == "closed"
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def said(watch: RunWatch, odd: dict[str, str], person: SyncClient) -> None:
    name, closed = odd.get("name", "b"), False
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        watch.activate("a")
        watch.record_answer(odd.get("text", "x"), 1)
        watch.activate(name, reason=odd.get("reason", ""))
        watch.raise_if_stopped()
        if watch.run.recorded and not closed:
            person.runs.override(watch.run.recorded, "close", "enough")
            closed = True
        threading.Event().wait(0.02)


def test_a_server_that_refuses_what_it_is_told_is_still_listened_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr("handrail.guard.sanitising.NAME_CHARS_MAX", 10_000)
    monkeypatch.setattr("handrail.guard.server_recorder.HEARTBEAT_SECONDS", 0.1)
    far = StopRules(max_handoffs=10**6, max_edge=10**6, repeat_limit=None, max_steps=10**6)
    with (
        Server(f"sqlite:///{tmp_path / 'work.db'}") as server,
        Client(server.url, server.token("ceo", "ann")) as person,
        caplog.at_level(logging.ERROR),
    ):
        guard = Guard(far, record=server.url, token=server.token("operator", "program"))
        with pytest.raises(Stopped) as caught, watching(guard, "team", "a task") as watch:
            watch.activate("a")
            end = time.monotonic() + PATIENCE
            while "is recorded no more" not in caplog.text:
                assert time.monotonic() < end
                watch.activate("n" * 500)
                watch.activate("a")
                threading.Event().wait(0.02)
            said(watch, {}, person)
        assert caught.value.stop.rule == "closed"
        assert guard.last is not None
        assert guard.last.unrecorded > 0
