"""Many tickets side by side on one server: all end, each with its own, and whoever waits hears it
soon. 100 of them; 500 with HANDRAIL_LONG=1."""

import os
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest
from tests.client.live_server import Server
from tests.teams.helpdesk_server import add_scripted_agents
from tests.teams.ticket_callers import Heard

from handrail import Client
from handrail.server.settings import ServerSettings

TICKETS = 500 if os.environ.get("HANDRAIL_LONG") else 100
SOON = 2.0
"""Seconds after the end of a run within which its caller has the result (H1.4)."""


def call_all(server: Server) -> list[Heard]:
    token = server.token("operator", "olga")
    where = ["127.0.0.1", str(server.port), token, str(TICKETS)]
    command = [sys.executable, "-m", "tests.teams.ticket_callers", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=list[Heard])


@pytest.mark.alone
@pytest.mark.requirement("H1.4", "H1.5")
def test_tickets_side_by_side_end_independently_and_each_caller_hears_it_within_two_seconds(
    tmp_path: Any,
):
    many = ServerSettings(drain=0, rate_limit=1e6)
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with Server(url, settings=many) as server:
        server.do(add_scripted_agents(server.engine))
        began = time.monotonic()
        heard = call_all(server)
        took = time.monotonic() - began
        with Client(server.url, server.token("viewer", "vera")) as client:
            beads = {one.bead_id: client.beads.get(one.bead_id) for one in heard}
            kept = {one.execution_id: one for one in client.memories.list(limit=500).items}
    waits = sorted(one.late for one in heard)
    middle, longest = waits[len(waits) // 2], waits[-1]
    print(f"{TICKETS} tickets in {took:.1f} s; told {middle:.3f} s after (median), {longest:.3f} s")
    for one in heard:
        bead = beads[one.bead_id]
        expected = ("aborted_stuck", "error") if one.stuck else ("done_success", "closed")
        assert (one.terminal_status, bead.status) == expected, one.title
        assert bead.title == one.title
        assert bead.context["runbook"] == one.entry
        assert bead.context["resolution"].startswith(f"Runbook {one.entry}")
    fine = {one.run_id: one.title for one in heard if not one.stuck}
    assert {name: one.title for name, one in kept.items()} == fine
    assert {one.status for one in kept.values()} == {"kept"}
    assert longest < SOON
