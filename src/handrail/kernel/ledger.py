"""The ledger: what the stop rules count. One frozen value per run, bounded whatever the run does.

`progress.weigh` decides what in a result is progress; the answer is recorded with the event.
`handed`, `spent` and `reported` then bring the ledger forward, without policy, live and in replay
alike. The rules that read it stand in `rules.py`.

Progress opens a new *epoch*: counters of soft rules belong to an epoch, so opening one costs
nothing. Everything kept is capped (the constants below), so a handoff costs the same at the start
and after 100,000 of them.
"""

import functools
import hashlib
from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence, Usage

V = TypeVar("V")

REASONS_KEPT = 5
CITED_MAX = 50
VERSIONS_KEPT = 64
PATHS_KEPT = 256
ERRORS_KEPT = 256
EDGES_KEPT = 1_000
CHECKS_KEPT = 256
FACTS_KEPT = 1_000
SYMBOLS = 1_000_000
KEY_CHARS = 300
DIGEST_CHARS = 24


class EdgeCount(Value):
    """One way of handing over: how often in this epoch, how often in all, and the last reasons."""

    source: str
    target: str
    symbol: str
    """Its character in the trail."""
    epoch: int
    count: int = 0
    total: int = 0
    reasons: tuple[str, ...] = ()


class Tally(Value):
    """How often something happened, and at which steps (the last of them)."""

    count: int = 0
    steps: tuple[int, ...] = ()
    spare: tuple[int, ...] = ()
    """Of these steps those without which another one would have counted: not to be cited."""

    def add(self, step: int, *, spare: bool = False) -> "Tally":
        """Once more. Several times within one step count once."""
        if self.steps[-1:] == (step,):
            return self
        return Tally(
            count=self.count + 1,
            steps=(*self.steps[1 - CITED_MAX :], step),
            spare=(*self.spare[1 - CITED_MAX :], step) if spare else self.spare,
        )


class ErrorCount(Value):
    """One error signature: its failures in this epoch, the progress it was granted for files."""

    epoch: int
    seen: Tally = Tally()
    grants: int = 0


class Research(Value):
    """Scores of one agent at one goal: the best, and the visits that brought nothing better."""

    best: int | float
    stale: Tally = Tally()


class Seen(Value):
    """What evidence of one kind has shown so far: measured by Handrail, or claimed by agents.

    The two are kept apart, so that a claim can neither make a measurement look like progress nor
    hide that it is.
    """

    checks: dict[str, str] = {}
    """Command -> "" if it last passed, else the signature it failed with."""
    files: dict[str, tuple[str, ...]] = {}
    """Path -> its digests, newest first."""
    forgot: bool = False
    """More paths than are kept: an unknown one is then no news, since it may be an old one."""
    created: bool = False
    failures_least: int | None = None
    research: dict[str, Research] = {}


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
    edges_seen: int = 0
    trail: str = ""
    """The handoffs of this epoch, a character each, newest first, as many as rules can need."""
    errors: dict[str, ErrorCount] = {}
    measured: Seen = Seen()
    claimed: Seen = Seen()
    facts: dict[str, int] = {}
    """Progress that can count only once, with the step it counted at."""
    claimants: dict[str, int] = {}
    """Agents whose claims have postponed the soft rules, with the step: once each."""
    idle: Tally = Tally()
    """Steps of this epoch that reported files but changed none."""
    returns: Tally = Tally()
    """Steps of this epoch that went back to earlier file contents."""
    tokens: int = 0
    cost: int | float = 0.0
    tokens_step: int = 0
    """The last step that used any; 0 if none did."""
    cost_step: int = 0


class Weighed(Value):
    """What a result comes to: progress, signatures of failed checks, what became of files."""

    progress: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    """Every error that stands after it, its own and those of commands it did not run."""
    changed: bool = False
    returned: bool = False
    created: bool = False
    goal: str = ""
    """Agent and task, for scores."""


NOTHING = Weighed()
"""The one that most results get: as the default of an event it is not written down."""


def short(text: str) -> str:
    """The text as a key: what is long is cut, and told apart by its hash."""
    if len(text) <= KEY_CHARS:
        return text
    return f"{text[: KEY_CHARS - 13]}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@functools.lru_cache(maxsize=1_024)
