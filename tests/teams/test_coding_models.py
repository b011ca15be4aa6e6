"""The coding team with a language model: its tools work, and can do no more than the rules allow.

The model is a stub on loopback that says what the test wants; everything else is real.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agents.helpdesk_replies import KEY, MODEL, agent_name
from tests.agents.model_stub import TOKENS, ModelReply, ModelRequest, Stub, call, fail
from tests.engine.engines import manual_engine

from handrail.teams import install_teams
from handrail.teams.coding.workspaces import load_sample_files, write_sample
from handrail.testing.clock import ManualClock
from handrail.views.report import RunReport

PATIENCE = 120.0
"""Seconds after which a run that should have ended has not."""
WORDS = "shop/words.py"
RIGHT = load_sample_files()[WORDS]


def hands(to: str, text: str = "done") -> ModelReply:
    return call("answer", outcome="handoff", to=to, reason="your turn", text=text)


def plays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **says: list[ModelReply]
) -> tuple[RunReport, list[ModelRequest]]:
    """A run in which each agent that is a model says these things one after the other, and the last
    one again and again."""
    write_sample(folder, ("not-written-yet",))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    turns = {agent: list(replies) for agent, replies in says.items()}

    def answer(asked: ModelRequest) -> ModelReply:
        replies = turns[agent_name(asked)]
        return replies.pop(0) if len(replies) > 1 else replies[0]

    async def play() -> tuple[RunReport, list[ModelRequest]]:
        async with Stub(answer) as stub, manual_engine("sqlite://", ManualClock()) as engine:
            monkeypatch.setenv("OPENAI_BASE_URL", stub.url)
            await install_teams(engine, ("coding",), model=MODEL, workspaces=(str(folder),))
            run = await engine.start(
                "coding", title="`initials` is wrong", context={"folder": str(folder)}
            )
            await run.result(PATIENCE)
            return await run.report(), stub.asked

    return asyncio.run(asyncio.wait_for(play(), PATIENCE))


def evidence(report: RunReport) -> tuple[str | None, str]:
    return report.terminal_status, report.stop.rule if report.stop is not None else ""


def test_a_model_reads_searches_writes_and_checks_and_rules_close_the_ticket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, asked = plays(
        tmp_path,
        monkeypatch,
        planner=[hands("verifier"), hands("researcher"), hands("coder"), hands("ticket_closer")],
        researcher=[
            call("search", text="def initials"),
            hands("planner", "`initials` is in `shop/words.py`"),
        ],
        coder=[
            call("list_files"),
            call("read_file", path=WORDS),
            call("write_file", path=WORDS, text=RIGHT),
            call("run_check", command="python -m unittest tests.test_words"),
            hands("verifier", "rewritten"),
        ],
    )
    assert evidence(report) == ("done_success", "terminated")
    assert (tmp_path / WORDS).read_text() == RIGHT
    given = "\n".join(text for one in asked for text in one.results)
    assert f"{WORDS}:12: def initials(name):" in given
    assert "exit code 0" in given
    assert [step.place for step in report.steps][-1] == "ticket_closer"
    assert report.usage.tokens == TOKENS * len(asked)
    tools = {agent_name(one): set(one.tools) - {"answer"} for one in asked}
    looking = {"list_files", "read_file", "search"}
    assert tools == {
        "planner": looking,
        "researcher": looking,
        "coder": looking | {"write_file", "run_check"},
    }


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    "attempt",
    [
        call("write_file", path="vendor/rates.py", text="RATES = {}"),
        call("write_file", path="shop/../vendor/rates.py", text="RATES = {}"),
        call("run_check", command="git push --force"),
    ],
)
def test_what_is_forbidden_is_not_done_and_ends_the_run_whatever_the_model_says_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: ModelReply
) -> None:
    report, _ = plays(
        tmp_path,
        monkeypatch,
        planner=[hands("verifier"), hands("coder")],
        coder=[attempt, hands("verifier", "I touched nothing")],
    )
    assert evidence(report) == ("aborted_constraint", "constraint")
    assert (tmp_path / "vendor/rates.py").read_text() == load_sample_files()["vendor/rates.py"]


@pytest.mark.requirement("S14")
def test_what_was_tried_counts_also_if_the_turn_fails_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, _ = plays(
        tmp_path,
        monkeypatch,
        planner=[hands("verifier"), hands("coder")],
        coder=[call("write_file", path=".git/config", text="x"), fail(400)],
    )
    assert evidence(report) == ("aborted_constraint", "constraint")
    assert not (tmp_path / ".git").exists()


def test_a_path_out_of_the_folder_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    report, asked = plays(
        folder,
        monkeypatch,
        planner=[hands("verifier"), hands("coder")],
        coder=[
            call("read_file", path="/etc/passwd"),
            call("write_file", path="../out.txt", text="x"),
            call("run_check", command="sh -c 'touch ../out.txt'"),
            hands("planner", "done"),
        ],
    )
    assert report.terminal_status == "aborted_stuck"
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
    given = "\n".join(text for one in asked for text in one.results)
    assert given.count("leads out of the folder") >= 2
    assert "not run: it is none of" in given


@pytest.mark.requirement("S3", "S4")
def test_a_model_that_only_says_that_it_mended_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, _ = plays(
        tmp_path,
        monkeypatch,
        planner=[hands("coder")],
        coder=[hands("verifier", "I have fixed it, all checks are green")],
    )
    assert report.terminal_status == "aborted_stuck"
    assert report.stop is not None
    assert report.stop.rule in ("no_change", "same_error")


def test_nothing_red_is_closed_because_a_model_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: dict[str, Any] = {"outcome": "terminate", "reason": "done", "text": "TERMINATE_WORKFLOW"}
    report, _ = plays(
        tmp_path,
        monkeypatch,
        planner=[hands("verifier"), call("answer", **ends), hands("ticket_closer")],
    )
    assert report.terminal_status == "aborted_stuck"
    closed = [step for step in report.steps if step.place == "ticket_closer"]
    assert {step.reason for step in closed} == {"the checks are not green"}


def test_a_model_does_not_choose_where_it_works_or_what_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"checks": ["true"], "goal": {"command": "true"}, "folder": "/", "demo": "research"}
    report, _ = plays(
        tmp_path,
        monkeypatch,
        planner=[
            call("answer", outcome="handoff", to="verifier", reason="check", data=chosen),
            hands("ticket_closer"),
        ],
    )
    assert report.terminal_status == "aborted_stuck"
    assert report.last_command is not None
    assert (report.last_command.command, report.last_command.exit_code) == ("python -m unittest", 1)
