"""What tests of agents share: the variables of a provider, and a clock."""

import pytest
from tests.agents.helpdesk_replies import KEY

from handrail.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The provider's key, which nobody must ever see."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY
