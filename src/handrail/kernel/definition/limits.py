"""Limits of the stop rules: as a definition writes them, and resolved with profile, kind and scope.

A profile fills unset limits. In a team every rule is on. In a workflow the structure bounds the run
already, so the rules that count handoffs or time are off there unless the definition sets them.
`None` means off. To add a limit: a field in `StopRules`, one in `Limits`, and a row in `LIMITS`.
"""

from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from handrail.kernel.decision import Value

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=10 * 365 * 86400)]
WaitSeconds = Annotated[float, Meta(ge=1, le=10 * 365 * 86400)]
Share = Annotated[float, Meta(ge=0, le=1)]
ToolName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]
GlobPattern = Annotated[str, Meta(min_length=1, max_length=1_000, pattern=r"\S")]

EvidenceKind = Literal["claims", "measured"]
OscillationBy = Literal["returns", "cycles"]
ProfileName = Literal["strict", "yolo", "observed", "conversation"]
FINDING_PROFILES = ("observed", "conversation")
FINDING_FIELDS = ("weak_news_max", "free_visits", "oscillation_by")
"""How these profiles count; they say nothing in the others."""
WAIT_FIELDS = ("max_waits", "wait_deadline")
"""Limits of waits; they say nothing where no agent may wait."""

NUDGE_COUNT_MIN = 2
"""The least count that is worth a nudge."""
NUDGE_PERIOD_MAX = 8
"""The longest pattern of handoffs that is worth a nudge; to look for longer ones at every handoff
would cost a guard more than all the rest."""
ASKS_MAX = 10
"""Questions that agents may put to people in one stretch."""
TOOL_LIMITS_MAX = 100
"""Tools that may have a limit."""
SHARED_BUDGETS_MAX = 20
"""Budgets of one run."""
SharedBudgetName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]
WAIT_DEADLINE_SECONDS = 1800
FREE_VISITS_MAX = 1_000
"""First visits of a run that `max_handoffs` leaves out: so many visited agents are remembered."""
WAITS_MAX_WITHOUT_TIMES = 100
"""Waits of one stretch where no times are known, as in a trace."""


class Constraints(Value):
    """What a run must never touch: glob patterns of paths and of commands."""

    paths: tuple[GlobPattern, ...] = ()
    commands: tuple[GlobPattern, ...] = ()


class Ladder(Value):
    """What comes before a stop: with `nudge`, agents are told one short of a limit; with `ask`, a
    person decides whether a team goes on that a soft rule would stop; with `conclude`, the agent
    of a team whose turn it was gives one last answer (K29)."""

    nudge: bool = True
    ask: bool = False
    conclude: bool = False


class StopRules(Value):
    """Limits as written. The profile fills unset limits; null switches a rule off."""

    max_handoffs: Count | None | UnsetType = UNSET
    repeat_limit: Annotated[int, Meta(ge=2, le=100)] | None | UnsetType = UNSET
    pattern_period_max: Annotated[int, Meta(ge=1, le=1024)] | UnsetType = UNSET
    max_duration: Seconds | None | UnsetType = UNSET
    max_steps: Count | None | UnsetType = UNSET
    max_edge: Count | None | UnsetType = UNSET
    same_error_limit: Positive | None | UnsetType = UNSET
    no_change_limit: Positive | None | UnsetType = UNSET
    research_limit: Positive | None | UnsetType = UNSET
    research_good: Share | UnsetType = UNSET
    research_gain: Share | UnsetType = UNSET
    oscillation_limit: Positive | None | UnsetType = UNSET
    protocol_error_limit: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=0)] | None | UnsetType = UNSET
    max_cost: Annotated[float, Meta(ge=0)] | None | UnsetType = UNSET
    tool_limits: Annotated[dict[ToolName, Count], Meta(max_length=TOOL_LIMITS_MAX)] | UnsetType = (
        UNSET
    )
    budgets: Annotated[tuple[SharedBudgetName, ...], Meta(max_length=SHARED_BUDGETS_MAX)] = ()
    constraints: Constraints = Constraints()
    monologue_limit: Annotated[int, Meta(ge=2, le=1000)] | None | UnsetType = UNSET
    weak_news_max: Count | UnsetType = UNSET
    free_visits: bool | UnsetType = UNSET
    oscillation_by: OscillationBy | UnsetType = UNSET
    evidence: EvidenceKind | UnsetType = UNSET
    ladder: Ladder | UnsetType = UNSET
    max_waits: Count | UnsetType = UNSET
    wait_deadline: WaitSeconds | UnsetType = UNSET
    profile: ProfileName | UnsetType = UNSET


