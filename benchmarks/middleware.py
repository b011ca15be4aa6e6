"""What the middleware costs a healthy request: the same app with and without it, in turn.

    uv run python -m benchmarks.middleware [--quick] [--json] [--write]

The apps answer some kilobytes of JSON, the ASGI one through Litestar, the WSGI ones by hand, as a
list and as a generator, called as a server calls them, without a socket: nothing but the app and
the middleware is measured. CPU time of short rounds, with and without it by turns; of each pair the
quotient, of all pairs the median, since other work on the machine comes in bursts. `--json` prints
one line; `--write` also writes `benchmarks/results/middleware.md`. Exits 1 if it costs 3% or more.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litestar import Litestar, get
from litestar.params import FromPath

from benchmarks.measure import Prepare, Run, cpu_us
from handrail.middleware import AsgiMiddleware, Reporter, WsgiMiddleware
from handrail.middleware.asgi import App

MOST = 0.03
REQUESTS, PAIRS, PAIRS_QUICK = 100, 1_000, 200
RESULTS = Path(__file__).parent / "results" / "middleware.md"
ITEMS = [{"id": n, "name": f"item {n}", "price": n * 1.1} for n in range(20)]


@get("/orders/{number:int}")
async def order(number: FromPath[int]) -> dict[str, Any]:
    return {"number": number, "items": ITEMS}


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    body = json.dumps({"number": 1, "items": ITEMS}).encode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [body]


def streamed(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
    yield from wsgi(environ, start_response)


def asgi_runs(app: Any) -> Prepare:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/orders/17",
        "raw_path": b"/orders/17",
        "query_string": b"",
        "headers": [(b"host", b"x"), (b"accept", b"application/json")],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("x", 80),
        "client": ("y", 1),
        "root_path": "",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise RuntimeError(f"status {message['status']}")

    async def many(requests: int) -> int:
        for _ in range(requests):
            await app(dict(scope), receive, send)
        return requests

    def prepare(requests: int) -> Run:
        return lambda: asyncio.run(many(requests))

    return prepare


def wsgi_runs(app: Any) -> Prepare:
    def start(status: str, headers: object, *more: object) -> None:
        pass

    def prepare(requests: int) -> Run:
        def run() -> int:
            for _ in range(requests):
                b"".join(app({"REQUEST_METHOD": "GET", "PATH_INFO": "/orders/17"}, start))
            return requests

        return run

    return prepare


def measure(requests: int, pairs: int) -> dict[str, dict[str, float]]:
    """CPU µs a request without it, and the share that it adds."""
    reporter = Reporter(lambda report: None, service="bench")
    litestar: Any = Litestar([order], openapi_config=None)
    app: App = litestar  # its Scope is a TypedDict, ours a mapping
    contenders = {
        "asgi": (asgi_runs(app), asgi_runs(AsgiMiddleware(app, reporter))),
        "wsgi": (wsgi_runs(wsgi), wsgi_runs(WsgiMiddleware(wsgi, reporter))),
        "wsgi, streamed": (wsgi_runs(streamed), wsgi_runs(WsgiMiddleware(streamed, reporter))),
    }
    gc.freeze()  # what is there already is not gone through again before every round
    try:
        return {name: paired(*both, requests, pairs) for name, both in contenders.items()}
    finally:
        gc.unfreeze()


def paired(bare: Prepare, wrapped: Prepare, requests: int, pairs: int) -> dict[str, float]:
    for prepare in (bare, wrapped):
        prepare(requests)()
    alone: list[float] = []
    shares: list[float] = []
    for n in range(pairs):
        order_of = (bare, wrapped) if n % 2 else (wrapped, bare)
        took = {prepare: cpu_us([prepare(requests)], requests) for prepare in order_of}
        alone.append(took[bare])
        shares.append(took[wrapped] / took[bare] - 1)
    return {"cpu_us": statistics.median(alone), "overhead": statistics.median(shares)}


def report(found: dict[str, dict[str, float]]) -> str:
    """The figures as Markdown, readable as plain text too."""
    lines = [
        f"| {'app':<14} | {'CPU µs a request':>16} | with the middleware | aim  | met |",
        f"|{'-' * 16}|{'-' * 17}:|{'-' * 20}:|-----:|-----|",
    ]
    for kind, one in found.items():
        met = "yes" if one["overhead"] < MOST else "NO"
        cost = f"{one['overhead']:+.2%}"
        lines.append(
            f"| {kind:<14} | {one['cpu_us']:>16.1f} | {cost:>19} | < {MOST:.0%} | {met:<3} |"
        )
    return "\n".join(lines)


def page(found: dict[str, dict[str, float]], pairs: int) -> str:
    return (
        "# What the middleware costs a healthy request\n\n"
        "Written by `uv run python -m benchmarks.middleware --write`; what is measured stands in\n"
        f"that module's header. Python {platform.python_version()}, {os.cpu_count()} cores.\n"
        f"Medians of {pairs:,} pairs of rounds of {REQUESTS} requests.\n\n"
        f"{report(found)}\n"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.middleware", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    wanted = parser.parse_args(arguments)
    pairs = PAIRS_QUICK if wanted.quick else PAIRS
    found = measure(REQUESTS, pairs)
    if wanted.write:
        RESULTS.write_text(page(found, pairs), encoding="utf-8")
    sys.stdout.write(f"{json.dumps(found) if wanted.json else report(found)}\n")
    return int(max(one["overhead"] for one in found.values()) >= MOST)


if __name__ == "__main__":
    sys.exit(main())
