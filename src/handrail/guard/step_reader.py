"""Read what a step showed as evidence, of the kind that the profile judges."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from handrail.guard.tool_calls import ToolCall, claim_of, read_text, read_tool_call
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence
from handrail.kernel.stop.findings import FindingReader, StepFinding
from handrail.kernel.stop.tool_claims import check_tool_call, claim_tool_calls


class StepReader:
    """Reads the steps of one run; `quotes`: their texts are in the evidence."""

    def __init__(self, limits: Limits, reader: FindingReader, *, quotes: bool) -> None:
        self._limits, self._reader, self._quotes = limits, reader, quotes

    def tool_evidence(self, calls: Sequence[ToolCall]) -> Evidence:
        """Return the tool calls of one step as evidence, of the kind that the profile judges."""
        keep_arguments, quote = bool(self._limits.constraints.commands), self._quotes
        if not self._limits.judges_findings:
            claims = [claim_of(call) for call in calls]
            return claim_tool_calls(claims, keep_arguments=keep_arguments, quote=quote)
        checks = (
            tuple(
                check_tool_call(claim_of(call), keep_arguments=True, quote=quote) for call in calls
            )
            if keep_arguments
            else ()
        )
        findings = [read_tool_call(self._reader, call, quote=quote) for call in calls]
        return Evidence(checks=checks, measured=True, findings=tuple(findings))

    def read_step(
        self,
        agent: str,
        text: str,
        calls: Sequence[ToolCall] = (),
        state: Mapping[str, Any] | str | None = None,
        handoff: tuple[str, str] | None = None,
    ) -> Evidence:
        """Return what a step showed as evidence: its calls, or else its text, or else that it did
        nothing but hand over, to whom and why; and its state.
        """
        if not self._limits.judges_findings:
            return self.tool_evidence(calls) if calls else NO_EVIDENCE
        evidence = (
            self.tool_evidence(calls)
            if calls
            else self.findings(read_text(self._reader, agent, text, quote=self._quotes))
        )
        if state is None:
            if evidence is NO_EVIDENCE and handoff is not None:
                return self.findings(self._reader.read_handoff(agent, *handoff))
            return evidence
        findings = (*evidence.findings, self._reader.read_state(agent, state))
        return replace(evidence, measured=True, findings=findings)

    def findings(self, finding: StepFinding | None) -> Evidence:
        """Return a finding as evidence, in profiles that judge findings."""
        if finding is None or not self._limits.judges_findings:
            return NO_EVIDENCE
        return Evidence(measured=True, findings=(finding,))
