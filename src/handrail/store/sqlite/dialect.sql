-- Statements of SQLite alone, or in place of a shared one; each says why.

-- insert_executions: runs that begin (a taken key fails the statement, which finds the loser)
INSERT INTO workflow_executions ({RunRow}) {values RunRow};

-- insert_locks: locks of repositories without one (as above)
INSERT INTO commit_locks ({LockRow}) {values LockRow};

-- insert_streams: streams without a table of their own (as above)
INSERT INTO streams ({StreamRow}) {values StreamRow};

-- insert_channels: new channels (as above)
INSERT INTO channels ({ChannelRow}) {values ChannelRow};

-- move_executions: only the position of a run changes; no index is touched (one writer: the
-- statement checks the head itself, and the number of rows tells whether all won)
UPDATE workflow_executions
SET current_node_id = :current_node_id, seq = :seq, head = :head, updated_at = :updated_at
WHERE id = :id AND head = :expected_head;

-- update_executions: a run that goes on; without a new state the old state stays (columns that only
-- an end sets are omitted, or SQLite would rewrite their indexes)
UPDATE workflow_executions SET
  {set RunRow -id -bead_id -terminal_status -stop_rule -created_at -ended_at -state -state_seq},
  state = coalesce(:state, state),
  state_seq = CASE WHEN :state IS NULL THEN state_seq ELSE :state_seq END
WHERE id = :id AND head = :expected_head;

-- end_executions: runs that have ended (as above)
UPDATE workflow_executions SET {set RunRow -id -bead_id -created_at -state -state_seq},
  state = coalesce(:state, state),
  state_seq = CASE WHEN :state IS NULL THEN state_seq ELSE :state_seq END
WHERE id = :id AND head = :expected_head;

-- update_locks: (guarded like runs)
UPDATE commit_locks SET {set LockRow -repository}
WHERE repository = :repository AND head = :expected_head;

-- update_streams: (guarded like runs)
UPDATE streams SET {set StreamRow -name} WHERE name = :name AND head = :expected_head;

-- update_channels: (guarded like runs)
UPDATE channels SET {set ChannelRow -id} WHERE id = :id AND head = :expected_head;

-- insert_entries: appended (one writer knows the numbers)
INSERT INTO journal (id, batch, stream, seq, count, body, hash)
VALUES (:id, :batch, :stream, :seq, :count, :body, :hash);

-- insert_commit: the commit (one writer knows its number and hash)
INSERT INTO commits (n, batch, first_id, last_id, entries, at, hash)
VALUES (:n, :n, :first_id, :last_id, :entries, :at, :hash);

-- last_entry: the newest row of the journal (one writer numbers the entries)
SELECT coalesce(max(id), 0) FROM journal;

-- delete_dispatches: closed dispatches (PostgreSQL takes arrays)
DELETE FROM dispatches WHERE execution_id = :execution_id AND fence = :fence;

-- put_dispatches: offered or claimed (PostgreSQL has to find a second dispatch of a step itself)
INSERT INTO dispatches ({DispatchRow}) {values DispatchRow}
ON CONFLICT (execution_id, fence) DO UPDATE SET agent = excluded.agent, session = excluded.session,
  claimed_at = excluded.claimed_at;

-- beads_left: beads of archived runs that stay, because another of their runs does (one writer)
SELECT {BeadRow} FROM beads WHERE id IN list(:bead_ids) ORDER BY id;

-- delete_messages: consumed messages (PostgreSQL takes arrays)
DELETE FROM messages WHERE id = :id;

-- delete_members: members that left or were removed (PostgreSQL takes arrays)
DELETE FROM channel_members WHERE channel_id = :channel_id AND agent_id = :agent_id;

-- execution: a run with its state (a read on the event loop, by its key)
SELECT {RunRow} FROM workflow_executions WHERE id = :id;

-- tail: entries since the stored state, up to the run's sequence number (as above)
SELECT body FROM journal WHERE stream = :stream AND seq > :after AND seq <= :upto ORDER BY seq;

-- postpone_runs: set the next clock of runs that were not due (one writer: no row is locked)
UPDATE workflow_executions SET next_due = ?3 WHERE id = ?1 AND head = ?2;

-- offered_dispatches: dispatches offered to a role (one process: nobody to reserve them from)
SELECT {DispatchRow} FROM dispatches WHERE role = :role AND agent IS NULL
ORDER BY priority DESC, offered_at LIMIT :limit;

-- journal: the entries of one stream (`batch` is the number of the commit: one index less)
SELECT stream, seq, count, coalesce(body, ''), hash, batch, id FROM journal
WHERE stream = :stream AND seq > :after_seq ORDER BY seq LIMIT :limit;

-- search_memories: valid memories with any of the words, except those that answered the bead in
-- another run (FTS5)
SELECT {MemoryRow m} FROM memory_words w JOIN memories_standing m ON m.n = w.rowid
WHERE w.memory_words MATCH :words AND m.standing = 'kept' AND NOT EXISTS (
  SELECT 1 FROM memory_uses u
  WHERE u.bead_id = :bead_id AND u.memory_id = m.id AND u.execution_id <> :execution_id)
ORDER BY w.rank
LIMIT :limit;
