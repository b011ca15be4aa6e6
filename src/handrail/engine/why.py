"""Why a run is not worked on: each open place with what it waits for, and since when."""

from datetime import datetime, timedelta

import msgspec

from handrail.engine.keeper import Keeper
from handrail.kernel.decision import Value
from handrail.kernel.plan import Plan
from handrail.kernel.run.state import Phase, Run, Token
from handrail.kernel.run.workflow import needs_lock, repository_of
from handrail.store.port import AgentRow, DispatchRow, LockState, iso


class Waiting(Value):
    """One open place of a run. `code` is for programs, `message` and `hint` for people."""

    place: str
    code: str
    message: str
    since: datetime
    hint: str = ""


async def look(keeper: Keeper, run: Run, lease: float) -> tuple[Waiting, ...]:
    """`why` of a run, with all that it has to know from the database."""
    store, version = keeper.store, (run.definition_id, run.version)
    if not keeper.plans.knows(*version):
        keeper.plans.add(*version, await keeper.io(store.definition, *version))
    wanted = _repositories(keeper.plan(run), run)
    locks = await keeper.io(store.load_locks, wanted) if wanted else {}
    agents = await keeper.io(store.agents)
    dispatches = await keeper.io(store.dispatches, run.id)
    return why(run, agents, dispatches, list(locks.values()), keeper.clock(), lease)


def _repositories(plan: Plan, run: Run) -> list[str]:
    """Whose commit locks its places may wait for."""
    if plan.kind == "team":
        return []
    places = [place for place in run.tokens if plan.knows(place) and needs_lock(plan.node(place))]
    return sorted({repository_of(plan, place) for place in places})


def why(
    run: Run,
    agents: list[AgentRow],
    dispatches: list[DispatchRow],
    locks: list[LockState],
    now: datetime,
    lease: float,
) -> tuple[Waiting, ...]:
    """What every open place of the run waits for; nothing if it has ended."""
    if run.ended:
        return ()
    if run.paused_at is not None:
        told = f"the run is paused until somebody resumes it, at the latest {run.pause_deadline}"
        return tuple(
            Waiting(place=place, code="paused", message=told, since=run.paused_at, hint="resume it")
            for place in run.tokens
        )
    alive = iso(now - timedelta(seconds=lease))
    claimed = {row.session for row in dispatches}
    return tuple(
        _waiting(run, token, [a for a in agents if _works(a, token.role)], alive, locks, claimed)
        for token in run.tokens.values()
    )


def _works(agent: AgentRow, role: str) -> bool:
    return role in msgspec.json.decode(agent.roles, type=list[str])


def _waiting(
    run: Run,
    token: Token,
    staff: list[AgentRow],
    alive: str,
    locks: list[LockState],
    claimed: set[str | None],
) -> Waiting:
    code, message, hint = _reason(run, token, staff, alive, locks)
    if code == "claimed" and not any(agent.session in claimed for agent in staff):
        code, message = "lost", f"{token.agent} has it, but is gone; it will be offered again"
    return Waiting(place=token.place, code=code, message=message, hint=hint, since=token.since)


def _reason(
    run: Run, token: Token, staff: list[AgentRow], alive: str, locks: list[LockState]
) -> tuple[str, str, str]:
    """(code, message, hint)"""
    role, place = token.role, token.place
    if token.phase is Phase.CLAIMED:
        return "claimed", f"{token.agent} works on '{place}'", "wait for its result"
    if token.phase is Phase.ASKED:
        question = run.questions[token.question]
        return "asked", f"a person is asked: {question.text}", f"answer {question.id}"
    if token.phase is not Phase.OFFERED:
        held = next((one for one in locks if one.holder_execution_id), None)
        by = f", which run {held.holder_execution_id} holds" if held is not None else ""
        return "lock", f"'{place}' waits for the commit lock{by}", "wait for its turn"
    if not staff:
        told = f"nobody is registered for the role '{role}'"
        return "no_agent", told, f"start one: `handrail worker`, as '{role}'"
    enabled = [agent for agent in staff if agent.enabled]
    if not enabled:
        return "disabled", f"every agent with the role '{role}' is disabled", "enable one"
    if all(agent.beat_at <= alive for agent in enabled):
        return "offline", f"every agent with the role '{role}' is offline", "start one again"
    if all(agent.id in run.committers for agent in enabled):
        told = f"whoever has the role '{role}' committed in this run, and does not verify it"
        return "own_commit", told, "start another agent with the role"
    return "busy", f"everybody with the role '{role}' is busy, or has not asked yet", "wait"