def edge_key(source: str, target: str) -> str:
    """One key for one way, whatever the names: the length tells where the source ends."""
    return f"{len(source)}:{source}>{target}"


def way(ledger: Ledger, source: str, target: str) -> EdgeCount | None:
    """What is known of this way of handing over; None if it was never gone."""
    return ledger.edges.get(edge_key(source, target))


def handed(
    ledger: Ledger, limits: Limits, source: str, target: str, reason: str, *, steps: int = 0
) -> Ledger:
    """The ledger after an accepted handoff; `steps` are those that it takes without a dispatch."""
    return all_handed(ledger, limits, ((source, target, reason),), steps=steps)


def all_handed(
    ledger: Ledger, limits: Limits, handoffs: Collection[tuple[str, str, str]], *, steps: int = 0
) -> Ledger:
    """The same of several, one after the other: source, target, reason."""
    edges, edges_seen, epoch = {**ledger.edges}, ledger.edges_seen, ledger.epoch
    room = limits.pattern_period_max * (limits.repeat_limit or 1)
    symbols = deque[str](maxlen=room)
    for source, target, reason in handoffs:
        key = edge_key(source, target)
        held = edges.get(key)
        if held is None:
            symbol, before, total, reasons = character(edges_seen), 0, 0, ()
            edges_seen += 1
        else:
            symbol, total, reasons = held.symbol, held.total, held.reasons[1 - REASONS_KEPT :]
            before = held.count if held.epoch == epoch else 0
        edges[key] = EdgeCount(
            source=source,
            target=target,
            symbol=symbol,
            epoch=epoch,
            count=before + 1,
            total=total + 1,
            reasons=(*reasons, reason[:KEY_CHARS]),
        )
        symbols.appendleft(symbol)
        if len(edges) > EDGES_KEPT:
            _newest(edges, EDGES_KEPT)
    return replace(
        ledger,
        handoffs=ledger.handoffs + len(handoffs),
        steps=ledger.steps + steps,
        edges=edges,
        edges_seen=edges_seen,
        trail=("".join(symbols) + ledger.trail)[:room],
    )


def character(number: int) -> str:
    """One character per edge, clear of the surrogates, which no encoder takes."""
    code = 0x100 + number % SYMBOLS
    return chr(code if code < 0xD800 else code + 0x800)


def reported(
    ledger: Ledger, limits: Limits, step: int, evidence: Evidence, usage: Usage, weighed: Weighed
) -> Ledger:
    """The ledger after the result of a step."""
    before = ledger
    if weighed.progress:
        ledger = progressed(ledger, weighed, step)
    if usage.tokens or usage.cost:
        ledger = spent(ledger, ((step, usage),))
    if evidence == NO_EVIDENCE:
        return ledger
    seen = ledger.measured if evidence.measured else ledger.claimed
    after = _shown(seen, limits, step, evidence, weighed)
    idle, returns = ledger.idle, ledger.returns
    if evidence.files is not None and not weighed.changed:
        returns = _replaceable(returns, idle) if evidence.files else returns
        idle = idle.add(step, spare=before.idle.count > idle.count)
    elif weighed.returned:
        returns = returns.add(step, spare=before.returns.count > returns.count)
    return replace(
        ledger,
        errors=_failed(ledger, weighed, step),
        measured=after if evidence.measured else ledger.measured,
        claimed=ledger.claimed if evidence.measured else after,
        idle=idle,
        returns=returns,
    )


def spent(ledger: Ledger, used: Iterable[tuple[int, Usage]]) -> Ledger:
    """The ledger after steps that used this, each by its number."""
    tokens, cost = ledger.tokens, ledger.cost
    tokens_step, cost_step = ledger.tokens_step, ledger.cost_step
    for step, usage in used:
        if usage.tokens:
            tokens, tokens_step = tokens + usage.tokens, step
        if usage.cost:
            cost, cost_step = cost + usage.cost, step
    return replace(ledger, tokens=tokens, cost=cost, tokens_step=tokens_step, cost_step=cost_step)


