"""Channels on two servers and one PostgreSQL: the processes of their agents stop in the middle of
their turns and go on when others have the turn. HANDRAIL_LONG=1: a thousand channels."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.crash.channels import Plan, Play

pytest_plugins = ["tests.fixtures_postgres"]

SHORT = Plan(channels=60, agents=30, processes=3, stops=4, lease=4)
LONG = Plan(channels=1_000, agents=100, processes=4, stops=6, lease=20)


@pytest.mark.heavy
@pytest.mark.requirement("T3", "T4", "T5", "T6", "T13")
def test_stopped_agents_never_share_a_turn_end_anothers_or_lose_a_message(
    postgres_url: str, tmp_path: Path
):
    plan = LONG if os.environ.get("HANDRAIL_LONG") else SHORT
    found = asyncio.run(Play(plan, postgres_url, tmp_path).through())
    assert found["wrong"] == []
    assert found["channels"] == plan.channels
    assert found["stopped_completing"] == 1
    assert found["late_completions_refused"] > 0, "nobody was stopped in a turn"
    lost = found["turns"] - found["ends"]["TURN_COMPLETE"]
    assert lost > 0, found
