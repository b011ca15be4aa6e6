"""A guarded run on a server while it goes on: `Guard(record="http://…")`.

A thread of its own looks at what the guard has seen, a few times a second, and tells the server;
the guarded program does nothing for it, and waits for nothing but, at its end, for a few seconds
until the rest is told. What is held for that is the run's own list of events, and nothing else.

A result is told with what came after it, so the record is a step behind. A server that is away is
tried again until the run has ended; what is not on record then is told in the log, and how much it
is stands in `run.unrecorded`. Who closes the run on the server stops the program at its next step;
so does the server, if it heard nothing for so long that it gave the program up.
"""

import logging
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.client.call import Call
from handrail.client.clients import Client, SyncClient
from handrail.client.errors import ClientError, Conflict, Unreachable
from handrail.client.guard_calls import Heard, Seen, begin, told
from handrail.guard.story import seen, start_of
from handrail.kernel.approval import Approval
from handrail.kernel.decision import Value, learn
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.rules import StopRule
from handrail.kernel.run.events import Reported, Started
from handrail.kernel.run.state import Stop

learn(Stop)

if TYPE_CHECKING:
    from handrail.guard import GuardedRun

log = logging.getLogger("handrail.guard")

LOOK_SECONDS = 0.2
BEAT_SECONDS = 15.0
"""A sign of life is given so often where nothing happens; it also hears what people did."""
AWAY_SECONDS = 2.0
"""Before a server that is away, or a run that is paused, is tried again."""
END_SECONDS = 10.0
"""That the end of a run waits for what is not told yet."""
ANSWER_SECONDS = 0.5
"""Between two looks for a person's answer."""
EVENTS_MAX = 500
"""Told at once."""
TIMEOUT, PATIENCE = 5.0, 3.0
"""Seconds that an answer may take, and that one word is tried for."""
LATE_SECONDS = 30.0
"""That a server may be late in ending a run whose question nobody answered."""
TEXT_MAX = 20_000
"""Characters of a result's text that are told."""
AWAY = frozenset({429, 500, 502, 503, 504})
PASSES, OVER = "asked", "ended"
"""The refusal that passes: a person is asked, or has paused the run; and the one that does not."""


class Reply(Value):
    """A person's answer; `text` is empty where it was no more than a yes."""

    text: str
    by: str


