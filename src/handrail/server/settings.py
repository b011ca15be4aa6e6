"""What the server is told at its start, beside what the engine and the kernel read. In seconds."""

from typing import Literal

from handrail.kernel.decision import Value

LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class ServerSettings(Value):
    wait_max: float = 60
    """The longest that a request may wait for something to happen."""
    waiting_max: int = 5_000
    """Requests that wait, and event streams, at once; further ones are answered 503."""
    connections_max: int = 10_000
    """Connections at once; further ones are answered 503 and closed."""
    body_bytes_max: int = 10 * 1024 * 1024
    rate_limit: float = 1_000
    """Requests a second of one token; five times as many at once."""
    failed_tokens: float = 2
    """Requests a second with a wrong token from one address; five seconds' worth at once."""
    drain: float = 2
    """How long a server that ends still takes requests, while it says so at /readyz."""
    page: bool = True
    public_url: str = ""
    """Where people reach this server, for links in what webhooks are told; without a slash."""
    webhook_private: bool = False
    """Whether webhooks may point into the own network, and be told over plain http."""
    log_format: LogFormat = "auto"
    """`auto`: for people if a terminal reads it, else JSON."""
    log_level: LogLevel = "info"
    origins: dict[str, str] = {}
    """Where settings came from, by name, for whoever asks; what is not here is a default."""
