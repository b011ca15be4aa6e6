# ruff: noqa: ANN201
"""Flat names of the store's methods, until their callers use the subjects."""

from functools import cached_property

from handrail.store.agents import AgentStore
from handrail.store.approvals import ApprovalStore
from handrail.store.beads import BeadStore
from handrail.store.bugs import BugStore
from handrail.store.channels import ChannelStore
from handrail.store.credentials import CredentialStore
from handrail.store.definitions import DefinitionStore
from handrail.store.dispatches import DispatchStore
from handrail.store.engines import EngineLiveness
from handrail.store.idempotency_keys import IdempotencyKeyStore
from handrail.store.journal import JournalStore
from handrail.store.locks import LockStore
from handrail.store.messages import MessageStore
from handrail.store.notifications import NotificationStore
from handrail.store.runs import RunStore
from handrail.store.stats import StatsStore
from handrail.store.ticket_memory import TicketMemoryStore


class FlatNames:
    """Flat names for methods of the subjects."""

    agents: AgentStore
    approvals: ApprovalStore
    beads: BeadStore
    bugs: BugStore
    channels: ChannelStore
    credentials: CredentialStore
    definitions: DefinitionStore
    dispatches: DispatchStore
    engines: EngineLiveness
    idempotency_keys: IdempotencyKeyStore
    journal: JournalStore
    locks: LockStore
    messages: MessageStore
    notifications: NotificationStore
    runs: RunStore
    stats: StatsStore
    ticket_memory: TicketMemoryStore

    @cached_property
    def load_runs(self):
        return self.runs.load

    @cached_property
    def list_runs(self):
        return self.runs.list

    @cached_property
    def list_bead_runs(self):
        return self.runs.list_of_bead

    @cached_property
    def list_runs_by_id(self):
        return self.runs.list_by_id

    @cached_property
    def get_active_run_id(self):
        return self.runs.get_active_id

    @cached_property
    def list_due_runs(self):
        return self.runs.list_due

    @cached_property
    def postpone_runs(self):
        return self.runs.postpone

    @cached_property
    def list_transitions(self):
        return self.runs.list_transitions

    @cached_property
    def list_transition_rows(self):
        return self.runs.list_transition_rows

    @cached_property
    def add_note(self):
        return self.runs.add_note

    @cached_property
    def list_notes(self):
        return self.runs.list_notes

    @cached_property
    def get_bead(self):
        return self.beads.get

    @cached_property
    def list_beads(self):
        return self.beads.list

    @cached_property
    def create_bead(self):
        return self.beads.create

    @cached_property
    def update_bead_context(self):
        return self.beads.update_context

    @cached_property
    def put_file(self):
        return self.beads.put_file

    @cached_property
    def list_files(self):
        return self.beads.list_files

    @cached_property
    def get_file(self):
        return self.beads.get_file

    @cached_property
    def get_approval(self):
        return self.approvals.get

    @cached_property
    def list_newest_approvals(self):
        return self.approvals.list_newest

    @cached_property
    def list_approvals(self):
        return self.approvals.list

    @cached_property
    def reserve_dispatches(self):
        return self.dispatches.reserve

    @cached_property
    def list_dispatches(self):
        return self.dispatches.list

    @cached_property
    def list_claimed_dispatches(self):
        return self.dispatches.list_claimed

    @cached_property
    def list_orphaned_dispatches(self):
        return self.dispatches.list_orphaned

    @cached_property
    def list_unmatched_dispatches(self):
        return self.dispatches.list_unmatched

    @cached_property
    def put_agent(self):
        return self.agents.put

    @cached_property
    def remove_agent(self):
        return self.agents.remove

    @cached_property
    def list_agents(self):
        return self.agents.list

    @cached_property
    def get_agent(self):
        return self.agents.get

    @cached_property
    def register_agent(self):
        return self.agents.register

    @cached_property
    def set_agent_enabled(self):
        return self.agents.set_enabled

    @cached_property
    def heartbeat_session(self):
        return self.agents.heartbeat

    @cached_property
    def heartbeat_engine(self):
        return self.engines.heartbeat

    @cached_property
    def list_engines(self):
        return self.engines.list

    @cached_property
    def delete_engine(self):
        return self.engines.delete

    @cached_property
    def find_dead_engines(self):
        return self.engines.find_dead

    @cached_property
    def add_outage(self):
        return self.engines.add_outage

    @cached_property
    def list_outages(self):
        return self.engines.list_outages

    @cached_property
    def get_last_alive(self):
        return self.engines.get_last_alive

    @cached_property
    def put_definition(self):
        return self.definitions.put

    @cached_property
    def find_foreign_definition(self):
        return self.definitions.find_foreign

    @cached_property
    def get_definition(self):
        return self.definitions.get

    @cached_property
    def list_definitions_page(self):
        return self.definitions.list

    @cached_property
    def list_definition_versions(self):
        return self.definitions.list_versions

    @cached_property
    def read_journal(self):
        return self.journal.read

    @cached_property
    def read_feed(self):
        return self.journal.read_feed

    @cached_property
    def read_feed_backwards(self):
        return self.journal.read_feed_backwards

    @cached_property
    def get_last_commit(self):
        return self.journal.get_last_commit

    @cached_property
    def iter_commits(self):
        return self.journal.iter_commits

    @cached_property
    def load_stream(self):
        return self.journal.load_stream

    @cached_property
    def list_streams(self):
        return self.journal.list_streams

    @cached_property
    def list_messages(self):
        return self.messages.list

    @cached_property
    def delete_message(self):
        return self.messages.delete

    @cached_property
    def get_idempotency_key(self):
        return self.idempotency_keys.get

    @cached_property
    def put_idempotency_keys(self):
        return self.idempotency_keys.put

    @cached_property
    def delete_idempotency_keys(self):
        return self.idempotency_keys.delete_before

    @cached_property
    def load_locks(self):
        return self.locks.load

    @cached_property
    def list_due_locks(self):
        return self.locks.list_due

    @cached_property
    def list_locks(self):
        return self.locks.list

    @cached_property
    def add_credential(self):
        return self.credentials.add

    @cached_property
    def get_credential(self):
        return self.credentials.get

    @cached_property
    def list_credentials(self):
        return self.credentials.list

    @cached_property
    def revoke_credential(self):
        return self.credentials.revoke

    @cached_property
    def use_sign_in(self):
        return self.credentials.use_sign_in

    @cached_property
    def has_active_tokens(self):
        return self.credentials.has_active_tokens

    @cached_property
    def load_channels(self):
        return self.channels.load

    @cached_property
    def list_due_channels(self):
        return self.channels.list_due

    @cached_property
    def get_agent_loads(self):
        return self.channels.get_agent_loads

    @cached_property
    def list_presence_changes(self):
        return self.channels.list_presence_changes

    @cached_property
    def list_active_turns(self):
        return self.channels.list_active_turns

    @cached_property
    def list_channels_waiting_for(self):
        return self.channels.list_waiting_for

    @cached_property
    def has_channel_members(self):
        return self.channels.has_members

    @cached_property
    def list_memberships(self):
        return self.channels.list_memberships

    @cached_property
    def list_open_channels(self):
        return self.channels.list_open

    @cached_property
    def list_channels(self):
        return self.channels.list

    @cached_property
    def list_channel_members(self):
        return self.channels.list_members

    @cached_property
    def read_channel_log(self):
        return self.channels.read_log

    @cached_property
    def list_channel_messages(self):
        return self.channels.list_messages

    @cached_property
    def add_late_answer(self):
        return self.channels.add_late_answer

    @cached_property
    def put_memories(self):
        return self.ticket_memory.put

    @cached_property
    def search_memories(self):
        return self.ticket_memory.search

    @cached_property
    def record_memory_use(self):
        return self.ticket_memory.record_use

    @cached_property
    def get_memory(self):
        return self.ticket_memory.get

    @cached_property
    def list_memories(self):
        return self.ticket_memory.list

    @cached_property
    def change_memory(self):
        return self.ticket_memory.change

    @cached_property
    def get_bug(self):
        return self.bugs.get

    @cached_property
    def put_bug(self):
        return self.bugs.put

    @cached_property
    def increment_bug(self):
        return self.bugs.increment

    @cached_property
    def list_bugs(self):
        return self.bugs.list

    @cached_property
    def count_bugs_since(self):
        return self.bugs.count_since

    @cached_property
    def count_open_work(self):
        return self.stats.count_open_work

    @cached_property
    def list_ended_runs(self):
        return self.stats.list_ended_runs

    @cached_property
    def put_run_stats(self):
        return self.stats.put

    @cached_property
    def sum_definition_stats(self):
        return self.stats.sum_definitions

    @cached_property
    def sum_node_stats(self):
        return self.stats.sum_nodes

    @cached_property
    def add_answer_link(self):
        return self.notifications.add_answer_link

    @cached_property
    def get_answer_link(self):
        return self.notifications.get_answer_link

    @cached_property
    def use_answer_link(self):
        return self.notifications.use_answer_link

    @cached_property
    def add_webhook(self):
        return self.notifications.add_webhook

    @cached_property
    def list_webhooks(self):
        return self.notifications.list_webhooks

    @cached_property
    def remove_webhook(self):
        return self.notifications.remove_webhook

    @cached_property
    def enable_webhook(self):
        return self.notifications.enable_webhook

    @cached_property
    def lease_webhook(self):
        return self.notifications.lease_webhook

    @cached_property
    def record_delivery(self):
        return self.notifications.record_delivery

    @cached_property
    def record_delivery_failure(self):
        return self.notifications.record_delivery_failure

    @cached_property
    def release_webhook(self):
        return self.notifications.release_webhook

    @cached_property
    def get_delivery_position(self):
        return self.notifications.get_delivery_position

    @cached_property
    def put_deliveries(self):
        return self.notifications.put_deliveries

    @cached_property
    def get_next_delivery(self):
        return self.notifications.get_next_delivery

    @cached_property
    def count_pending_deliveries(self):
        return self.notifications.count_pending_deliveries

    @cached_property
    def list_due_reminders(self):
        return self.notifications.list_due_reminders

    @cached_property
    def fire_reminder(self):
        return self.notifications.fire_reminder

    @cached_property
    def delete_old_notifications(self):
        return self.notifications.delete_old_notifications
