"""The settings of the server, beside those of engine and kernel. Times are in seconds."""

from typing import Literal

from handrail.kernel.decision import Value

LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class ServerSettings(Value):
    wait_max: float = 60
    """The longest that a request may wait for an event."""
    waiting_max: int = 5_000
    """Waiting requests and event streams at once; further ones are answered 503."""
    connections_max: int = 10_000
    """Connections at once; further ones are answered 503 and closed."""
    body_bytes_max: int = 10 * 1024 * 1024
    rate_limit: float = 1_000
    """Requests a second of one token; five times as many at once."""
    failed_tokens: float = 2
    """Requests a second with a wrong token from one address; five seconds' worth at once."""
    drain: float = 2
    """How long a server that shuts down still takes requests, while /readyz reports it."""
    page: bool = True
    public_url: str = ""
    """The URL at which people reach this server, for links in deliveries; without a slash."""
    webhook_private: bool = False
    """Whether webhooks may point to internal addresses, and use plain http."""
    log_format: LogFormat = "auto"
    """`auto`: console format on a terminal, else JSON."""
    log_level: LogLevel = "info"
    origins: dict[str, str] = {}
    """Origins of settings by name, for `GET /settings`; a missing name is a default."""
