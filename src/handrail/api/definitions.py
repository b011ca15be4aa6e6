"""Definitions: stored, validated, listed, measured; each change makes a new version."""

# pyright: reportReturnType=false
# A declaration has no body.

from datetime import datetime
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from handrail.api.operation import VIEWER, Access, C_co, CallGroup, Repeat, operation
from handrail.api.runs import REPLAY_SECONDS_MAX
from handrail.api.shared import DateTime, DefinitionId, Document, FieldError, JsonValue, PageQuery
from handrail.kernel.decision import Value
from handrail.kernel.definition.certificate import Bound
from handrail.replay.tuning import TUNING_RUNS_DEFAULT, TUNING_RUNS_MAX, TuningReport
from handrail.views.definitions import DefinitionItem, DefinitionView, StoredDefinition
from handrail.views.statistics import DefinitionStatistics
from handrail.views.view_types import Page, View


class DefinitionText(Value, forbid_unknown_fields=True):
    """The text of a definition: JSON or YAML."""

    text: str


class DefinitionValidation(View):
    """The check of a definition; without errors it is valid, and has a certificate (`bound`)."""

    valid: bool
    errors: tuple[FieldError, ...]
    bound: Bound | None
    warnings: tuple[FieldError, ...]


class ParsedDocument(View):
    """`document` is null if the text cannot be parsed; `errors` name the lines."""

    document: JsonValue
    errors: tuple[FieldError, ...]


class VersionQuery(Value):
    version: Annotated[
        int | None, Meta(description="One of its versions; left out, the newest.")
    ] = None


class TuningQuery(Value):
    share: Annotated[
        float,
        Meta(ge=0, le=1, description="Of the good runs, a proposed limit may cut this share."),
    ] = 0.0
    runs: Annotated[
        int, Meta(ge=1, le=TUNING_RUNS_MAX, description="So many ended runs, the newest.")
    ] = TUNING_RUNS_DEFAULT


class MetricsQuery(Value):
    workflow_id: DefinitionId | None = None
    since: Annotated[DateTime, Meta(description="Ended at this time or later.")] | None = None


class WorkflowMetrics(View):
    """Statistics of ended runs, by definition. `since`: ended at that time or later; null: all."""

    items: tuple[DefinitionStatistics, ...]
    since: datetime | None


class DefinitionCalls(CallGroup[C_co], subject="definitions"):
    """Workflows and teams."""

    @operation(
        "POST",
        "/workflows",
        body=Document,
        whole="definition",
        access=Access(
            people="operator",
            restriction="an operator takes no id or name of another's definition; a ceo any",
        ),
        status=201,
    )
    def create(self, definition: Document | Path | str) -> StoredDefinition:
        """Store a definition, given as a document or as the path of a file. The same again changes
        nothing; a changed one of the same id becomes its next version."""

    @operation(
        "POST",
        "/workflows/validate",
        body=Document,
        whole="definition",
        access=VIEWER,
        repeat=Repeat.MEMORY,
    )
    def validate(self, definition: Document | Path | str) -> DefinitionValidation:
        """Return the errors and warnings of a definition, and what a run can cost at most; nothing
        is stored."""

    @operation("POST", "/workflows/read", body=DefinitionText, access=VIEWER, repeat=Repeat.MEMORY)
    def parse(self, text: str) -> ParsedDocument:
        """Parse a JSON or YAML text into a document, as `handrail check` does."""

    @operation("GET", "/workflows", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[DefinitionItem]:
        """List the newest version of each definition."""

    @operation(
        "GET", "/workflows/{workflow_id}", query=VersionQuery, access=VIEWER, problems=(404,)
    )
    def get(self, workflow_id: str, *, version: int | None = None) -> DefinitionView:
        """Return a definition by id or name: the given version, else the newest."""

    @operation("GET", "/workflows/{workflow_id}/versions", access=VIEWER, problems=(404,))
    def list_versions(self, workflow_id: str) -> Page[DefinitionItem]:
        """List all versions, the newest first."""

    @operation(
        "PUT",
        "/workflows/{workflow_id}",
        body=Document,
        whole="definition",
        access=Access(
            people="operator",
            restriction="an operator edits what it defined itself; a ceo edits any",
        ),
        problems=(404,),
    )
    def update(self, workflow_id: str, definition: Document | Path | str) -> StoredDefinition:
        """Store a new version; existing runs keep theirs."""

    @operation(
        "GET",
        "/workflows/{workflow_id}/tune",
        query=TuningQuery,
        access=VIEWER,
        problems=(404,),
        seconds_max=REPLAY_SECONDS_MAX,
    )
    def tune(
        self, workflow_id: str, *, share: float | None = None, runs: int | None = None
    ) -> TuningReport:
        """Propose limits from its ended runs; none cuts more than `share` of the good runs."""

    @operation("GET", "/metrics/workflows", query=MetricsQuery, access=VIEWER)
    def get_metrics(
        self, *, workflow_id: str | None = None, since: datetime | str | None = None
    ) -> WorkflowMetrics:
        """Return statistics per definition, over the runs that ended since `since`: how long runs
        take, how often they succeed or need the CEO, how many tries each node needs."""
