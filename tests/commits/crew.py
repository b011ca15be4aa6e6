"""An engine with beads, specialists, managers and one repository, to be run beside others and to be
killed.

    python crew.py URL FOLDER COUNT     works until all beads have ended; prints how

Every bead adds a line to a file of its own and, each tenth one, changes the same line of one that
others change too: those conflict, are proposed again, and approved again.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import handrail.engine.opening as opening
from handrail.commits import Copies, Lane, Repository, commit_agent
from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine, Refused
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition import Settings
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.machine import Person

ANA = Person(name="ana", role="ceo")
WORKERS = 5
SECONDS = 900
SHARED = "shared.txt"
FIX = {
    "id": "fix-and-commit",
    "name": "fix-and-commit",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "fix", "type": "task", "role": "backend-engineer", "max_attempts": 5},
        {"id": "approval", "type": "approval", "role": "ceo", "config": {"revise_to": "fix"}},
        {
            "id": "apply",
            "type": "task",
            "role": "engineering-manager",
            # More than it is killed: who was killed after the push finds the commit there the next
            # time, but a fix that is on the branch already cannot be proposed once more.
            "max_attempts": 15,
            "config": {
                "kind": "commit",
                "repository": "app",
                "on_failure": {"rework": "fix", "max": 5},
            },
        },
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": a, "to_node_id": b}
        for a, b in (("start", "fix"), ("fix", "approval"), ("approval", "apply"), ("apply", "end"))
    ],
}


def specialist(copies: Copies):
    async def fix(dispatch: Dispatch) -> Result:
        bead, n = dispatch.bead.id, int(dispatch.bead.context["n"])
        folder = await copies.open(bead, fresh=True)
        (folder / f"bead-{n}.txt").write_text(f"fixed {n}\n")
        if n % 5 == 0:
            (folder / SHARED).write_text(f"last: {n}\n")
        proposal = await copies.propose(bead)
        made = {name: getattr(proposal, name) for name in proposal.__struct_fields__}
        return Result(outcome=Outcome.SUCCESS, text=proposal.patch, data={"proposal": made})

    return fix


async def see_through(engine: Engine, n: int) -> str:
    """One bead, filed once however often this is asked, with a person who says yes, and once more
    to what is escalated."""
    run = await engine.start(
        FIX["id"], title=f"Bug {n}", context={"n": n}, key=f"bead-{n}", filed_by="crew"
    )
    for _ in range(SECONDS):
        for question in await run.questions(1):
            try:
                if question.kind == "escalation":
                    await run.move("fix", by=ANA, reason="propose it on the branch as it is")
                else:
                    await run.answer(question.id, by=ANA, decision="approve")
            except Refused:
                pass  # the other engine's person was faster
        state = await run.state()
        if state.ended:
            return f"{state.terminal_status}"
    return "never"


async def crew(url: str, folder: Path, count: int, bare: Path) -> dict[str, int]:
    settings = EngineSettings(lease=3, heartbeat=0.5, pulse=0.1, kernel=Settings(role_grace=60))
    repository = Repository(url=str(bare))
    async with opening.open(url, settings=settings) as engine:
        await engine.define(FIX, by="crew")
        for n in range(WORKERS):
            home = folder / f"worker-{n}-{time.monotonic_ns()}"
            fix, commit = specialist(Copies(repository, home)), Lane(repository, home)
            await engine.add_agent(fix, "backend-engineer", name=f"specialist-{n}", capacity=1)
            await engine.add_agent(
                *(commit_agent(commit, f"manager-{n}"), "engineering-manager"),
                name=f"manager-{n}",
                capacity=1,
            )
        ended = await asyncio.gather(*(see_through(engine, n) for n in range(count)))
    return {how: ended.count(how) for how in set(ended)}


if __name__ == "__main__":
    where, place, beads, upstream = sys.argv[1:5]
    found = asyncio.run(crew(where, Path(place), int(beads), Path(upstream)))
    sys.stdout.write(json.dumps(found))
