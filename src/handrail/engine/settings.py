"""What the installation sets for the engine, beside what the kernel's rules read. In seconds."""

from handrail.kernel.decision import Value
from handrail.kernel.definition import Settings


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
    pulse: float = 0.5
    """How often clocks, leases and messages are looked at."""
    store_patience: float = 300
    """How long an engine waits for a database that is away; then it gives up, and says so."""
