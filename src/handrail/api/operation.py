"""One call of the API as data, declared as a method.

    class BeadCalls(CallGroup[C], subject="beads"):
        @operation("POST", "/beads", body=NewBead, access=OPERATOR, status=201)
        def create(self, title: str, *, priority: int | None = None, key: str = "") -> BeadView:
            \"\"\"File a bead.\"\"\"

The decorator is the wire; the signature is the client's method, and its return type the response.
On an asynchronous client `client.beads.create` is `async (title, …) -> BeadView`, on the other one
`(title, …) -> BeadView`; the server binds its handler with `@serves(BeadCalls.create)`.

Rules
1. An argument that the path names goes there; `key` is the Idempotency-Key of a POST; all others
   are fields of `query` or `body`. What is None is left out, and left to the server's default.
2. `whole` names the argument that is the body itself; further arguments are added to its fields.
3. `wait` is how many seconds the server may hold the answer back: the client waits as much longer.

Access: `people` is the lowest role of a person (viewer, operator, ceo, admin, each including the
one before) or None; `agents` and `reporters` allow these tokens, which are outside that order.
`restriction` says what a call is limited to for some callers; its handler checks that.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)
from urllib.parse import quote

import msgspec

from handrail.api.shared import EVENT_STREAM, JSON
from handrail.kernel.decision import Value

Role = Literal["viewer", "operator", "ceo", "admin", "agent", "reporter"]
PersonRole = Literal["viewer", "operator", "ceo", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "ceo", "admin", "agent", "reporter")


class Access(Value):
    people: PersonRole | None = None
    agents: bool = False
    reporters: bool = False
    open: bool = False
    """Allowed without a token too."""
    restriction: str = ""


NOBODY = Access()
VIEWER = Access(people="viewer")
OPERATOR = Access(people="operator")
CEO = Access(people="ceo")
ADMIN = Access(people="admin")
AGENT = Access(agents=True, restriction="an agent's token acts for its own agent id only")
OPEN = Access(open=True)


P = ParamSpec("P")
R = TypeVar("R")
C_co = TypeVar("C_co", covariant=True)

API_PREFIX = "/api/v1"
ANY_MEDIA_TYPE = "application/octet-stream"

_decoder_lock = Lock()
"""Decoders are made by one thread at a time: see `handrail.kernel.decision.prepare_types`."""


class Repeat(StrEnum):
    """Where the answer to a POST is stored, for a repetition with the same Idempotency-Key."""

    STORED = "stored"
    MEMORY = "memory"
    """In memory only: the call changes nothing, or its answer is useless later."""
    ONCE = "once"
    """In memory only, because it holds a secret; a repetition after that is refused."""


class Call(Value, Generic[R]):
    """An operation with its arguments: a request without its server."""

    operation: "Operation[..., R]"
    path: str
    """With the API's prefix, each argument quoted."""
    query: dict[str, str] = {}
    body: bytes | None = None
    media_type: str = JSON
    accept: str = JSON
    wait_seconds: float = 0
    """How long the server may hold the answer back on purpose."""
    idempotency_key: str = ""
    """If empty, every call gets a new key."""

    def __str__(self) -> str:
        return f"{self.operation.method} {self.path}"


