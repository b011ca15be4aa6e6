"""`handrail worker MODULE:NAME`: agents from a Python module, against a server."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from handrail.cli.database import FAILED, WRONG_INPUT, InputError, complain, settings
from handrail.client.errors import ClientError
from handrail.client.hands import roles_of
from handrail.client.worker import Worker
from handrail.server.logs import written


def work(target: str, *, server: str, agent: str, concurrency: int) -> int:
    """Works until it is told to stop; the exit code."""
    try:
        found = settings()
        worker = load(target)
        worker.url = server or worker.url or found["server"]
        worker.agent_id = agent or worker.agent_id
        worker.concurrency = concurrency or worker.concurrency
        with written(found.server.log_level, found.server.log_format):
            worker.serve()
    except (InputError, ValueError) as error:
        complain("worker", error)
        return WRONG_INPUT
    except ClientError as error:
        complain("worker", error)
        return FAILED
    return 0


def load(target: str) -> Worker:
    """The worker that is meant: an object of that name, or a marked function to be one."""
    found: Any = imported(target, "agents:worker", "a Worker")
    if isinstance(found, Worker):
        return found
    if not roles_of(found):
        told = f"'{target}' is a {type(found).__name__}, no Worker"
        raise InputError(f"{told}; name a handrail.Worker, or a function under @handrail.agent")
    worker = Worker()
    worker.add(found)
    return worker


def imported(target: str, example: str, meant: str) -> object:
    """What MODULE:NAME names, of the current folder or of what is installed."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        like = f"{example.partition(':')[0]}.py"
        raise InputError(f"'{target}' is no MODULE:NAME; say {example} for {like}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(_raised(module_name, error)) from error
        told = f"there is no module '{error.name}' here or among the installed ones"
        raise InputError(f"{told}; start it where {module_name}.py is") from error
    except Exception as error:  # whatever somebody's module does when it is imported
        raise InputError(_raised(module_name, error)) from error
    found = getattr(module, name, None)
    if found is None:
        raise InputError(f"module '{module_name}' has no '{name}'; name {meant} in it")
    return found


def _raised(module: str, error: BaseException) -> str:
    """Where in somebody's module it went wrong."""
    told = f"module '{module}' cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{told}; mend it"
    last = traceback.extract_tb(error.__traceback__)[-1]
    told = f"{told} ({Path(last.filename).name}, line {last.lineno})"
    if isinstance(error, ModuleNotFoundError):
        return f"{told}; install handrail where that is, or that where handrail is: {sys.prefix}"
    return f"{told}; mend it"
