"""Report a guarded run to a server while it goes on: `Guard(record="http://…")`.

A thread of its own reads the guard's events a few times a second and sends them. The guarded
program does no work for it and waits only at its end, a few seconds, until the rest is sent. The
buffer is the run's own list of events.

A result is sent with what came after it, so the record is a step behind. An unreachable server is
retried until the run has ended; what is not on record then is logged, and counted in
`run.unrecorded`. A person who closes the run on the server stops the program at its next step; so
does the server, if it heard nothing for so long that it gave the program up.
"""

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from handrail.api.operation import Call
from handrail.api.runs import GuardedRunCalls
from handrail.client.clients import Client, SyncClient
from handrail.client.errors import ClientError, ConflictError, UnreachableError
from handrail.guard.team_definition import first_agent, guard_events
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run.events import GuardedEvent, HandedOff, Reported, Started, Warned
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.rules import StopRule
from handrail.views.approvals import Approval
from handrail.views.guarded_run import GuardedRunStatus

prepare_types(Stop)

if TYPE_CHECKING:
    from handrail.guard.run import GuardedRun

log = logging.getLogger("handrail.guard")

POLL_SECONDS = 0.2
HEARTBEAT_SECONDS = 15.0
"""Interval of heartbeats when nothing happens; their answers carry what people did."""
RETRY_SECONDS = 2.0
"""Pause before the next attempt, when the server is unreachable or the run paused."""
FLUSH_SECONDS = 10.0
"""How long the end of a run waits for unsent events."""
ANSWER_POLL_SECONDS = 0.5
"""Pause between two polls for a person's answer."""
BATCH_EVENTS_MAX = 500
REQUEST_SECONDS_MAX, RETRY_SECONDS_MAX = 5.0, 3.0
"""Seconds that a response may take, and that one request is retried."""
DEADLINE_GRACE_SECONDS = 30.0
"""How late a server may be in ending a run whose approval has expired."""
RESULT_CHARS_MAX = 20_000
"""Characters of a result's text that are sent."""
RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504})
WAITING_CODE, ENDED_CODE = "asked", "ended"
"""The refusal that passes (a person is asked, or has paused the run), and the final one."""


class HumanReply(Value):
    """A person's answer; `text` is empty for a bare yes."""

    text: str
    by: str


def open_client(url: str, token: str) -> Client:
    return Client(url, token, timeout=REQUEST_SECONDS_MAX, patience=RETRY_SECONDS_MAX)


