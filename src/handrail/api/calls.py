"""Every call of the API: `Calls` has them by subject, `OPERATIONS` as one list."""

from typing import Any, Generic, cast

from handrail.api.admin import ServerCalls, SessionCalls, SettingCalls, TokenCalls
from handrail.api.agents import AgentCalls, DispatchCalls
from handrail.api.approvals import AnswerLinkCalls, ApprovalCalls
from handrail.api.audit import AuditCalls
from handrail.api.beads import BeadCalls
from handrail.api.budgets import BudgetCalls
from handrail.api.channels import ChannelCalls
from handrail.api.definitions import DefinitionCalls
from handrail.api.healing import BugCalls, LockCalls, MemoryCalls
from handrail.api.operation import C_co, CallGroup, Operation
from handrail.api.runs import EventCalls, GuardedRunCalls, RunCalls
from handrail.api.webhooks import WebhookCalls

CALL_GROUPS: tuple[type[CallGroup[Any]], ...] = (
    DefinitionCalls,
    BeadCalls,
    RunCalls,
    EventCalls,
    ApprovalCalls,
    AnswerLinkCalls,
    AgentCalls,
    DispatchCalls,
    GuardedRunCalls,
    ChannelCalls,
    MemoryCalls,
    BudgetCalls,
    BugCalls,
    LockCalls,
    AuditCalls,
    WebhookCalls,
    TokenCalls,
    SessionCalls,
    SettingCalls,
    ServerCalls,
)
OPERATIONS: tuple[Operation[..., Any], ...] = tuple(
    cast("Operation[..., Any]", item)
    for group in CALL_GROUPS
    for item in cast("dict[str, object]", vars(group)).values()
    if isinstance(item, Operation) and not item.is_variant
)


class Calls(Generic[C_co]):
    """The calls of the API by subject, made by `caller`: `calls.beads.create(…)`."""

    def __init__(self, caller: C_co) -> None:
        self.definitions = DefinitionCalls(caller)
        self.beads = BeadCalls(caller)
        self.runs = RunCalls(caller)
        self.events = EventCalls(caller)
        self.approvals = ApprovalCalls(caller)
        self.answer_links = AnswerLinkCalls(caller)
        self.agents = AgentCalls(caller)
        self.dispatches = DispatchCalls(caller)
        self.guarded_runs = GuardedRunCalls(caller)
        self.channels = ChannelCalls(caller)
        self.memories = MemoryCalls(caller)
        self.budgets = BudgetCalls(caller)
        self.bugs = BugCalls(caller)
        self.locks = LockCalls(caller)
        self.audit = AuditCalls(caller)
        self.webhooks = WebhookCalls(caller)
        self.tokens = TokenCalls(caller)
        self.sessions = SessionCalls(caller)
        self.settings = SettingCalls(caller)
        self.server = ServerCalls(caller)
