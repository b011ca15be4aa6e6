"""Notify waiters of what other engines on the same database have committed."""

from collections.abc import Awaitable, Callable

from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.commit.projection import rebuild_run
from handrail.engine.notifier import ANY_STREAM, ChangeNotifier
from handrail.engine.store_access import StoreAccess

FOREIGN_ENTRIES_MAX = 1_000
"""Foreign entries that each maintenance pass reads, to find out whom to notify."""


class ForeignCommits:
    """Called when other engines may have written."""

    def __init__(
        self, access: StoreAccess, committer: GroupCommitter, notifier: ChangeNotifier
    ) -> None:
        self._access, self._committer, self._notifier = access, committer, notifier
        self.hooks: list[Callable[[], Awaitable[None]]] = []
        """Parts of the engine that refresh what they keep in memory."""
        self.has_peers = False
        """Whether other engines are alive: then a run may end without this engine's knowledge."""
        self.is_watched = False
        """Whether maintenance looks for them again and again."""
        self._notified_commit: int | None = None

    async def notify(self) -> None:
        """Notify waiters of what other engines may have changed. If too much was written to read it
        quickly, notify all."""
        for hook in self.hooks:
            await hook()
        changes, ends = self._notifier.changes, self._notifier.ends
        keys = changes.keys() | ends.keys()
        if not keys:
            return
        store = self._access.store
        head = await self._access.call(store.journal.get_last_commit)
        await self._committer.wait_in_flight()  # so that `own_commits` has all up to the head
        last_commit, notified = head.n if head is not None else 0, self._notified_commit
        if notified is not None and self._committer.own_commits.covers(notified, last_commit):
            self._notified_commit = last_commit
            return
        if notified is not None and keys != {ANY_STREAM}:
            entries = await self._access.call(
                store.journal.read_feed, notified, FOREIGN_ENTRIES_MAX
            )
            if 0 < len(entries) < FOREIGN_ENTRIES_MAX:
                keys = {ANY_STREAM, *(entry.stream for entry in entries)}
        self._notified_commit = last_commit
        for key in keys:
            changes.notify(key, None)
        if ended_keys := keys & ends.keys():
            loaded_runs = await self._access.call(store.runs.load, list(ended_keys))
            for key, stored in loaded_runs.items():
                if stored.row.ended_at is not None:
                    ends.notify(key, rebuild_run(stored.row, stored.tail))
