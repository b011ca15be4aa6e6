"""Commands that change something: a database and a server do, say and refuse the same."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.command_line import CommandResult, run_command, write_definition
from tests.cli.command_targets import CommandTargets
from tests.engine.engines import chain, node

pytest_plugins = ["tests.cli.fixtures_command_targets"]

SECRET = re.compile(r"hr_[\w-]{43}")
ID = re.compile(r"[0-9a-f]{32}")


def done(called: CommandResult) -> str:
    assert called.code == 0, called
    assert "Traceback" not in called.err
    return called.out


def refused(called: CommandResult, told: str) -> None:
    assert (called.code, called.out) == (2, "")
    (line,) = called.err.splitlines()
    assert told in line


@pytest.fixture(params=["database", "server"])
def ask(request: pytest.FixtureRequest, targets: CommandTargets) -> Any:
    """One of the two ways."""
    return getattr(targets, request.param)


# Answers


@pytest.mark.requirement("R4.2")
def test_an_ok_approves_and_the_run_goes_on(targets: CommandTargets, ask: Any):
    run = targets.runs["waiting"]
    out = done(ask("answer", run[-8:], "OK, thanks"))
    who = out.partition(" by ")[2].partition(";")[0]
    assert out == f"{run}.q1: approve by {who}; the run is done_success\n"
    refused(ask("answer", f"{run}.q1", "ok"), f"was answered already: approve by {who} at ")
    refused(ask("answer", run[-8:], "ok"), f"there is no open question '{run[-8:]}'")


def test_other_text_is_a_revision_and_a_decision_can_be_said_outright(
    targets: CommandTargets, ask: Any
):
    run = targets.runs["waiting"]
    out = done(ask("answer", f"{run}.q1", "with more tests"))
    assert out.endswith("; the run is running at a\n")
    paused = targets.runs["paused"]
    out = done(ask("answer", f"{paused}.q1", "--decision", "reject", "--json"))
    shown = json.loads(out)
    assert shown["approval"]["decision"] == "reject"
    assert shown["execution"]["terminal_status"] == "closed_by_human"


def test_what_could_mean_either_is_not_taken_and_the_choices_are_named(
    targets: CommandTargets, ask: Any
):
    run = targets.runs["waiting"]
    refused(
        ask("answer", f"{run}.q1", "hm"),
        f"the answer to '{run}.q1' is neither a clear approval nor a clear rejection; "
        "send a decision: approve, reject, revise, with --decision",
    )
    refused(ask("answer", f"{run}.q1", "--decision", "revise"), "revis")
    assert f"{run}.q1" in ask("answer").out, "still open"


# Overrides


@pytest.mark.requirement("L7.2", "L7.3", "L7.6")
def test_a_person_pauses_resumes_moves_and_closes_a_run(targets: CommandTargets, ask: Any):
    run = targets.runs["offered"]
    for arguments, told in (
        (["pause"], f"run {run} is paused at a\n"),
        (["resume"], f"run {run} is running at a\n"),
        (["move", "--node", "b"], f"run {run} is running at b\n"),
        (["close"], f"run {run} is closed_by_human\n"),
    ):
        assert done(ask("override", run[-8:], *arguments, "--reason", "the test")) == told
    report = json.loads(done(ask("report", run, "--json")))
    assert [act["reason"] for act in report["acts"]] == ["the test"] * 4


def test_a_run_is_migrated_to_another_version(targets: CommandTargets, ask: Any, here: Path):
    changed = {**chain(node("a"), node("c")), "name": "works"}
    done(ask("bead", "create", write_definition(here, changed), "--title", "the second version"))
    out = done(
        ask(
            "override",
            targets.runs["offered"],
            "migrate",
            "--version",
            "2",
            "--reason",
            "x",
            "--json",
        )
    )
    assert json.loads(out)["workflow_version"] == 2


def test_an_override_without_what_it_needs_is_refused(targets: CommandTargets, ask: Any):
    run = targets.runs["offered"]
    called = ask("override", run, "close")
    assert called.code == 2
    assert "Missing option '--reason'" in called.err
    refused(ask("override", run, "close", "--reason", " "), "reason")
    refused(ask("override", run, "move", "--reason", "x"), "say which node")
    refused(ask("override", run, "move", "--node", "zz", "--reason", "x"), "'zz'")
    refused(ask("override", run, "migrate", "--reason", "x"), "say which version")
    refused(ask("override", run, "migrate", "--version", "9", "--reason", "x"), "9")
    refused(ask("override", run, "resume", "--reason", "x"), "is not paused")
    refused(ask("override", targets.runs["ended"], "pause", "--reason", "x"), "has ended")
    called = ask("override", run, "explode", "--reason", "x")
    assert called.code == 2
    assert "'migrate'" in called.err


# Beads


def test_a_bead_is_filed_by_a_definition_in_a_file_by_id_and_by_name(ask: Any, here: Path):
    document = {**chain(node("a")), "id": "one", "name": "the first"}
    for definition in (write_definition(here, document), "one", "the first"):
        out = done(ask("bead", "create", definition, "--title", "a bug"))
        bead, run = ID.findall(out)
        assert out == f"bead {bead}, run {run}\n"
        assert done(ask("show", run)).startswith(f"run {run} of one 1: a bug\n")


def test_a_bead_is_filed_with_a_priority(ask: Any, here: Path):
    file = write_definition(here, chain(node("a"), id="urgent"))
    made = json.loads(
        done(ask("bead", "create", file, "--title", "now", "--priority", "7", "--json"))
    )
    assert made["priority"] == 7
    made = json.loads(done(ask("bead", "create", "urgent", "--title", "later", "--json")))
    assert made["priority"] == 0


def test_a_bead_is_filed_with_a_due_date(ask: Any, here: Path):
    file = write_definition(here, chain(node("a"), id="dated"))
    given = ("--title", "now", "--due", "2030-01-31T12:00:00+01:00", "--json")
    assert json.loads(done(ask("bead", "create", file, *given)))["due_at"] == "2030-01-31T11:00:00Z"
    assert ask("bead", "create", "dated", "--title", "x", "--due", "soon").code != 0


def test_a_typo_in_the_definition_of_a_bead_is_told(ask: Any, here: Path):
    path = write_definition(here, chain(node("a"), name="typo") | {"tite": "x"})
    called = ask("bead", "create", path, "--title", "x")
    assert called.code == 0
    (line,) = called.err.splitlines()
    assert "warning at $.tite: 'tite' is not a known key and is ignored [unknown_field]" in line


def test_a_bead_has_the_context_that_is_given_as_text_or_in_a_file(ask: Any, here: Path):
    (here / "c.json").write_text('{"severity": 3}')
    for given in ('{"severity": 3}', "@c.json"):
        out = done(ask("bead", "create", "works", "--title", "x", "--context", given, "--json"))
        assert json.loads(out)["context"] == {"severity": 3}


NO_BEADS = (
    (["no"], "there is no definition 'no'"),
    (["finance"], "'finance' is built in, but no server has started it here; start `handrail ser"),
    (["bad.yaml"], "bad.yaml: error at"),
    (["works", "--context", "["], "--context [: line 1, column 2"),
    (["works", "--context", "[]"], "--context []: is not a JSON object"),
    (["works", "--context", "@no.json"], "--context @no.json: "),
    (["wrong.yaml"], "the definition has 1 error; nothing was stored; "),
)


def test_a_bead_that_cannot_be_is_refused(targets: CommandTargets, here: Path):
    (here / "bad.yaml").write_text("a: [")
    write_definition(here, chain(node("a", role="nobody")), "wrong.yaml")
    for arguments, told in NO_BEADS:
        refused(targets.same("bead", "create", *arguments, "--title", "x"), told)
    review = ["works", "--title", "x", "--review", "required"]
    refused(targets.database("bead", "create", *review), "requires a review, and 'works' has none")


# Tokens


def test_a_token_is_printed_alone_listed_and_revoked(targets: CommandTargets, ask: Any):
    called = ask("token", "create", "--role", "viewer", "--name", "vera", "--expires", "30d")
    assert SECRET.fullmatch(done(called).strip())
    assert re.fullmatch(
        r"token [0-9a-f]{32} of vera \(viewer\); it is shown only once\n", called.err
    )
    (row,) = [line for line in done(ask("token", "list")).splitlines() if "vera" in line]
    token, *rest = row.split()
    assert rest[:2] == ["vera", "(viewer)"]
    assert "never" not in rest
    assert done(ask("token", "revoke", token[-8:])) == f"token {token} is revoked\n"
    refused(ask("token", "revoke", token), f"there is no token '{token}' in use")
    refused(ask("token", "revoke", "zz"), "there is no token 'zz'; `handrail token list` lists")
    shown = json.loads(done(ask("token", "list", "--json")))
    assert next(one["revoked_at"] for one in shown["items"] if one["id"] == token)


def test_a_token_of_an_agent_names_it_and_what_it_works_as(ask: Any):
    out = done(
        ask(
            "token", "create", "--role", "agent", "--agent", "coder", "--works-as", "a, b", "--json"
        )
    )
    shown = json.loads(out)
    assert (shown["agent"], shown["works_as"]) == ("coder", ["a", "b"])
    assert "coder (agent as a, b)" in done(ask("token", "list"))


NO_TOKENS = (
    (["agent"], "a token of the role agent needs `agent`"),
    (["agent", "--agent", "x", "--works-as", "ceo"], "an agent cannot have the role ceo"),
    (["viewer", "--works-as", "x"], "`works_as` is for tokens of the role agent"),
    (["viewer", "--expires", "soon"], "'soon' is not a duration"),
    (["viewer", "--name", "x" * 300], "$.name"),
)


def test_a_token_that_cannot_be_is_refused(targets: CommandTargets):
    for arguments, told in NO_TOKENS:
        refused(targets.same("token", "create", "--role", *arguments), told)


def test_the_first_token_makes_the_database(here: Path):
    assert run_command("token", "list").code == 2
    assert SECRET.fullmatch(done(run_command("token", "create", "--role", "admin")).strip())
    assert (here / ".handrail/handrail.db").is_file()
    assert "(admin)" in done(run_command("token", "list"))


# Signing in


def test_a_sign_in_is_a_whole_link_that_works_once(targets: CommandTargets):
    for called in (
        targets.database("sign-in", "--url", f"{targets.address}/"),
        targets.server("sign-in", "--name", "vera", "--role", "viewer"),
    ):
        link = done(called).strip()
        assert link.startswith(f"{targets.address}/sign-in/hr_")
        assert "once, until 20" in called.err
        assert httpx.post(link).status_code == 303
        assert httpx.post(link).status_code == 401


def test_a_sign_in_without_an_address_takes_where_a_server_would_listen(
    targets: CommandTargets, here: Path
):
    (here / "handrail.toml").write_text('host = "::1"\nport = 99\n')
    assert done(targets.database("sign-in")).startswith("http://[::1]:99/sign-in/hr_")
    shown = json.loads(done(targets.database("sign-in", "--json", "--url", "https://hand.rail")))
    assert shown["url"].startswith("https://hand.rail/sign-in/hr_")
    assert shown["role"] == "admin"
    refused(targets.database("sign-in", "--url", "nowhere"), "'nowhere' is not the URL of a server")


# Who may


def test_a_token_that_may_not_is_told_what_it_takes(targets: CommandTargets):
    called = targets.server(
        "override", targets.runs["offered"], "close", "--reason", "x", role="viewer"
    )
    refused(called, "somebody (viewer) may not POST /api/v1/executions/")
    refused(called, "it needs the role operator")
    refused(targets.server("token", "list", role="ceo"), "it needs the role admin")
    refused(targets.server("runs", role="reporter"), "it needs the role viewer")
    assert targets.server("runs", role="viewer").code == 0


def test_the_author_is_whoever_asks(targets: CommandTargets, monkeypatch: pytest.MonkeyPatch):
    """The system's user with a database, the token's person with a server."""
    monkeypatch.setenv("LOGNAME", "ola")
    done(targets.database("override", targets.runs["offered"], "pause", "--reason", "x"))
    done(targets.server("override", targets.runs["offered"], "resume", "--reason", "y", role="ceo"))
    report = json.loads(done(targets.database("report", targets.runs["offered"], "--json")))
    assert [(act["act"], act["by"]) for act in report["acts"]] == [
        ("pause", "ola"),
        ("resume", "somebody"),
    ]
