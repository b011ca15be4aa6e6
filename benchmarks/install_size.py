"""What an installation of Handrail takes: packages, megabytes, seconds.

    uv run python -m benchmarks.install_size [--json] [EXTRA…]

builds the wheel and installs it with uv into an empty environment, once as it is (guard, hook,
replay of traces) and once with the extra `server`, or with the extras that are named. The packages
come from uv's cache if they are there, so the seconds are those of a second installation. `--json`
prints one line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal, NamedTuple

ROOT = Path(__file__).parents[1]
UV = os.environ.get("UV", "uv")


class Installation(NamedTuple):
    python: Path
    packages: list[str]
    megabytes: float
    seconds: float


def build(kind: Literal["wheel", "sdist"], folder: Path) -> Path:
    """Build the distribution in this folder; return its file."""
    _run("build", "--quiet", f"--{kind}", "--out-dir", str(folder), str(ROOT))
    (file,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return file


def install(wheel: Path, folder: Path, extra: str = "") -> Installation:
    """Install the wheel into an empty environment."""
    _run("venv", "--quiet", "--python", sys.executable, str(folder))
    python = folder / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    start = time.perf_counter()
    _run("pip", "install", "--quiet", "--python", str(python), wanted)
    seconds = time.perf_counter() - start
    (packages,) = folder.glob("lib/python*/site-packages")
    return Installation(
        python,
        sorted(each.name for each in distributions(path=[str(packages)])),
        sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6,
        seconds,
    )


def _run(*arguments: str) -> None:
    subprocess.run([UV, *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", default=["server"], metavar="EXTRA")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        wheel = build("wheel", Path(name))
        for extra in ("", *chosen.extras):
            installed = install(wheel, Path(name) / f"with-{extra}", extra)
            figures[extra or "guard"] = {
                "packages": len(installed.packages),
                "megabytes": round(installed.megabytes, 1),
                "seconds": round(installed.seconds, 2),
            }
    if chosen.json:
        print(json.dumps(figures))
        return
    print("| installation | packages | MB | seconds |\n|---|---|---|---|")
    for extra, row in figures.items():
        print(f"| {extra} | {row['packages']} | {row['megabytes']} | {row['seconds']} |")


if __name__ == "__main__":
    main()
