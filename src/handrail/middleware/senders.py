"""The targets of a reporter: a server, or an engine of this process."""

import asyncio

from handrail.client.clients import Client, SyncClient
from handrail.engine.engine import Engine
from handrail.middleware.reporter import Send
from handrail.views.bugs import ErrorReport

SEND_SECONDS = 10.0


def to_server(url: str, token: str) -> Send:
    """Send to a server; the token is a reporter's, which may do nothing else."""
    client = SyncClient(Client(url, token, timeout=SEND_SECONDS, patience=SEND_SECONDS))

    def send(report: ErrorReport) -> object:
        return client.bugs.report(report)

    return send


def to_engine(engine: Engine, *, by: str = "middleware") -> Send:
    """Send to an engine that runs on the event loop from which this is called."""
    loop = asyncio.get_running_loop()

    def send(report: ErrorReport) -> object:
        future = asyncio.run_coroutine_threadsafe(engine.bugs.report(report, by=by), loop)
        return future.result(SEND_SECONDS)

    return send
