"""What the figures were measured on: they mean little without it."""

import os
import platform
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

SYNCS = 200
PAGE = 4096


def about() -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "syncs_per_s": syncs_per_s(),
        "load_before": os.getloadavg()[0],
    }


def cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def syncs_per_s() -> float:
    """How often a page can be brought to disk: nobody commits one by one faster than this."""
    with tempfile.NamedTemporaryFile(prefix="handrail-bench-") as file:
        os.pwrite(file.fileno(), bytes(PAGE), 0)
        os.fsync(file.fileno())
        start = time.perf_counter()
        for _ in range(SYNCS):
            os.pwrite(file.fileno(), os.urandom(PAGE), 0)
            os.fdatasync(file.fileno())
        return SYNCS / (time.perf_counter() - start)
