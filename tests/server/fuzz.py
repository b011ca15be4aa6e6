"""Requests made from the OpenAPI document, right and wrong, with tokens of every role, at a real
server: none may be answered with a 5xx, with a status that is not documented, or with a body that
is not as documented.

    .venv/bin/python -m tests.server.fuzz --cases 10000 --seed 7

What schemathesis makes would mostly be about things that are not there, or that the caller may not
do. So most cases get the ids of things that are, and a role that may call.
"""

import argparse
import json
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.client.live_server import Server
from tests.engine.engines import chain, node
from tests.health_checks import EVERY_HEALTH_CHECK
from tests.server.calls import ACCESS_TABLE

from handrail.api.operation import API_PREFIX, ROLES
from handrail.server.access import Caller, may_call
from handrail.server.settings import ServerSettings
from handrail.teams import BUILTIN_IDS, load_builtin

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
STREAMS = ("/events",)
"""They have no end; `test_events.py` is about them."""
AGENT, ROLE = "fuzzer", "backend-engineer"
CHANNELS = ("reviews", "standup")
WORKED = chain(node("fix"), node("look", "approval", revise_to="fix"), id="worked")
ASKED = chain(node("look", "approval"), id="asked")
"""So that there is something to claim, and something to answer."""
REACHED = (200, 201, 204, 409, 422)
MOSTLY = 9
"""Of ten cases so many are about things that are there, and by somebody who may."""
PATIENCE_SECONDS = 30
NOBODY = "http://127.0.0.1:9/hook"
"""A webhook that nobody answers."""


