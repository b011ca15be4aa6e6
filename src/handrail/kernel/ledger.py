"""The ledger: what the stop rules count. One frozen value per run, bounded whatever the run does.

`weigh` decides what in a result is progress; the answer is recorded with the event. `handed` and
`reported` then bring the ledger forward, without policy, live and in replay alike. The rules that
read it stand in `rules.py`.

**Progress** (docs/requirements.md): a check that turned from failing to passing, a failure set
smaller than any before, a materially better score, a new milestone, a new state of the ticket, a
new artefact digest. Activity is not progress: returning to an earlier digest is oscillation; of
files that the run created only the first counts; while one error persists, file changes count at
most `same_error_limit` times; and what an agent merely claims (not measured by Handrail) counts
once per agent and stretch.

Progress opens a new *epoch*: counters of soft rules belong to an epoch, so opening one costs
nothing. Everything kept is capped (the constants below), so a handoff costs the same at the start
and after 100,000 of them.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.limits import Limits
from handrail.kernel.result import Evidence, Usage
from handrail.kernel.signature import signature

V = TypeVar("V")

REASONS_KEPT = 5
CITED_MAX = 50
VERSIONS_KEPT = 16
PATHS_KEPT = 256
ERRORS_KEPT = 64
CHECKS_KEPT = 256
FACTS_MAX = 1_000
SYMBOLS = 1_000_000


class EdgeCount(Value, gc=False):
    """One way of handing over: how often in this epoch, how often in all, and the last reasons."""

    source: str
    target: str
    symbol: int
    epoch: int
    count: int = 0
    total: int = 0
    reasons: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    """The handoffs of this epoch that went this way, by number."""


class Tally(Value, gc=False):
    """How often something happened, and at which steps (the last of them)."""

    count: int = 0
    steps: tuple[int, ...] = ()

    def add(self, step: int) -> "Tally":
        """Once more. Several times within one step count once."""
        if self.steps[-1:] == (step,):
            return self
        return Tally(count=self.count + 1, steps=(*self.steps[1 - CITED_MAX :], step))


class ErrorCount(Value):
    """One error signature: its failures in this epoch, the progress it was granted for files."""

    epoch: int
    seen: Tally = Tally()
    grants: int = 0


class Research(Value):
    """Scores of one agent at one goal: the best, and the visits that brought nothing better."""

    best: int | float
    stale: Tally = Tally()


class Ledger(Value):
    """Steps, handoffs, tokens and cost since the start; the rest since the last raising act."""

    steps: int = 0
    handoffs: int = 0
    steps_before: int = 0
    """Steps of earlier stretches: the limits are per stretch, the numbering is not."""
    handoffs_before: int = 0
    epoch: int = 0
    last_progress_step: int = 0
    edges: dict[str, EdgeCount] = {}
    trail: str = ""
    """The handoffs of this epoch, a character each, as many as the pattern rule can need."""
    errors: dict[str, ErrorCount] = {}
    failing: str = ""
    """The signature of the last failed check, until a check passes."""
    checks: dict[str, str] = {}
    """Command -> "" if it last passed, else the signature it failed with."""
    files: dict[str, tuple[str, ...]] = {}
    """Path -> its digests, newest first."""
    created: bool = False
    facts: dict[str, int] = {}
    """Progress that can count only once, with the step it counted at."""
    failures_least: int | None = None
    research: dict[str, Research] = {}
    idle: Tally = Tally()
    """Steps of this epoch that reported files but changed none."""
    returns: Tally = Tally()
    """Steps of this epoch that went back to earlier file contents."""
    tokens: int = 0
    cost: int | float = 0.0


class Weighed(Value):
    """What a result comes to: progress, signatures of failed checks, what became of files."""

    progress: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    changed: bool = False
    returned: bool = False
    goal: str = ""
    """Agent and task, for scores."""


def edge_key(source: str, target: str) -> str:
    """One key for one way, whatever the names: the length tells where the source ends."""
    return f"{len(source)}:{source}>{target}"


def weigh(
    ledger: Ledger,
    limits: Limits,
    agent: str,
    evidence: Evidence,
    *,
    task: str = "",
    milestone: str = "",
    paths: frozenset[str] | None = None,
) -> Weighed:
    """What is progress in this result, and what else the ledger will want to know of it.

    `paths`: those that existed at the start or that the task names; None if nobody knows.
    """
    signatures = tuple(
        signature(check.command, check.stderr) for check in evidence.checks if check.exit_code != 0
    )
    goal = f"{agent}/{task}" if task else agent
    failing = signatures[-1] if signatures else ledger.failing
    changed, returned, known, created = _files(ledger, evidence, paths)
    facts = [
        *_checks(ledger, evidence),
        *_failures(ledger, evidence),
        *_score(ledger, limits, evidence, goal),
    ]
    if evidence.ticket_state is not None:
        facts.append(f"ticket:{evidence.ticket_state[:100]}")
    if _may_count_files(ledger, limits, failing) and (known or (created and not ledger.created)):
        facts.append("files")
    if not evidence.measured:
        facts = [f"claim:{agent}"] if _new(ledger, facts) else []
    if milestone:
        facts.append(f"milestone:{milestone}")
    return Weighed(
        progress=_new(ledger, facts),
        signatures=signatures,
        changed=changed,
        returned=returned,
        goal=goal if evidence.score is not None else "",
    )


def _new(ledger: Ledger, facts: list[str]) -> tuple[str, ...]:
    """Facts not seen before. "files" and "fewer failures" say themselves what is new."""
    if len(ledger.facts) >= FACTS_MAX:
        return ()
    return tuple(f for f in facts if f in ("files", "failures", "score") or f not in ledger.facts)


def _files(
    ledger: Ledger, evidence: Evidence, paths: frozenset[str] | None
) -> tuple[bool, bool, bool, bool]:
    """(changed, all of it back to earlier contents, a known path has news, a path is new)"""
    changed = fresh = known = created = False
    for path, digest in (evidence.files or {}).items():
        versions = ledger.files.get(path, ())
        if versions and versions[0] == digest:
            continue
        changed = True
        if digest in versions:
            continue
        fresh = True
        if path in paths if paths is not None else bool(versions):
            known = True
        elif not versions:
            created = True
    return changed, changed and not fresh, known, created


def _may_count_files(ledger: Ledger, limits: Limits, failing: str) -> bool:
    if not failing or limits.same_error_limit is None:
        return True
    held = ledger.errors.get(failing)
    return held is None or held.grants < limits.same_error_limit


def _checks(ledger: Ledger, evidence: Evidence) -> Iterable[str]:
    """Turned green, once for each error it turned green from: a flapping check is no progress."""
    for check in evidence.checks:
        before = ledger.checks.get(check.command, "")
        if check.exit_code == 0 and before:
            yield f"green:{check.command[:200]}:{before[-12:]}"


def _failures(ledger: Ledger, evidence: Evidence) -> Iterable[str]:
    least = ledger.failures_least
    if evidence.failures is not None and least is not None and len(set(evidence.failures)) < least:
        yield "failures"


def _score(ledger: Ledger, limits: Limits, evidence: Evidence, goal: str) -> Iterable[str]:
    if evidence.score is None:
        return
    held = ledger.research.get(goal)
    if held is None or _better(limits, held.best, evidence.score):
        yield "score"


def _better(limits: Limits, best: float, score: float) -> bool:
    """Materially better, and not merely better than good enough."""
    return score >= best + max(limits.research_gain, 1e-9) and best < limits.research_good


def handed(
    ledger: Ledger, limits: Limits, source: str, target: str, reason: str, *, steps: int = 0
) -> Ledger:
    """The ledger after an accepted handoff; `steps` are those that it takes without a dispatch."""
    number = ledger.handoffs + 1
    key = edge_key(source, target)
    held = ledger.edges.get(key)
    if held is None:
        edge = EdgeCount(
            source=source,
            target=target,
            symbol=len(ledger.edges) % SYMBOLS,
            epoch=ledger.epoch,
            count=1,
            total=1,
            reasons=(reason,),
            numbers=(number,),
        )
    else:
        same = held.epoch == ledger.epoch
        edge = EdgeCount(
            source=source,
            target=target,
            symbol=held.symbol,
            epoch=ledger.epoch,
            count=held.count + 1 if same else 1,
            total=held.total + 1,
            reasons=(*held.reasons[1 - REASONS_KEPT :], reason),
            numbers=(*held.numbers[1 - CITED_MAX :], number) if same else (number,),
        )
    room = limits.pattern_period_max * (limits.repeat_limit or 0)
    return replace(
        ledger,
        handoffs=number,
        steps=ledger.steps + steps,
        edges={**ledger.edges, key: edge},
        trail=(ledger.trail + character(edge.symbol))[-room:] if room else "",
    )


def character(symbol: int) -> str:
    """One character per edge, clear of the surrogates, which no encoder takes."""
    code = 0x100 + symbol
    return chr(code if code < 0xD800 else code + 0x800)


def reported(
    ledger: Ledger, limits: Limits, step: int, evidence: Evidence, usage: Usage, weighed: Weighed
) -> Ledger:
    """The ledger after the result of a step."""
    if weighed.progress:
        ledger = progressed(ledger, weighed, step)
    ledger = replace(ledger, tokens=ledger.tokens + usage.tokens, cost=ledger.cost + usage.cost)
    if evidence.checks:
        ledger = _with_checks(ledger, evidence, weighed, step)
    if evidence.files is not None:
        ledger = _with_files(ledger, evidence.files, weighed, step)
    if evidence.failures is not None:
        count = len(set(evidence.failures))
        least = ledger.failures_least
        ledger = replace(ledger, failures_least=count if least is None else min(least, count))
    if evidence.score is not None:
        ledger = _with_score(ledger, limits, weighed.goal, evidence.score, step)
    return ledger


def progressed(ledger: Ledger, weighed: Weighed, step: int) -> Ledger:
    """A new epoch: the soft rules begin to count again."""
    facts = dict(ledger.facts)
    for fact in weighed.progress:
        facts.setdefault(fact, step)
    errors, created = ledger.errors, ledger.created
    if "files" in weighed.progress or any(f.startswith("claim:") for f in weighed.progress):
        failing = weighed.signatures[-1] if weighed.signatures else ledger.failing
        if failing:
            held = errors.get(failing, ErrorCount(epoch=ledger.epoch))
            errors = {**errors, failing: replace(held, grants=held.grants + 1)}
        created = created or weighed.changed
    return replace(
        ledger,
        epoch=ledger.epoch + 1,
        last_progress_step=step,
        trail="",
        idle=Tally(),
        returns=Tally(),
        facts=facts,
        errors=errors,
        created=created,
    )


def _with_checks(ledger: Ledger, evidence: Evidence, weighed: Weighed, step: int) -> Ledger:
    errors, checks, failing = dict(ledger.errors), dict(ledger.checks), ledger.failing
    signatures = iter(weighed.signatures)
    for check in evidence.checks:
        found = next(signatures) if check.exit_code != 0 else ""
        checks.pop(check.command, None)
        checks[check.command] = found
        failing = found
        if found:
            held = errors.pop(found, ErrorCount(epoch=ledger.epoch))
            seen = held.seen if held.epoch == ledger.epoch else Tally()
            errors[found] = replace(held, epoch=ledger.epoch, seen=seen.add(step))
    return replace(
        ledger,
        errors=_newest(errors, ERRORS_KEPT),
        checks=_newest(checks, CHECKS_KEPT),
        failing=failing,
    )


def _with_files(ledger: Ledger, given: dict[str, str], weighed: Weighed, step: int) -> Ledger:
    files = dict(ledger.files)
    for path, digest in given.items():
        versions = files.pop(path, ())
        if versions[:1] != (digest,):
            versions = (digest, *(v for v in versions if v != digest))[:VERSIONS_KEPT]
        files[path] = versions
    idle, returns = ledger.idle, ledger.returns
    if not weighed.changed:
        idle = idle.add(step)
    elif weighed.returned:
        returns = returns.add(step)
    return replace(ledger, files=_newest(files, PATHS_KEPT), idle=idle, returns=returns)


def _with_score(ledger: Ledger, limits: Limits, goal: str, score: float, step: int) -> Ledger:
    held = ledger.research.get(goal)
    if held is None or _better(limits, held.best, score):
        found = Research(best=score)
    else:
        found = replace(held, stale=held.stale.add(step))
    return replace(ledger, research=_newest({**ledger.research, goal: found}, PATHS_KEPT))


def _newest(of: dict[str, V], most: int) -> dict[str, V]:
    """The `most` entries written last."""
    for key in list(of)[: len(of) - most] if len(of) > most else ():
        del of[key]
    return of


def renewed(ledger: Ledger) -> Ledger:
    """After a raising act of a person: every counter fresh, budgets and known files go on (K14)."""
    return Ledger(
        steps=ledger.steps,
        handoffs=ledger.handoffs,
        steps_before=ledger.steps,
        handoffs_before=ledger.handoffs,
        epoch=ledger.epoch + 1,
        last_progress_step=ledger.last_progress_step,
        files=ledger.files,
        checks=ledger.checks,
        failing=ledger.failing,
        tokens=ledger.tokens,
        cost=ledger.cost,
    )
