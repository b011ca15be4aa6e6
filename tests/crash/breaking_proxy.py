"""Between an engine and its PostgreSQL: a connection that breaks at the Nth thing the engine sends,
before the server has it, or after the server has done it and before the engine hears of it."""

import contextlib
import socket
import threading
from pathlib import Path

NAME = ".s.PGSQL.5432"
SECONDS = 60


class Proxy:
    """Listens in `folder`, as the server does in its own."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.server = server
        self.at, self.heard = 0, False
        self.sent, self.cut = 0, 0
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / NAME))
        self._listening.listen(50)
        threading.Thread(target=self._listen, daemon=True).start()

    def arm(self, at: int, *, heard: bool) -> None:
        """The connection breaks at that one of all further sendings; the server hears it or not."""
        with self._lock:
            self.at, self.heard, self.sent, self.cut = at, heard, 0, 0

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # close() alone wakes nobody
        self._listening.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self.server / NAME))
            except OSError:
                client.close()
                continue
            deaf = threading.Event()
            both = (client, server, deaf)
            threading.Thread(target=self._forth, args=both, daemon=True).start()
            threading.Thread(target=self._back, args=both, daemon=True).start()

    def _breaks(self) -> bool:
        with self._lock:
            self.sent += 1
            if self.sent == self.at:
                self.cut += 1
                return True
            return False

    def _forth(self, client: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self._breaks():
                    if self.heard:
                        deaf.set()
                        server.sendall(data)
                        # The server ends its work before it sees that nobody is there any more.
                        server.shutdown(socket.SHUT_WR)
                        server.settimeout(SECONDS)
                        return
                    break
                server.sendall(data)
        _end(client, server)

    def _back(self, client: socket.socket, server: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if not deaf.is_set():
                    client.sendall(data)
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
