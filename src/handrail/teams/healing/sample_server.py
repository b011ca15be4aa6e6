"""The sample shop at work: served in a process of its own, its errors reported to a server.

    python -m handrail.teams.healing.sample_server FOLDER URL       the token is HANDRAIL_TOKEN

It prints its port, and ends when its input does: the process that started it may be killed in any
way.
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
from handrail.teams.healing.sample_shop import ShopRequest, deploy, request_target
from handrail.teams.healing.service import Service

SERVICE_NAME = "shop"
REQUEST_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


class SampleServer:
    """The deployed shop; `url` and `token` are those of the server that receives its errors."""

    def __init__(self, service: Service, folder: Path, url: str, token: str) -> None:
        self.service, self.folder, self.url, self.token = service, folder, url, token
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        """Deploy and serve the branch as it is now, in place of what was served before."""
        self.stop()
        deploy(self.service, self.folder)
        args = [
            sys.executable,
            "-m",
            "handrail.teams.healing.sample_server",
            str(self.folder),
            self.url,
        ]
        variables = {**os.environ, "HANDRAIL_TOKEN": self.token, "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(  # noqa: S603 - a list of words, which no shell reads
            args, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout is not None
        port_line = self.process.stdout.readline()
        if not port_line.strip().isdecimal():
            self.stop()
            raise RuntimeError(f"the shop in '{self.folder}' does not start; start it by hand")
        self.port = int(port_line)

    def stop(self) -> None:
        """Stop the shop, after it has sent its reports."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=STOP_SECONDS_MAX)
        self.process.kill()
        self.process.communicate()
        self.process = None

    def send(self, request: ShopRequest) -> int:
        """Send a request and return the status of the response."""
        body = None if request.body is None else json.dumps(request.body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS_MAX)
        try:
            connection.request(request.method, request_target(request), body)
            return connection.getresponse().status
        finally:
            connection.close()


class QuietRequestHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as it is there
        """Log nothing: errors are reported."""


def main(folder: str, url: str) -> None:
    sys.path.insert(0, folder)
    app = importlib.import_module("shop.app").app
    reporter = Reporter(to_server(url, os.environ["HANDRAIL_TOKEN"]), service=SERVICE_NAME)
    with make_server(
        "127.0.0.1", 0, WsgiMiddleware(app, reporter), handler_class=QuietRequestHandler
    ) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        server.shutdown()
    reporter.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
