"""Beads, specialists, managers and one repository: an engine or a server with workers, to be run
beside others and to be killed.

    python bead_workers.py work URL FOLDER BARE COUNT      until all beads have ended; prints how
    python bead_workers.py serve URL FOLDER BARE WORKERS   a server with these workers ("0,1,2");
                                                           prints its address

Every bead adds a line to a file of its own and, each tenth one, changes the same line of one that
others change too: those conflict, are proposed again, and approved again.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import handrail.engine.opening as opening
from handrail.api.shared import ApprovalDecision
from handrail.commits import CommitLane, Repository, WorkingCopies, commit_agent
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine, RefusedError
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.state import Person
from handrail.server.process import serve

ANA = Person(name="ana", role="ceo")
WORKERS = 5
SECONDS = 900
SETTINGS = EngineSettings(lease=4, heartbeat=0.5, pulse=0.1, kernel=Settings(role_grace=60))
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
            "max_attempts": 2,
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


def specialist(copies: WorkingCopies):
    async def fix(dispatch: Dispatch) -> Result:
        bead, n = dispatch.bead.id, int(dispatch.bead.context["n"])
        folder = await copies.open(bead, fresh=True)
        (folder / f"bead-{n}.txt").write_text(f"fixed {n}\n")
        if n % 5 == 0:
            (folder / SHARED).write_text(f"last: {n}\n")
        proposal = await copies.propose(bead, run_id=dispatch.run.id)
        made = {name: getattr(proposal, name) for name in proposal.__struct_fields__}
        return Result(outcome=Outcome.SUCCESS, text=proposal.patch, data={"proposal": made})

    return fix


def decide_answer(kind: str, text: str) -> tuple[ApprovalDecision | Literal["move"], str]:
    """What the person answers: yes; to what was lost, once more; what does not fit the branch is
    moved back to where it is proposed."""
    if kind != "escalation":
        return "approve", ""
    if "reworks used up" in text:
        return "move", "propose it on the branch as it is"
    return "revise", "do it again"


async def see_through(engine: Engine, n: int) -> str:
    """One bead, filed once however often this is asked, with a person who answers."""
    run = await engine.start(
        FIX["id"], title=f"Bug {n}", context={"n": n}, key=f"bead-{n}", filed_by="crew"
    )
    for _ in range(SECONDS):
        for question in await run.questions(1):
            decision, text = decide_answer(question.kind, question.text)
            try:
                if decision == "move":
                    await run.move("fix", by=ANA, reason=text)
                else:
                    await run.answer(question.id, text, by=ANA, decision=decision)
            except RefusedError:
                pass  # the other engine's person was faster
        state = await run.state()
        if state.has_ended:
            return f"{state.terminal_status}"
    return "never"


async def hire(engine: Engine, folder: Path, bare: Path, workers: Iterable[int]) -> None:
    """Each worker is a specialist and a manager, with folders that no other process has."""
    repository = Repository(url=str(bare))
    await engine.define(FIX, by="crew")
    for n in workers:
        home = folder / f"worker-{n}-{time.monotonic_ns()}"
        fix = specialist(WorkingCopies(repository, home))
        commit = commit_agent(CommitLane(repository, home), f"manager-{n}")
        await engine.add_agent(fix, "backend-engineer", name=f"specialist-{n}", capacity=1)
        await engine.add_agent(commit, "engineering-manager", name=f"manager-{n}", capacity=1)


async def crew(url: str, folder: Path, bare: Path, count: int) -> dict[str, int]:
    async with opening.open(url, settings=SETTINGS) as engine:
        await hire(engine, folder, bare, range(WORKERS))
        ended = await asyncio.gather(*(see_through(engine, n) for n in range(count)))
    return {how: ended.count(how) for how in set(ended)}


async def server(url: str, folder: Path, bare: Path, workers: str) -> int:
    async def ready(engine: Engine, address: str) -> bool:
        await hire(engine, folder, bare, map(int, workers.split(",")))
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        return True

    return await serve(url, port=0, engine_settings=SETTINGS, ready=ready)


if __name__ == "__main__":
    how, where, place, upstream, what = sys.argv[1:]
    if how == "serve":
        sys.exit(asyncio.run(server(where, Path(place), Path(upstream), what)))
    found = asyncio.run(crew(where, Path(place), Path(upstream), int(what)))
    sys.stdout.write(json.dumps(found))
