"""Many callers in a process of their own, so that they do not share an interpreter with the server:
each files a ticket like no other, and waits for its end in one call. Prints what they heard.

    python -m tests.teams.ticket_callers HOST PORT TOKEN TICKETS

Each has a connection, and speaks no more HTTP than it needs: a client with a pool of 500 would be
measured, not the server.
"""

import asyncio
import json
import sys
import time
from datetime import datetime
from typing import Any

import msgspec

STUCK_EVERY = 25
KINDS = {
    "VPN drops": "NET-01",
    "slow wifi": "NET-03",
    "Excel freezes": "APP-03",
    "pods restart": "CLD-02",
    "forgot password": "SEC-01",
    "laptop stolen": "SEC-06",
}


class Heard(msgspec.Struct):
    """A ticket, what its caller was told at last, and how late."""

    title: str
    entry: str
    stuck: bool
    run_id: str
    bead_id: str
    terminal_status: str
    late: float
    """Seconds from the end of the run, or from the question if that came after it."""


class Line:
    """One connection."""

    def __init__(self, token: str, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        self.token, self.read, self.write = token, read, write

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        sent = json.dumps(body).encode() if body is not None else b""
        head = [
            f"{method} /api/v1{path} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self.token}",
            f"Content-Length: {len(sent)}",
            "Content-Type: application/json",
        ]
        self.write.write("\r\n".join([*head, "", ""]).encode() + sent)
        told = (await self.read.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(told.partition("content-length:")[2].partition("\r\n")[0])
        answer = await self.read.readexactly(length)
        assert told.split()[1] in ("200", "201"), answer
        return json.loads(answer)


async def caller(line: Line, number: int) -> Heard:
    words, entry = list(KINDS.items())[number % len(KINDS)]
    title = f"{words} kappa{number} lambda{number} sigma{number}"
    stuck = number % STUCK_EVERY == 0
    body: dict[str, Any] = {"title": title, "workflow_id": "helpdesk"}
    body |= {"context": {"demo": "stuck"}} if stuck else {}
    filed = await line.ask("POST", "/beads", body)
    asked = time.time()
    run = await line.ask("GET", f"/executions/{filed['execution_id']}?wait=60")
    heard = time.time()
    assert run["status"] == "ended", "one wait was enough"
    ended = datetime.fromisoformat(run["ended_at"]).timestamp()
    return Heard(
        title=title,
        entry=entry,
        stuck=stuck,
        run_id=run["id"],
        bead_id=run["bead_id"],
        terminal_status=run["terminal_status"],
        late=heard - max(asked, ended),
    )


async def main(host: str, port: int, token: str, tickets: int) -> list[Heard]:
    lines = [Line(token, *await asyncio.open_connection(host, port)) for _ in range(tickets)]
    try:
        return await asyncio.gather(*(caller(line, n) for n, line in enumerate(lines)))
    finally:
        for line in lines:
            line.write.close()


if __name__ == "__main__":
    host, port, token, tickets = sys.argv[1:]
    found = asyncio.run(main(host, int(port), token, int(tickets)))
    print(msgspec.json.encode(found).decode())
