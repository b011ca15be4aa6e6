"""Shows the runs of hook conversations where people look: in a Handrail database, or on a server.

A run that has ended is written to its database from the events that were kept. A run is reported to
a server while it goes on, as adapters do; only the daemon can, since the reporter needs a process
that stays. A run that a daemon takes up from an earlier one is a new run there, which carries what
was counted.

All this needs more than the guard does; what is missing is said to the user, and judges nothing.
"""

import os
import threading
import time
from typing import TYPE_CHECKING

from handrail.guard.run import SERVER_URL_PREFIXES, GuardedRun
from handrail.hook.record import ConversationStore, HookRecordError

if TYPE_CHECKING:
    from handrail.guard.server_recorder import ServerRecorder
    from handrail.hook.options import HookOptions
    from handrail.hook.service import CachedConversation, HookService

QUIET_SECONDS = 60.0
"""After so long a time a turn is over that the agent has ended, though nobody has said more."""
TICK_SECONDS = 5.0
TOKEN_VARIABLE = "HANDRAIL_TOKEN"  # noqa: S105 - a name, not a secret
INSTALL_LINE = "pip install 'handrail[server]'"


def write_ended_runs(store: ConversationStore) -> str:
    """Write the runs that wait for it; return what is in the way, or an empty text."""
    try:
        runs = store.ended_runs()
        if not runs:
            return ""
        from handrail.guard.recording import record_run  # imported late: it needs an engine

        for run in runs:
            record_run(store.events(run), run.url, run.team)
            store.forget_run(run)
    except ImportError as error:
        return f"runs are not recorded: {error}; {INSTALL_LINE}"
    except HookRecordError as error:
        return str(error)
    except Exception as error:
        return f"runs are not recorded: {type(error).__name__}: {error}"
    return ""


class RunRecorders:
    """The daemon's recorders: one for each run that a server follows, and one for databases."""

    def __init__(self, service: "HookService") -> None:
        self._service = service
        self._recorders: dict[str, tuple[GuardedRun, ServerRecorder]] = {}
        self._writer: threading.Thread | None = None
        self._next_tick = 0.0
        service.has_ended_runs = True  # perhaps from an earlier daemon

    def follow(self) -> None:
        """Report the run of the conversation that was judged last, if it is to be reported."""
        if not self._service.conversations:
            return
        key, cached = next(reversed(self._service.conversations.items()))
        if cached.options.record.startswith(SERVER_URL_PREFIXES):
            self._follow(key, cached)

    def _follow(self, key: str, cached: "CachedConversation") -> None:
        run = cached.conversation.run
        if key in self._recorders:
            followed_run, recorder = self._recorders[key]
            if run is not None and followed_run is run and run.stop is None:
                return
            del self._recorders[key]
            threading.Thread(target=recorder.close, daemon=True).start()
        if run is not None and run.stop is None:
            try:
                self._recorders[key] = run, _make_recorder(run, cached)
                self._service.problems["server"] = ""
            except ImportError as error:
                self._service.problems["server"] = f"runs are not recorded: {error}; {INSTALL_LINE}"
            except Exception as error:
                self._service.problems["server"] = f"runs are not recorded: {error}"

    def tick(self) -> None:
        """Do what is due: end quiet turns, write ended runs."""
        if time.monotonic() < self._next_tick:
            return
        self._next_tick = time.monotonic() + TICK_SECONDS
        self._end_quiet_turns()
        is_writing = self._writer is not None and self._writer.is_alive()
        if self._service.has_ended_runs and not is_writing:
            self._service.has_ended_runs = False
            self._writer = threading.Thread(target=self._write, daemon=True)
            self._writer.start()

    def _write(self) -> None:
        store = self._service.store.again()
        self._service.problems["database"] = write_ended_runs(store)
        store.close()

    def _end_quiet_turns(self) -> None:
        quiet_since = self._service.clock().timestamp() - QUIET_SECONDS
        for key, cached in list(self._service.conversations.items()):
            conversation, options = cached.conversation, cached.options
            is_open = conversation.run is not None and conversation.run.stop is None
            is_quiet = conversation.end_proposed and cached.changed_at < quiet_since
            if options.record and is_open and is_quiet:
                self._end_turn(key, options)

    def _end_turn(self, key: str, options: "HookOptions") -> None:
        try:
            self._service.end_turn(key, options)
        except HookRecordError as error:
            self._service.problems["database"] = str(error)
            return
        if key in self._recorders:
            self._follow(key, self._service.conversations[key])

    def close(self) -> None:
        """Send what is left, and write what has ended."""
        for _, recorder in self._recorders.values():
            recorder.close()
        if self._writer is not None:
            self._writer.join()
        if self._service.has_ended_runs:
            self._write()


def _make_recorder(run: GuardedRun, cached: "CachedConversation") -> "ServerRecorder":
    from handrail.guard.server_recorder import ServerRecorder  # imported late: it needs a client

    token = os.environ.get(TOKEN_VARIABLE, "")
    return ServerRecorder(run, cached.options.record, token, cached.conversation.actor)