class Limits(Value, dict=True, gc=True):
    """Every limit as a number, or None if the rule is off. The defaults are profile `strict`."""

    max_handoffs: int | None = 20
    repeat_limit: int | None = 3
    pattern_period_max: int = 64
    max_duration: int | float | None = 600
    max_steps: int | None = 100
    max_edge: int | None = 8
    same_error_limit: int | None = 3
    no_change_limit: int | None = 3
    research_limit: int | None = 3
    research_good: float = 0.8
    research_gain: float = 0.05
    oscillation_limit: int | None = 3
    protocol_error_limit: int = 3
    max_tokens: int | None = None
    max_cost: int | float | None = None
    tool_limits: dict[str, int] = {}
    budgets: tuple[str, ...] = ()
    constraints: Constraints = Constraints()
    monologue_limit: int | None = None
    weak_news_max: int = 0
    free_visits: bool = False
    oscillation_by: OscillationBy = "returns"
    evidence: EvidenceKind = "claims"
    ladder: Ladder = Ladder()
    max_waits: int = 0
    wait_deadline: int | float = WAIT_DEADLINE_SECONDS
    profile: str = "strict"

    @cached_property
    def judges_findings(self) -> bool:
        """Whether the soft rules look at what each step found, not at names and claims alone."""
        return self.profile in FINDING_PROFILES

    @property
    def frees_visits(self) -> bool:
        """Whether `max_handoffs` leaves out first visits; with 0 there are none."""
        return self.judges_findings and self.free_visits and bool(self.max_handoffs)

    @cached_property
    def ordinary_steps(self) -> int | None:
        """`max_steps` without the one that is left for a conclusion, if there is more than one."""
        if self.max_steps is None or self.max_steps < 2 or not self.ladder.conclude:
            return self.max_steps
        return self.max_steps - 1

    @cached_property
    def early(self) -> "Limits":
        """The limits at which agents are nudged: one less where a rule counts what agents do, but
        never less than 2, so that nothing is nudged that has not come again."""
        counts = {name: getattr(self, name) for name, info in LIMITS.items() if info.nudges}
        lowered = {
            name: limit - 1
            for name, limit in counts.items()
            if self.ladder.nudge and limit is not None and limit > NUDGE_COUNT_MIN
        }
        if "repeat_limit" in lowered:
            lowered["pattern_period_max"] = min(NUDGE_PERIOD_MAX, self.pattern_period_max)
        return msgspec.structs.replace(self, **lowered)

    def has_effect(self, name: str) -> bool:
        """Whether this limit says anything, beside what the others say."""
        if name in FINDING_FIELDS:
            return self.judges_findings
        if name == "wait_deadline" and self.judges_findings:
            return True
        return name not in WAIT_FIELDS or self.max_waits > 0


SMALL_GRID = (1, 2, 3, 4, 5, 6, 8, 10)
LARGE_GRID = (5, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1_000)
SECONDS_GRID = (30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400)
TOKENS_GRID = tuple(n * 10**e for e in range(2, 9) for n in (1, 2, 5))
COST_GRID = tuple(n / 10_000 for n in TOKENS_GRID)


class LimitInfo(Value):
    """One limit for people, agents and the tuner.

    `meaning`: when it ends the run, for the documentation; `prompt`: the same for an agent, with
    the limit in braces, empty if agents need not know it; `grid`: the values that a tuner tries;
    `in_workflow`: whether it is on in a workflow that does not set it; `nudges`: whether it is a
    count of what agents do, of which they are warned before the last.
    """

    meaning: str
    prompt: str = ""
    grid: tuple[int | float, ...] = ()
    in_workflow: bool = True
    nudges: bool = False


