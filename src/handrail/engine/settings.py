"""How an engine runs; light to import, because every command reads the settings."""

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Settings


class EngineSettings(Value):
    """How an engine runs; `kernel` holds what definitions are checked and runs are decided by."""

    kernel: Settings = Settings()
    lease: float = 60
    """Silence after which an agent loses what it has claimed."""
    heartbeat: float = 15
    """How often an agent, and an engine for its functions, should send a heartbeat."""
    offline_after: float = 60
    """Silence after which an agent is shown as offline."""
    idempotency_keep: float = 86400
    memory_max: int = 10_000
    """Remembered resolutions; beyond that the least recently used are forgotten."""
    pulse: float = 0.5
    """How often clocks, leases and messages are checked."""
    turn_timeout: float = 60
    """How long a turn may take in a channel that does not set this itself."""
    wait_timeout: float = 300
    """How long an agent may pause its turn, likewise."""
    budgets: tuple[str, ...] = ()
    """Budgets that runs share, such as `support = 20 cost a day`; a person's limits win."""
    runs_folder: str = ""
    """Folder for the report of every ended run; "" for none."""
    issues_file: str = ""
    """File that gets an entry for every aborted run; "" for none."""
    store_patience: float = 300
    """How long an engine waits for an unavailable database before it fails."""