class Operation(Generic[P, R]):
    """A call of the API: its method and path, who may make it, and its types."""

    def __init__(
        self,
        declare: Callable[Concatenate[Any, P], R],
        method: str,
        path: str,
        *,
        access: Access,
        body: Any = None,  # noqa: ANN401 - a type
        query: type[msgspec.Struct] | None = None,
        whole: str = "",
        is_body_optional: bool = False,
        status: int = 0,
        empty: str = "",
        media_types: tuple[str, ...] = (),
        problems: tuple[int, ...] = (),
        repeat: Repeat = Repeat.STORED,
        body_bytes_max: int | None = None,
        seconds_max: float = 0,
        prefix: str = API_PREFIX,
        is_variant: bool = False,
    ) -> None:
        self.method, self.path, self.access, self.repeat = method, prefix + path, access, repeat
        self.body, self.query, self.whole = body, query, whole
        self.is_body_optional, self.body_bytes_max = is_body_optional, body_bytes_max
        self.response: Any = declare.__annotations__["return"]
        self.status = status or (204 if self.response is None else 200)
        self.empty = empty
        """What it means that the answer is 204, if it may be."""
        self.media_types = media_types or (JSON,)
        """Of the answer; the client asks for the first."""
        self.problems = problems
        """Statuses of its problem documents, beside those that every call may have."""
        self.seconds_max = seconds_max
        """How long the answer may take, beyond what every call may."""
        self.is_variant = is_variant
        """Another form of an operation that is declared too: not served or documented twice."""
        self.name = declare.__name__
        self.__doc__ = self.doc = inspect.getdoc(declare) or ""
        signature = inspect.signature(declare)
        self.signature = signature.replace(parameters=[*signature.parameters.values()][1:])
        self.path_arguments = tuple(
            part[1:-1] for part in self.path.split("/") if part.startswith("{")
        )
        self._decode: Callable[[bytes], R] | None = None

    @property
    def summary(self) -> str:
        """The first sentence of its documentation, without the full stop."""
        return self.doc.partition(". ")[0].rstrip(".")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def bind_method(self, send: Callable[..., Any]) -> Callable[P, Any]:
        """Return the method of a client, which makes the call with `send`."""
        method = cast("Any", partial(send, self))
        method.__signature__, method.__doc__ = self.signature, self.__doc__
        return method

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the request for these arguments."""
        return self.build(self.bind(*args, **kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return the arguments by name, without those that are None."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if value is not None}

    def build(self, arguments: dict[str, Any]) -> Call[R]:
        """Return the request for these arguments, which are used up."""
        path = "/".join(
            _quote(arguments.pop(part[1:-1])) if part.startswith("{") else part
            for part in self.path.split("/")
        )
        key, media_type = arguments.pop("key", ""), arguments.pop("content_type", JSON)
        return Call(
            operation=self,
            path=path,
            query=self._encode_query(arguments),
            body=self._encode_body(arguments),
            media_type=media_type,
            accept=self.media_types[0],
            wait_seconds=arguments.get("wait", 0) + self.seconds_max,
            idempotency_key=key,
        )

    def _encode_query(self, arguments: dict[str, Any]) -> dict[str, str]:
        if self.query is None:
            return {}
        names = [name for name in self.query.__struct_fields__ if name in arguments]
        fields = msgspec.to_builtins(self.query(**{name: arguments.pop(name) for name in names}))
        return {name: _query_text(value) for name, value in fields.items() if value != ""}

    def _encode_body(self, arguments: dict[str, Any]) -> bytes | None:
        if self.body is None:
            return None
        content = arguments.pop(self.whole) if self.whole else None
        if self.body is bytes:
            return content
        if self.whole:
            return msgspec.json.encode({**msgspec.to_builtins(content), **arguments})
        return msgspec.json.encode(self.body(**arguments))

    def decode(self, body: bytes) -> R:
        """Decode the body of a successful answer."""
        if self._decode is None:
            with _decoder_lock:
                self._decode = _decoder(self.response)
        may_be_empty = self.empty and not body
        return self._decode(b"null" if may_be_empty else body)


def _quote(argument: str) -> str:
    """Quote a part of the path: no id can escape from it."""
    if argument in ("", ".", ".."):
        raise ValueError(f"'{argument}' is not an id; use one that a call returned")
    return quote(argument, safe="")


def _query_text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ",".join(cast("list[str]", value))
        case _:
            return str(value)


def _decoder(response: Any) -> Callable[[bytes], Any]:  # noqa: ANN401 - a type
    if response is None:
        return lambda _: None
    if response is bytes:
        return lambda body: body
    if response is str:
        return lambda body: body.decode()
    return msgspec.json.Decoder(response).decode


class AsyncCaller(Protocol):
    """A client with an event loop. It has `follow` too, for event streams."""

    def send(
        self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...


class SyncCaller(Protocol):
    """A client without an event loop. It has `follow` too, for event streams."""

    def send(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...


class CallGroup(Generic[C_co]):
    """The calls about one subject, made by `caller`."""

    subject: ClassVar[str]

    def __init_subclass__(cls, *, subject: str) -> None:
        cls.subject = subject
        for item in vars(cls).values():
            if isinstance(item, Operation):
                item.name = f"{subject}.{item.name}"

    def __init__(self, caller: C_co) -> None:
        self._caller = caller


class Endpoint(Operation[P, R]):
    """An operation with one answer."""

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self, group: CallGroup[AsyncCaller], owner: type
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, group: CallGroup[SyncCaller], owner: type) -> Callable[P, R]: ...

    def __get__(self, group: Any, owner: type) -> Any:
        return self if group is None else self.bind_method(group._caller.send)


class EventStream(Operation[P, R]):
    """An operation that answers with server-sent events, until one of the type `last_type`."""

    def __init__(
        self,
        declare: Callable[Concatenate[Any, P], R],
        path: str,
        last_type: str,
        **options: Any,  # noqa: ANN401 - of `Operation`
    ) -> None:
        super().__init__(declare, "GET", path, media_types=(EVENT_STREAM,), **options)
        self.last_type = last_type

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self, group: CallGroup[AsyncCaller], owner: type
    ) -> Callable[P, AsyncIterator[R]]: ...
    @overload
    def __get__(self, group: CallGroup[SyncCaller], owner: type) -> Callable[P, Iterator[R]]: ...

    def __get__(self, group: Any, owner: type) -> Any:
        return self if group is None else self.bind_method(group._caller.follow)


def operation(
    method: str,
    path: str,
    **options: Any,  # noqa: ANN401 - of `Operation`
) -> Callable[[Callable[Concatenate[Any, P], R]], Endpoint[P, R]]:
    """Declare an operation; see above."""
    return lambda declare: Endpoint(declare, method, path, **options)


def event_stream(
    path: str,
    *,
    last_type: str = "",
    **options: Any,  # noqa: ANN401 - of `Operation`
) -> Callable[[Callable[Concatenate[Any, P], R]], EventStream[P, R]]:
    """Declare a stream; the return type is that of its events."""
    return lambda declare: EventStream(declare, path, last_type, **options)
