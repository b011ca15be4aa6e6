"""The commit locks as they are shown: holders, and waiting runs in order."""

from datetime import datetime

from handrail.views.view_types import View


class LockWaiter(View):
    """A run that waits for the lock, and since when."""

    execution_id: str
    node_id: str
    asked_at: datetime


class LockHolderView(LockWaiter, frozen=True, kw_only=True):
    """The run that holds the lock. A holder that is silent until `expires_at` loses it."""

    fence: int
    granted_at: datetime
    expires_at: datetime


class LockView(View):
    """The lock of a repository. `fence` is the last that was given; the queue is in order."""

    repository: str
    fence: int
    holder: LockHolderView | None
    queue: tuple[LockWaiter, ...]
