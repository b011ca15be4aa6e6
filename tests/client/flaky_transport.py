"""Between a client and a server: requests that get lost, answers that get lost, requests twice."""

import socket
import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Literal

Mishap = Literal["fine", "lost", "deaf", "twice", "slow", "busy"]
SECONDS = 60
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 0\r\n"
    b"connection: close\r\n\r\n"
)


class Flaky:
    """Every request meets the next mishap:

    lost: it never arrives; deaf: it is done, and the answer gets lost; twice: it arrives two times;
    slow: the answer comes after whoever asked has given up; busy: it is refused on the way.
    """

    def __init__(self, port: int, mishaps: Iterable[Mishap] = ()) -> None:
        self.port, self.mishaps = port, deque(mishaps)
        self.met: Counter[Mishap] = Counter()
        self.keys: list[str] = []
        """The Idempotency-Key of every request that came."""
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> "Flaky":
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody is left: a request that is still on its way would find the server gone."""
        self._listening.shutdown(socket.SHUT_RDWR)  # close() alone wakes nobody
        self._listening.close()
        for thread in self._threads:
            thread.join(SECONDS)

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            meeting = threading.Thread(target=self._meet, args=(client,), daemon=True)
            self._threads.append(meeting)
            meeting.start()

    def _meet(self, client: socket.socket) -> None:
        with client:
            client.settimeout(SECONDS)
            request = self._read(client)
            if request is None:
                return
            with self._lock:
                mishap = self.mishaps.popleft() if self.mishaps else "fine"
                self.met[mishap] += 1
            if mishap == "lost":
                return
            if mishap == "busy":
                client.sendall(BUSY)
                return
            answer = self._forward(request)
            if mishap == "twice":
                answer = self._forward(request)
            try:
                if mishap == "slow":
                    client.recv(1)  # there is nothing more to read: it comes back once they left
                if mishap != "deaf":
                    client.sendall(answer)
            except OSError:
                return

    def _read(self, client: socket.socket) -> bytes | None:
        """One request, which asks for the connection to be closed after it."""
        got = b""
        while b"\r\n\r\n" not in got:
            more = client.recv(65536)
            if not more:
                return None
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        headers = {
            k.strip().lower(): v.strip() for k, _, v in (one.partition(b":") for one in lines)
        }
        while len(body) < int(headers.get(b"content-length", b"0")):
            body += client.recv(65536)
        with self._lock:
            self.keys.append(headers.get(b"idempotency-key", b"").decode())
        headers[b"connection"] = b"close"
        told = b"".join(b"%s: %s\r\n" % one for one in headers.items())
        return first + b"\r\n" + told + b"\r\n" + body

    def _forward(self, request: bytes) -> bytes:
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as server:
            server.sendall(request)
            while more := server.recv(65536):
                answer += more
        return answer