LIMITS: dict[str, LimitInfo] = {
    "max_handoffs": LimitInfo(
        meaning="there are more handoffs",
        prompt="more than {} handoffs",
        grid=LARGE_GRID,
        in_workflow=False,
        nudges=True,
    ),
    "max_steps": LimitInfo(
        meaning="there are more steps; `task_scope` in the context (`tiny`, `large`) halves or "
        "doubles it",
        prompt="more than {} steps",
        grid=LARGE_GRID,
        in_workflow=False,
        nudges=True,
    ),
    "max_duration": LimitInfo(
        meaning="it has been running so long; waiting for people does not count, agents that "
        "wait do",
        prompt="{} seconds of running time",
        grid=SECONDS_GRID,
        in_workflow=False,
    ),
    "max_waits": LimitInfo(
        meaning="(how often the agents of a team may wait in a stretch; each wait is a step)"
    ),
    "wait_deadline": LimitInfo(
        meaning="an agent of a team still waits so long after the first wait of the stretch",
    ),
    "max_edge": LimitInfo(
        meaning="*soft*: one agent hands to the same one more often",
        prompt="more than {} handoffs from one agent to the same other one without progress",
        grid=SMALL_GRID,
        in_workflow=False,
        nudges=True,
    ),
    "repeat_limit": LimitInfo(
        meaning="*soft*: the same pattern of handoffs comes so often in a row",
        prompt="the same handoffs {} times in a row without progress",
        grid=SMALL_GRID[1:],
        in_workflow=False,
        nudges=True,
    ),
    "pattern_period_max": LimitInfo(meaning="(the longest pattern looked for)"),
    "same_error_limit": LimitInfo(
        meaning="*soft*: the same failure comes so often",
        prompt="the same failure {} times without progress",
        grid=SMALL_GRID,
        nudges=True,
    ),
    "no_change_limit": LimitInfo(
        meaning="*soft*: so many turns left every file as it was",
        prompt="{} turns that should change files and change none",
        grid=SMALL_GRID,
        nudges=True,
    ),
    "research_limit": LimitInfo(
        meaning="*soft*: so many visits brought no better score",
        prompt="{} visits to the same research that bring no better score",
        grid=SMALL_GRID,
        nudges=True,
    ),
    "research_good": LimitInfo(meaning="(a score that is good enough)"),
    "research_gain": LimitInfo(meaning="(what counts as better)"),
    "oscillation_limit": LimitInfo(
        meaning="*soft*: so many turns went back to earlier contents",
        prompt="{} turns that go back to earlier contents",
        grid=SMALL_GRID,
        nudges=True,
    ),
    "protocol_error_limit": LimitInfo(
        meaning="one turn brings so many unusable answers", grid=SMALL_GRID
    ),
    "max_tokens": LimitInfo(
        meaning="more tokens are used, in all stretches together",
        prompt="more than {} tokens",
        grid=TOKENS_GRID,
    ),
    "max_cost": LimitInfo(
        meaning="more is spent, in all stretches together",
        prompt="a cost of more than {}",
        grid=COST_GRID,
    ),
    "tool_limits": LimitInfo(
        meaning="a tool is called more often in a stretch: its name, and how often it may be; a "
        "command counts for the tool that it begins with"
    ),
    "budgets": LimitInfo(
        meaning="one of these budgets, which runs share, is spent when the next step would begin"
    ),
    "constraints": LimitInfo(
        meaning="a forbidden path is touched or a forbidden command run: `paths` and `commands`, "
        "with wildcards"
    ),
    "monologue_limit": LimitInfo(
        meaning="*soft*: an agent says the same text so often in a row, and nothing else happens",
        prompt="the same text {} times in a row",
        grid=SMALL_GRID[1:],
        nudges=True,
    ),
    "weak_news_max": LimitInfo(
        meaning="(how often new texts and growing numbers postpone `max_edge` in a stretch)"
    ),
    "free_visits": LimitInfo(meaning="(whether `max_handoffs` leaves out first visits)"),
    "oscillation_by": LimitInfo(
        meaning="(`returns`: turns that went back to earlier contents; `cycles`: rounds of the "
        "same findings)"
    ),
    "evidence": LimitInfo(
        meaning="(what is progress: `claims` too, a bounded number of times, or only what Handrail "
        "`measured`)"
    ),
    "ladder": LimitInfo(
        meaning="(what comes before a stop; `nudge`: the next agent is told one short of a limit; "
        "`ask`: a person decides whether a team goes on that a soft rule would stop; "
        "`conclude`: a stopped team's agent gives one last answer, with the last of `max_steps`)"
    ),
    "profile": LimitInfo(meaning="the column that fills what is not set"),
}
"""By field, in the order in which a tuner and a prompt name them."""
WORKFLOW_OFF_LIMITS = tuple(name for name, info in LIMITS.items() if not info.in_workflow)

