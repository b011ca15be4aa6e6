"""A tool's limit under guard: in every profile, with the figure and the line that raises it."""

import pytest

import handrail
from handrail import Guard, StopRules
from handrail.kernel.definition.limits import ProfileName


@pytest.mark.parametrize("profile", ["strict", "observed"])
@pytest.mark.parametrize("commands", [(), ("rm *",)])
def test_the_call_beyond_a_tools_limit_ends_the_run(
    profile: ProfileName, commands: tuple[str, ...]
) -> None:
    constraints = handrail.Constraints(commands=commands)
    guard = Guard(StopRules(tool_limits={"search": 3}, profile=profile, constraints=constraints))
    with pytest.raises(handrail.LimitReached) as caught, guard.run("r") as run:
        for number in range(9):
            run.called("a", "search", {"q": number}, f"found {number}")
            run.called("a", "read", {"page": number}, f"page {number}")
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.seen) == ("tool_limit", 3, 4)
    assert 'Guard(StopRules(tool_limits={"search": 6}))' in str(caught.value)
    assert run.report().limits["tool_limits.search"] == 3


def test_runs_of_one_thread_have_calls_of_their_own() -> None:
    guard = Guard(StopRules(tool_limits={"search": 2}))
    for turn in range(3):
        with guard.run("r", thread="t") as run:
            run.called("a", "search", {"q": turn}, f"found {turn}")
            run.called("a", "search", {"q": -turn}, f"found more {turn}")