class ServerRecorder:
    """Sends one run's events to a server."""

    def __init__(self, run: "GuardedRun", url: str, token: str, team: str) -> None:
        self._run, self._url, self._token, self._team = run, url, token, team
        self._open_client()  # a malformed address or token is the caller's mistake: raise now
        self._sent_count = 1
        """Events that are on record; beginning the run sends the first."""
        self._pending_call: Call[GuardedRunStatus] | None = None
        """The report in flight: the same until it is received, so that it is recorded once."""
        self._pending_count = 0
        self._send_lock, self._wake = threading.Lock(), threading.Event()
        self._heartbeat_at, self._flush_deadline = 0.0, 0.0
        self._closing, self._last_error = False, ""
        self._has_asked = False
        """Whether the run is to be on record even if nobody has acted yet."""
        self._refused = False
        """Whether the server has refused a report."""
        self._thread = threading.Thread(target=self._run_loop, name="handrail-guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is left after the end of the run, or give up after a while."""
        self._flush_deadline = time.monotonic() + FLUSH_SECONDS
        self._closing = True
        self._wake.set()
        self._thread.join(FLUSH_SECONDS + RETRY_SECONDS_MAX + REQUEST_SECONDS_MAX)
        run = self._run
        unsent = len(run.events) - self._sent_count
        if run.server_end is not None and run.stop == run.server_end[1]:
            unsent -= 1  # the end, which came from the server
        if unsent > 0:
            run.unrecorded = unsent
            why = self._last_error or "the server did not answer in time"
            level = logging.ERROR if run.server_end is None else logging.INFO  # ended there
            log.log(level, "%d events of a guarded run were not recorded: %s", unsent, why)

    def ask(
        self,
        question: str,
        seconds: float,
        stop: Stop | None = None,
        options: tuple[str, ...] = (),
    ) -> HumanReply | None:
        """Ask a person, and wait; None if no answer came in time, or the run was closed.

        Raises ClientError if the server cannot be asked.
        """
        self._has_asked = True
        with self._open_client() as client:
            approval_id = self._post_question(client, question, seconds, stop, options)
            if not approval_id:
                return None
            approval = _wait_for_answer(client, approval_id, seconds)
            if (
                approval is not None
                and approval.status == "answered"
                and approval.decision != "reject"
            ):
                self._heartbeat_at = 0.0  # fetch at once what the answer has changed
                self._wake.set()
                return HumanReply(text=approval.answer, by=approval.by)
            self._run.server_end = TerminalStatus.ABORTED_STUCK, _unanswered_stop(question)
            self._fetch_end(client)
        return None

    def _post_question(
        self,
        client: SyncClient,
        question: str,
        seconds: float,
        stop: Stop | None,
        options: tuple[str, ...],
    ) -> str:
        """Open the approval and return its id; empty if the run has ended on the server."""
        try:
            with self._send_lock:
                self._send_pending(client, flush=True)
                return client.guarded_runs.request_approval(
                    self._run.recorded, question, seconds, stop, options=options
                ).question
        except ConflictError as error:
            if error.code != ENDED_CODE:
                raise
            self._fetch_end(client)
        return ""

    def _open_client(self) -> Client:
        return open_client(self._url, self._token)

    def _run_loop(self) -> None:
        """Poll until everything is sent, or nothing more can be."""
        try:
            with self._open_client() as client:
                while self._poll(client):
                    self._wake.clear()
        except Exception as error:
            self._last_error = f"{type(error).__name__}: {error}"
            log.exception("a guarded run is recorded no more")

    def _poll(self, client: SyncClient) -> bool:
        """Send what is new, then pause; return False after the last."""
        is_closing, pause = self._closing, POLL_SECONDS
        try:
            with self._send_lock:
                self._send_pending(client, flush=is_closing)
        except ClientError as error:
            self._last_error, pause = str(error), RETRY_SECONDS
            if not (_is_retryable(error) or self._keep_listening(client, error)):
                return False
        else:
            self._last_error = ""
        all_sent = self._refused or self._sent_count == len(self._run.events)
        if is_closing and (all_sent or time.monotonic() > self._flush_deadline):
            return False
        self._wake.wait(pause)
        return True

    def _keep_listening(self, client: SyncClient, error: ClientError) -> bool:
        """After a final refusal, return whether people can still close the run.

        From then on the recorder sends heartbeats only.
        """
        self._fetch_end(client)
        if (
            self._closing
            or self._refused
            or self._run.server_end is not None
            or not self._run.recorded
        ):
            return False
        log.error("guarded run %s is recorded no more: %s", self._run.recorded, error)
        self._refused, self._pending_call, self._pending_count = True, None, 0
        return True

    def _send_pending(self, client: SyncClient, *, flush: bool) -> None:
        """Send new events, or a heartbeat if one is due."""
        run, now = self._run, time.monotonic()
        if not run.recorded:
            if not (run.first_agent or len(run.events) > 1 or self._has_asked):
                return
            run.recorded = self._send(client, self._pending_call or self._begin_call()).id
            self._heartbeat_at = now + HEARTBEAT_SECONDS
        for _ in range(
            len(run.events) // BATCH_EVENTS_MAX + 2
        ):  # what was not received, and then the rest
            count = self._sendable_count(flush=flush)
            if self._pending_call is None and not count and now < self._heartbeat_at:
                return
            self._send(client, self._pending_call or self._events_call(count))
            self._heartbeat_at = now + HEARTBEAT_SECONDS

    def _send(self, client: SyncClient, call: Call[GuardedRunStatus]) -> GuardedRunStatus:
        self._pending_call = call
        status = client.execute(call)
        self._sent_count += self._pending_count
        self._pending_call, self._pending_count = None, 0
        return status

    def _begin_call(self) -> Call[GuardedRunStatus]:
        started = self._run.events[0]
        assert isinstance(started, Started), "a guarded run begins with it"
        agent = self._run.first_agent or first_agent(self._run.events)
        return GuardedRunCalls.begin.call(
            self._team,
            started.limits,
            title=started.title,
            agent=agent,
            paths=started.paths,
            carried=None if started.carried is None else msgspec.to_builtins(started.carried),
            dry_run=started.dry_run,
            traceparent=self._run.trace.sampled_traceparent if self._run.trace else "",
            key=_idempotency_key(),
        )

    def _events_call(self, count: int) -> Call[GuardedRunStatus]:
        self._pending_count = count
        events = [
            _shorten_result(event)
            for event in guard_events(self._run.events[self._sent_count : self._sent_count + count])
        ]
        return GuardedRunCalls.record.call(
            self._run.recorded, events, datetime.now(UTC), key=_idempotency_key()
        )

    def _sendable_count(self, *, flush: bool) -> int:
        """Count the events that can be sent now. A result waits for the next act, whatever was
        warned of in between, and a refused handoff for the end that follows at once.
        """
        if self._refused:
            return 0
        events = self._run.events
        total = len(events)
        end = min(total, self._sent_count + BATCH_EVENTS_MAX)
        last_event = events[end - 1]
        if isinstance(last_event, HandedOff) and not last_event.accepted:
            end -= 1
        acts = end
        while acts > self._sent_count and isinstance(events[acts - 1], Warned):
            acts -= 1
        ends_with_result = acts > self._sent_count and isinstance(events[acts - 1], Reported)
        if ends_with_result and (end < total or not flush):
            end = acts - 1
        return end - self._sent_count

    def _fetch_end(self, client: SyncClient) -> None:
        """Fetch why the run has ended on the server, if it has, for the guard to end it here
        too.
        """
        run = client.runs.get(self._run.recorded) if self._run.recorded else None
        if run is not None and run.stop is not None and run.terminal_status is not None:
            stop = msgspec.convert(msgspec.to_builtins(run.stop), Stop)
            self._run.server_end = TerminalStatus(run.terminal_status), stop
            log.warning("a guarded run was ended on the server: %s: %s", stop.rule, stop.reason)


def _wait_for_answer(client: SyncClient, approval_id: str, seconds: float) -> Approval | None:
    """Return the settled approval; None if it is still open after its deadline."""
    deadline = time.monotonic() + seconds + DEADLINE_GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            approval = client.approvals.get(approval_id)
        except ClientError as error:
            if not _is_retryable(error):
                raise
        else:
            if approval.status != "open":
                return approval
        time.sleep(ANSWER_POLL_SECONDS)
    return None


def _shorten_result(event: GuardedEvent) -> GuardedEvent:
    if not isinstance(event, Reported) or len(event.result.text) <= RESULT_CHARS_MAX:
        return event
    text = f"{event.result.text[:RESULT_CHARS_MAX]}…"
    return replace(event, result=replace(event.result, text=text))


def _is_retryable(error: ClientError) -> bool:
    """Return whether a retry can help: the server is unreachable or busy."""
    is_unavailable = isinstance(error, UnreachableError) or error.status in RETRYABLE_STATUSES
    return is_unavailable or (isinstance(error, ConflictError) and error.code == WAITING_CODE)


def _unanswered_stop(question: str) -> Stop:
    reason = f"nobody answered in time: {question}"
    return Stop(rule=StopRule.HUMAN_DEADLINE, reason=reason, remedy="an answer in time")


def _idempotency_key() -> str:
    return str(uuid4())
