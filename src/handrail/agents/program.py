"""A program as an agent: the dispatch as JSON on its standard input, its result on its standard
output.

    engine.add_agent(program_agent("python", "triage.py"), "qa-engineer")

Rules
1. It prints a result as a JSON object, or a text (`said.py`), and exits with 0. Anything else costs
   the attempt; exit code and last words of stderr stand in the error.
2. How it is run, with which limits and variables, and how all of it is ended when it takes too
   long, says too much or is in vain, stands in `commands.py`. Variables that it needs beside the
   usual ones are named in `variables`.
"""

import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from handrail.agents.commands import USUAL, CommandLimits, Ran, run_command
from handrail.agents.given import Given, Works, view, who
from handrail.agents.said import result_of
from handrail.agents.secrets import without_secrets
from handrail.engine.returned import AgentFailed
from handrail.kernel.result import Result

LAST_LINES = 5
LINE_CHARS = 200
ENDED_BY = {
    "time": "was ended after {seconds:g} s; give it more time, or less to do",
    "output": "was ended after {output_bytes} bytes of output; let it print less",
}
"""Which limit ended it: what to say."""


def program_agent(
    *command: str,
    folder: Path | str = ".",
    limits: CommandLimits = USUAL,
    variables: Sequence[str] = (),
) -> Works:
    """An agent that is a program, run anew in `folder` for every dispatch."""
    if not command:
        raise ValueError("an agent that is a program needs a command: program_agent('triage')")

    async def program_turn(dispatch: Given) -> Result:
        given = view(dispatch)
        passed = {name: os.environ[name] for name in variables if name in os.environ}
        ran = await run_command(
            command,
            Path(folder),
            limits=limits,
            stdin=msgspec.json.encode(given),
            variables=passed,
        )
        name = f"the program '{shlex.join(command)}' of '{who(given)}'"
        if wrong := _wrong(ran, limits):
            raise AgentFailed(f"{name} {wrong}{_last_words(ran)}")
        try:
            return result_of(ran.stdout, given)
        except ValueError as error:
            told = f"{name} printed what is no result: {error}; print a JSON object or a text"
            raise AgentFailed(without_secrets(told)) from None

    return program_turn


def _wrong(ran: Ran, limits: CommandLimits) -> str:
    """Why there is no result; "" if there is one."""
    if ran.ended_by in ENDED_BY:
        return ENDED_BY[ran.ended_by].format(**msgspec.structs.asdict(limits))
    if ran.exit_code < 0:
        return f"was killed by {signal.Signals(-ran.exit_code).name}; see its limits of memory"
    return f"exited with {ran.exit_code}; it should exit with 0" if ran.exit_code else ""


def _last_words(ran: Ran) -> str:
    lines = ran.stderr.decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
    said = " | ".join(line.strip()[:LINE_CHARS] for line in lines)
    return f". It said: {without_secrets(said)}" if said else ""
