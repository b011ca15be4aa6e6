"""The journal in the store: the entries of a stream, all commits in their order, and the messages
from one stream to another."""

from collections.abc import Iterator
from itertools import groupby

from handrail.store.database import Subject
from handrail.store.rows import CommitRow, MessageRow, StoredEntry, StreamRow

PAGE_COMMITS = 500
PAGE_ENTRIES = 5_000
COMMIT_N_MAX = 2**63 - 1


class JournalStore(Subject):
    def read(self, stream: str, after_seq: int = 0, limit: int = 10_000) -> list[StoredEntry]:
        """Return the entries of one stream, in order."""
        return self._fetch_rows(
            StoredEntry, "journal", stream=stream, after_seq=after_seq, limit=limit
        )

    def read_feed(self, after_n: int, limit: int) -> list[StoredEntry]:
        """Return the entries of the commits after `after_n`, in the order of commits. Commits are
        not split: the last may exceed the limit."""
        pages = self._commit_page(after_n, limit, limit)
        return [entry for _, entries in pages for entry in entries]

    def read_feed_backwards(self, before_n: int | None, limit: int) -> list[StoredEntry]:
        """Like `read_feed`, backwards: the entries of the commits before that one, the newest
        first, also within a commit. Commits are not split: the last may exceed the limit."""
        before_n = before_n or COMMIT_N_MAX
        rows = self._database.fetch_all("commits_backwards", before_n=before_n, limit=limit)
        return [StoredEntry(*row) for row in rows if row[-1] is not None]

    def get_last_commit(self) -> CommitRow | None:
        return self._fetch_row(CommitRow, "last_commit")

    def iter_commits(
        self, after_n: int, limit: int
    ) -> Iterator[tuple[CommitRow, list[StoredEntry]]]:
        """Iterate over the chain, with the entries of each commit."""
        left = limit
        while left > 0:
            page = self._commit_page(after_n, min(left, PAGE_COMMITS), PAGE_ENTRIES)
            yield from page
            if not page:
                return
            left -= len(page)
            after_n = page[-1][0].n

    def _commit_page(
        self, after_n: int, commits: int, entries: int
    ) -> list[tuple[CommitRow, list[StoredEntry]]]:
        """Return up to `commits` commits; fewer once they have `entries` entries."""
        rows = self._database.fetch_all(
            "commits", after_n=after_n, commits=commits, entries=entries
        )
        return [
            (CommitRow(*commit), [StoredEntry(*row[4:]) for row in group if row[-1] is not None])
            for commit, group in groupby(rows, key=lambda row: row[:4])
        ]

    def load_stream(self, name: str) -> StreamRow | None:
        return next(iter(self._fetch_filtered(StreamRow, "streams", name=name)), None)

    def list_streams(self) -> list[StreamRow]:
        """List all streams without a table of their own."""
        return self._fetch_filtered(StreamRow, "streams")


class MessageStore(Subject):
    def delete(self, message_id: str) -> None:
        """Delete a message that led to no decision."""
        self._database.write_rows("delete_messages", [(message_id,)])

    def list(self, limit: int) -> list[MessageRow]:
        """List the oldest undelivered messages."""
        return self._fetch_rows(MessageRow, "messages", limit=limit)
