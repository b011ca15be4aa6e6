"""What an agent can answer, in a word each. All of them make a `Result`.

`data` goes into the bead's context; `evidence` is what it rests on; `usage` what it cost.
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
    """Not done yet: another dispatch, please (a task with `multi_dispatch`)."""
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
    """The turn goes to another agent of the team."""
    fields = {"to": agent, "reason": reason, "task": task, "text": text}
    return _result(Outcome.HANDOFF, data, evidence, usage, **fields)


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
    """The team's work is done, says whoever may say so; or in part: what `remaining` is."""
    fields: Data = {"reason": reason, "text": text, "status": status, "remaining": remaining}
    return _result(Outcome.TERMINATE, data, evidence, usage, **fields)


def ask(question: str, *options: str) -> Result:
    """A person is to answer first; the answer comes with the next dispatch."""
    return Result(outcome=Outcome.ASK, question=question, options=options)


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
