"""A collector on loopback that takes OTLP over HTTP; or one that never answers."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 120.0


class Collector:
    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.asked = threading.Event()
        """Somebody has sent something."""
        self.over = threading.Event()
        self.came: list[tuple[str, ExportTraceServiceRequest]] = []
        self._changed = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        with self._changed:
            self.came.append((path, ExportTraceServiceRequest.FromString(body)))
            self._changed.notify_all()

    def spans(self, number: int) -> list[Any]:
        """All that came, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._spans()) >= number, PATIENCE)
            return self._spans()

    def _spans(self) -> list[Any]:
        return [
            span
            for _, request in self.came
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Its address."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.asked.set()
                if collector.silent:
                    collector.over.wait(PATIENCE)
                    return
                zipped = self.headers.get("content-encoding") == "gzip"
                collector.take(self.path, gzip.decompress(body) if zipped else body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
                """Nobody reads it."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.over.set()
            server.shutdown()
            server.server_close()
            thread.join(PATIENCE)
