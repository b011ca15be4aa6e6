"""`handrail channel`: a conversation from the command line; database and server say the same."""

import json
from typing import Any

import pytest
from tests.cli.command_targets import CommandTargets
from tests.cli.test_write_commands import ask, done, refused

__all__ = ["ask"]
pytest_plugins = ["tests.cli.fixtures_command_targets"]


@pytest.fixture
def room(targets: CommandTargets) -> str:
    """A channel with two agents, who do nothing by themselves."""
    engine, do = targets.served.engine, targets.served.do
    do(engine.channels.open("reviews", engine.channels.turn_config({"order": "manual"}), by="olga"))
    for agent in ("ada", "bob"):
        do(engine.agents.register(agent, ["talker"]))
        do(engine.channels.join("reviews", agent, by="olga"))
    return "reviews"


@pytest.mark.usefixtures("targets")
def test_without_channels_there_is_nothing_to_list(ask: Any):
    assert json.loads(done(ask("channel", "list", "--json"))) == {"items": []}


def test_a_person_speaks_grants_the_turn_and_pauses(room: str, ask: Any):
    assert "nobody has the turn" in done(ask("channel", "list"))
    said = done(ask("channel", "say", room, "please look", "--to", "bob"))
    assert said.endswith(": queued\n")
    assert done(ask("channel", "grant", room, "bob")) == "channel reviews: bob has turn 1\n"
    refused(ask("channel", "grant", room, "ada"), "turn 1 is held by 'bob'")
    assert done(ask("channel", "pause", room)) == "channel reviews: paused\n"
    out = done(ask("channel", "show", room))
    assert "channel reviews: paused" in out
    assert [line.split() for line in out.splitlines()[2:4]] == [
        ["ada", "QUEUED"],
        ["bob", "ACTIVE"],
    ]
    assert out.splitlines()[-1].endswith(": please look")
    assert done(ask("channel", "unpause", room)) == "channel reviews: bob has turn 1\n"


def test_what_is_shown_is_whole_as_json(room: str, ask: Any):
    done(ask("channel", "say", room, "hello", "--json"))
    shown = json.loads(done(ask("channel", "show", room, "--json")))
    assert shown["channel"]["queue"] == ["ada", "bob"]
    assert [one["text"] for one in shown["log"]] == ["hello"]


@pytest.mark.usefixtures("targets")
def test_a_channel_that_is_not_there_is_named(ask: Any):
    refused(ask("channel", "say", "nowhere", "hello"), "there is no channel 'nowhere'")