def _replaceable(returns: Tally, idle: Tally) -> Tally:
    """A step that finds the contents as the last return left them would have been that return."""
    last = returns.steps[-1:]
    return replace(returns, spare=(*returns.spare, *last)) if last > idle.steps[-1:] else returns


def progressed(ledger: Ledger, weighed: Weighed, step: int) -> Ledger:
    """A new epoch: the soft rules begin to count again."""
    facts, claimants, errors = dict(ledger.facts), ledger.claimants, ledger.errors
    for fact in weighed.progress:
        if fact.startswith("claim:"):
            claimants = {**claimants, fact.removeprefix("claim:"): step}
        else:
            facts.setdefault(fact, step)
    if "files" in weighed.progress:
        errors = dict(errors)
        for found in weighed.red:
            held = errors.get(found, ErrorCount(epoch=ledger.epoch))
            errors[found] = replace(held, grants=held.grants + 1)
    return replace(
        ledger,
        epoch=ledger.epoch + 1,
        last_progress_step=step,
        trail="",
        idle=Tally(),
        returns=Tally(),
        facts=_newest(facts, FACTS_KEPT),
        claimants=claimants,
        errors=errors,
    )


def _failed(ledger: Ledger, weighed: Weighed, step: int) -> dict[str, ErrorCount]:
    if not weighed.signatures:
        return ledger.errors
    errors = dict(ledger.errors)
    for found in weighed.signatures:
        held = errors.pop(found, ErrorCount(epoch=ledger.epoch))
        seen = held.seen if held.epoch == ledger.epoch else Tally()
        # Without this step, whose progress set them aside, those of the epoch before would count.
        spare = bool(weighed.progress) and held.epoch == ledger.epoch - 1
        errors[found] = replace(held, epoch=ledger.epoch, seen=seen.add(step, spare=spare))
    return _newest(errors, ERRORS_KEPT)


def _shown(seen: Seen, limits: Limits, step: int, evidence: Evidence, weighed: Weighed) -> Seen:
    """What evidence of this kind has shown, after this result."""
    if evidence.checks:
        checks, signatures = dict(seen.checks), iter(weighed.signatures)
        for check in evidence.checks:
            command = short(check.command)
            checks.pop(command, None)
            checks[command] = next(signatures) if check.exit_code != 0 else ""
        seen = replace(seen, checks=_newest(checks, CHECKS_KEPT))
    if evidence.files is not None:
        files = dict(seen.files)
        for path, whole in evidence.files.items():
            digest = whole[-DIGEST_CHARS:]
            versions = files.pop(path, ())
            if digest in versions[1:]:
                versions = tuple(v for v in versions if v != digest)
            if versions[:1] != (digest,):
                versions = (digest, *versions[: VERSIONS_KEPT - 1])
            files[path] = versions
        seen = replace(
            seen,
            forgot=seen.forgot or len(files) > PATHS_KEPT,
            files=_newest(files, PATHS_KEPT),
            created=seen.created or weighed.created,
        )
    if evidence.failures is not None:
        count = len(set(evidence.failures))
        least = count if seen.failures_least is None else min(seen.failures_least, count)
        seen = replace(seen, failures_least=least)
    if evidence.score is not None:
        held = seen.research.get(weighed.goal)
        if held is None or is_better(limits, held, evidence.score):
            held = Research(best=evidence.score)
        else:
            held = replace(held, stale=held.stale.add(step))
        research = _newest({**seen.research, weighed.goal: held}, PATHS_KEPT)
        seen = replace(seen, research=research)
    return seen


def is_better(limits: Limits, held: Research | None, score: float) -> bool:
    return held is None or score >= held.best + max(limits.research_gain, 1e-9)


def _newest(of: dict[str, V], most: int) -> dict[str, V]:
    """The `most` entries written last."""
    while len(of) > most:
        del of[next(iter(of))]
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
        measured=_carried(ledger.measured),
        claimed=_carried(ledger.claimed),
        tokens=ledger.tokens,
        cost=ledger.cost,
        tokens_step=ledger.tokens_step,
        cost_step=ledger.cost_step,
    )


def _carried(seen: Seen) -> Seen:
    """Contents and checks are what they are; only what was counted begins anew."""
    return Seen(checks=seen.checks, files=seen.files, forgot=seen.forgot)
