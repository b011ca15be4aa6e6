"""A whole bead by the client that openapi-python-client made: `python whole_bead.py FOLDER URL`.

The tokens of an agent and of a ceo are in the environment. Prints how the run ended.
"""

import os
import sys

sys.path.insert(0, sys.argv[1])
from generated.api.agents import register_agent  # pyright: ignore[reportMissingImports]
from generated.api.approvals import (  # pyright: ignore[reportMissingImports]
    answer_approval,
    list_approvals,
)
from generated.api.beads import create_bead  # pyright: ignore[reportMissingImports]
from generated.api.definitions import create_definition  # pyright: ignore[reportMissingImports]
from generated.api.dispatches import (  # pyright: ignore[reportMissingImports]
    claim_dispatch,
    heartbeat_dispatch,
    report_dispatch,
)
from generated.api.runs import get_run, list_runs  # pyright: ignore[reportMissingImports]
from generated.client import AuthenticatedClient  # pyright: ignore[reportMissingImports]
from generated.models import (  # pyright: ignore[reportMissingImports]
    ApprovalAnswer,
    ApprovalStatus,
    ClaimRequest,
    CreateDefinitionBody,
    DispatchResult,
    DispatchView,
    HeldDispatch,
    NewAgent,
    NewBead,
    Outcome,
    Usage,
)

DEFINITION = {
    "id": "asks",
    "name": "asks",
    "kind": "workflow",
    "nodes": [
        {"id": "start", "type": "start"},
        {"id": "fix", "type": "task", "role": "backend-engineer"},
        {"id": "look", "type": "approval", "role": "ceo", "config": {"revise_to": "fix"}},
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": "start", "to_node_id": "fix"},
        {"from_node_id": "fix", "to_node_id": "look"},
        {"from_node_id": "look", "to_node_id": "end"},
    ],
}


def main() -> None:
    agent, ceo = (
        AuthenticatedClient(sys.argv[2], os.environ[name], raise_on_unexpected_status=True)
        for name in ("AGENT_TOKEN", "CEO_TOKEN")
    )
    create_definition.sync(client=ceo, body=CreateDefinitionBody.from_dict(DEFINITION))
    bead = create_bead.sync(client=ceo, body=NewBead(title="500 on /orders", workflow_id="asks"))
    run_id = bead.execution_id
    register_agent.sync(client=agent, body=NewAgent(id="coder-1", roles=["backend-engineer"]))
    claim = ClaimRequest(agent_id="coder-1", wait=10)
    dispatch = claim_dispatch.sync(client=agent, body=claim)
    assert isinstance(dispatch, DispatchView), dispatch
    assert dispatch.bead.title == "500 on /orders"
    lease = heartbeat_dispatch.sync(
        dispatch.id, client=agent, body=HeldDispatch(fence=dispatch.fence)
    )
    assert not lease.ended
    result = DispatchResult(
        fence=dispatch.fence, outcome=Outcome.SUCCESS, text="fixed", usage=Usage(tokens=5)
    )
    receipt = report_dispatch.sync(dispatch.id, client=agent, body=result)
    assert receipt.accepted, receipt.reason
    (question,) = list_approvals.sync(client=ceo, status=ApprovalStatus.OPEN).items
    answer = ApprovalAnswer(text="OK", digest=question.digest)
    answer_approval.sync(question.id, client=ceo, body=answer)
    run = get_run.sync(run_id, client=ceo, wait=10)
    assert [item.id for item in list_runs.sync(client=ceo).items] == [run.id]
    print(run.terminal_status, run.usage.tokens)


if __name__ == "__main__":
    main()
