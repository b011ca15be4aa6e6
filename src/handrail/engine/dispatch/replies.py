"""The answers of an agent, one function each. All return a `Result`.

`data` goes into the bead's context; `evidence` supports the result; `usage` is its cost.
"""

from typing import Any, Literal

from handrail.kernel.result import Evidence, Outcome, Result, Usage

Data = dict[str, Any]


def success(
    text: str = "",
    *,
    data: Data | None = None,
    evidence: Evidence | None = None,
    usage: Usage | None = None,
) -> Result:
    """The task is done."""
    return _result(Outcome.SUCCESS, data, evidence, usage, text=text)


def failure(
    reason: str = "",
    *,
    text: str = "",
    data: Data | None = None,
    evidence: Evidence | None = None,
    usage: Usage | None = None,
) -> Result:
    """The task could not be done, for this reason."""
    return _result(Outcome.FAILURE, data, evidence, usage, reason=reason, text=text)


def carry_on(
    text: str = "",
    *,
    data: Data | None = None,
    evidence: Evidence | None = None,
    usage: Usage | None = None,
) -> Result:
    """Not done yet: ask for another dispatch (a task with `multi_dispatch`)."""
    return _result(Outcome.CONTINUE, data, evidence, usage, text=text)


def hand_to(
    agent: str,
    reason: str = "",
    *,
    task: str = "",
    text: str = "",
    data: Data | None = None,
    evidence: Evidence | None = None,
    usage: Usage | None = None,
) -> Result:
    """Hand off to another agent of the team."""
    return _result(
        Outcome.HANDOFF, data, evidence, usage, to=agent, reason=reason, task=task, text=text
    )


def terminate(
    reason: str = "",
    *,
    text: str = "",
    status: Literal["done_success", "done_partial"] = "done_success",
    remaining: tuple[str, ...] = (),
    data: Data | None = None,
    evidence: Evidence | None = None,
    usage: Usage | None = None,
) -> Result:
    """End the team's work, where this agent may; in part: `remaining` is what is left."""
    fields: Data = {"reason": reason, "text": text, "status": status, "remaining": remaining}
    return _result(Outcome.TERMINATE, data, evidence, usage, **fields)


def ask(question: str, *options: str) -> Result:
    """Ask a person first; the answer comes with the next dispatch."""
    return Result(outcome=Outcome.ASK, question=question, options=options)


def wait_for(what: str, retry_after: float, *, data: Data | None = None) -> Result:
    """Wait for something outside of the run, where the definition allows it (`max_waits`); the next
    dispatch comes after so many seconds, 1 to 3600, with the same `key`."""
    return Result(outcome=Outcome.WAITING, waits_for=what, retry_after=retry_after, data=data or {})


def _result(
    outcome: Outcome,
    data: Data | None,
    evidence: Evidence | None,
    usage: Usage | None,
    **fields: Any,  # noqa: ANN401 - fields of a Result
) -> Result:
    return Result(
        outcome=outcome,
        data=data or {},
        evidence=evidence or Evidence(),
        usage=usage or Usage(),
        **fields,
    )
