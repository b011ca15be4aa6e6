"""The store: what engines and servers keep in a database, by subject.

A decision is written by `commit`, all of it or nothing; `rows.py` has the rules. The subjects read,
and write what takes no part in a decision: `store.beads.get(id)`. Every method is one transaction.
`open_store` in `urls.py` opens a store.

Lists are pages, the newest first: `before` is the last id of the previous page, and a filter of
None does not apply.
"""

from typing import TYPE_CHECKING

from handrail.store.agents import AgentStore, EngineLiveness
from handrail.store.beads import BeadStore
from handrail.store.budgets import BudgetStore
from handrail.store.bugs import BugStore
from handrail.store.channels import ChannelStore
from handrail.store.credentials import CredentialStore
from handrail.store.database import Database
from handrail.store.definitions import DefinitionStore
from handrail.store.idempotency_keys import IdempotencyKeyStore
from handrail.store.journal import JournalStore, MessageStore
from handrail.store.locks import LockStore
from handrail.store.notifications import NotificationStore
from handrail.store.runs import ApprovalStore, DispatchStore, RunStore
from handrail.store.stats import StatsStore
from handrail.store.ticket_memory import TicketMemoryStore

if TYPE_CHECKING:
    from handrail.store.maintenance import MaintenanceStore


class Store:
    def __init__(self, database: Database) -> None:
        self.database: Database = database
        self.inline = database.inline
        self.commit = database.commit
        self.check_commit_settled = database.check_commit_settled
        self.has_changed = database.has_changed
        self.close = database.close
        self.agents = AgentStore(database)
        self.approvals = ApprovalStore(database)
        self.beads = BeadStore(database)
        self.budgets = BudgetStore(database)
        self.bugs = BugStore(database)
        self.channels = ChannelStore(database)
        self.credentials = CredentialStore(database)
        self.definitions = DefinitionStore(database)
        self.dispatches = DispatchStore(database)
        self.engines = EngineLiveness(database)
        self.idempotency_keys = IdempotencyKeyStore(database)
        self.journal = JournalStore(database)
        self.locks = LockStore(database)
        self.messages = MessageStore(database)
        self.notifications = NotificationStore(database)
        self.runs = RunStore(database)
        self.stats = StatsStore(database)
        self.ticket_memory = TicketMemoryStore(database)

    def open_reader(self) -> "Store":
        """Open the same database for long queries that engines do not wait for. Call it on a
        thread, and close it. The reader may be this very store."""
        reader = self.database.open_reader()
        return self if reader is self.database else Store(reader)

    def open_maintenance(self) -> "MaintenanceStore | None":
        """Open the same database for maintenance, read-only; the caller closes it. None if the
        database is in memory, where no other connection can read it."""
        from handrail.store.maintenance import MaintenanceStore  # few need it

        database = self.database.open_maintenance()
        return MaintenanceStore(database) if database is not None else None
