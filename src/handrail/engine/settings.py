"""What the installation sets for the engine, beside what the kernel's rules read. In seconds."""

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Settings


class EngineSettings(Value):
    """How an engine runs; `kernel` is what definitions are checked and runs are decided by."""

    kernel: Settings = Settings()
    lease: float = 60
    """An agent that was silent for so long has lost what it had claimed."""
    heartbeat: float = 15
    """How often an agent, and an engine for its functions, should say that it is alive."""
    offline_after: float = 60
    """An agent that was silent for so long is shown as offline."""
    idempotency_keep: float = 86400
    memory_max: int = 10_000
    """Remembered resolutions; beyond that those that were not used for longest are forgotten."""
    pulse: float = 0.5
    """How often clocks, leases and messages are looked at."""
    turn_timeout: float = 60
    """How long a turn may take in a channel that does not say so itself."""
    wait_timeout: float = 300
    """How long an agent may pause its turn, likewise."""
    runs_folder: str = ""
    """Where the report of every run that ended is written; "" for nowhere."""
    issues_file: str = ""
    """Where an entry is appended for every run that was aborted; "" for nowhere."""
    store_patience: float = 300
    """How long an engine waits for a database that is away; then it gives up, and says so."""
