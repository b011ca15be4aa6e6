"""The two hash chains: over the entries of each stream, and over all commits of the database.

An entry's hash covers all earlier entries of its stream, its position and its content; so a
stream's last hash, its head, identifies the whole stream. A commit's hash covers all earlier
commits and its own entries, so that verification notices a missing or truncated stream.
"""

from collections.abc import Iterable
from hashlib import sha256

EMPTY_HEAD = b""


def entry_hash(head: bytes, stream: str, seq: int, body: str) -> bytes:
    """Return the head of a stream after this entry."""
    return sha256(b"%b\n%b\n%d\n%b" % (head, stream.encode(), seq, body.encode())).digest()


def commit_hash(head: bytes, entry_hashes: Iterable[bytes]) -> bytes:
    """Return the head of the database after a commit with these entries."""
    return sha256(head + sha256(b"".join(entry_hashes)).digest()).digest()
