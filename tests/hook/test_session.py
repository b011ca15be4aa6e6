"""Scripted sessions of each coding agent, in the form of its payloads."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from tests.hook.agent_forms import FORMS, AgentForm, CodexForm, GeminiForm, OpenHandsForm

from handrail import Guard, StopRules
from handrail.hook.answers import format_answer
from handrail.hook.payloads import HookEvent, PayloadError, read_payload
from handrail.hook.session import (
    DENIALS_MAX,
    REFUSED_ENDS_MAX,
    Conversation,
    ConversationState,
)
from handrail.kernel.stop.findings import CallMemory

COMMAND = {"command": "pytest -q", "description": "Run the tests"}


@pytest.fixture(autouse=True, params=[False, True], ids=["one process", "a process for each event"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session is the same whether or not its events meet in one process."""
    monkeypatch.setattr(Session, "resumes", request.param)


all_agents = pytest.mark.parametrize("make_form", FORMS)


class Session:
    """One conversation; with `resumes`, each event in another process."""

    resumes = False

    def __init__(self, form: AgentForm, rules: StopRules | None = None) -> None:
        self.form, self.events = form, list[HookEvent]()
        self._rules, self._numbers = rules, itertools.count(1)
        self._memories: dict[str, CallMemory] = {}
        self.conversation = self._make_conversation(None)

    def _make_conversation(self, state: ConversationState | None) -> Conversation:
        def new_id() -> str:
            return f"run-{next(self._numbers)}"

        return Conversation(Guard(self._rules), new_id, state, self._memories.items())

    def send(self, payload: bytes) -> bytes:
        event = read_payload(payload)
        self.events.append(event)
        if self.resumes and (state := self.conversation.state()) is not None:
            events = self.conversation.take_events()
            self._memories |= dict(self.conversation.memories(events))
            encoded = msgspec.msgpack.encode(state)
            state = msgspec.msgpack.decode(encoded, type=ConversationState)
            self.conversation = self._make_conversation(state)
        return format_answer(event, self.conversation.handle(event))

    def call(self, tool: str, arguments: Any, result: str) -> bytes:
        """A whole tool call; the answer after it, or the refusal of it."""
        refusal = self.send(self.form.proposed(tool, arguments))
        return refusal or self.send(self.form.done(tool, arguments, result))

    @property
    def rule(self) -> str:
        run = self.conversation.run
        return str(run.stop.rule) if run is not None and run.stop is not None else ""


def begin(form: AgentForm, rules: StopRules | None = None) -> Session:
    session = Session(form, rules)
    assert session.send(form.prompt("make the tests pass")) == b""
    return session


def call_until_denied(session: Session, count_max: int = 30) -> int:
    """The same call again and again; how many were made."""
    for count in range(count_max):
        if session.form.is_denied(session.call("Bash", COMMAND, "1 failed: test_cart")):
            return count
    return count_max


@all_agents
def test_a_session_that_repeats_one_call_is_denied_further_calls(
    make_form: type[AgentForm],
) -> None:
    session = begin(make_form())
    assert call_until_denied(session) == 4
    assert session.rule == "no_change"


@all_agents
def test_the_refusal_says_rule_and_limit_to_the_agent(make_form: type[AgentForm]) -> None:
    session = begin(make_form())
    call_until_denied(session)
    answer = session.send(session.form.proposed("Bash", COMMAND)).decode()
    assert "no_change" in answer
    assert "no_change_limit 3, profile observed" in answer
    assert "test_cart" not in answer


@all_agents
def test_the_agent_is_nudged_once_before_the_stop_where_it_listens(
    make_form: type[AgentForm],
) -> None:
    session = begin(make_form())
    answers = [session.call("Bash", COMMAND, "1 failed: test_cart") for _ in range(3)]
    nudges = [session.form.nudge(answer) for answer in answers]
    expected = "no_change has counted 2 of 3" if session.form.hears_nudges else ""
    assert [expected in nudge and bool(nudge) == bool(expected) for nudge in nudges[2:]] == [True]
    assert nudges[:2] == ["", ""]


@all_agents
def test_an_agent_that_goes_on_calling_after_the_stop_is_ended_where_that_can_be(
    make_form: type[AgentForm],
) -> None:
    session = begin(make_form())
    call_until_denied(session)
    answers = [session.send(session.form.proposed("Read", {"path": n})) for n in range(6)]
    assert all(map(session.form.is_denied, answers))
    ended = [session.form.is_ended(answer) for answer in answers]
    assert any(ended) is session.form.ends_at_a_call
    assert not any(ended[: DENIALS_MAX - 1])


