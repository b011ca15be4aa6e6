"""`handrail a2a`: serve definitions as agents that others reach by A2A, until a signal."""

import asyncio
import ipaddress
from typing import NamedTuple

from handrail.a2a.app import A2aApp
from handrail.cli.asgi import AsgiServer
from handrail.cli.database import EXIT_WRONG_INPUT, InputError, load_settings, print_error
from handrail.client.retry import parse_addresses
from handrail.server.logs import capture_logs


class A2aOptions(NamedTuple):
    """The command's options."""

    server: str = ""
    url: str = ""
    host: str = "127.0.0.1"
    port: int = 8091


def serve_a2a(options: A2aOptions) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    try:
        configuration = load_settings()
        server = ",".join(parse_addresses(options.server or configuration["server"]))
        app = A2aApp(server, _public_url(options))
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            asyncio.run(_serve(app, options))
        return 0
    except (InputError, ValueError) as error:
        print_error("a2a", error)
        return EXIT_WRONG_INPUT


def _public_url(options: A2aOptions) -> str:
    """Return the public address; "" if that is where it listens."""
    urls = parse_addresses(options.url)
    if len(urls) > 1:
        raise InputError("--url names more than one address; cards have one, so give one")
    if not urls and _is_unspecified(options.host):
        message = f"{options.host} is no address that others could be told"
        raise InputError(f"{message}; say with --url where they reach it")
    return urls[0] if urls else ""


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


async def _serve(app: A2aApp, options: A2aOptions) -> None:
    def ready(address: str) -> None:
        app.url = app.url or address
        print(f"Handrail speaks A2A at {app.url}/DEFINITION", flush=True)

    await AsgiServer(app, options.host, options.port, ready).listen()
