"""An OpenAI-compatible server on loopback, for tests: it says what the test wants, and misbehaves.

    async with Stub(lambda asked: say("fine\\nHANDOFF: memory: look")) as stub:
        ...  # OPENAI_BASE_URL=stub.url

Each request for a chat completion is `Asked`; the test's function gives a `Reply`. A reply may have
another status, other headers or a body that is none, come late, drip without end, or never come.
`stub.asked` are the requests so far, `stub.left` counts callers that hung up before their answer.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
TOKENS = 120
"""That each answer with usage costs."""
DRIP_SECONDS = 0.02
HEAD_MAX, BODY_MAX = 64_000, 10_000_000


class ModelRequest(NamedTuple):
    """What a client sent: the headers in lower case, the body as JSON."""

    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def system(self) -> str:
        """The instructions, whoever says them."""
        told = [m for m in self.body["messages"] if m["role"] in ("system", "developer")]
        return "\n".join(m["content"] for m in told)

    @property
    def prompt(self) -> str:
        """What the last user message says."""
        return [m["content"] for m in self.body["messages"] if m["role"] == "user"][-1]

    @property
    def tools(self) -> dict[str, Any]:
        """Name of a tool -> its parameters' schema."""
        tools = [one["function"] for one in self.body.get("tools", ())]
        return {tool["name"]: tool["parameters"] for tool in tools}

    @property
    def results(self) -> list[str]:
        """What tools gave in this turn."""
        return [m["content"] for m in self.body["messages"] if m["role"] == "tool"]


class ModelReply(NamedTuple):
    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    after: asyncio.Event | None = None
    """Not before this is set; with one that nobody sets it never comes."""
    drips: bool = False
    """A byte now and then, and no end."""


def completion(message: dict[str, Any], finish: str = "stop", **more: Any) -> ModelReply:
    """A whole answer in the shape of chat completions."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "stub"}
    return ModelReply(json.dumps({**body, "choices": [choice], "usage": USAGE, **more}).encode())


def say(text: str, **more: Any) -> ModelReply:
    """A plain text."""
    return completion({"content": text}, **more)


def call(tool: str, **arguments: Any) -> ModelReply:
    """A call of a tool, the one that takes the answer included."""
    return call_with(tool, json.dumps(arguments))


def call_with(tool: str, arguments: str) -> ModelReply:
    """The same, with arguments that need not be JSON."""
    function = {"name": tool, "arguments": arguments}
    called = {"id": "call-1", "type": "function", "function": function}
    return completion({"content": None, "tool_calls": [called]}, "tool_calls")


def stream(text: str) -> ModelReply:
    """The text in pieces, as server-sent events."""
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "stub"}
    pieces = [{"index": 0, "delta": {"role": "assistant", "content": one}} for one in text]
    ending = {"index": 0, "delta": {}, "finish_reason": "stop"}
    lines = [json.dumps({**head, "choices": [piece]}) for piece in (*pieces, ending)]
    body = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()
    return ModelReply(body, headers=(("content-type", "text/event-stream"),))


def refuse(text: str) -> ModelReply:
    """The model will not answer that."""
    return completion({"content": None, "refusal": text})


def fail(status: int, message: str = "no", **headers: str) -> ModelReply:
    """An error; headers as `retry_after_ms="1"`."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return ModelReply(json.dumps({"error": {"message": message}}).encode(), status, named)


class Stub:
    """The server. It listens on a free port of the loopback while it is entered."""

    def __init__(self, answer: Callable[[ModelRequest], ModelReply]) -> None:
        self.answer = answer
        self.asked: list[ModelRequest] = []
        self.left = 0
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Stub":
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never began

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = self.answer(await self._read(reader))
            gone = asyncio.ensure_future(reader.read(1))
            try:
                if not await _first(gone, reply.after):
                    self.left += 1
                    return
                await self._send(writer, reply, gone)
            finally:
                gone.cancel()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> ModelRequest:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        pairs = [line.partition(":") for line in head[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(min(int(headers["content-length"]), BODY_MAX))
        self.asked.append(ModelRequest(headers, json.loads(body)))
        return self.asked[-1]

    async def _send(
        self, writer: asyncio.StreamWriter, reply: ModelReply, gone: "asyncio.Future[bytes]"
    ) -> None:
        length = 10 * BODY_MAX if reply.drips else len(reply.body)
        headers = {"content-type": "application/json", **dict(reply.headers)}
        lines = [f"HTTP/1.1 {reply.status} X"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {length}", "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + reply.body)
        while reply.drips and not gone.done():
            writer.write(b" ")
            await asyncio.wait((gone,), timeout=DRIP_SECONDS)
        self.left += reply.drips
        with suppress(ConnectionError):
            await writer.drain()


async def _first(gone: "asyncio.Future[bytes]", after: asyncio.Event | None) -> bool:
    """True when the reply may be sent, False when the caller hung up before."""
    if after is None:
        return True
    ready = asyncio.ensure_future(after.wait())
    try:
        await asyncio.wait((gone, ready), return_when=asyncio.FIRST_COMPLETED)
        return ready.done()
    finally:
        ready.cancel()
