"""The two hash chains: over the entries of each stream, and over all commits of the database.

An entry's hash covers everything before it in its stream, where it stands, and what it says; so a
stream's last hash, its head, stands for all that happened there. A commit's hash covers the commits
before it and its own entries, so that a stream that is missing, or cut off at its end, is missed.
"""

from collections.abc import Iterable
from hashlib import sha256

EMPTY_HEAD = b""


def entry_hash(head: bytes, stream: str, seq: int, body: str) -> bytes:
    """The head of a stream after this entry."""
    return sha256(b"%b\n%b\n%d\n%b" % (head, stream.encode(), seq, body.encode())).digest()


def commit_hash(head: bytes, entry_hashes: Iterable[bytes]) -> bytes:
    """The head of the database after a commit with these entries."""
    return sha256(head + sha256(b"".join(entry_hashes)).digest()).digest()