STRICT = Limits()
UNLIMITED = msgspec.structs.replace(
    STRICT,
    max_handoffs=None,
    repeat_limit=None,
    max_duration=None,
    max_steps=None,
    max_edge=None,
    same_error_limit=None,
    no_change_limit=None,
    research_limit=None,
    oscillation_limit=None,
)
"""No rule ends a run, as in a dry run."""
OBSERVED = msgspec.structs.replace(
    STRICT,
    max_handoffs=None,
    max_steps=500,
    max_edge=None,
    max_duration=None,
    research_limit=None,
    oscillation_limit=2,
    oscillation_by="cycles",
    monologue_limit=3,
    weak_news_max=24,
    free_visits=True,
    profile="observed",
)
"""The rules around a program that nobody adapted to them: only what was seen to repeat ends it."""
PROFILES: dict[str, Limits] = {
    "strict": STRICT,
    "yolo": msgspec.structs.replace(
        STRICT,
        same_error_limit=2,
        no_change_limit=2,
        research_limit=2,
        max_edge=4,
        max_steps=50,
        profile="yolo",
    ),
    "observed": OBSERVED,
    "conversation": msgspec.structs.replace(
        OBSERVED, max_handoffs=100, weak_news_max=100, profile="conversation"
    ),
}
SCOPE_FACTORS = {"tiny": 0.5, "small": 1.0, "large": 2.0}
"""Factors on max_steps by `context.task_scope` of the bead."""


def resolve_limits(
    rules: StopRules,
    kind: Literal["workflow", "team"] = "team",
    *,
    profile: ProfileName = "strict",
    wait_deadline: float = WAIT_DEADLINE_SECONDS,
) -> Limits:
    """Return the limits as written; `profile` fills the rest where the rules name none, and the
    installation's `wait_deadline`."""
    filled: dict[str, object] = {
        "constraints": rules.constraints,
        "wait_deadline": wait_deadline,
    }
    if kind == "workflow":
        filled |= dict.fromkeys(WORKFLOW_OFF_LIMITS)
    for name in Limits.__struct_fields__:
        value = getattr(rules, name)
        if value is not UNSET and name != "constraints":
            filled[name] = value
    base = PROFILES[profile if rules.profile is UNSET else rules.profile]
    limits = msgspec.structs.replace(base, **filled)
    if kind == "workflow":  # a workflow's end is its structure's
        ladder = msgspec.structs.replace(limits.ladder, ask=False, conclude=False)
        return msgspec.structs.replace(limits, ladder=ladder)
    return limits


def scale_limits(base: Limits, scope: object) -> Limits:
    """Scale the limits for the bead's `task_scope`; any other value changes nothing."""
    factor = SCOPE_FACTORS.get(scope) if isinstance(scope, str) else None
    if factor is None or factor == 1.0 or base.max_steps is None:
        return base
    return msgspec.structs.replace(base, max_steps=max(1, int(base.max_steps * factor)))
