"""What an agent can answer, in a word each. All of them make a `Result`."""

from typing import Any

from handrail.kernel.result import Evidence, Outcome, Result


def success(text: str = "", *, evidence: Evidence | None = None, **data: Any) -> Result:  # noqa: ANN401 - any JSON
    """The task is done; `data` goes into the bead's context."""
    return Result(outcome=Outcome.SUCCESS, text=text, data=data, evidence=evidence or Evidence())


def failure(reason: str = "", **data: Any) -> Result:  # noqa: ANN401 - any JSON
    """The task could not be done, for this reason."""
    return Result(outcome=Outcome.FAILURE, reason=reason, data=data)


def carry_on(text: str = "", **data: Any) -> Result:  # noqa: ANN401 - any JSON
    """Not done yet: another dispatch, please (a task with `multi_dispatch`)."""
    return Result(outcome=Outcome.CONTINUE, text=text, data=data)


def hand_to(agent: str, reason: str = "", *, task: str = "", text: str = "") -> Result:
    """The turn goes to another agent of the team."""
    return Result(outcome=Outcome.HANDOFF, to=agent, reason=reason, task=task, text=text)


def terminate(reason: str = "", *, text: str = "") -> Result:
    """The team's work is done, says whoever may say so."""
    return Result(outcome=Outcome.TERMINATE, reason=reason, text=text)


def ask(question: str, *options: str) -> Result:
    """A person is to answer first; the answer comes with the next dispatch."""
    return Result(outcome=Outcome.ASK, question=question, options=options)
