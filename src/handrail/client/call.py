"""One call of the API as a value: the request, and the decoder of its answer. No I/O here."""

from collections.abc import Callable, Generator, Mapping
from functools import cache
from threading import Lock
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from handrail.kernel.decision import Value

T = TypeVar("T")

JSON, MARKDOWN = "application/json", "text/markdown"
EVENT_STREAM = "text/event-stream"
API_PREFIX = "/api/v1"

_decoder_lock = Lock()
"""Decoders are made by one thread at a time: see `handrail.kernel.decision.prepare_types`."""
Query = Mapping[str, str | int | float | None]


class Call(Value, Generic[T]):
    """A request without its server, and the decoder of its answer."""

    method: str
    path: str
    """Relative to the API's root, each part quoted."""
    decode: Callable[[bytes], T]
    query: dict[str, str] = {}
    body: bytes | None = None
    media_type: str = JSON
    accept: str = JSON
    wait_seconds: float = 0
    """How long the server may hold the answer back on purpose."""
    idempotency_key: str = ""
    """The Idempotency-Key of a POST; if empty, every call gets a new key."""

    def __str__(self) -> str:
        return f"{self.method} {API_PREFIX}{self.path}"


CallSequence = Generator[Call[Any], Any, T]
"""Several calls in sequence: yields each call, and receives its answer."""


def join_path(*parts: str) -> str:
    """Quote and join the parts, as in `join_path("beads", id)`: no id can escape its path."""
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError(f"'{part}' is no id; take one that a call gave")
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def json_get(
    url_path: str,
    response_type: type[T],
    query: Query | None = None,
    *,
    wait: float = 0,
) -> Call[T]:
    """Describe a GET with a JSON answer. Empty query parameters are left out."""
    parameters = {
        name: _query_text(value) for name, value in (query or {}).items() if value not in (None, "")
    }
    return Call(
        method="GET",
        path=url_path,
        decode=json_decoder(response_type),
        query=parameters,
        wait_seconds=wait,
    )


def json_send(
    method: str,
    url_path: str,
    response_type: type[T],
    body: object = None,
    *,
    wait: float = 0,
    key: str = "",
) -> Call[T]:
    """Describe a call that changes something; body and answer are JSON."""
    content = None if body is None else msgspec.json.encode(body)
    return Call(
        method=method,
        path=url_path,
        decode=json_decoder(response_type),
        body=content,
        wait_seconds=wait,
        idempotency_key=key,
    )


def json_decoder(response_type: type[T]) -> Callable[[bytes], T]:
    with _decoder_lock:
        return _cached_decoder(response_type)


@cache  # bounded by the number of response types
def _cached_decoder(response_type: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(response_type).decode


def drop_none(**fields: object) -> dict[str, object]:
    """Return the fields that are not None; the server has defaults for the others."""
    return {name: value for name, value in fields.items() if value is not None}


def decode_nothing(body: bytes) -> None:
    """Ignore the body of a successful answer."""


def decode_text(body: bytes) -> str:
    return body.decode()


def decode_bytes(body: bytes) -> bytes:
    return body


def _query_text(value: str | int | float | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
