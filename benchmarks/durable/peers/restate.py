"""Restate: its server keeps the journal, and calls a Python service for each run.

The server is a program of its own, installed with npm into the user's cache folder; the binary
itself is started, since killing the node wrapper would leave it running. Server and service listen
on loopback, on ports that were free. Run as a module, this is the service.
"""

import asyncio
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from benchmarks.durable.common import AGENTS, Bench, Load, MissingError

DISTRIBUTION = "restate-sdk"
PACKAGE, SERVER_VERSION = "@restatedev/restate-server", "1.7.12"
READY_SECONDS = 60

service = restate.Service("bench")


async def turn(made: int) -> int:
    return made + 1


@service.handler()
async def ring(context: restate.Context, goal: int) -> int:
    made = 0
    while made < goal:
        name = AGENTS[made % len(AGENTS)]
        made = await context.run_typed(name, turn, restate.RunOptions(), made)
    return made


def binary() -> Path:
    """The server itself, installed if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "handrail-bench" / f"restate-{SERVER_VERSION}"
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = f"{PACKAGE}-{sys.platform}-{machine}"
    found = folder / "node_modules" / package / "bin" / "restate-server"
    if not found.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise MissingError("npm is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        command = [npm, "install", "--prefix", str(folder), *options, f"{PACKAGE}@{SERVER_VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not found.exists():
            said = done.stderr.strip().splitlines()[-1:] or ["no binary for this machine"]
            raise MissingError(f"npm install {PACKAGE}: {said[0]}")
    return found


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@contextmanager
def process(command: list[str], log: Path, **environment: str) -> Iterator[None]:
    with log.open("wb") as output:
        started = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    try:
        yield
    finally:
        started.kill()  # what it stored is thrown away; an orderly end takes it 15 s
        started.wait()


def ask(url: str, body: Any = None) -> None:
    """Repeats until there is an answer: servers need a moment to come up."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def running(bench: Bench) -> Iterator[int]:
    """Server and service; gives the port that takes runs."""
    ingress, admin, node, port = free_ports(4)
    environment = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "RESTATE_LOG_FILTER": "error",
    }
    data = bench.folder / "restate"
    server = [str(binary()), "--no-logo", "--base-dir", str(data), "--node-name", "bench"]
    served = [sys.executable, "-m", __name__, str(port)]
    with (
        process(server, bench.folder / "server.log", **environment),
        process(served, bench.folder / "service.log"),
    ):
        ask(f"http://127.0.0.1:{admin}/health")
        ask(f"http://127.0.0.1:{admin}/deployments", {"uri": f"http://127.0.0.1:{port}"})
        yield ingress


class Client:
    """A connection to the server that is kept open: one run at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def run(self, goal: int) -> None:
        body = json.dumps(goal)
        self.writer.write(
            f"POST /bench/ring HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = head.partition("content-length:")[2].partition("\r")[0]
        answer = await self.reader.readexactly(int(length or 0))
        if answer.decode() != str(goal):
            raise RuntimeError(f"{head.splitlines()[0]}: {answer.decode()}")


async def drive(bench: Bench, load: Load, port: int) -> None:
    number = load.runs if load.at_once else 1
    clients = await asyncio.gather(*(Client.open(port) for _ in range(number)))
    await clients[0].run(load.steps)
    with bench.timed(load):
        if load.at_once:
            await asyncio.gather(*(client.run(load.steps) for client in clients))
        else:
            for _ in range(load.runs):
                await clients[0].run(load.steps)
    for client in clients:
        client.writer.close()


def measure(bench: Bench, loads: list[Load]) -> None:
    with running(bench) as port:
        for load in loads:
            asyncio.run(drive(bench, load, port))


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    asyncio.run(serve(restate.app([service]), config))
