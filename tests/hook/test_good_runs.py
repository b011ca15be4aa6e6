"""Runs that others recorded and that went well, as sessions of coding agents: none is stopped.

The traces lie outside of the repository, in the folder that `HANDRAIL_TRACES` names or beside it.
"""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hook.agent_forms import FORMS, AgentForm

from handrail import Guard
from handrail.hook.answers import format_answer
from handrail.hook.payloads import read_payload
from handrail.hook.session import Conversation

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("HANDRAIL_TRACES", ROOT / ".." / "shared" / "traces"))
DATASETS = ("swe-mini-gemini3", "tau-airline")
RUNS_EACH = 10


def good_runs(dataset: str) -> list[dict[str, Any]]:
    path = FOLDER / f"{dataset}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"there are no traces in {FOLDER}")
    with gzip.open(path) as lines:
        runs = (json.loads(line) for line in lines)
        return [run for run in runs if run["success"]]


def payloads(run: dict[str, Any], form: AgentForm) -> Iterator[bytes]:
    """What the agent of this run would have sent to its hooks."""
    yield form.prompt("solve it")
    last_text = ""
    for event in run["events"]:
        if event["k"] == "user":
            yield form.end(last_text)
            yield form.prompt(event["text"])
        elif event["k"] == "say":
            last_text = event["text"]
        else:
            arguments = {"command": event["args"]}
            yield form.proposed(event["tool"], arguments)
            write = form.failed if event["rc"] else form.done
            yield write(event["tool"], arguments, event["result"])
    yield form.end(last_text)


def find_stop(run: dict[str, Any], form: AgentForm) -> str:
    """Return the answer that denies or ends something in this run; empty if there is none."""
    conversation = Conversation(Guard(), lambda: "run")
    for payload in payloads(run, form):
        event = read_payload(payload)
        answer = format_answer(event, conversation.handle(event))
        if form.is_denied(answer) or form.is_ended(answer):
            return answer.decode()
    return ""


@pytest.mark.parametrize("make_form", FORMS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_good_runs_are_left_alone(dataset: str, make_form: type[AgentForm]) -> None:
    runs = good_runs(dataset)[:RUNS_EACH]
    assert len(runs) == RUNS_EACH
    assert {run["id"]: find_stop(run, make_form()) for run in runs} == {
        run["id"]: "" for run in runs
    }
