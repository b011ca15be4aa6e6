"""One round of healing: the shop with these bugs in a real repository, served, asked what fails,
and healed by the real server, engine and lane, with somebody who answers at once.

The approver says yes to proposals that are complete, and no to escalations, whose dossier it looks
at first. A bug is begun when one before it has ended, so that a few are worked on at a time, as
they would come in.
"""

import asyncio
import itertools
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from handrail.engine.engine import Engine
from handrail.engine.services.runs import ApprovalPrompt, InteractiveRun, PromptReply, RunHandle
from handrail.kernel import lock as locks
from handrail.kernel.run.state import ApprovalKind
from handrail.server.process import serve
from handrail.server.routes.admin import NewToken, issue_token
from handrail.server.settings import ServerSettings
from handrail.teams import HEALING_DEFINITION_ID, install_teams
from handrail.teams.healing.sample_server import SampleServer
from handrail.teams.healing.sample_shop import ShopBug, load_bugs, make_shop
from handrail.teams.healing.service import Service
from handrail.views.approvals import Approval, approvals
from handrail.views.statistics import DefinitionStatistics

SECONDS_MAX = 1_800.0
"""A bug that has not ended by then never ends."""
LOCK = "lock:default"
_decode = msgspec.json.Decoder(tuple[locks.LockEvent, ...]).decode


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one bug."""

    bug: str
    fixable: bool
    ended: str
    """How; "endless" if it did not."""
    seconds: float
    cause_found: bool
    """A fix was approved that changes the file that was broken."""
    applied: int
    """How often something was committed."""
    escalated: bool
    dossier: bool
    """The escalation said what failed, every attempt, and what could be done."""
    healed: bool = False
    """Afterwards the request that had failed is answered."""
    why: str = ""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    cases: tuple[Case, ...]
    figures: DefinitionStatistics
    commits: int
    overlapping: int
    """Commits that were made while another had the lock, or beside another."""


async def heal(folder: Path, names: tuple[str, ...], at_once: int = 4, **employed: Any) -> Round:
    """The shop with these bugs, until each of them has come to its end."""
    found: list[Round] = []

    async def ready(engine: Engine, url: str) -> bool:
        found.append(await _round(engine, url, folder, names, at_once, employed))
        return False

    database = f"sqlite:///{folder / 'work.db'}"
    quiet = ServerSettings(log_level="critical")
    folder.mkdir(parents=True, exist_ok=True)
    await serve(database, port=0, settings=quiet, ready=ready)
    return found[0]


async def _round(
    engine: Engine, url: str, folder: Path, names: tuple[str, ...], at_once: int, employed: Any
) -> Round:
    service = make_shop(folder, names)
    await install_teams(engine, [HEALING_DEFINITION_ID], service=service, **employed)
    token, row = issue_token(NewToken(role="reporter", name="shop"), by="healing", engine=engine)
    await engine.credentials.add(row)
    live, known = SampleServer(service, folder / "live", url, token), load_bugs()
    await asyncio.to_thread(live.start)
    room = asyncio.Semaphore(at_once)

    async def one(name: str) -> Case:
        async with room:
            return await _case(engine, live, name, known[name])

    try:
        cases = await asyncio.gather(*(one(name) for name in names))
        await asyncio.to_thread(live.start)
        asked = [await asyncio.to_thread(live.send, known[name].request) for name in names]
    finally:
        await asyncio.to_thread(live.stop)
    (figures,) = await engine.statistics.by_definition(HEALING_DEFINITION_ID)
    return Round(
        cases=tuple(
            msgspec.structs.replace(case, healed=status == 200)
            for case, status in zip(cases, asked, strict=True)
        ),
        figures=figures,
        commits=len(_history(service)) - 2,
        overlapping=_overlapping(engine, service),
    )


async def _case(engine: Engine, live: SampleServer, name: str, bug: ShopBug) -> Case:
    status = await asyncio.to_thread(live.send, bug.request)
    assert status == 500, f"{name} answers {status}"
    began = time.monotonic()
    run = await _filed(engine, bug.request.path)
    attended = InteractiveRun(run, answer=_answer)
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await attended.run_to_end()
    except TimeoutError:
        pass
    seconds, ended = time.monotonic() - began, attended.run.terminal_status
    asked = approvals(attended.events)
    escalated = [one for one in asked if one.type == "escalation"]
    approved = [one.proposal for one in asked if one.decision == "approve"]
    applied = [s for s in (await engine.run_queries.steps(run.id)) if s.place == "apply"]
    return Case(
        bug=name,
        fixable=bug.fixable,
        ended=ended or "endless",
        seconds=seconds,
        cause_found=any(bug.changes[0].path in one["files"] for one in approved),
        applied=len(applied),
        escalated=bool(escalated),
        dossier=bool(escalated) and all(map(_is_complete, escalated)),
        why=escalated[-1].question
        if escalated
        else (approved or [{}])[-1].get("cause", {}).get("told", ""),
    )


async def _filed(engine: Engine, route: str) -> RunHandle:
    """The run of the bead that the shop's report made."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        for bug in (await engine.bugs.list(limit=100)).items:
            bead = await engine.beads.get(bug.bead_id)
            if bead.context["error"]["route"] == route and bead.execution_id:
                return engine.run(bead.execution_id)
        await engine.feed.wait(1.0)
    raise TimeoutError(f"nobody reported {route}")


def _answer(request: ApprovalPrompt) -> PromptReply:
    if request.approval.kind is ApprovalKind.ESCALATION:
        return PromptReply(decision="reject", text="nobody here can solve it")
    return PromptReply(decision="approve")


def _is_complete(asked: Approval) -> bool:
    return bool(
        asked.original_bead_id
        and asked.failure_reason
        and asked.attempt_history
        and all(one.text for one in asked.attempt_history)
        and asked.proposed_next_steps
    )


def _history(service: Service) -> list[str]:
    """Commits and their parents, the oldest first."""
    words = ["git", "log", "--reverse", "--format=%H %P", service.repository.branch]
    told = subprocess.run(
        words, cwd=service.repository.url, capture_output=True, text=True, check=True
    )
    return told.stdout.splitlines()


def _overlapping(engine: Engine, service: Service) -> int:
    """Commits beside the line of the others, and grants of a lock that somebody held."""
    lines = [line.split() for line in _history(service)]
    beside = sum(line[1:] != [before[0]] for before, line in itertools.pairwise(lines))
    lock = locks.CommitLock(repository="default")
    taken = 0
    for entry in engine.store.journal.read(LOCK):
        for event in _decode(entry.body):
            taken += isinstance(event, locks.LockGranted) and lock.holder is not None
            lock = locks.evolve(lock, event)
    return beside + taken
