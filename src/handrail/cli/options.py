"""Options that several commands have, such as which API to call."""

from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Database = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="sqlite:///FILE or postgresql://…; default: HANDRAIL_DATABASE, else the one in the "
        "folder .handrail.",
    ),
]
Server = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Use this server instead, with the token in HANDRAIL_TOKEN; default: HANDRAIL_SERVER.",
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or a unique beginning or end of it.")
]
Since = Annotated[
    str, typer.Option(metavar="WHEN", help="Only runs since then: 2h or 7d ago, or a date.")
]
WorkflowName = Annotated[
    str,
    typer.Option("--workflow", metavar="NAME", help="Only runs of this definition, by id or name."),
]
RunStatusFilter = Literal[
    "running",
    "waiting",
    "paused",
    "ended",
    "done_success",
    "done_partial",
    "aborted_stuck",
    "aborted_constraint",
    "closed_by_human",
]
PersonRole = Literal["viewer", "operator", "ceo", "admin"]
TokenRole = Literal["viewer", "operator", "ceo", "admin", "agent", "reporter"]
ApprovalDecision = Literal["approve", "reject", "revise"]
ReviewMode = Literal["required", "skip"]
OverrideAction = Literal["move", "close", "pause", "resume", "migrate"]
