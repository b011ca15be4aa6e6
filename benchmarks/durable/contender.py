"""One contender's turn in a process of its own, so that imports and crashes stay in there.

`take_turn` starts it: this module with one JSON argument, which answers with one JSON line. A
contender that is not installed, fails, or takes too long is a reason, not an error.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.durable.common import Bench, Load, MissingError, Postgres

if TYPE_CHECKING:  # a peer's process needs nothing of Handrail
    from benchmarks.durable.servers import Server

MODULES = {
    "handrail": "benchmarks.durable.handrail_side",
    "raw_limit": "benchmarks.durable.peers.raw",
    "langgraph": "benchmarks.durable.peers.langgraph",
    "dbos": "benchmarks.durable.peers.dbos",
    "restate": "benchmarks.durable.peers.restate",
    "burr": "benchmarks.durable.peers.burr",
}
TIMEOUT_SECONDS = 600
# Nobody's tracing may be switched on by the environment.
QUIET = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false", "PYTHONWARNINGS": "ignore"}


@dataclass(frozen=True)
class Turn:
    """Who does what on which store; `size` is of steps or runs where there are no loads."""

    name: str
    store: str
    task: str = "measure"
    loads: tuple[Load, ...] = ()
    size: int = 0


def take_turn(turn: Turn, server: "Server | str") -> dict[str, Any]:
    """Its figures, or `{"missing": reason}`."""
    with ExitStack() as stack:
        postgres = None
        if turn.store == "postgres":
            if isinstance(server, str):
                return {"missing": server}
            postgres = asdict(stack.enter_context(server.database()))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="handrail-bench-"))
        task = json.dumps({**asdict(turn), "folder": folder, "postgres": postgres})
        return answered([sys.executable, "-m", __name__, task])


def answered(command: list[str]) -> dict[str, Any]:
    environment = {**os.environ, **QUIET}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every turn would compile every import
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # its own group: with the servers it started
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return {"missing": f"took more than {TIMEOUT_SECONDS} s"}
        raise
    if process.returncode:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        return {"missing": f"failed: {last[:300]}"}
    return json.loads(output.strip().splitlines()[-1])


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """In the contender's process."""
    try:
        module = importlib.import_module(MODULES[task["name"]])
    except ModuleNotFoundError as error:
        return {"missing": f"{error.name} is not installed"}
    postgres = task["postgres"] and Postgres(**task["postgres"])
    bench = Bench(task["store"], Path(task["folder"]), postgres)
    try:
        if task["task"] == "measure":
            module.measure(bench, [Load(**load) for load in task["loads"]])
            figures: dict[str, Any] = {"loads": bench.figures}
        else:
            figures = getattr(module, task["task"])(bench, task["size"])
    except (MissingError, ModuleNotFoundError) as error:
        return {"missing": str(error)}
    return {**figures, "version": version_of(module)}


def version_of(module: Any) -> str:
    if not module.DISTRIBUTION:
        return ""
    found, server = version(module.DISTRIBUTION), getattr(module, "SERVER_VERSION", "")
    return f"{found} (server {server})" if server else found


if __name__ == "__main__":
    print(json.dumps(perform(json.loads(sys.argv[1]))))
