"""Random definitions: always valid, reproducible, and of every kind there is."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from handrail.kernel.definition.plan import check_definition
from handrail.testing.random_definitions import random_team, random_workflow

SEEDS = range(250)


def workflow(seed: int, **rest: Any) -> dict[str, Any]:
    rng = Random(seed)
    options: dict[str, Any] = {
        "size": rng.randint(1, 12),
        "forks": True,
        "limits": rng.random() < 0.5,
        "clocks": rng.random() < 0.5,
        "shared_keys": rng.random() < 0.5,
    }
    return random_workflow(rng, **{**options, **rest})


def team(seed: int, **rest: Any) -> dict[str, Any]:
    rng = Random(seed)
    options: dict[str, Any] = {"agents": rng.randint(2, 6), "soft_limits": rng.random() < 0.5}
    return random_team(rng, **{**options, **rest})


@pytest.mark.parametrize("size", [1, 3, 6, 30])
def test_every_random_workflow_is_valid(size: int):
    for seed in SEEDS:
        plan, checked = check_definition(workflow(seed, size=size))
        assert plan is not None, (seed, checked.errors)


@pytest.mark.parametrize("agents", [1, 2, 6])
def test_every_random_team_is_valid(agents: int):
    for seed in SEEDS:
        plan, checked = check_definition(team(seed, agents=agents))
        assert plan is not None, (seed, checked.errors)


@pytest.mark.parametrize("make", [workflow, team])
def test_the_same_seed_gives_the_same_definition(make: Any):
    assert [make(seed) for seed in range(50)] == [make(seed) for seed in range(50)]


def test_random_workflows_have_everything_a_workflow_may_have():
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        document = workflow(seed)
        by_id = {node["id"]: node for node in document["nodes"]}
        ends = [node for node in document["nodes"] if node["type"] == "end"]
        seen["several ends"] += len(ends) > 1
        for node in document["nodes"]:
            config = node.get("config", {})
            seen.update(key for key in config if config[key])
            seen[config.get("kind", "plain")] += 1
            seen[f"wait {config.get('wait')}"] += 1
            seen[f"attempts {node.get('max_attempts')}"] += 1
        for edge in document["edges"]:
            source = by_id[edge["from_node_id"]]
            forked = source.get("config", {}).get("parallel")
            target = by_id[edge["to_node_id"]]["type"]
            seen["empty branch"] += bool(forked) and target == "merge"
            seen["conditional branch"] += bool(forked) and bool(edge["condition"])
            seen["failure edge"] += edge["condition"] == "failure"
        forks = [node for node in document["nodes"] if node.get("config", {}).get("parallel")]
        seen["several forks"] += len(forks) > 1
    wanted = (
        "several ends", "parallel", "wait all", "wait any", "empty branch", "conditional branch",
        "several forks", "on_failure", "revise_to", "quorum", "four_eyes", "multi_dispatch",
        "commit", "verification", "failure edge", "attempts 1", "attempts 3", "deadline",
    )  # fmt: skip
    assert not [what for what in wanted if not seen[what]]


def test_random_teams_have_everything_a_team_may_have():
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        document = team(seed)
        seen["review"] += "review" in document
        seen["review only"] += "terminator" not in document
        for agent in document["agents"]:
            seen["self"] += agent["id"] in agent["hands_off_to"]
            seen["marker"] += "marker" in agent
            for task in agent.get("tasks", ()):
                seen.update(key for key in task if task[key])
    wanted = ("review", "review only", "self", "marker", "once", "milestone", "when")
    assert not [what for what in wanted if not seen[what]]


def test_without_forks_there_is_no_parallel_block():
    for seed in range(50):
        nodes = workflow(seed, forks=False)["nodes"]
        assert not [node for node in nodes if node.get("config", {}).get("parallel")]


def test_each_condition_reads_a_key_of_its_own_unless_keys_are_shared():
    for seed in range(50):
        edges = workflow(seed, shared_keys=False)["edges"]
        conditions = [e["condition"] for e in edges if e["condition"] not in ("", "failure")]
        assert len(conditions) == len(set(conditions))
