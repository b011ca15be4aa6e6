"""The sample shop at work: served in a process of its own, its errors reported to a server.

    python -m handrail.teams.healing.live FOLDER URL       the token is HANDRAIL_TOKEN

It prints its port, and ends when its input does: whoever started it may be killed in any way.
"""

import contextlib
import http.client
import importlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from handrail.middleware import Reporter, WsgiMiddleware, to_server
from handrail.teams.healing.sample import Request, address, deploy
from handrail.teams.healing.service import Service

SERVICE = "shop"
ASK_SECONDS = 60.0
END_SECONDS = 30.0


class Live:
    """The shop as it is deployed; `url` and `token` are of the server that hears of its errors."""

    def __init__(self, service: Service, folder: Path, url: str, token: str) -> None:
        self.service, self.folder, self.url, self.token = service, folder, url, token
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        """The branch as it is now is deployed and served; what was served before ends."""
        self.stop()
        deploy(self.service, self.folder)
        words = [sys.executable, "-m", "handrail.teams.healing.live", str(self.folder), self.url]
        variables = {**os.environ, "HANDRAIL_TOKEN": self.token, "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(  # noqa: S603 - a list of words, which no shell reads
            words, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        if not told.strip().isdecimal():
            self.stop()
            raise RuntimeError(f"the shop in '{self.folder}' does not start; start it by hand")
        self.port = int(told)

    def stop(self) -> None:
        """What it has still to report is reported."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=END_SECONDS)
        self.process.kill()
        self.process.communicate()
        self.process = None

    def ask(self, request: Request) -> int:
        """The status of the answer."""
        body = None if request.body is None else json.dumps(request.body)
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ASK_SECONDS)
        try:
            asked.request(request.method, address(request), body)
            return asked.getresponse().status
        finally:
            asked.close()


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as it is there
        """Nothing: errors are reported."""


def main(folder: str, url: str) -> None:
    sys.path.insert(0, folder)
    app = importlib.import_module("shop.app").app
    reporter = Reporter(to_server(url, os.environ["HANDRAIL_TOKEN"]), service=SERVICE)
    with make_server("127.0.0.1", 0, WsgiMiddleware(app, reporter), handler_class=Quiet) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        server.shutdown()
    reporter.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