@all_agents
def test_a_goal_that_nothing_brings_nearer_is_broken(make_form: type[AgentForm]) -> None:
    """Another hook refuses each end; the agent only talks."""
    session = begin(make_form())
    answers = [
        session.send(session.form.end(f"I have checked it again, round {n}.", refused=n > 0))
        for n in range(REFUSED_ENDS_MAX)
    ]
    assert session.rule == "no_change"
    assert any(map(session.form.is_ended, answers)) is session.form.overrules_other_hooks
    assert session.form.is_denied(session.send(session.form.proposed("Bash", COMMAND)))


@all_agents
def test_a_goal_that_is_never_met_is_broken_however_busy_the_agent_is(
    make_form: type[AgentForm],
) -> None:
    session = begin(make_form())
    refusals = 0
    for n in range(REFUSED_ENDS_MAX + 5):
        session.call("Read", {"path": f"page-{n}"}, f"a page about {chr(97 + n) * 5}")
        session.send(session.form.end(f"Done, {n}.", refused=n > 0))
        refusals += 1
        if session.rule:
            break
    assert refusals - 1 == REFUSED_ENDS_MAX  # the first end was refused by nobody yet
    assert session.rule == "agent_lost"


@all_agents
def test_an_end_without_a_refusal_stops_nothing(make_form: type[AgentForm]) -> None:
    session = Session(make_form())
    for n in range(20):
        session.send(session.form.prompt(f"question {n}"))
        assert session.call("Read", {"path": f"page-{n}"}, f"page {n}") == b""
        assert session.send(session.form.end("Yes.")) == b""


@all_agents
def test_a_new_prompt_lifts_the_stop(make_form: type[AgentForm]) -> None:
    session = begin(make_form())
    call_until_denied(session)
    session.send(session.form.prompt("then look at the cart module first"))
    assert session.call("Read", {"path": "cart.py"}, "class Cart: ...") == b""


@all_agents
def test_turns_of_one_session_are_runs_of_one_thread(make_form: type[AgentForm]) -> None:
    """A chat that loops over turns with the same prompt is seen, as calls in one turn are."""
    session, turns = Session(make_form()), 0
    while session.rule != "no_change":
        session.send(session.form.prompt("continue"))
        session.call("Bash", COMMAND, "1 failed")
        turns += 1
        assert turns < 8


@all_agents
def test_the_same_failure_of_different_calls_stops(make_form: type[AgentForm]) -> None:
    session = begin(make_form())
    for n in range(6):
        arguments = {"command": f"curl host-{chr(97 + n)}"}
        if session.form.is_denied(session.send(session.form.proposed("Bash", arguments))):
            break
        session.send(session.form.failed("Bash", arguments, "curl: could not resolve host"))
    assert session.rule == "same_error"


def test_a_command_is_the_same_whatever_is_said_about_it() -> None:
    session = begin(AgentForm())
    for n in range(4):
        arguments = {"command": "pytest -q", "description": f"Try number {n}"}
        session.call("Bash", arguments, "1 failed")
    assert session.rule == "no_change"


def test_the_agents_are_told_apart_by_their_payloads() -> None:
    for make_form in FORMS:
        form = make_form()
        for payload in (form.prompt("x"), form.proposed("t", {}), form.end("y")):
            assert read_payload(payload).agent == form.name


def test_subagents_have_names_of_their_own() -> None:
    fields = json.loads(AgentForm().proposed("Grep", {"pattern": "x"}))
    payload = json.dumps(fields | {"agent_id": "a1", "agent_type": "Explore"}).encode()
    event = read_payload(payload)
    assert (event.subagent, event.actor) == ("a1", "Explore")


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"{", b'{"a": 1}', b"\xff\xfe", b"[" * 100_000, b'{"hook_event_name"'],
)
def test_what_is_no_payload_is_refused_with_a_reason(raw: bytes) -> None:
    with pytest.raises(PayloadError, match="hook payload"):
        read_payload(raw)


@pytest.mark.parametrize("value", [None, 7, [], {}, "x" * 100_000, True])
@pytest.mark.parametrize("make_form", FORMS)
def test_any_field_may_be_anything(make_form: type[AgentForm], value: object) -> None:
    form = make_form()
    for payload in (
        form.prompt("x"),
        form.proposed("t", {}),
        form.done("t", {}, "r"),
        form.failed("t", {}, "r"),
        form.end("y", refused=True),
    ):
        fields = json.loads(payload)
        for field in fields:
            raw = json.dumps(fields | {field: value}).encode()
            event = read_payload(raw, form.name)
            format_answer(event, Session(form).conversation.handle(event))


def test_events_that_are_not_known_change_nothing() -> None:
    for form in (AgentForm(), CodexForm(), GeminiForm()):
        session = Session(form)
        assert session.send(form.write(form.base("PreCompact"))) == b""
        assert session.conversation.run is None
    form = OpenHandsForm()
    assert Session(form).send(form.write(form.base("SessionStart"))) == b""
