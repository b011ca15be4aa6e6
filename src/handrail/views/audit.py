"""The verification of the record as it is shown."""

from handrail.kernel.decision import Value


class Finding(Value):
    """`stream` is a run's id, "lock:REPOSITORY", or any other stream; `seq` is the last event
    concerned."""

    code: str
    message: str
    stream: str = ""
    seq: int | None = None


class Verification(Value):
    """The extent of a check, and its findings. `head` is the hash of the last commit: store it
    elsewhere, and nobody can cut off what came before."""

    head: str
    at: str
    commits: int
    entries: int
    runs: int
    archived: int
    findings: tuple[Finding, ...] = ()
    more: int = 0
    """Findings beyond those that are stored."""

    @property
    def unaltered(self) -> bool:
        return not self.findings