class Live:
    """One run's way to a server."""

    def __init__(self, run: "GuardedRun", url: str, token: str, team: str) -> None:
        self._run, self._url, self._token, self._team = run, url, token, team
        self._open()  # an address or a token that cannot be one is the caller's mistake
        self._count = 1
        """Events that are on record; the first is told by beginning."""
        self._call: Call[Heard] | None = None
        """What is being told: the same word until it is heard, so that it is heard once."""
        self._calls = 0
        self._line, self._wake = threading.Lock(), threading.Event()
        self._beat_at, self._until = 0.0, 0.0
        self._over, self._lost = False, ""
        self._silent = False
        """Whether the server has refused what it was told."""
        self._thread = threading.Thread(target=self._go_on, name="handrail-guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The run has ended: what is left is told, or given up after a while."""
        self._until = time.monotonic() + END_SECONDS
        self._over = True
        self._wake.set()
        self._thread.join(END_SECONDS + PATIENCE + TIMEOUT)
        run = self._run
        left = len(run.events) - self._count
        if run.outside is not None and run.stop is run.outside[1]:
            left -= 1  # the end, which the server told
        if left > 0:
            run.unrecorded = left
            why = self._lost or "the server did not answer in time"
            level = logging.ERROR if run.outside is None else logging.INFO  # it was ended there
            log.log(level, "%d events of a guarded run were not recorded: %s", left, why)

    def ask(self, question: str, seconds: float) -> Reply | None:
        """Asks a person, and waits; None if nobody answered in time, or the run was closed.
        Raises ClientError if the server cannot be asked."""
        with self._open() as client:
            asked = self._asked(client, question, seconds)
            if not asked:
                return None
            found = _answered(client, asked, seconds)
            if found is not None and found.status == "answered" and found.decision != "reject":
                self._beat_at = 0.0  # what the answer has set going is taken up at once
                self._wake.set()
                return Reply(text=found.answer, by=found.by)
            self._run.outside = TerminalStatus.ABORTED_STUCK, _nobody(question)
            self._hear_the_end(client)
        return None

    def _asked(self, client: SyncClient, question: str, seconds: float) -> str:
        """The question's id; empty if the run has ended on the server."""
        try:
            with self._line:
                self._tell(client, all_of_it=True)
                return client.ask_for_guarded_run(self._run.recorded, question, seconds).question
        except Conflict as error:
            if error.code != OVER:
                raise
            self._hear_the_end(client)
        return ""

    def _open(self) -> Client:
        return Client(self._url, self._token, timeout=TIMEOUT, patience=PATIENCE)

    def _go_on(self) -> None:
        """Until all is told, or nothing more can be."""
        try:
            with self._open() as client:
                while self._round(client):
                    self._wake.clear()
        except Exception as error:
            self._lost = f"{type(error).__name__}: {error}"
            log.exception("a guarded run is recorded no more")

    def _round(self, client: SyncClient) -> bool:
        """One look at what there is to tell, and a pause; False after the last."""
        over, pause = self._over, LOOK_SECONDS
        try:
            with self._line:
                self._tell(client, all_of_it=over)
        except ClientError as error:
            self._lost, pause = str(error), AWAY_SECONDS
            if not (_passes(error) or self._listens_on(client, error)):
                return False
        else:
            self._lost = ""
        told = self._silent or self._count == len(self._run.events)
        if over and (told or time.monotonic() > self._until):
            return False
        self._wake.wait(pause)
        return True

    def _listens_on(self, client: SyncClient, error: ClientError) -> bool:
        """After a refusal that does not pass: whether people can still close the run. Nothing more
        of it is told then but that it goes on."""
        self._hear_the_end(client)
        if self._over or self._silent or self._run.outside is not None or not self._run.recorded:
            return False
        log.error("guarded run %s is recorded no more: %s", self._run.recorded, error)
        self._silent, self._call, self._calls = True, None, 0
        return True

    def _tell(self, client: SyncClient, *, all_of_it: bool) -> None:
        """What is new; or a sign of life, if it is time for one."""
        run, now = self._run, time.monotonic()
        if not run.recorded:
            if not (run.opened_by or len(run.events) > 1):
                return
            run.recorded = self._say(client, self._call or self._beginning()).id
            self._beat_at = now + BEAT_SECONDS
        for _ in range(len(run.events) // EVENTS_MAX + 2):  # what was not heard, and then the rest
            fresh = self._fresh(all_of_it=all_of_it)
            if self._call is None and not fresh and now < self._beat_at:
                return
            self._say(client, self._call or self._telling(fresh))
            self._beat_at = now + BEAT_SECONDS

    def _say(self, client: SyncClient, call: Call[Heard]) -> Heard:
        self._call = call
        heard = client.run(call)
        self._count += self._calls
        self._call, self._calls = None, 0
        return heard

    def _beginning(self) -> Call[Heard]:
        began = self._run.events[0]
        assert isinstance(began, Started), "a guarded run begins with it"
        agent = self._run.opened_by or start_of(self._run.events)
        return begin(
            self._team, began.limits, title=began.title, agent=agent, paths=began.paths, key=_key()
        )

    def _telling(self, count: int) -> Call[Heard]:
        self._calls = count
        events = [_short(one) for one in seen(self._run.events[self._count : self._count + count])]
        return told(self._run.recorded, events, datetime.now(UTC), key=_key())

    def _fresh(self, *, all_of_it: bool) -> int:
        """How many events can be told now. A result waits for what comes after it."""
        if self._silent:
            return 0
        events = self._run.events
        known = len(events)
        end = min(known, self._count + EVENTS_MAX)
        held = end > self._count and isinstance(events[end - 1], Reported)
        if held and (end < known or not all_of_it):
            end -= 1
        return end - self._count

    def _hear_the_end(self, client: SyncClient) -> None:
        """Why the run has ended on the server, if it has: for the guard to end it here too."""
        found = client.execution(self._run.recorded) if self._run.recorded else None
        if found is not None and found.stop is not None and found.terminal_status is not None:
            stop = msgspec.convert(msgspec.to_builtins(found.stop), Stop)
            self._run.outside = TerminalStatus(found.terminal_status), stop
            log.warning("a guarded run was ended on the server: %s: %s", stop.rule, stop.reason)


def _answered(client: SyncClient, asked: str, seconds: float) -> Approval | None:
    """The question once it is settled; None if it is still open after its time."""
    until = time.monotonic() + seconds + LATE_SECONDS
    while time.monotonic() < until:
        try:
            found = client.approval(asked)
        except ClientError as error:
            if not _passes(error):
                raise
        else:
            if found.status != "open":
                return found
        time.sleep(ANSWER_SECONDS)
    return None


def _short(event: Seen) -> Seen:
    if not isinstance(event, Reported) or len(event.result.text) <= TEXT_MAX:
        return event
    text = f"{event.result.text[:TEXT_MAX]}…"
    return replace(event, result=replace(event.result, text=text))


def _passes(error: ClientError) -> bool:
    """Whether it is worth another try: nobody answers, or not now."""
    away = isinstance(error, Unreachable) or error.status in AWAY
    return away or (isinstance(error, Conflict) and error.code == PASSES)


def _nobody(question: str) -> Stop:
    reason = f"nobody answered in time: {question}"
    return Stop(rule=StopRule.HUMAN_DEADLINE, reason=reason, remedy="an answer in time")


def _key() -> str:
    return str(uuid7())