class Fuzz:
    """A server with something of everything, and what was answered so far."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.statuses: Counter[int] = Counter()
        self.by_call: Counter[tuple[str, int]] = Counter()
        self.sessions = {role: self._session(role) for role in ROLES}
        self.pools: dict[str, list[str]] = {}
        self._furnish()
        found = requests.get(f"{server.url}{API_PREFIX}/openapi.json", timeout=PATIENCE_SECONDS)
        self.schema = schemathesis.openapi.from_dict(found.json())
        self.schema.config.update(base_url=server.url)

    def _session(self, role: Any) -> requests.Session:
        session = requests.Session()
        name = AGENT if role == "agent" else f"the {role}"
        session.headers["Authorization"] = f"Bearer {self.server.token(role, name)}"
        return session

    def _furnish(self) -> None:
        for name in BUILTIN_IDS:
            self._do("ceo", "POST", "/workflows", load_builtin(name))
        beads: list[Any] = []
        for document in (WORKED, ASKED):
            self._do("ceo", "POST", "/workflows", document)
        for name in (*BUILTIN_IDS, *["worked", "asked"] * 4):
            bead = {"title": name, "workflow_id": name}
            beads += [self._do("operator", "POST", "/beads", bead) for _ in range(10)]
        self._do("operator", "POST", f"/beads/{beads[0]['id']}/files?name=log.txt", b"text")
        self.pools = {
            "workflow_id": list(BUILTIN_IDS),
            "bead_id": [bead["id"] for bead in beads],
            "execution_id": [bead["execution_id"] for bead in beads],
            "name": ["log.txt"],
            "agent_id": [AGENT],
            "approval_id": [],
            "dispatch_id": [],
            "token_id": [],
        }
        self.refresh()

    def _do(self, role: str, method: str, path: str, body: Any = None) -> Any:
        url = f"{self.server.url}{API_PREFIX}{path}"
        sent: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        answer = self.sessions[role].request(method, url, timeout=PATIENCE_SECONDS, **sent)
        assert answer.status_code < 500, answer.text
        return answer.json() if answer.content else None

    def refresh(self) -> None:
        """What was filed, asked, offered and made meanwhile is used too."""
        asked = self._do("viewer", "GET", "/approvals?limit=100")["items"]
        self.pools["approval_id"] = [one["id"] for one in asked] or ["none"]
        self._do("ceo", "PATCH", f"/agents/{AGENT}", {"enabled": True})
        self._do("agent", "POST", "/agents", {"id": AGENT, "roles": [ROLE], "capacity": 1_000})
        offered = self._do("agent", "POST", "/dispatches/claim", {"agent_id": AGENT})
        if offered:
            self.pools["dispatch_id"].append(offered["id"])
        self.pools["dispatch_id"] = self.pools["dispatch_id"][-50:] or ["none"]
        tokens = self._do("admin", "GET", "/tokens")["items"]
        spare = [one["id"] for one in tokens if one["created_by"] != "test"]
        self.pools["token_id"] = spare[-20:] or ["none"]
        self.pools["token"] = self._links([one for one in asked if one["status"] == "open"])
        hooks = self._do("admin", "GET", "/webhooks")["items"]
        if not hooks:
            hooks = [self._do("admin", "POST", "/webhooks", {"url": NOBODY})]
        self.pools["webhook_id"] = [one["id"] for one in hooks]
        for name in CHANNELS:
            self._do("operator", "POST", "/channels", {"id": name})
            self._do("operator", "POST", f"/channels/{name}/members", {"agent_id": AGENT})
        self.pools["channel_id"] = list(CHANNELS)

    def _links(self, asked: list[Any]) -> list[str]:
        """A few links of the ceo's."""
        made = [self._do("ceo", "POST", f"/approvals/{one['id']}/links", {}) for one in asked[:5]]
        return [one["path"].rpartition("/")[2] for one in made if "path" in one]

    def cases(self, count: int, seed: int) -> None:
        """So many cases, spread over all operations."""
        read = list(self.schema.get_all_operations())
        operations = [one.ok() for one in read if isinstance(one, Ok)]
        assert len(operations) == len(read)
        wanted = [one for one in operations if not one.path.endswith(STREAMS)]
        each = -(-count // len(wanted))
        for operation in wanted:
            self.refresh()
            self._explore(operation, each, seed)

    def _explore(self, operation: Any, count: int, seed: int) -> None:
        @hypothesis.seed(seed)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=EVERY_HEALTH_CHECK,
        )
        @given(st.data())
        def explore(data: st.DataObject) -> None:
            self._one(operation, data)

        explore()

    def _one(self, operation: Any, data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        for name in case.path_parameters or {}:
            if data.draw(st.integers(1, 10)) <= MOSTLY:
                known = self.pools.get(name) or ["none"]
                case.path_parameters[name] = data.draw(st.sampled_from(known))
        self._fill(operation, case, data)
        call = (operation.method.upper(), operation.path)
        allowed = [
            role for role in ROLES if may_call(ACCESS_TABLE[call], Caller(name="x", role=role))
        ]
        mostly = allowed and data.draw(st.integers(1, 10)) <= MOSTLY
        role = data.draw(st.sampled_from(allowed if mostly else list(ROLES)))
        if case.headers is not None:
            case.headers.pop("Authorization", None)
        answer = case.call_and_validate(
            session=self.sessions[role], checks=CHECKS, timeout=PATIENCE_SECONDS
        )
        self.statuses[answer.status_code] += 1
        self.by_call[f"{call[0]} {call[1]}", answer.status_code] += 1

    def _fill(self, operation: Any, case: Any, data: st.DataObject) -> None:
        """A body that names something, names something that is there; documents are real ones."""
        if not isinstance(case.body, dict) or data.draw(st.integers(1, 10)) > MOSTLY:
            return
        if operation.path.startswith(f"{API_PREFIX}/workflows"):
            case.body = {**load_builtin(data.draw(st.sampled_from(BUILTIN_IDS))), **case.body}
            return
        for name in ("by", "actor", "filed_by", "author", "agent"):
            case.body.pop(name, None)
        own = {"agent_id": AGENT, "id": AGENT} if "/agents" in operation.path else {}
        own |= {"agent_id": AGENT} if "agent_id" in case.body else {}
        own |= {"roles": [ROLE]} if "roles" in case.body else {}
        own |= {"wait": 0} if "wait" in case.body else {}
        own |= {"workflow_id": "helpdesk"} if case.body.get("workflow_id") else {}
        if "fence" in case.body and "dispatch_id" in (case.path_parameters or {}):
            fence = str(case.path_parameters["dispatch_id"]).rpartition(".d")[2]
            own |= {"fence": int(fence)} if fence.isdigit() else {}
        case.body = {**case.body, **own}

    @property
    def count(self) -> int:
        return sum(self.statuses.values())

    @property
    def reached(self) -> float:
        """The share that got past the door and the shelves, to code that does something."""
        return sum(self.statuses[status] for status in REACHED) / max(1, self.count)


def fuzzed(folder: Path, cases: int, seed: int) -> Fuzz:
    """After so many cases. Raises if one of them is answered as it must not be."""
    easy = ServerSettings(
        drain=0, rate_limit=1e6, failed_tokens=1e6, wait_max=0.05, webhook_private=True
    )
    with Server(f"sqlite:///{folder / 'work.db'}", settings=easy) as server:
        fuzz = Fuzz(server)
        fuzz.cases(cases, seed)
        return fuzz


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.server.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        fuzz = fuzzed(Path(folder), options.cases, options.seed)
    by_call: dict[str, dict[int, int]] = {}
    for (call, status), count in sorted(fuzz.by_call.items()):
        by_call.setdefault(call, {})[status] = count
    for call, statuses in by_call.items():
        print(f"{call:<60} {statuses}", file=sys.stderr)
    figures = {"cases": fuzz.count, "reached": round(fuzz.reached, 3), "seed": options.seed}
    print(json.dumps({**figures, "statuses": dict(sorted(fuzz.statuses.items()))}))


if __name__ == "__main__":
    main()
