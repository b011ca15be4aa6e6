"""Options that several commands have, such as which API to call."""

from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Database = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="sqlite:///FILE or postgresql://…; left out, HANDRAIL_DATABASE, else the one in the "
        "folder .handrail here.",
    ),
]
Server = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Ask this server instead, with the token in HANDRAIL_TOKEN; left out, "
        "HANDRAIL_SERVER.",
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="Its id, or enough of the beginning or end of it.")
]
Since = Annotated[
    str, typer.Option(metavar="WHEN", help="How long ago, such as 2h or 7d, or a date.")
]
WorkflowName = Annotated[
    str, typer.Option("--workflow", metavar="NAME", help="Of this definition, by id or name.")
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
