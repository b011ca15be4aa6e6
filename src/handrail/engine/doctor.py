"""`doctor`: the invariants that hold at every moment, asked of a live database.

Most are queries, named `doctor_…` in the store's `queries.sql`; each gives the rows that break it.
One needs the kernel: a run's open dispatches are exactly those of its tokens. `verify` asks whether
the record is true; this asks whether the engines keep up with it, and nothing is stuck.

Time: where no engine is alive, or one has just come back, nothing is late. What was late when the
last one stopped is told.
"""

from datetime import UTC, datetime, timedelta

from handrail.engine.findings import Finding, Findings, shown
from handrail.engine.project import loaded
from handrail.kernel.run.state import Phase, Run
from handrail.store.port import DispatchRow, StoreError, iso
from handrail.store.records import Records

AFTER_OUTAGE = timedelta(minutes=10)
RUNS_A_PAGE = 100
LIVE = ("running", "waiting", "paused")
RESTORE = "restore a backup, or ask `handrail verify` what else is wrong"
ENGINE = "look at the logs of the engines, and start one if none is alive"
MEANINGS = {
    "version": ("a run's version is not its last sequence number", RESTORE),
    "lock_version": ("a lock's version is not its last sequence number", RESTORE),
    "stream_version": ("a stream's version is not its last sequence number", RESTORE),
    "gap": ("the sequence numbers of a stream have a gap", RESTORE),
    "dispatch_twice": ("a step has two open dispatches", RESTORE),
    "dispatch_of_finished": ("a finished run has an open dispatch", RESTORE),
    "dispatch_differs": ("the open dispatches are not those of the run's tokens", RESTORE),
    "lost_session": ("a dispatch is claimed by nobody who is there", ENGINE),
    "two_active": ("two members of a channel have the turn", RESTORE),
    "two_turns": ("an agent that works on one thing at a time has two turns", RESTORE),
    "channel_version": ("a channel's version is not its last sequence number", RESTORE),
    "turn_overdue": ("a turn in a channel is over, and nobody looked", ENGINE),
    "two_holders": ("a repository has two commit locks", RESTORE),
    "holder_finished": ("a commit lock is held by a run that is over", ENGINE),
    "two_runs": ("a bead has two active runs", RESTORE),
    "half_ended": ("a run has ended only in part", RESTORE),
    "no_clock": ("a run goes on without a clock, so it may never end", RESTORE),
    "overdue": ("a run's clock has run out, and nobody looked", ENGINE),
    "lock_overdue": ("a commit lock's clock has run out, and nobody looked", ENGINE),
    "question_of_finished": ("people are asked about a finished run", RESTORE),
    "waits_for_nobody": ("a run waits for an answer, but nobody was asked", RESTORE),
    "stuck_message": ("a message was not delivered in ten minutes", ENGINE),
    "bead": ("the bead of a run that goes on is not being worked on", RESTORE),
    "notes": ("notes of a run are missing", RESTORE),
    "unreadable": ("a run cannot be loaded", RESTORE),
    "chain": ("the end of the chain is not the last commit", RESTORE),
}
"""What each query's rows mean, and what to do about them."""


def examine(store: Records, now: datetime | None = None) -> list[Finding]:
    """Everything that should not be, as of one moment."""
    found = Findings()
    with store.reading():
        for one in store.irregular("doctor", _moment(store, now or datetime.now(UTC))):
            _add(found, one.code, one.subject, one.detail)
        for status in LIVE:
            _check_runs(store, found, status)
    return found.kept


def _moment(store: Records, now: datetime) -> str:
    """Until when things may be called late."""
    alive = store.last_alive()
    moment = min(iso(now), alive) if alive is not None else iso(now)
    for began, _ in store.outages(iso(now - AFTER_OUTAGE)):
        moment = min(moment, began)
    return moment


def _add(found: Findings, code: str, subject: str, detail: str) -> None:
    means, remedy = MEANINGS[code]
    found.add(code, f"{means}: {subject} ({detail}); {remedy}", subject)


def _check_runs(store: Records, found: Findings, status: str) -> None:
    after = ""
    while page := store.executions(status=status, after=after, limit=RUNS_A_PAGE):
        after = page[-1].id
        for run_id, one in store.load([row.id for row in page]).items():
            try:
                run = loaded(one.subject, one.tail)
            except StoreError:
                raise
            except Exception as error:  # whatever a damaged state does to the kernel
                _add(found, "unreadable", run_id, shown(str(error) or type(error).__name__))
                continue
            is_, should = _stored(store.dispatches(run_id)), _of_tokens(run)
            if is_ != should:
                _add(found, "dispatch_differs", run_id, f"{_listed(is_)}, not {_listed(should)}")


Open = set[tuple[int, str, str]]


def _stored(rows: list[DispatchRow]) -> Open:
    return {(row.fence, row.place, row.agent or "") for row in rows}


def _of_tokens(run: Run) -> Open:
    """Fence, place, and who has claimed it."""
    return {
        (token.fence, token.place, token.agent if token.phase is Phase.CLAIMED else "")
        for token in run.tokens.values()
        if token.phase in (Phase.OFFERED, Phase.CLAIMED)
    }


def _listed(dispatches: Open) -> str:
    told = [f"{place} with {agent or 'nobody'}" for _, place, agent in sorted(dispatches)]
    return ", ".join(told) or "none"
