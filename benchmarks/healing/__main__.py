"""How well the sample shop heals itself: all of its bugs, through the real server, engine and lane.

    uv run python -m benchmarks.healing [--quick] [--json] [--at-once N] [--bugs NAME,…]

Every bug is provoked by a request to the shop, which is served by itself and reports its own
errors. The targets are those of docs/requirements.md, L15. Exits 1 if one of them is missed, if an
error that nobody can mend is not escalated with a dossier, or if a run does not end.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.healing.healed import Round, heal
from handrail.teams.healing.sample_shop import load_bugs

QUICK = ("missing-self", "wrong-operator", "template", "not-reproduced", "service-down")


class Figure(NamedTuple):
    name: str
    value: float
    sign: str
    target: float
    what: str

    @property
    def met(self) -> bool:
        return {"<": self.value < self.target, ">": self.value > self.target}.get(
            self.sign, self.value == self.target
        )


def figures(of: Round) -> list[Figure]:
    """Shares are of the bugs that can be mended, unless it is said otherwise."""
    able = [case for case in of.cases if case.fixable]
    unable = [case for case in of.cases if not case.fixable]
    applied = [case for case in able if case.applied]
    told = [case for case in unable if case.escalated and case.dossier]
    verified = [case for case in applied if case.ended == "done_success"]
    return [
        Figure("median seconds to resolution", statistics.median(c.seconds for c in able), "<",
               300, "from the failing request to the end of the run"),
        Figure("root cause found", _share([c for c in able if c.cause_found], able), ">", 0.8,
               "a fix was approved that changes the file that was broken"),
        Figure("fixes verified", _share(verified, applied), ">", 0.9,
               "of those that were committed"),
        Figure("escalations", _share([c for c in able if c.escalated], able), "<", 0.1,
               "planned approvals are none"),
        Figure("cycles", statistics.mean(c.applied for c in applied) if applied else 0.0, "<", 1.5,
               "commits a fix"),
        Figure("healed", _share([c for c in able if c.healed], able), ">", 0.8,
               "what failed is answered once the branch is deployed again"),
        Figure("escalated with a dossier", _share(told, unable), "=", 1.0,
               "of those that nobody can mend by rule"),
        Figure("endless", sum(c.ended == "endless" for c in of.cases), "=", 0, "runs without end"),
        Figure("overlapping commits", of.overlapping, "=", 0, "by the history and the lock's"),
    ]  # fmt: skip


def _share(part: list[Any], whole: list[Any]) -> float:
    return len(part) / len(whole) if whole else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Heals the bugs of the sample shop")
    parser.add_argument("--quick", action="store_true", help="a few bugs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--at-once", type=int, default=4, help="bugs that are worked on at once")
    parser.add_argument("--bugs", default="", help="these, by name")
    wanted = parser.parse_args()
    names = (
        tuple(wanted.bugs.split(","))
        if wanted.bugs
        else QUICK
        if wanted.quick
        else tuple(load_bugs())
    )
    with tempfile.TemporaryDirectory(prefix="healing-") as folder:
        found = asyncio.run(heal(Path(folder), names, wanted.at_once))
    told = figures(found)
    if wanted.json:
        shown = {"figures": [one._asdict() for one in told], **msgspec.to_builtins(found)}
        sys.stdout.write(json.dumps(shown) + "\n")
    else:
        _print(found, told)
    return int(not all(one.met for one in told))


def _print(found: Round, told: list[Figure]) -> None:
    for case in found.cases:
        why = case.why.partition("\n")[0][:110]
        sys.stdout.write(f"{case.bug:20} {case.ended:16} {case.seconds:6.1f} s  {why}\n")
    sys.stdout.write(f"\n{len(found.cases)} bugs, {found.commits} commits\n")
    for one in told:
        sign = "ok" if one.met else "MISSED"
        row = f"{one.name:30} {one.value:8.3g}  {one.sign} {one.target:<6g} {sign:7} {one.what}"
        sys.stdout.write(f"{row}\n")


if __name__ == "__main__":
    sys.exit(main())
