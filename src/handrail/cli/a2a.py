"""`handrail a2a`: serve definitions as agents that others reach by A2A, until a signal."""

import ipaddress
from typing import Annotated

import typer

from handrail.cli.command import InputError, as_input_error
from handrail.cli.database import load_settings
from handrail.cli.options import Server


def a2a(
    server: Server = "",
    url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The public address in its agent cards; default: where it listens."
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = 8091,
) -> None:
    """Serve definitions as agents over A2A.

    A2A is the Agent2Agent protocol. Every definition is an agent, at its id below this address; a
    message to it files a bead. Every request carries its own token. Stops on SIGTERM or Ctrl-C.
    """
    import asyncio

    from handrail.a2a.app import A2aApp
    from handrail.cli.asgi import AsgiServer
    from handrail.client.retry import parse_addresses
    from handrail.server.logs import capture_logs

    def ready(address: str) -> None:
        app.url = app.url or address
        print(f"Handrail speaks A2A at {app.url}/DEFINITION", flush=True)

    with as_input_error(ValueError):
        configuration = load_settings()
        server_urls = parse_addresses(server or configuration["server"])
        app = A2aApp(",".join(server_urls), _public_url(parse_addresses(url), host))
        with capture_logs(configuration.server.log_level, configuration.server.log_format):
            asyncio.run(AsgiServer(app, host, port, ready).listen())


def _public_url(urls: list[str], host: str) -> str:
    """Return the public address; "" if that is where it listens."""
    if len(urls) > 1:
        raise InputError("--url names more than one address; agent cards have one, so name one")
    if not urls and _is_unspecified(host):
        message = f"clients cannot connect to {host}, the address in the agent cards"
        raise InputError(f"{message}; name the public one with --url")
    return urls[0] if urls else ""


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
