"""`handrail worker MODULE:NAME`: agents from a Python module, against a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from handrail.cli.arguments import import_object
from handrail.cli.command import EXIT_FAILED, InputError, as_input_error, print_error
from handrail.cli.database import load_settings
from handrail.cli.options import Server
from handrail.client.errors import ClientError

if TYPE_CHECKING:
    from handrail.client.worker import Worker


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="A Worker, or a function decorated with @agent."
        ),
    ],
    server: Server = "",
    agent: Annotated[str, typer.Option(metavar="ID", help="The agent's id.")] = "",
    concurrency: Annotated[
        int, typer.Option(min=0, max=10_000, help="Concurrent dispatches; 0: as the module says.")
    ] = 0,
) -> int:
    """Run agents from a Python module against a server.

    Takes a token of the role agent from HANDRAIL_TOKEN. Stops on SIGTERM or Ctrl-C, after the
    dispatches in progress.
    """
    from handrail.server.logs import capture_logs

    with as_input_error(ValueError):
        configuration = load_settings()
        loaded = _load_worker(target)
        loaded.url = server or loaded.url or configuration["server"]
        loaded.agent_id = agent or loaded.agent_id
        loaded.concurrency = concurrency or loaded.concurrency
        try:
            with capture_logs(configuration.server.log_level, configuration.server.log_format):
                loaded.serve()
        except ClientError as error:
            print_error("worker", str(error))
            return EXIT_FAILED
    return 0


def _load_worker(target: str) -> "Worker":
    """Return the worker: an object of that name, or a marked function to be one."""
    from handrail.client.executor import roles_of
    from handrail.client.worker import Worker

    loaded: Any = import_object(target, "agents:worker", "a Worker")
    if isinstance(loaded, Worker):
        return loaded
    if not roles_of(loaded):
        message = f"'{target}' is a {type(loaded).__name__}, not a Worker"
        raise InputError(
            f"{message}; name a handrail.Worker, or a function decorated with @handrail.agent"
        )
    worker = Worker()
    worker.add(loaded)
    return worker
