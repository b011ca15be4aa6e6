"""The agent's lifecycle: five states with their properties, and exactly these transitions."""

import itertools

import pytest

from handrail.kernel.agent_lifecycle import (
    LOG_NAMES,
    LOST_TRIGGERS,
    PROPERTIES,
    TRANSITIONS,
    AgentState,
    Trigger,
    is_in_queue,
    transition,
)
from handrail.kernel.decision import Refusal

# Written out a second time, from the specification and not from the code.
SPECIFIED = {
    ("OFFLINE", "agent starts"): "IDLE",
    ("IDLE", "assigned"): "QUEUED",
    ("IDLE", "agent stops"): "OFFLINE",
    ("QUEUED", "turn granted"): "ACTIVE",
    ("QUEUED", "removed from channel"): "IDLE",
    ("QUEUED", "agent disconnects"): "OFFLINE",
    ("ACTIVE", "TURN_COMPLETE"): "QUEUED",
    ("ACTIVE", "timeout"): "QUEUED",
    ("ACTIVE", "wait requested"): "WAITING",
    ("ACTIVE", "agent crashes"): "OFFLINE",
    ("WAITING", "wait resolved"): "ACTIVE",
    ("WAITING", "wait timeout"): "QUEUED",
    ("WAITING", "agent disconnects"): "OFFLINE",
}
ADDED = {
    ("WAITING", "human override (to ACTIVE)"): "ACTIVE",
    ("WAITING", "human override (to QUEUED)"): "QUEUED",
    ("ACTIVE", "TURN_COMPLETE (solo)"): "IDLE",
    ("ACTIVE", "removed from channel"): "IDLE",
    ("WAITING", "removed from channel"): "IDLE",
    ("ACTIVE", "human_interrupt"): "WAITING",
    ("ACTIVE", "result"): "IDLE",
    ("OFFLINE", "disabled"): "OFFLINE",
    ("IDLE", "disabled"): "OFFLINE",
    ("QUEUED", "disabled"): "OFFLINE",
    ("ACTIVE", "disabled"): "OFFLINE",
    ("WAITING", "disabled"): "OFFLINE",
    ("OFFLINE", "enabled"): "IDLE",
}


@pytest.mark.requirement("T1")
def test_there_are_five_states():
    assert [s.value for s in AgentState] == ["OFFLINE", "IDLE", "QUEUED", "ACTIVE", "WAITING"]
    assert set(PROPERTIES) == set(AgentState)


@pytest.mark.requirement("T1")
@pytest.mark.parametrize(
    ("state", "receives", "responds", "queue"),
    [
        ("OFFLINE", "no", False, "no"),
        ("IDLE", "no", False, "no"),
        ("QUEUED", "observes", False, "yes"),
        ("ACTIVE", "yes", True, "current"),
        ("WAITING", "observes", False, "paused"),
    ],
)
def test_a_state_says_who_receives_who_responds_and_who_is_queued(
    state: str, receives: str, responds: bool, queue: str
):
    properties = PROPERTIES[AgentState(state)]
    assert (properties.receives, properties.responds, properties.queue) == (
        receives,
        responds,
        queue,
    )
    assert is_in_queue(AgentState(state)) is (queue != "no")


@pytest.mark.requirement("T2")
@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(AgentState, Trigger)))
def test_every_pair_of_state_and_trigger_is_as_specified(state: AgentState, trigger: Trigger):
    expected = (SPECIFIED | ADDED).get((state.value, trigger.value))
    found = transition(state, trigger, subject="agent 'pm' in channel 'reviews'")
    if expected is not None:
        assert found == expected
        return
    assert isinstance(found, Refusal)
    assert found.code == "transition_refused"
    assert found.message == (
        f"agent 'pm' in channel 'reviews' is {state.value} and cannot take {trigger.value!r}"
    )
    assert state.value in found.hint


@pytest.mark.requirement("T2")
def test_a_refused_transition_says_what_the_state_does_take():
    refusal = transition(AgentState.OFFLINE, Trigger.TURN_GRANTED)
    assert isinstance(refusal, Refusal)
    assert refusal.message == "the agent is OFFLINE and cannot take 'turn granted'"
    assert refusal.hint == "an agent that is OFFLINE takes: 'agent starts', 'enabled', 'disabled'"


@pytest.mark.requirement("T2")
def test_a_claim_of_work_and_its_result_go_by_the_same_table():
    state = AgentState.IDLE
    for trigger in (Trigger.ASSIGNED, Trigger.TURN_GRANTED, Trigger.RESULT):
        target = transition(state, trigger)
        assert isinstance(target, AgentState)
        state = target
    assert state is AgentState.IDLE


@pytest.mark.requirement("T2")
def test_a_lost_agent_is_offline_whatever_it_was_doing():
    assert set(LOST_TRIGGERS) == set(AgentState) - {AgentState.OFFLINE}
    assert {TRANSITIONS[state, trigger] for state, trigger in LOST_TRIGGERS.items()} == {
        AgentState.OFFLINE
    }


@pytest.mark.requirement("T12")
@pytest.mark.parametrize(
    ("trigger", "logged"),
    [
        (Trigger.TURN_COMPLETE_SOLO, "TURN_COMPLETE"),
        (Trigger.OVERRIDE_TO_ACTIVE, "human override"),
        (Trigger.OVERRIDE_TO_QUEUED, "human override"),
        (Trigger.TIMEOUT, "timeout"),
    ],
)
def test_the_log_names_the_trigger_without_its_case(trigger: Trigger, logged: str):
    assert LOG_NAMES[trigger] == logged
