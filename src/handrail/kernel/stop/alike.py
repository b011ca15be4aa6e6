"""What was alike in the steps that a rule cites, in words; and the short code of a stop.

The words name agents, tools and how much was the same. They hold no text of a program, because a
finding holds none, unless the guard records texts in full (`StepFinding.what`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from handrail.kernel.decision import Value
from handrail.kernel.stop.findings import FindingKind, StepFinding

WHAT_CHARS_MAX = 300
CODE_NAMES_MAX, CODE_NAME_CHARS = 3, 40
"""Names in a code, and characters of each."""
AlikeKind = Literal["call", "text", "state", "handoff"]
_NOT_NAME = re.compile(r"[\W_]+")


class AlikeStep(Value):
    """One of the cited steps and what it had in common with the others. Of kind `handoff`, `step`
    is the number of the handoff, as in the citation.
    """

    step: int
    kind: AlikeKind
    what: Annotated[str, Meta(max_length=WHAT_CHARS_MAX)]

    @property
    def citation(self) -> str:
        return f"{'handoff' if self.kind == 'handoff' else 'step'} {self.step}"


class EffectCall(Value):
    """A call of a tool with an effect outside of the run."""

    step: int
    agent: str
    tool: str


def alike_steps(
    citations: Iterable[str], kind: AlikeKind, texts: Sequence[str]
) -> tuple[AlikeStep, ...]:
    """Say of each cited event what it had in common with the others. The texts are those of the
    last events; if there are fewer, they repeat.
    """
    numbers = [int(citation.rpartition(" ")[2]) for citation in citations]
    return tuple(
        AlikeStep(step=number, kind=kind, what=texts[i % len(texts)][:WHAT_CHARS_MAX])
        for i, number in enumerate(numbers, -len(numbers))
    )


def describe_findings(findings: Iterable[StepFinding]) -> str:
    """Say what a step found that other steps found too."""
    return "; ".join(describe_finding(finding) for finding in findings)[:WHAT_CHARS_MAX]


def describe_finding(finding: StepFinding) -> str:
    quotation = f": {finding.what}" if finding.what else ""
    if finding.kind is FindingKind.CALL:
        answer = "same failure" if finding.failed else "same answer"
        return f"{finding.agent}, {finding.tool}: same arguments, {answer}{quotation}"
    return f"{finding.agent or 'a person'}: {SAME_BY_KIND[finding.kind]}{quotation}"


SAME_BY_KIND = {
    FindingKind.TEXT: "same text",
    FindingKind.STATE: "same state",
    FindingKind.HANDOFF: "handed over in the same words",
    FindingKind.PERSON: "said the same",
}
ALIKE_KINDS: dict[FindingKind, AlikeKind] = {
    FindingKind.CALL: "call",
    FindingKind.TEXT: "text",
    FindingKind.STATE: "state",
    FindingKind.HANDOFF: "text",
    FindingKind.PERSON: "text",
}


def stop_code(rule: str, alike: Sequence[AlikeStep], names: Iterable[str]) -> str:
    """Return the code of a stop: short, and the same whenever the same agents or tools stop in the
    same way, as `planner_researcher_loop` or `same_call_bash`.
    """
    subjects = list(dict.fromkeys(_NOT_NAME.sub("_", name).strip("_").lower() for name in names))
    subject = "_".join(name[:CODE_NAME_CHARS] for name in subjects[:CODE_NAMES_MAX] if name)
    if not subject:
        return rule
    if rule in LOOP_RULES:
        return f"{subject}_loop"
    if rule == "no_change":
        return f"same_{alike[0].kind}_{subject}"
    return f"{rule}_{subject}"


LOOP_RULES = ("repeated_pattern", "max_edge", "oscillation")
"""Rules whose stops name the agents that go in circles."""
