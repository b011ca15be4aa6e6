"""A guarded run that goes on in another process counts as if it had stayed in one."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Guard, GuardedRun, StopRules
from handrail.guard.run import RunSnapshot
from handrail.guard.threads import ThreadState
from handrail.kernel.decision import prepare_types
from handrail.kernel.definition.limits import Ladder, ProfileName
from handrail.kernel.run.events import Reported
from handrail.kernel.stop.findings import CallMemory, FindingReader
from handrail.testing.clock import ManualClock

prepare_types(RunSnapshot)

AGENTS = st.sampled_from(["planner", "coder"])
ACTS = st.one_of(
    st.tuples(st.just("handoff"), AGENTS, AGENTS),
    st.tuples(st.just("called"), AGENTS, st.sampled_from(["read", "run"]), st.integers(0, 2)),
    st.tuples(st.just("said"), AGENTS, st.sampled_from(["yes", "no", "word " * 60])),
    st.tuples(st.just("waiting"), AGENTS, st.just("the build")),
    st.tuples(st.just("used"), AGENTS, st.integers(0, 40)),
)
RULES = st.sampled_from(
    [
        StopRules(max_tokens=200),
        StopRules(max_steps=9, ladder=Ladder(conclude=True)),
        StopRules(max_handoffs=4, ladder=Ladder(nudge=False)),
    ]
)


def begin(guard: Guard, profile: ProfileName, reader: FindingReader) -> GuardedRun:
    run = GuardedRun(guard, limits=guard.limits(profile), raises=False)
    run.begin("run", thread_state=ThreadState(None, reader))
    return run


def act(run: GuardedRun, step: tuple[Any, ...]) -> Any:
    kind, agent, *rest = step
    if kind == "handoff":
        return run.handoff(agent, rest[0])
    if kind == "called":
        return run.called(agent, rest[0], {"n": rest[1]}, f"answer {rest[1]} of {rest[0]}")
    if kind == "said":
        return run.said(agent, rest[0])
    if kind == "waiting":
        return run.waiting(agent, rest[0])
    return run.result(agent, usage={"tokens": rest[0]})


def in_another_process(
    run: GuardedRun, guard: Guard, profile: ProfileName, memories: dict[str, CallMemory]
) -> GuardedRun:
    for event in run.events:
        if isinstance(event, Reported):
            for finding in event.result.evidence.findings:
                memory = run.reader.recall(finding.key)
                memories |= {} if memory is None else {finding.key: memory}
    reader = FindingReader()
    reader.remember(memories.items())
    encoded = msgspec.msgpack.encode(run.snapshot())
    resumed = begin(guard, profile, reader)
    resumed.resume(msgspec.msgpack.decode(encoded, type=RunSnapshot))
    return resumed


@pytest.mark.parametrize("profile", ["strict", "observed"])
@given(steps=st.lists(ACTS, max_size=30), rules=RULES)
def test_a_resumed_run_stops_where_the_whole_one_does(
    profile: ProfileName, steps: list[tuple[Any, ...]], rules: StopRules
) -> None:
    guard = Guard(rules, clock=ManualClock().now)
    whole, parts = (begin(guard, profile, FindingReader()) for _ in range(2))
    memories: dict[str, CallMemory] = {}
    for step in steps:
        parts = in_another_process(parts, guard, profile, memories)
        assert act(parts, step) == act(whole, step)
        assert parts.take_nudge() == whole.take_nudge()
    assert parts.snapshot() == whole.snapshot()
