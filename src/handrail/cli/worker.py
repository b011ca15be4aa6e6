"""`handrail worker MODULE:NAME`: agents from a Python module, against a server."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from handrail.cli.database import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    load_settings,
    print_error,
)
from handrail.client.errors import ClientError
from handrail.client.executor import roles_of
from handrail.client.worker import Worker
from handrail.server.logs import capture_logs


def run_worker(target: str, *, server: str, agent: str, concurrency: int) -> int:
    """Work until a signal; return the exit code."""
    try:
        configuration = load_settings()
        worker = load_worker(target)
        worker.url = server or worker.url or configuration["server"]
        worker.agent_id = agent or worker.agent_id
        worker.concurrency = concurrency or worker.concurrency
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            worker.serve()
    except (InputError, ValueError) as error:
        print_error("worker", error)
        return EXIT_WRONG_INPUT
    except ClientError as error:
        print_error("worker", error)
        return EXIT_FAILED
    return 0


def load_worker(target: str) -> Worker:
    """Return the worker: an object of that name, or a marked function to be one."""
    loaded: Any = import_object(target, "agents:worker", "a Worker")
    if isinstance(loaded, Worker):
        return loaded
    if not roles_of(loaded):
        message = f"'{target}' is a {type(loaded).__name__}, no Worker"
        raise InputError(f"{message}; name a handrail.Worker, or a function under @handrail.agent")
    worker = Worker()
    worker.add(loaded)
    return worker


def import_object(target: str, example: str, noun: str) -> object:
    """Import what MODULE:NAME names, from the current folder or from installed packages."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        file_name = f"{example.partition(':')[0]}.py"
        raise InputError(f"'{target}' is no MODULE:NAME; say {example} for {file_name}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(_import_error_message(module_name, error)) from error
        message = f"there is no module '{error.name}' here or among the installed ones"
        raise InputError(f"{message}; start it where {module_name}.py is") from error
    except Exception as error:  # any error of the user's module on import
        raise InputError(_import_error_message(module_name, error)) from error
    value = getattr(module, name, None)
    if value is None:
        raise InputError(f"module '{module_name}' has no '{name}'; name {noun} in it")
    return value


def _import_error_message(module: str, error: BaseException) -> str:
    """Say where in the user's module the import failed."""
    message = f"module '{module}' cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{message}; mend it"
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{message} ({Path(last.filename).name}, line {last.lineno})"
    if isinstance(error, ModuleNotFoundError):
        return f"{message}; install handrail where that is, or that where handrail is: {sys.prefix}"
    return f"{message}; mend it"
