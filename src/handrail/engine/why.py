"""Why a run stopped, waits or is not worked on, in sentences that say what to do next.

One text for the API, the command line and the page: whoever shows it adds nothing. Each open place
of a run is told with what it waits for, and with what happens if nobody does anything: every wait
has its end. `code` is for programs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from handrail.engine.keeper import Keeper
from handrail.engine.works import decode_lock
from handrail.kernel.decision import Value
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.lock import Lock
from handrail.kernel.plan import Plan
from handrail.kernel.report import Report
from handrail.kernel.rules import StopRule
from handrail.kernel.run.people import NEEDED
from handrail.kernel.run.state import Phase, Run, Token
from handrail.kernel.run.workflow import needs_lock, repository_of
from handrail.kernel.shown import Shown, StopShown
from handrail.store.office import Office
from handrail.store.port import AgentRow, DispatchRow, iso, moment

NAMED_MAX = 3
"""Agents that a sentence names."""
HANDED = timedelta(seconds=5)
"""A function in a server's process does not ask for work: within a pulse or a few it is given what
it takes. What waits for longer beside one that is free is not for it."""


class Waiting(Value):
    """One open place of a run. `code` is for programs, `message` and `hint` for people."""

    place: str
    code: str
    message: str
    since: datetime
    hint: str = ""


class Why(Shown):
    """Why a run stopped, or what each of its open places waits for; `next` says what to do."""

    status: str
    terminal_status: str | None
    why: str
    """In one sentence."""
    next: str
    stop: StopShown | None
    waiting: tuple[Waiting, ...]
    notes: tuple[str, ...]
    """What else is worth knowing: a newer version of its definition."""


class Known(NamedTuple):
    """What the database says of everything around the run."""

    now: datetime
    offline_after: float
    """Seconds of silence, as where agents are shown."""
    agents: Sequence[AgentRow] = ()
    dispatches: Sequence[DispatchRow] = ()
    """Those of the run."""
    busy: Mapping[str | None, int] = {}
    """Session -> how many dispatches of any run it holds."""
    locks: Mapping[str, Lock] = {}
    """By repository."""


async def look(keeper: Keeper, run: Run, offline_after: float) -> tuple[Waiting, ...]:
    """What every open place of the run waits for, with all that one has to know for it."""
    store, version = keeper.store, (run.definition_id, run.version)
    if not keeper.plans.knows(*version):
        keeper.plans.add(*version, await keeper.io(store.definition, *version))
    plan = keeper.plan(run)
    around = _repositories(plan, run), keeper.clock(), offline_after
    return why(plan, run, await keeper.io(_known, store, run, *around))


def _known(
    store: Office, run: Run, repositories: list[str], now: datetime, offline_after: float
) -> Known:
    found = store.load_locks(repositories) if repositories else {}
    states = (decode_lock(row.state) for row in found.values())
    return Known(
        now=now,
        offline_after=offline_after,
        agents=store.agents(),
        dispatches=store.dispatches(run.id),
        busy=Counter(row.session for row in store.held()),
        locks={lock.repository: lock for lock in states},
    )


def _repositories(plan: Plan, run: Run) -> list[str]:
    """Whose commit locks its places may wait for."""
    if plan.kind == "team":
        return []
    places = [place for place in run.tokens if plan.knows(place) and needs_lock(plan.node(place))]
    return sorted({repository_of(plan, place) for place in places})


def why(plan: Plan, run: Run, known: Known) -> tuple[Waiting, ...]:
    """What every open place of the run waits for; nothing if it has ended."""
    return tuple(_waiting(plan, run, token, known) for token in run.tokens.values())


def _waiting(plan: Plan, run: Run, token: Token, known: Known) -> Waiting:
    since = token.since
    if run.paused_at is not None:
        code, (message, hint), since = "paused", _paused(run), run.paused_at
    elif token.phase is Phase.ASKED:
        code, (message, hint) = "asked", _asked(run, token)
    elif token.phase is Phase.CLAIMED:
        code, message, hint = _claimed(plan, run, token, known)
    elif token.phase is Phase.OFFERED:
        code, message, hint = _offered(plan, run, token, known)
    elif run.kind == "team":
        code, (message, hint) = "elsewhere", _elsewhere(plan, run, token)
    else:
        code, (message, hint) = "lock", _locked(plan, run, token, known)
    return Waiting(place=token.place, code=code, message=message, since=since, hint=hint)


def _paused(run: Run) -> tuple[str, str]:
    until = f"; it ends by itself at {_at(run.pause_deadline)}" if run.pause_deadline else ""
    told = f"the run is paused, and nobody works on it{until}"
    return told, f"let it go on: `handrail override {run.id} resume --reason TEXT`"


def _asked(run: Run, token: Token) -> tuple[str, str]:
    question = run.questions[token.question]
    who = " or ".join(question.approvers) or f"{NEEDED[question.kind]} or above"
    left = question.quorum - len(question.approved_by)
    many = f", {left} of them" if left > 1 else ""
    until = f"unanswered, the run ends at {_at(question.deadline)}"
    hint = f"answer ({who}{many}): `handrail answer {question.id} TEXT`; {until}"
    return f"a person is asked: {question.text}", hint


def _claimed(plan: Plan, run: Run, token: Token, known: Known) -> tuple[str, str, str]:
    alive = {row.session for row in known.dispatches} & {agent.session for agent in known.agents}
    if not any(agent.id == token.agent and agent.session in alive for agent in known.agents):
        told = f"{token.agent} took it and is gone; it is offered again in a moment"
        return "lost", told, "wait; if nobody takes it, start the agent again"
    until = _at(token.since + plan.waits.get(token.place, plan.usual_waits)[1])
    after = "a person is asked then" if run.kind == "workflow" else "it is offered again then"
    told = f"{token.agent} is at work on it{_again(plan, token)}, and has until {until}; {after}"
    give = f"`handrail override {run.id} move --node {token.place} --reason TEXT`"
    return "claimed", told, f"wait for its result, or take it away from {token.agent}: {give}"


def _elsewhere(plan: Plan, run: Run, token: Token) -> tuple[str, str]:
    until = _at(token.since + plan.usual_waits[0])
    told = f"{token.place} has the turn, in a program elsewhere that is under guard"
    told = f"{told}; unheard of, it is given up at {until}"
    close = f"`handrail override {run.id} close --reason TEXT`"
    return told, f"wait for what it does next, or stop the program at its next step: {close}"


def _again(plan: Plan, token: Token) -> str:
    """How often it was tried before, and what was wrong the last time."""
    if token.attempts < 2:
        return ""
    most = f" of {plan.node(token.place).max_attempts}" if plan.kind == "workflow" else ""
    wrong = f" (the last answer could not be used: {token.refusal})" if token.refusal else ""
    return f" for the {_nth(token.attempts)} time{most}{wrong}"


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0)
    return f"{number}{ending or 'th'}"


def _locked(plan: Plan, run: Run, token: Token, known: Known) -> tuple[str, str]:
    repository = repository_of(plan, token.place)
    lock = known.locks.get(repository)
    told = f"it waits for the commit lock of '{repository}'"
    if lock is None or lock.holder is None:
        return f"{told}, which is free; it is given in a moment", "wait"
    holder = lock.holder.request.run
    ahead = next((i for i, one in enumerate(lock.queue) if one.run == run.id), len(lock.queue))
    before = f", and {ahead} more are before it" if ahead else ""
    told = f"{told}, which run {holder} has had since {_at(lock.holder.granted_at)}{before}"
    return told, f"wait for its turn; `handrail why {holder}` says what that run does"


def _offered(plan: Plan, run: Run, token: Token, known: Known) -> tuple[str, str, str]:
    """(code, message, hint): the first that is so."""
    staff = [agent for agent in known.agents if _works(agent, token.role)]
    here = _Here(plan, run, token, known, staff)
    for code, found in NOBODY.items():
        told = found(here)
        if told is not None:
            return code, *told
    free = _named([agent for agent in here.takers if not here.full(agent)])
    told = f"{free} could take it and has not asked for work yet"
    return "asking", told, f"wait a moment; if it stays so, look whether {free} still runs"


class _Here(NamedTuple):
    """A dispatch on offer, and who has its role."""

    plan: Plan
    run: Run
    token: Token
    known: Known
    staff: list[AgentRow]

    @property
    def enabled(self) -> list[AgentRow]:
        return [agent for agent in self.staff if agent.enabled]

    @property
    def present(self) -> list[AgentRow]:
        alive = iso(self.known.now - timedelta(seconds=self.known.offline_after))
        return [agent for agent in self.enabled if agent.beat_at > alive]

    @property
    def others(self) -> list[AgentRow]:
        """Who is there and has not committed in this run."""
        verifies = self.run.kind == "workflow" and self._kind == "verification"
        return [one for one in self.present if not verifies or one.id not in self.run.committers]

    @property
    def takers(self) -> list[AgentRow]:
        """Who of them takes it, as far as one can tell."""
        asks = self.known.now - self.token.since <= HANDED
        return [one for one in self.others if asks or one.engine is None or self.full(one)]

    @property
    def _kind(self) -> str | None:
        return self.plan.node(self.token.place).config.kind

    @property
    def role(self) -> str:
        return f"the role '{self.token.role}'"

    @property
    def wait(self) -> float:
        """Seconds that it waits for somebody who is there."""
        return self.plan.waits.get(self.token.place, self.plan.usual_waits)[0].total_seconds()

    def full(self, agent: AgentRow) -> bool:
        return self.known.busy.get(agent.session, 0) >= agent.capacity

    def otherwise(self, seconds: float) -> str:
        """What happens if it stays so."""
        then = "a person is asked" if self.run.kind == "workflow" else "the run ends"
        return f"if it stays so, {then} at {_at(self.token.since + timedelta(seconds=seconds))}"


Told = tuple[str, str] | None


def _no_agent(here: _Here) -> Told:
    if here.staff:
        return None
    told = f"nobody is registered for {here.role}; {here.otherwise(here.plan.settings.role_grace)}"
    hint = f"start an agent with {here.role}: `handrail worker MODULE:NAME`"
    return told, f"{hint}, or for a built-in team `handrail serve --builtin-agents`"


def _disabled(here: _Here) -> Told:
    if here.enabled:
        return None
    names, first = _named(here.staff), here.staff[0].id
    told = f"everybody with {here.role} is disabled: {names}"
    told += f"; {here.otherwise(here.plan.settings.role_grace)}"
    hint = f'let a ceo enable one: PATCH /api/v1/agents/{first} with {{"enabled": true}}'
    return told, f"{hint}, or start another agent with the role"


def _offline(here: _Here) -> Told:
    if here.present:
        return None
    last = max(here.enabled, key=lambda agent: agent.beat_at)
    seen = f"{last.id} was last heard of at {_at(moment(last.beat_at))}"
    told = f"everybody with {here.role} is offline: {_named(here.enabled)}; {seen}"
    told += f"; {here.otherwise(here.plan.settings.role_grace)}"
    return told, f"start {last.id} again, and see `handrail agents`"


def _own_commit(here: _Here) -> Told:
    if here.others:
        return None
    names = _named(here.present)
    told = (
        f"it verifies what {names} committed in this run, and nobody else with {here.role} is there"
    )
    return told, f"start another agent with {here.role}"


def _not_theirs(here: _Here) -> Told:
    if here.takers:
        return None
    told = f"nobody who works as {here.token.role} takes '{here.run.definition_id}'"
    told += f": {_named(here.others)} is there, is free and leaves it"
    told += f" (built-in agents take built-in definitions only); {here.otherwise(here.wait)}"
    return told, f"start an agent with {here.role}: `handrail worker MODULE:NAME`"


def _full(here: _Here) -> Told:
    if not all(here.full(agent) for agent in here.takers):
        return None
    at_once = sum(agent.capacity for agent in here.takers)
    told = (
        f"{_named(here.takers)} could take it, and works on {at_once} of {at_once} things at once"
    )
    return f"{told}; {here.otherwise(here.wait)}", f"wait, or start another agent with {here.role}"


NOBODY: dict[str, Callable[[_Here], Told]] = {
    "no_agent": _no_agent,
    "disabled": _disabled,
    "offline": _offline,
    "own_commit": _own_commit,
    "not_theirs": _not_theirs,
    "full": _full,
}
"""Why nobody takes what is on offer, in the order in which it is looked at."""


def _works(agent: AgentRow, role: str) -> bool:
    return role in msgspec.json.decode(agent.roles, type=list[str])


def _named(agents: Sequence[AgentRow]) -> str:
    more = len(agents) - NAMED_MAX
    names = [agent.id for agent in agents[:NAMED_MAX]] + ([f"{more} more"] if more > 0 else [])
    return ", ".join(names)


def _at(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else ""


# An ended run

LOOK = "look in the report"
NEXT: dict[str, str] = {
    StopRule.CONSTRAINT: "keep the agents off what is forbidden, or change stop_rules.constraints",
    StopRule.BUDGET: f"{LOOK} what was bought for it; if it is worth more, raise the budget",
    StopRule.RESEARCH_EXHAUSTED: "go on with the best that was found, or ask for something else",
    StopRule.SAME_ERROR: f"{LOOK} at the command that fails: what was tried leaves its cause alone",
    StopRule.NO_CHANGE: f"{LOOK} what the agents were asked to do: they changed nothing",
    StopRule.OSCILLATION: f"{LOOK} which demand contradicts another: one undoes what the other did",
    StopRule.REPEATED_PATTERN: f"{LOOK} what the agents told each other; say who decides",
    StopRule.MAX_EDGE: f"{LOOK} what the two told each other; say who decides",
    StopRule.MAX_HANDOFFS: f"{LOOK} whether it was getting anywhere; if so, raise max_handoffs",
    StopRule.MAX_STEPS: f"{LOOK} whether it was getting anywhere; if so, raise max_steps",
    StopRule.MAX_DURATION: f"{LOOK} what took so long; if it has to, raise max_duration",
    StopRule.PROTOCOL: f"{LOOK} what the agent answered: an answer says whom it hands to, or ends",
    StopRule.AGENT_LOST: "see `handrail agents`, and start one that has the role and stays",
    StopRule.HUMAN_DEADLINE: "answer sooner, or give the question a longer deadline",
    StopRule.PAUSE_DEADLINE: "resume sooner what is paused",
    StopRule.CLOSED: "if it should be done after all",
}
"""By rule, what somebody does who wants the work done."""
ELSEWHERE: dict[str, str] = {
    StopRule.AGENT_LOST: f"{LOOK} where the program was last heard of; "
    "mend why it raised an error, or fell silent",
}
"""Likewise, where it is something else for a program under guard."""
DONE = {
    TerminalStatus.DONE_SUCCESS: "nothing is left to do",
    TerminalStatus.DONE_PARTIAL: "see what is left, and file it as another bead",
}


def explained(
    told: Report,
    waiting: tuple[Waiting, ...],
    newest: int,
    refused: int = 0,
    *,
    guarded: bool = False,
) -> Why:
    """All of it. `newest` is the newest version of the run's definition, `refused` how much came
    too late, twice or from somebody else. `guarded`: its agents work in a program elsewhere."""
    notes: tuple[str, ...] = ()
    if refused:
        kept = f"GET /api/v1/executions/{told.run_id}/notes"
        notes = (f"{refused} refused and without effect: late, doubled or foreign; see {kept}",)
    if told.terminal_status is None and newest > told.version:
        moves = f"`handrail override {told.run_id} migrate --version {newest} --reason TEXT`"
        notes += (
            f"the run keeps version {told.version} of '{told.definition_id}'; "
            f"version {newest} is newer, and {moves} takes it there",
        )
    return Why(
        status=told.status,
        terminal_status=told.terminal_status,
        why=told.why,
        next=_next(told, waiting, guarded=guarded),
        stop=told.stop,
        waiting=waiting,
        notes=notes,
    )


def _next(told: Report, waiting: tuple[Waiting, ...], *, guarded: bool) -> str:
    if told.stop is None or told.terminal_status is None:
        return next((one.hint for one in waiting), "")
    done = DONE.get(TerminalStatus(told.terminal_status))
    if done is not None:
        return done
    again = f"start another run of the bead: POST /api/v1/beads/{told.bead_id}/executions"
    first = NEXT.get(told.stop.rule, "see the report, `handrail report`")
    if guarded:
        again = "run that program again, under guard"
        first = ELSEWHERE.get(told.stop.rule, first)
    return f"{first}, {again}" if told.stop.rule == StopRule.CLOSED else f"{first}; then {again}"
