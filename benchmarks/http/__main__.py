"""What a step costs over HTTP: workers that claim and report, at a server on SQLite (FULL).

    uv run --group bench python -m benchmarks.http [--quick] [--json] [--write]

Measured are steps per second (a claim and a report each) and the latencies of both with 1, 32 and
200 workers, next to an endpoint of the same framework that does nothing, and DBOS queue workers;
then 200 workers while 1,000 clients wait for runs to end, and what that costs the server in memory.
Load and server share the machine. Figures are medians of the rounds, which take turns.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.durable import machine
from benchmarks.durable.report import number, table
from benchmarks.http import load
from benchmarks.http.wire import Wire

RESULTS = Path(__file__).parents[1] / "results"
HOST = "127.0.0.1"
WORKERS = (1, 32, 200)
WAITING = 1_000
START_SECONDS = 30
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Plan:
    rounds: int
    runs: dict[int, int]
    """Workers -> runs of `load.TASKS` steps."""
    requests: dict[int, int]
    tasks: dict[int, int]


FULL = Plan(
    3, {1: 30, 32: 200, 200: 300}, {1: 1_500, 32: 6_000, 200: 8_000}, {1: 20, 32: 300, 200: 300}
)
QUICK = Plan(
    1, {1: 10, 32: 60, 200: 100}, {1: 500, 32: 2_000, 200: 3_000}, {1: 10, 32: 100, 200: 100}
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return one.getsockname()[1]


@contextmanager
def process(*command: str, port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server of its own, up when this begins and gone when it ends."""
    wanted = {**os.environ, **environment}
    started = subprocess.Popen(command, env=wanted, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as trial:
                if trial.connect_ex((HOST, port)) == 0:
                    break
            assert started.poll() is None, f"{command} ended"
            assert time.monotonic() < deadline, f"{command} does not listen"
            time.sleep(0.05)
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@contextmanager
def handrail(folder: Path) -> Iterator[tuple[int, int, "Tokens"]]:
    """A server on SQLite: (its port, its pid, tokens for it)."""
    port, url = free_port(), f"sqlite:///{folder / 'work.db'}"
    command = (sys.executable, "-m", "handrail", "serve", "--database", url, "--port", str(port))
    quiet = {"HANDRAIL_LOG_LEVEL": "error", "HANDRAIL_RATE_LIMIT": "1000000"}
    with process(*command, port=port, **quiet) as server:
        yield port, server.pid, Tokens(url)


class Tokens:
    def __init__(self, url: str) -> None:
        self.url = url

    def make(self, *wanted: str) -> str:
        command = [sys.executable, "-m", "handrail", "token", "create", "--database", self.url]
        return subprocess.run(
            [*command, *wanted], capture_output=True, text=True, check=True
        ).stdout.strip()

    async def agents(self, port: int, count: int) -> dict[str, str]:
        """Tokens of so many agents, made over HTTP by an admin."""
        admin = Wire(HOST, port, self.make("--role", "admin", "--name", "bench"))
        found: dict[str, str] = {}
        for n in range(count):
            body = {"role": "agent", "agent": f"agent-{n}"}
            _, made = await admin.ask("POST", f"{load.API}/tokens", body)
            found[body["agent"]] = made["token"]
        admin.close()
        return found


def measured_handrail(workers: int, runs: int, waiting: int = 0) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="handrail-bench-") as folder,
        handrail(Path(folder)) as (port, pid, tokens),
    ):
        return asyncio.run(_work(port, pid, tokens, workers, runs, waiting))


async def _work(
    port: int, pid: int, tokens: Tokens, workers: int, runs: int, waiting: int
) -> dict[str, float]:
    operator = tokens.make("--role", "operator", "--name", "bench")
    person = Wire(HOST, port, operator)
    for workflow in (load.FLOW, load.PARKED):
        status, answer = await person.ask("POST", f"{load.API}/workflows", workflow)
        assert status == 201, answer
    agents = await tokens.agents(port, workers)
    parked = await load.file(person, 1, "parked")
    before = memory_mb(pid)
    seen, total = load.Seen(), runs * load.TASKS

    def more() -> bool:
        return seen.steps < total

    clients = [
        asyncio.create_task(load.waiting(Wire(HOST, port, operator), parked[0], more))
        for _ in range(waiting)
    ]
    await load.file(person, runs)
    start, used = time.perf_counter(), cpu_seconds(pid)
    at_work = [
        load.worker(Wire(HOST, port, token), agent, seen, more) for agent, token in agents.items()
    ]
    await asyncio.gather(*at_work)
    seconds, cpu = time.perf_counter() - start, cpu_seconds(pid) - used
    found = {
        "steps_per_s": seen.steps / seconds,
        "server_cpu_ms_per_step": 1000 * cpu / seen.steps,
        **seen.figures(),
    }
    if waiting:
        found |= {"memory_before_mb": before, "memory_mb": memory_mb(pid)}
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    person.close()
    return found


