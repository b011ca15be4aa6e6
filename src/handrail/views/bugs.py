"""Reports of errors, and the bugs that they are counted as."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from handrail.kernel.decision import Value
from handrail.views.view_types import View

NAME_CHARS_MAX = 200
COUNT_MAX = 1_000_000
ShortText = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
LongText = Annotated[str, msgspec.Meta(max_length=200_000)]


class ErrorReport(Value):
    """An error of a service. `type` is the exception's, with its module; without one the status
    tells what happened. `specialist` names the role that should look at it."""

    service: ShortText = ""
    type: ShortText = ""
    message: LongText = ""
    traceback: LongText = ""
    method: ShortText = ""
    route: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    """The framework's template of the path, or the path: never its query."""
    path: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    """The path that was asked for, without its query: the failure is made again with it."""
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] = 0
    """The status of the response that the error led to; 0 if there was none."""
    level: ShortText = "error"
    release: ShortText = ""
    specialist: ShortText = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 1


class BugReportResult(View):
    """The outcome of a report. `filed` is None where there is nothing to work on."""

    filed: Literal["new", "regression", "known"] | None
    reason: str
    signature: str
    bead_id: str | None
    execution_id: str | None
    count: int
    earlier_bead_id: str | None


class BugView(View):
    """A signature with its newest bead, and how often it occurred since that was filed."""

    signature: str
    bead_id: str
    bead_status: str | None
    count: int
    first_seen: datetime
    last_seen: datetime
    earlier_bead_id: str | None
