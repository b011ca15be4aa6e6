"""Whatever is sent, the API answers as its document says; the long form is `scripts/fuzz`."""

from pathlib import Path

import pytest
from tests.server.fuzz import fuzzed


@pytest.mark.heavy
@pytest.mark.filterwarnings("default")  # of the libraries that make the requests
def test_no_request_is_answered_with_a_5xx_or_otherwise_than_documented(tmp_path: Path):
    fuzz = fuzzed(tmp_path, cases=600, seed=1)
    assert fuzz.count >= 550
    assert fuzz.reached >= 0.5
    assert not [status for status in fuzz.statuses if status >= 500]
