"""A server that is gone without a word: packets go nowhere from one moment on, and nobody says so.

    unshare -n python silence.py

In a network of its own the way to the server's address is made a black hole. Prints how many
seconds two connections take to notice it: one that sends, and one that waits for an answer.
"""

import json
import subprocess
import threading
import time

import psycopg

from handrail.store.postgres.primary import PrimaryFinder
from handrail.testing.postgres import PostgresServer, wait_until

BUSY = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def lost(db: psycopg.Connection, statement: str, seconds: dict[str, float], name: str) -> None:
    try:
        db.execute(statement.encode(), prepare=False)
    except psycopg.OperationalError:
        seconds[name] = time.monotonic()


def main() -> None:
    ip("link set lo up")
    seconds: dict[str, float] = {}
    with PostgresServer(tcp=True) as server:
        url = server.create_database()
        (sends, _), (waits, _) = PrimaryFinder(url).connect(), PrimaryFinder(url).connect()
        told = (waits, "SELECT pg_sleep(60)", seconds, "waits")
        waiting = threading.Thread(target=lost, args=told)
        waiting.start()
        assert wait_until(30, lambda: bool(sends.execute(BUSY.encode()).fetchall()))
        for route in ("127.0.0.1", "127.0.0.0/8"):
            ip(f"route del table local local {route} dev lo")
        ip("route add table local blackhole 127.0.0.0/8")
        began = time.monotonic()
        lost(sends, "SELECT 1", seconds, "sends")
        waiting.join()
    print(json.dumps({name: round(at - began, 1) for name, at in seconds.items()}))


if __name__ == "__main__":
    main()
