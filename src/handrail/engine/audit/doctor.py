"""`doctor`: checks the invariants that hold at every moment, on a live database.

Most are queries, named `doctor_…` in the store's `queries.sql`; each returns the rows that break
it. One needs the kernel: a run's open dispatches are exactly those of its positions. `verify`
checks whether the record is true; this checks that the engines keep up, and that nothing is stuck.

Time: where no engine is alive, or one has just come back, nothing is late. What was late when the
last one stopped is reported.
"""

from datetime import UTC, datetime, timedelta

from handrail.engine.audit.row_checks import Findings, format_value
from handrail.engine.commit.run_change import rebuild_run
from handrail.kernel.run.state import PositionPhase, Run
from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import StoreError, iso
from handrail.views.audit import Finding

OUTAGE_GRACE = timedelta(minutes=10)
PAGE_RUNS = 100
LIVE_STATUSES = ("running", "waiting", "paused")
REMEDY_RESTORE = "restore a backup, or ask `handrail verify` what else is wrong"
REMEDY_ENGINE = "look at the logs of the engines, and start one if none is alive"
INVARIANTS = {
    "version": ("a run's version is not its last sequence number", REMEDY_RESTORE),
    "lock_version": ("a lock's version is not its last sequence number", REMEDY_RESTORE),
    "stream_version": ("a stream's version is not its last sequence number", REMEDY_RESTORE),
    "gap": ("the sequence numbers of a stream have a gap", REMEDY_RESTORE),
    "dispatch_twice": ("a step has two open dispatches", REMEDY_RESTORE),
    "dispatch_of_finished": ("a finished run has an open dispatch", REMEDY_RESTORE),
    "dispatch_differs": (
        "the open dispatches are not those of the run's positions",
        REMEDY_RESTORE,
    ),
    "lost_session": ("a dispatch is claimed by an agent that is not registered", REMEDY_ENGINE),
    "two_active": ("two members of a channel have the turn", REMEDY_RESTORE),
    "two_turns": ("an agent that works on one thing at a time has two turns", REMEDY_RESTORE),
    "channel_version": ("a channel's version is not its last sequence number", REMEDY_RESTORE),
    "turn_overdue": (
        "the time of a turn in a channel is over, but the turn has not ended",
        REMEDY_ENGINE,
    ),
    "two_holders": ("a repository has two commit locks", REMEDY_RESTORE),
    "holder_finished": ("a commit lock is held by a run that is over", REMEDY_ENGINE),
    "two_runs": ("a bead has two active runs", REMEDY_RESTORE),
    "half_ended": ("a run has ended only in part", REMEDY_RESTORE),
    "no_clock": ("an active run has no deadline, so it may never end", REMEDY_RESTORE),
    "overdue": ("a deadline of a run has passed, but no engine has acted on it", REMEDY_ENGINE),
    "lock_overdue": (
        "the lease of a commit lock has passed, but no engine has acted on it",
        REMEDY_ENGINE,
    ),
    "question_of_finished": ("an approval of a finished run is open", REMEDY_RESTORE),
    "waits_for_nobody": ("a run waits for an answer, but has no open approval", REMEDY_RESTORE),
    "stuck_message": ("a message was not delivered in ten minutes", REMEDY_ENGINE),
    "bead": ("the bead of a run that goes on is not being worked on", REMEDY_RESTORE),
    "notes": ("notes of a run are missing", REMEDY_RESTORE),
    "unreadable": ("a run cannot be loaded", REMEDY_RESTORE),
    "chain": ("the head of the hash chain is not that of the last commit", REMEDY_RESTORE),
}
"""The meaning of each query's rows, and the remedy."""


def check_database(store: MaintenanceStore, now: datetime | None = None) -> list[Finding]:
    """Return every broken invariant, as of one moment."""
    findings = Findings()
    with store.snapshot():
        for irregular in store.find_irregularities(
            "doctor", _late_before(store, now or datetime.now(UTC))
        ):
            _add_finding(findings, irregular.code, irregular.subject, irregular.detail)
        for status in LIVE_STATUSES:
            _check_runs(store, findings, status)
    return findings.items


def _late_before(store: MaintenanceStore, now: datetime) -> str:
    """Return the moment before which things count as late."""
    alive = store.engines.get_last_alive()
    late_before = min(iso(now), alive) if alive is not None else iso(now)
    for began, _ in store.engines.list_outages(iso(now - OUTAGE_GRACE)):
        late_before = min(late_before, began)
    return late_before


def _add_finding(findings: Findings, code: str, subject: str, detail: str) -> None:
    meaning, remedy = INVARIANTS[code]
    findings.add(code, f"{meaning}: {subject} ({detail}); {remedy}", subject)


def _check_runs(store: MaintenanceStore, findings: Findings, status: str) -> None:
    after = ""
    while page := store.runs.list_by_id(status=status, after=after, limit=PAGE_RUNS):
        after = page[-1].id
        for run_id, stored in store.runs.load([row.id for row in page]).items():
            try:
                run = rebuild_run(stored.row, stored.tail)
            except StoreError:
                raise
            except Exception as error:  # a damaged state may raise anything in the kernel
                _add_finding(
                    findings, "unreadable", run_id, format_value(str(error) or type(error).__name__)
                )
                continue
            actual = {
                (row.fence, row.place, row.agent or "") for row in store.dispatches.list(run_id)
            }
            expected = _expected_dispatches(run)
            if actual != expected:
                _add_finding(
                    findings,
                    "dispatch_differs",
                    run_id,
                    f"{_format_dispatches(actual)}, not {_format_dispatches(expected)}",
                )


OpenDispatches = set[tuple[int, str, str]]


def _expected_dispatches(run: Run) -> OpenDispatches:
    """The fence, step id and claimant of each dispatch."""
    return {
        (
            position.fence,
            position.step_id,
            position.agent if position.phase is PositionPhase.CLAIMED else "",
        )
        for position in run.positions.values()
        if position.phase in (PositionPhase.OFFERED, PositionPhase.CLAIMED)
    }


def _format_dispatches(dispatches: OpenDispatches) -> str:
    parts = [f"{step_id} with {agent or 'nobody'}" for _, step_id, agent in sorted(dispatches)]
    return ", ".join(parts) or "none"
