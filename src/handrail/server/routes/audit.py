"""The audit record is verified while the server runs: off the event loop, one check at a time.

Requests for the same check share its result. A check reads the whole record, on a read-only
connection of its own; it is aborted when the server shuts down, or when no request waits for it any
more. The number of waiting checks is bounded.
"""

import asyncio

from msgspec.structs import asdict

from handrail.api.audit import AuditCalls, AuditVerification, HeadQuery
from handrail.engine.audit.verification import verify
from handrail.engine.engine import Engine
from handrail.server.access import Caller, HTTPRequest
from handrail.server.binding import serves
from handrail.server.long_polls import LongPolls
from handrail.server.problems import RETRY_HEADERS, HTTPProblemError
from handrail.store.rows import StoreError
from handrail.views.audit import Verification

CHECKS_MAX = 8
"""Running or queued checks, each for another head."""


class RunningCheck:
    """One check, and the number of requests that wait for it."""

    def __init__(self) -> None:
        self.waiters = 0
        self.is_started = False
        self.task: asyncio.Task[Verification] | None = None


class AuditVerifier:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._checks: dict[str | None, RunningCheck] = {}
        self._tasks: set[asyncio.Task[Verification]] = set()
        self._lock = asyncio.Lock()
        self._closing = False

    async def check(self, head: str | None) -> Verification:
        """Verify the record; `head` was saved elsewhere, and must be one of its heads."""
        check = self._checks.get(head) or self._start(head)
        assert check.task is not None, "begun"
        check.waiters += 1
        try:
            return await asyncio.shield(check.task)
        finally:
            check.waiters -= 1
            if not check.waiters:
                self._release(head, check)

    async def close(self) -> None:
        """Abort all checks: their results are no longer needed."""
        self._closing = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, head: str | None) -> RunningCheck:
        if len(self._checks) >= CHECKS_MAX:
            raise HTTPProblemError(
                503,
                "too_many_checks",
                f"{CHECKS_MAX} checks of the record are requested already",
                "try again later",
                headers=RETRY_HEADERS,
            )
        check = self._checks[head] = RunningCheck()
        check.task = asyncio.create_task(self._run_check(head, check))
        self._tasks.add(check.task)
        check.task.add_done_callback(self._on_done)
        return check

    def _release(self, head: str | None, check: RunningCheck) -> None:
        """Forget a check that no request waits for: the next request starts a new one."""
        if self._checks.get(head) is check:
            del self._checks[head]
        if check.task is not None and not check.is_started:
            check.task.cancel()

    def _on_done(self, task: asyncio.Task[Verification]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved; the waiters get it

    async def _run_check(self, head: str | None, check: RunningCheck) -> Verification:
        async with self._lock:
            check.is_started = True
            return await asyncio.get_running_loop().run_in_executor(None, self._verify, head, check)

    def _verify(self, head: str | None, check: RunningCheck) -> Verification:
        records = self.engine.audit.open_maintenance()
        if records is None:
            raise HTTPProblemError(
                409,
                "in_memory",
                "a database in memory cannot be verified from outside its server",
                "serve a database on disk, or verify a backup of it: handrail verify",
            )

        def check_continue() -> None:
            if self._closing or not check.waiters:
                raise StoreError(
                    "the check was cancelled: the server is shutting down, or the caller has gone"
                )

        try:
            return verify(records, head, on_progress=check_continue)
        finally:
            records.close()


@serves(AuditCalls.verify)
async def verify_audit(
    request: HTTPRequest,
    caller: Caller,
    audit_verifier: AuditVerifier,
    long_polls: LongPolls,
    query: HeadQuery,
) -> AuditVerification:
    async with long_polls.slot(caller):
        verified = await long_polls.wait_or_drain(audit_verifier.check(query.head), request)
    if verified is None:
        raise HTTPProblemError(
            503,
            "draining",
            "this server is shutting down",
            "ask another one",
            headers=RETRY_HEADERS,
        )
    return AuditVerification(ok=verified.unaltered, **asdict(verified))