def measured_bare(workers: int, requests: int) -> dict[str, float]:
    port = free_port()
    with process(sys.executable, "-m", "benchmarks.http.bare", str(port), port=port) as server:

        async def hammer() -> None:
            each = max(1, requests // workers)
            await asyncio.gather(
                *(load.hammer(Wire(HOST, port), "/nothing", each) for _ in range(workers))
            )

        asyncio.run(hammer())  # warm
        start, used = time.perf_counter(), cpu_seconds(server.pid)
        asyncio.run(hammer())
        count = max(1, requests // workers) * workers
        return {
            "requests_per_s": count / (time.perf_counter() - start),
            "server_cpu_ms_per_request": 1000 * (cpu_seconds(server.pid) - used) / count,
        }


def measured_dbos(workers: int, tasks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="handrail-bench-") as folder:
        command = [
            sys.executable,
            "-m",
            "benchmarks.http.dbos_queue",
            folder,
            str(workers),
            str(tasks),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def measured(plan: Plan) -> dict[str, Any]:
    rounds: dict[str, dict[int, list[dict[str, Any]]]] = {"handrail": {}, "bare": {}, "dbos": {}}
    for turn in range(plan.rounds):
        for workers in WORKERS:
            say(f"round {turn + 1} of {plan.rounds}, {workers} workers")
            taken = {
                "handrail": measured_handrail(workers, plan.runs[workers]),
                "bare": measured_bare(workers, plan.requests[workers]),
                "dbos": measured_dbos(workers, plan.tasks[workers]),
            }
            for name, found in taken.items():
                rounds[name].setdefault(workers, []).append(found)
    say(f"200 workers and {WAITING} clients that wait")
    crowd = measured_handrail(200, plan.runs[200], WAITING)
    return {
        **{
            name: {str(workers): medians(found) for workers, found in loads.items()}
            for name, loads in rounds.items()
        },
        "crowd": crowd,
        "machine": machine.about(),
        "rounds": plan.rounds,
    }


def medians(found: list[dict[str, Any]]) -> dict[str, Any]:
    missing = next((one for one in found if "missing" in one), None)
    if missing is not None:
        return missing
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for workers in map(str, WORKERS):
        ours, bare = figures["handrail"][workers], figures["bare"][workers]
        dbos = figures["dbos"][workers]
        cost = ours["server_cpu_ms_per_step"] / (2 * bare["server_cpu_ms_per_request"])
        found[f"requests_{workers}_vs_bare"] = 2 * ours["steps_per_s"] / bare["requests_per_s"]
        found[f"cpu_{workers}_vs_bare"] = cost
        if "missing" not in dbos:
            found[f"steps_{workers}_vs_dbos"] = ours["steps_per_s"] / dbos["steps_per_s"]
    return found


def page(figures: dict[str, Any]) -> str:
    about, crowd = figures["machine"], figures["crowd"]
    rows: list[list[str]] = []
    for workers in map(str, WORKERS):
        ours, bare, dbos = (figures[name][workers] for name in ("handrail", "bare", "dbos"))
        rows.append(
            [
                workers,
                *(
                    number(ours.get(name))
                    for name in ("steps_per_s", "server_cpu_ms_per_step", "claim_p50_ms",
                                 "claim_p99_ms", "report_p50_ms", "report_p99_ms")
                ),
                number(bare["requests_per_s"]),
                number(2 * ours["steps_per_s"] / bare["requests_per_s"], 2),
                dbos.get("missing") or number(dbos["steps_per_s"]),
            ]
        )  # fmt: skip
    head = ["workers", "steps/s", "CPU-ms/step", "claim p50 ms", "p99", "report p50 ms", "p99",
            "bare requests/s", "ours/bare", "DBOS steps/s"]  # fmt: skip
    grown = crowd["memory_mb"] - crowd["memory_before_mb"]
    return "\n".join(
        [
            "# A step over HTTP",
            "",
            "`uv run --group bench python -m benchmarks.http`: workers claim and report, each over "
            "one connection, at one server on SQLite with synchronous=FULL. `bare` is an endpoint "
            "of the same framework that does nothing; a step of ours is two requests. Load and "
            "server share the machine.",
            "",
            *table(head, rows, left=0),
            "",
            "With 1,000 clients that wait for a run beside 200 workers: "
            f"{number(crowd['steps_per_s'])} steps/s, claim p99 {number(crowd['claim_p99_ms'])} "
            f"ms, report p99 {number(crowd['report_p99_ms'])} ms; the server grew by "
            f"{number(grown)} MB to {number(crowd['memory_mb'])} MB.",
            "",
            f"{about['cpu']}, {about['cores']} cores, {about['system']}, Python {about['python']}, "
            f"SQLite {about['sqlite']}, {number(about['syncs_per_s'])} syncs/s; medians of "
            f"{figures['rounds']} rounds.",
            "",
        ]
    )


def say(text: str) -> None:
    print(f"benchmark: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.http",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one round, shorter workloads")
    parser.add_argument("--json", action="store_true", help="one JSON line at the end")
    parser.add_argument("--write", action="store_true", help="write the results of --quick too")
    options = parser.parse_args()
    figures = measured(QUICK if options.quick else FULL)
    text = page(figures)
    if options.write or not options.quick:
        (RESULTS / "http.md").write_text(text, encoding="utf-8")
    print(text)
    if options.json:
        print(json.dumps({"ratios": ratios(figures), "figures": figures}))


if __name__ == "__main__":
    main()
