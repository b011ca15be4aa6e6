"""`handrail memory`: a database and a server show, correct, remove and refuse the same."""

import json
from typing import Any

import pytest
from tests.cli.command_line import run_command
from tests.cli.command_targets import CommandTargets

pytest_plugins = ["tests.cli.fixtures_command_targets"]


@pytest.fixture(params=["database", "server"])
def ask(request: pytest.FixtureRequest, targets: CommandTargets) -> Any:
    """One of the two ways."""
    return getattr(targets, request.param)


@pytest.fixture
def memory_id(targets: CommandTargets) -> str:
    """What was learned from a run that is done."""
    kept = targets.served.do(
        targets.served.engine.memory.remember(
            execution_id=targets.runs["revised"],
            bead_id="a bead",
            title="VPN drops\x1b[2J",
            resolution="Set the MTU.\nThen wait.",
            by="memory",
        )
    )
    assert kept is not None
    return kept.id


def test_memories_are_listed_and_shown(targets: CommandTargets, memory_id: str):
    listed = targets.same("memory", "list", "--text", "mtu")
    assert listed.code == 0
    assert memory_id in listed.out
    assert "VPN drops" in listed.out
    assert "\x1b" not in listed.out
    shown = targets.same("memory", "show", memory_id[-8:])
    assert shown.out.endswith("\n\nSet the MTU.\nThen wait.\n")
    assert f"run {targets.runs['revised']}" in shown.out
    assert json.loads(targets.same("memory", "show", memory_id, "--json").out)["id"] == memory_id
    empty = targets.same("memory", "list", "--text", "nothing like this")
    assert memory_id not in empty.out


def test_a_memory_is_corrected_and_removed(ask: Any, targets: CommandTargets, memory_id: str):
    corrected = ask("memory", "correct", memory_id[:20], "Restart it.")
    assert corrected.code == 0, corrected
    assert "corrected by" in corrected.out
    assert corrected.out.endswith("\n\nRestart it.\n")
    removed = ask("memory", "remove", memory_id)
    assert (removed.code, removed.out) == (0, f"memory {memory_id} is removed\n")
    again = ask("memory", "remove", memory_id)
    assert again.code == 2
    assert f"there is no memory '{memory_id}'" in again.err
    assert targets.server("memory", "list", role="viewer").code == 0


def test_without_a_command_it_says_which_there_are():
    told = run_command("memory")
    assert all(name in told.out + told.err for name in ("list", "show", "correct", "remove"))
