"""The commands that call the API, of a server or of a database, and their options."""

from typing import Annotated

import typer

from handrail.cli.asked_channel import channel
from handrail.cli.asked_memory import memory
from handrail.cli.asked_webhook import webhook
from handrail.cli.options import (
    ApprovalDecision,
    AsJson,
    Database,
    OverrideAction,
    PersonRole,
    ReviewMode,
    RunId,
    RunStatusFilter,
    Server,
    Since,
    TokenRole,
    WorkflowName,
)


def add_to(app: typer.Typer) -> None:
    """Add all of them, in the order of the help."""
    for command in (
        runs,
        show,
        report,
        why,
        metrics,
        replay,
        tune,
        answer,
        override,
        agents,
        settings,
    ):
        app.command()(command)
    app.add_typer(bead, name="bead")
    app.add_typer(memory, name="memory")
    app.add_typer(token, name="token")
    app.add_typer(webhook, name="webhook")
    app.add_typer(channel, name="channel")
    app.command("sign-in")(sign_in)


def runs(
    status: Annotated[
        RunStatusFilter | None, typer.Option(help="How they stand, or ended.")
    ] = None,
    workflow: WorkflowName = "",
    text: Annotated[str, typer.Option(help="What the title contains, or the id begins with.")] = "",
    since: Since = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.runs import RunFilter, list_runs

    run_filter = RunFilter(status or "", workflow, text, since, limit)
    raise typer.Exit(list_runs(ApiTarget("runs", database, server, as_json), run_filter))


def show(
    run: RunId,
    watch: Annotated[
        bool, typer.Option("--watch", help="Every event, and the next ones as they happen.")
    ] = False,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Show one run.

    Where it stands and where it went, against its certificate. With --watch until it has ended, and
    exit code 1 if that is not done_success; --json gives a line for each event then.
    """
    from handrail.cli.api import ApiTarget
    from handrail.cli.show import show_run, watch_run

    target = ApiTarget("show", database, server, as_json)
    raise typer.Exit(watch_run(target, run) if watch else show_run(target, run))


def report(
    run: RunId, database: Database = "", server: Server = "", as_json: AsJson = False
) -> None:
    """Print what happened in a run and why it ended, as Markdown."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.report import print_report

    raise typer.Exit(print_report(ApiTarget("report", database, server, as_json), run))


def why(run: RunId, database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """Say why a run stopped, waits, or is not worked on."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.why import explain_run

    raise typer.Exit(explain_run(ApiTarget("why", database, server, as_json), run))


def metrics(
    workflow: WorkflowName = "",
    since: Since = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Print figures of ended runs, with targets and definitions."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.metrics import print_metrics

    target = ApiTarget("metrics", database, server, as_json)
    raise typer.Exit(print_metrics(target, workflow=workflow, since=since))


def replay(
    rules: Annotated[
        str,
        typer.Option(
            metavar="FILE|PROFILE", help="A file with fields of stop_rules, or strict or yolo."
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN…", help="Their ids, or enough of the beginning or end."),
    ] = None,
    workflow: Annotated[
        str,
        typer.Option(metavar="NAME", help="Instead of RUN, the newest ended runs of it."),
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Say what other stop rules would have made of recorded runs.

    Where each would have stopped, by which rule, what that saves, and which good runs would have
    been cut. What the rules do not name stays as the definition has it. No agent is run.
    """
    from handrail.cli.api import ApiTarget
    from handrail.cli.replay import ReplayOptions, replay_runs

    target = ApiTarget("replay", database, server, as_json)
    raise typer.Exit(replay_runs(target, ReplayOptions(runs or (), workflow, rules)))


def tune(
    definition: Annotated[
        str, typer.Argument(metavar="DEFINITION", help="By id or name; left out, each of them.")
    ] = "",
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the good runs, a limit may cut this share.")
    ] = 0.0,
    runs: Annotated[
        int, typer.Option(min=1, max=500, help="So many ended runs, the newest.")
    ] = 100,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Propose limits from the runs that have ended.

    Each with the good runs that it would have cut and the steps that it would have saved. Nothing
    is changed: copy what you want into the definition's stop_rules.
    """
    from handrail.cli.api import ApiTarget
    from handrail.cli.tune import tune_limits

    raise typer.Exit(
        tune_limits(ApiTarget("tune", database, server, as_json), definition, share, runs)
    )


def answer(
    approval: Annotated[
        str,
        typer.Argument(
            metavar="APPROVAL", help="The question's id, or enough of it or of its run's."
        ),
    ] = "",
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="OK approves, other text is a revision.")
    ] = "",
    decision: Annotated[
        ApprovalDecision | None, typer.Option(help="Say it outright, with or without a text.")
    ] = None,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List open questions, show one, or answer it.

    Without arguments those that are open are listed; without a text the one is shown. What could
    mean either (no, wait, hm) is not taken: the question stays open, exit code 2.
    """
    from handrail.cli.answer import answer_approval, list_open_approvals, show_approval
    from handrail.cli.api import ApiTarget

    target = ApiTarget("answer", database, server, as_json)
    if not approval:
        raise typer.Exit(list_open_approvals(target))
    if not text and decision is None:
        raise typer.Exit(show_approval(target, approval))
    raise typer.Exit(answer_approval(target, approval, text, decision))


def override(
    run: RunId,
    action: Annotated[
        OverrideAction,
        typer.Argument(metavar="ACTION", help="move, close, pause, resume or migrate."),
    ],
    reason: Annotated[str, typer.Option(help="Why; it is on record.")],
    node: Annotated[
        str, typer.Option(help="Where it shall go: a node, or an agent of a team.")
    ] = "",
    version: Annotated[
        int | None, typer.Option(min=1, help="Of its definition; for migrate.")
    ] = None,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Move, close, pause, resume or migrate a run, with a reason."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.override import OverrideOptions, override_run

    target = ApiTarget("override", database, server, as_json)
    raise typer.Exit(override_run(target, OverrideOptions(run, action, reason, node, version)))


def agents(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List agents, their state, and what they work on."""
    from handrail.cli.agents import list_agents
    from handrail.cli.api import ApiTarget

    raise typer.Exit(list_agents(ApiTarget("agents", database, server, as_json)))


def settings(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List settings, each with its value and where that came from.

    Flags count before HANDRAIL_* variables, these before the file handrail.toml in this folder, and
    that before the default. With --server, what that server runs with.
    """
    from handrail.cli.api import ApiTarget
    from handrail.cli.settings import list_settings

    raise typer.Exit(list_settings(ApiTarget("settings", database, server, as_json)))


bead = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="File beads.")


@bead.callback()
def beads() -> None:
    """File beads."""


@bead.command("create")
def bead_create(
    definition: Annotated[
        str, typer.Argument(help="How it is worked: a file, else an id, else a name.")
    ],
    title: Annotated[str, typer.Option(help="What it is about.")],
    description: Annotated[str, typer.Option(help="The same at length.")] = "",
    context: Annotated[
        str, typer.Option(help="The bead's context: a JSON object, or @FILE with one.")
    ] = "",
    review: Annotated[
        ReviewMode | None, typer.Option(help="Left out, as the definition says.")
    ] = None,
    priority: Annotated[
        int, typer.Option(help="Dispatches of a higher one are offered first.")
    ] = 0,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """File a bead, and begin a run of it.

    A definition in a file is stored first. The run is worked on by whatever serves the database.
    """
    from handrail.cli.api import ApiTarget
    from handrail.cli.bead import BeadOptions, create_bead

    target = ApiTarget("bead create", database, server, as_json)
    options = BeadOptions(definition, title, description, context, review, priority)
    raise typer.Exit(create_bead(target, options))


token = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@token.callback()
def tokens() -> None:
    """Make, list and revoke tokens."""


@token.command("create")
def token_create(
    role: Annotated[TokenRole, typer.Option(help="What it may do.")],
    name: Annotated[
        str, typer.Option(metavar="PERSON", help="Whose it is; left out, the system's user.")
    ] = "",
    agent: Annotated[str, typer.Option(metavar="ID", help="The agent whose it is.")] = "",
    works_as: Annotated[
        str, typer.Option(metavar="ROLE,…", help="The only roles that the agent may register.")
    ] = "",
    expires: Annotated[str, typer.Option(metavar="IN", help="Such as 30d; left out, never.")] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it alone on standard output. It is shown this once."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.token import TokenOptions, create_token

    target = ApiTarget("token create", database, server, as_json, create=True)
    options = TokenOptions(role, name, agent, works_as, expires)
    raise typer.Exit(create_token(target, options))


@token.command("list")
def token_list(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List tokens, without their secrets."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.token import list_tokens

    raise typer.Exit(list_tokens(ApiTarget("token list", database, server, as_json)))


@token.command("revoke")
def token_revoke(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="Its id, or enough of the beginning or end.")
    ],
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a token: nobody gets in with it any more."""
    from handrail.cli.api import ApiTarget
    from handrail.cli.token import revoke_token

    raise typer.Exit(revoke_token(ApiTarget("token revoke", database, server, as_json), token))


def sign_in(
    name: Annotated[
        str, typer.Option(metavar="PERSON", help="Who; left out, the system's user.")
    ] = "",
    role: Annotated[PersonRole, typer.Option(help="What they may do.")] = "admin",
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the page is; left out, the server's address.")
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Print a link that signs in to the page.

    It works once, within ten minutes.
    """
    from handrail.cli.api import ApiTarget
    from handrail.cli.token import print_sign_in_link

    target = ApiTarget("sign-in", database, server, as_json, create=True)
    raise typer.Exit(print_sign_in_link(target, name=name, role=role, url=url))
