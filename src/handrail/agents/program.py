"""A program as an agent: the dispatch as JSON on its standard input, its result on its standard
output.

    engine.add_agent(program_agent("python", "triage.py"), "qa-engineer")

Rules
1. It prints a result as a JSON object, or a text (`output_parser.py`), and exits with 0. Anything
   else costs the attempt; the error has the exit code and the end of stderr.
2. `commands.py` says how it is run, with which limits and variables, and how it is ended when it
   takes too long, prints too much or is cancelled. `variables` names the variables that it needs
   beside the usual ones.
"""

import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from handrail.agents.commands import DEFAULT_LIMITS, CommandLimits, CompletedCommand, run_command
from handrail.agents.dispatch_input import (
    AgentFunction,
    DispatchInput,
    as_dispatch_view,
    step_id_of,
)
from handrail.agents.output_parser import parse_output
from handrail.agents.secret_redaction import redact_secrets
from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.kernel.result import Result

STDERR_LINES_MAX = 5
LINE_CHARS_MAX = 200
LIMIT_TEXTS = {
    "time": "was ended after {seconds:g} s; give it more time, or less to do",
    "output": "was ended after {output_bytes} bytes of output; let it print less",
}
"""By the limit that ended it: the message."""


def program_agent(
    *command: str,
    folder: Path | str = ".",
    limits: CommandLimits = DEFAULT_LIMITS,
    variables: Sequence[str] = (),
) -> AgentFunction:
    """Make an agent from a program, run anew in `folder` for every dispatch."""
    if not command:
        raise ValueError("an agent that is a program needs a command: program_agent('triage')")

    async def program_turn(dispatch: DispatchInput) -> Result:
        dispatch_view = as_dispatch_view(dispatch)
        extra_variables = {name: os.environ[name] for name in variables if name in os.environ}
        completed = await run_command(
            command,
            Path(folder),
            limits=limits,
            stdin=msgspec.json.encode(dispatch_view),
            variables=extra_variables,
        )
        name = f"the program '{shlex.join(command)}' of '{step_id_of(dispatch_view)}'"
        if problem := _failure_text(completed, limits):
            raise AgentFailedError(f"{name} {problem}{_stderr_suffix(completed)}")
        try:
            return parse_output(completed.stdout, dispatch_view)
        except ValueError as error:
            message = f"{name} printed what is no result: {error}; print a JSON object or a text"
            raise AgentFailedError(redact_secrets(message)) from None

    return program_turn


def _failure_text(completed: CompletedCommand, limits: CommandLimits) -> str:
    """Return why there is no result; "" if there is one."""
    if completed.ended_by in LIMIT_TEXTS:
        return LIMIT_TEXTS[completed.ended_by].format(**msgspec.structs.asdict(limits))
    if completed.exit_code < 0:
        return (
            f"was killed by {signal.Signals(-completed.exit_code).name}; see its limits of memory"
        )
    return (
        f"exited with {completed.exit_code}; it should exit with 0" if completed.exit_code else ""
    )


def _stderr_suffix(completed: CompletedCommand) -> str:
    lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()[-STDERR_LINES_MAX:]
    tail = " | ".join(line.strip()[:LINE_CHARS_MAX] for line in lines)
    return f". It said: {redact_secrets(tail)}" if tail else ""
