-- insert_execution: a run that begins
INSERT INTO workflow_executions (id, bead_id, workflow_id, workflow_version, current_node_id, status,
  terminal_status, stop_rule, priority, seq, head, next_due, created_at, updated_at, ended_at, state,
  state_seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- move_execution: only the position of the run changes; no index is touched
UPDATE workflow_executions SET current_node_id = ?, seq = ?, head = ?, updated_at = ?
WHERE id = ? AND head = ?;

-- update_execution: a run that goes on; without a new state the old state stays. Columns that only
-- an end sets are omitted, or SQLite would rewrite their indexes.
UPDATE workflow_executions SET workflow_id = ?, workflow_version = ?, current_node_id = ?, status = ?,
  priority = ?, seq = ?, head = ?, next_due = ?, updated_at = ?,
  state = coalesce(?, state), state_seq = CASE WHEN ? IS NULL THEN state_seq ELSE ? END
WHERE id = ? AND head = ?;

-- end_execution: it has ended
UPDATE workflow_executions SET workflow_id = ?, workflow_version = ?, current_node_id = ?, status = ?,
  priority = ?, seq = ?, head = ?, next_due = ?, updated_at = ?,
  state = coalesce(?, state), state_seq = CASE WHEN ? IS NULL THEN state_seq ELSE ? END,
  terminal_status = ?, stop_rule = ?, ended_at = ?
WHERE id = ? AND head = ?;

-- insert_lock: the lock of a repository without one
INSERT INTO commit_locks (repository, holder_execution_id, holder_step, fence, seq, head, next_due,
  updated_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- update_lock: guarded like a run
UPDATE commit_locks SET holder_execution_id = ?, holder_step = ?, fence = ?, seq = ?, head = ?,
  next_due = ?, updated_at = ?, state = ?
WHERE repository = ? AND head = ?;

-- insert_stream: a stream without a table of its own
INSERT INTO streams (name, seq, head) VALUES (?, ?, ?);

-- update_stream: guarded like a run
UPDATE streams SET seq = ?, head = ? WHERE name = ? AND head = ?;

-- insert_entry: appended
INSERT INTO journal (id, batch, stream, seq, count, body, hash) VALUES (?, ?, ?, ?, ?, ?, ?);

-- insert_transition: appended
INSERT INTO workflow_transitions (execution_id, seq, from_node_id, to_node_id, outcome, reason, actor,
  timestamp)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- put_approval: an open or settled approval; a settled approval stays unchanged
INSERT INTO approvals (id, execution_id, bead_id, node_id, type, status, question, digest, deadline,
  created_at, decision, answer, answered_by, settled_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, deadline = excluded.deadline,
  decision = excluded.decision, answer = excluded.answer, answered_by = excluded.answered_by,
  settled_at = excluded.settled_at
WHERE approvals.status = 'open';

-- delete_dispatch: delete a closed dispatch
DELETE FROM dispatches WHERE execution_id = ? AND fence = ?;

-- put_dispatch: an offered or claimed dispatch
INSERT INTO dispatches (execution_id, fence, place, role, priority, offered_at, agent, session,
  claimed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (execution_id, fence) DO UPDATE SET agent = excluded.agent, session = excluded.session,
  claimed_at = excluded.claimed_at;

-- put_bead: the bead of a run that begins, or as the run left it
INSERT INTO beads (id, title, description, status, priority, filed_by, context, error, workflow_id,
  execution_id, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, context = excluded.context,
  error = excluded.error, workflow_id = excluded.workflow_id, execution_id = excluded.execution_id,
  updated_at = excluded.updated_at;

-- insert_bead: insert a new bead
INSERT INTO beads (id, title, description, status, priority, filed_by, context, error, workflow_id,
  execution_id, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- bead: one bead
SELECT id, title, description, status, priority, filed_by, context, error, workflow_id, execution_id,
  created_at, updated_at
FROM beads WHERE id = ?;

-- active_run: the run of a bead that has not ended
SELECT id FROM workflow_executions WHERE bead_id = ? AND ended_at IS NULL;

-- insert_message: a message is sent once for its cause
INSERT INTO messages (id, target, body, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING;

-- delete_message: delete a consumed message
DELETE FROM messages WHERE id = ?;

-- messages: the oldest messages
SELECT id, target, body, created_at FROM messages ORDER BY n LIMIT ?;

-- insert_key: the response to a request, for retries
INSERT INTO idempotency_keys (key, actor, digest, answer, created_at) VALUES (?, ?, ?, ?, ?);

-- key: the response to a request
SELECT key, actor, digest, answer, created_at FROM idempotency_keys WHERE key = ? AND actor = ?;

-- forget_keys: delete old keys
DELETE FROM idempotency_keys WHERE created_at < ?;

-- last_commit: the end of the chain
SELECT n, hash, at, entries FROM commits ORDER BY n DESC LIMIT 1;

-- insert_commit: insert the commit
INSERT INTO commits (n, batch, first_id, last_id, entries, at, hash) VALUES (?, ?, ?, ?, ?, ?, ?);

-- last_entry: the newest row of the journal
SELECT coalesce(max(id), 0) FROM journal;

-- execution: a run with its state
SELECT id, bead_id, workflow_id, workflow_version, current_node_id, status, terminal_status,
  stop_rule, priority, seq, head, next_due, created_at, updated_at, ended_at, state, state_seq
FROM workflow_executions WHERE id = ?;

-- tail: entries since the stored state, up to the run's sequence number
SELECT body FROM journal WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq;

-- lock: the lock of a repository
SELECT repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state
FROM commit_locks WHERE repository = ?;

-- stream: a stream by name
SELECT name, seq, head FROM streams WHERE name = ?;

-- due: runs of which a clock may have expired
SELECT id FROM workflow_executions WHERE next_due <= ? ORDER BY next_due LIMIT ?;

-- locks_due: locks whose holder may be silent for too long
SELECT repository FROM commit_locks WHERE next_due <= ? ORDER BY next_due LIMIT ?;

-- postpone: set the next clock of a run that was not due
UPDATE workflow_executions SET next_due = ? WHERE id = ? AND head = ?;

-- on_offer: dispatches offered to this role
SELECT execution_id, fence, place, role, priority, offered_at, agent, session, claimed_at
FROM dispatches WHERE role = ? AND agent IS NULL ORDER BY priority DESC, offered_at LIMIT ?;

-- put_agent: register or change an agent
INSERT INTO agents (id, roles, capacity, enabled, session, engine, beat_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET roles = excluded.roles, capacity = excluded.capacity,
  enabled = excluded.enabled, session = excluded.session, engine = excluded.engine,
  beat_at = excluded.beat_at;

-- remove_agent: remove an agent
DELETE FROM agents WHERE id = ?;

-- agents: all agents
SELECT id, roles, capacity, enabled, session, engine, beat_at FROM agents ORDER BY id;

-- beat: record that a session is alive
UPDATE agents SET beat_at = ? WHERE session = ?;

-- beat_engine: record that an engine is alive
INSERT INTO engines (id, beat_at) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at;

-- beat_functions: record that the functions of an engine are alive
UPDATE agents SET beat_at = ? WHERE engine = ?;

-- engines: when each was last alive
SELECT id, beat_at FROM engines ORDER BY id;

-- forget_engine: delete an engine
DELETE FROM engines WHERE id = ?;

-- forget_functions: delete the functions of an engine
DELETE FROM agents WHERE engine = ?;

-- orphans: claimed dispatches without a live agent
SELECT d.execution_id, d.fence, d.place, d.role, d.priority, d.offered_at, d.agent, d.session,
  d.claimed_at
FROM dispatches d LEFT JOIN agents a ON a.id = d.agent AND a.session = d.session
WHERE d.agent IS NOT NULL AND (a.id IS NULL OR a.beat_at <= ? OR NOT a.enabled)
LIMIT ?;

-- unmanned: offered dispatches whose role no live agent has
SELECT d.execution_id, d.fence, d.place, d.role, d.priority, d.offered_at, d.agent, d.session,
  d.claimed_at
FROM dispatches d
WHERE d.agent IS NULL AND d.offered_at <= ? AND d.role NOT IN (
  SELECT r.value FROM agents a, json_each(a.roles) r WHERE a.enabled AND a.beat_at > ?)
ORDER BY d.offered_at LIMIT ?;

-- add_outage: record that no engine was alive in between
INSERT INTO outages (started_at, ended_at) SELECT ?, ?
WHERE NOT EXISTS (SELECT 1 FROM outages WHERE ended_at > ?);

-- outages: outages that ended later
SELECT started_at, ended_at FROM outages WHERE ended_at > ? ORDER BY ended_at;

-- last_alive: the latest trace of any engine
SELECT max(at) FROM (
  SELECT at FROM (SELECT at FROM commits ORDER BY n DESC LIMIT 1)
  UNION ALL SELECT max(beat_at) FROM engines
  UNION ALL SELECT max(ended_at) FROM outages
);

-- put_workflow: the newest version is the definition
INSERT INTO workflows (id, name, kind, version, definition, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind, version = excluded.version,
  definition = excluded.definition, updated_at = excluded.updated_at
WHERE excluded.version > workflows.version;

-- put_version: a version is written once
INSERT INTO workflow_versions (workflow_id, version, name, kind, definition, created_by, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- foreign_definition: by id or name, with a version by another owner
SELECT w.id FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id
WHERE (w.id IN (?1, ?2) OR w.name IN (?1, ?2)) AND v.created_by <> ?3
ORDER BY w.id LIMIT 1;

-- version: a version by id, else by the name of the newest version
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id
WHERE (w.id = ?1 OR w.name = ?1) AND v.version = ?2
ORDER BY w.id = ?1 DESC, w.updated_at DESC LIMIT 1;

-- newest_version: the newest version by id, else by name
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
WHERE w.id = ?1 OR w.name = ?1 ORDER BY w.id = ?1 DESC, w.updated_at DESC LIMIT 1;

-- definitions: the newest version of each definition
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
ORDER BY w.id;

-- count_note: every note is counted
UPDATE workflow_executions SET notes = notes + 1 WHERE id = ? RETURNING notes;

-- insert_note: keep a note, up to the limit
INSERT INTO notes (execution_id, at, actor, code, body) VALUES (?, ?, ?, ?, ?);

-- notes: notes in order, each with the total count
SELECT n.execution_id, n.at, n.actor, n.code, n.body, e.notes
FROM notes n JOIN workflow_executions e ON e.id = n.execution_id
WHERE n.execution_id = ? ORDER BY n.id;

-- journal: the entries of one stream; `batch` is the number of the commit
SELECT batch, id, stream, seq, count, coalesce(body, ''), hash FROM journal
WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?;

-- commits: the chain
SELECT n, hash, at, entries, batch, first_id, last_id FROM commits WHERE n > ? ORDER BY n LIMIT ?;

-- entries: the entries of a commit
SELECT ?, id, stream, seq, count, coalesce(body, ''), hash FROM journal
WHERE id BETWEEN ? AND ? AND batch = ? ORDER BY id;

-- transitions: transitions of one run
SELECT id, from_node_id, to_node_id, outcome, reason, actor, timestamp FROM workflow_transitions
WHERE execution_id = ? ORDER BY id;

-- approvals: approvals of one status, or all
SELECT id, execution_id, bead_id, node_id, type, status, question, digest, deadline, created_at,
  decision, answer, answered_by, settled_at
FROM approvals WHERE ?1 IS NULL OR status = ?1 ORDER BY created_at, id LIMIT ?2;

-- approvals_of: approvals of one run, of one status or all
SELECT id, execution_id, bead_id, node_id, type, status, question, digest, deadline, created_at,
  decision, answer, answered_by, settled_at
FROM approvals WHERE execution_id = ?1 AND (?2 IS NULL OR status = ?2)
ORDER BY created_at, id LIMIT ?3;

-- dispatches: dispatches of one run
SELECT execution_id, fence, place, role, priority, offered_at, agent, session, claimed_at
FROM dispatches WHERE execution_id = ? ORDER BY fence;

-- executions: a page of runs, without their states
SELECT id, bead_id, workflow_id, workflow_version, current_node_id, status, terminal_status,
  stop_rule, priority, seq, head, next_due, created_at, updated_at, ended_at, NULL, state_seq
FROM workflow_executions
WHERE id > ?1 AND (?2 IS NULL OR bead_id = ?2) AND (?3 IS NULL OR status = ?3)
ORDER BY id LIMIT ?4;

-- transition_rows: a page of a run's transitions, with all columns
SELECT id, execution_id, seq, from_node_id, to_node_id, outcome, reason, actor, timestamp
FROM workflow_transitions WHERE execution_id = ? AND id > ? ORDER BY id LIMIT ?;

-- all_locks: all commit locks
SELECT repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state
FROM commit_locks ORDER BY repository;

-- all_streams: streams without a table of their own
SELECT name, seq, head FROM streams ORDER BY name;

-- finished: a page of runs that ended before a moment
SELECT id FROM workflow_executions WHERE status = 'ended' AND ended_at < ? AND id > ?
ORDER BY id LIMIT ?;

-- prune_execution: delete an archived run, if unchanged
DELETE FROM workflow_executions WHERE id = ? AND head = ? AND notes = ? AND status = 'ended';

-- prune_transitions: delete the transitions of an archived run
DELETE FROM workflow_transitions WHERE execution_id = ?;

-- prune_approvals: delete the approvals of an archived run
DELETE FROM approvals WHERE execution_id = ?;

-- prune_notes: delete the notes of an archived run
DELETE FROM notes WHERE execution_id = ?;

-- prune_bodies: delete the bodies of entries; the chain keeps their hashes
UPDATE journal SET body = NULL WHERE stream = ?;

-- prune_bead: delete the bead of an archived run without other stored runs
DELETE FROM beads WHERE execution_id = ?
AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.bead_id = beads.id);

-- anything: whether anything was ever stored
SELECT EXISTS (SELECT 1 FROM commits) OR EXISTS (SELECT 1 FROM journal)
  OR EXISTS (SELECT 1 FROM workflow_versions) OR EXISTS (SELECT 1 FROM beads)
  OR EXISTS (SELECT 1 FROM workflow_executions);

-- stray_entry: an entry that belongs to no commit
SELECT j.stream, j.seq FROM journal j LEFT JOIN commits c ON c.n = j.batch
WHERE c.n IS NULL OR c.batch <> j.batch OR j.id NOT BETWEEN c.first_id AND c.last_id;

-- stray_transition: a transition of no run
SELECT t.execution_id, t.seq FROM workflow_transitions t
WHERE NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = t.execution_id);

-- stray_approval: an approval of no run
SELECT a.execution_id, a.id FROM approvals a
WHERE NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = a.execution_id);

-- stray_bead: a bead whose run does not exist
SELECT b.execution_id, b.id FROM beads b WHERE b.execution_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = b.execution_id);

-- doctor_version: a run's version is its last sequence number, its head the last hash
SELECT e.id, 'the row says ' || e.seq || ', the journal ' || coalesce(j.seq, 0)
FROM workflow_executions e
LEFT JOIN journal j ON j.stream = e.id AND j.seq = (SELECT max(seq) FROM journal WHERE stream = e.id)
WHERE j.seq IS NULL OR j.seq <> e.seq OR j.hash <> e.head OR e.state_seq > e.seq;

-- doctor_lock_version: the same for a commit lock
SELECT l.repository, 'the row says ' || l.seq || ', the journal ' || coalesce(j.seq, 0)
FROM commit_locks l LEFT JOIN journal j ON j.stream = 'lock:' || l.repository
  AND j.seq = (SELECT max(seq) FROM journal WHERE stream = 'lock:' || l.repository)
WHERE j.seq IS NULL OR j.seq <> l.seq OR j.hash <> l.head;

-- doctor_stream_version: the same for any other stream
SELECT s.name, 'the row says ' || s.seq || ', the journal ' || coalesce(j.seq, 0)
FROM streams s
LEFT JOIN journal j ON j.stream = s.name AND j.seq = (SELECT max(seq) FROM journal WHERE stream = s.name)
WHERE j.seq IS NULL OR j.seq <> s.seq OR j.hash <> s.head;

-- doctor_gap: the sequence numbers of a stream have no gaps
SELECT stream, 'after ' || before || ' comes ' || (seq - count + 1)
FROM (SELECT stream, seq, count, lag(seq, 1, 0) OVER (PARTITION BY stream ORDER BY seq) AS before
  FROM journal)
WHERE seq - count <> before;

-- doctor_dispatch_twice: a step has one open dispatch
SELECT execution_id, place FROM dispatches GROUP BY execution_id, place HAVING count(*) > 1;

-- doctor_dispatch_of_finished: a finished run has no dispatches
SELECT d.execution_id, d.place FROM dispatches d
LEFT JOIN workflow_executions e ON e.id = d.execution_id
WHERE e.id IS NULL OR e.status = 'ended';

-- doctor_lost_session: a claimed dispatch has a live session, or is taken back after the lease
SELECT d.execution_id, d.place || ', claimed by ' || d.agent
FROM dispatches d LEFT JOIN agents a ON a.id = d.agent AND a.session = d.session
WHERE d.agent IS NOT NULL AND d.claimed_at < strftime('%Y-%m-%dT%H:%M:%f', ?1, '-5 minutes')
  AND (a.id IS NULL OR a.beat_at < strftime('%Y-%m-%dT%H:%M:%f', ?1, '-5 minutes'));

-- doctor_two_holders: a repository has one lock, with one holder
SELECT repository, count(*) || ' rows' FROM commit_locks GROUP BY repository HAVING count(*) > 1;

-- doctor_holder_finished: a lock's holder has not ended, unless a message to the lock is under way
SELECT l.repository, 'held by ' || l.holder_execution_id FROM commit_locks l
LEFT JOIN workflow_executions e ON e.id = l.holder_execution_id
WHERE l.holder_execution_id IS NOT NULL AND (e.id IS NULL OR e.status = 'ended')
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.target = 'lock:' || l.repository);

-- doctor_two_runs: a bead has one active run
SELECT bead_id, group_concat(id, ', ') FROM workflow_executions WHERE status <> 'ended'
GROUP BY bead_id HAVING count(*) > 1;

-- doctor_half_ended: an ended run has all columns of an end, another run none of them
SELECT id, 'its status is ' || status FROM workflow_executions
WHERE (status = 'ended') <> (ended_at IS NOT NULL)
  OR (status = 'ended') <> (terminal_status IS NOT NULL)
  OR (status = 'ended') <> (stop_rule IS NOT NULL);

-- doctor_no_clock: every active run has a clock
SELECT id, 'its status is ' || status FROM workflow_executions
WHERE status <> 'ended' AND next_due IS NULL;

-- doctor_overdue: an engine handles every expired clock
SELECT id, 'due since ' || next_due FROM workflow_executions
WHERE next_due < strftime('%Y-%m-%dT%H:%M:%f', ?1, '-5 minutes');

-- doctor_lock_overdue: the same for a commit lock
SELECT repository, 'due since ' || next_due FROM commit_locks
WHERE next_due < strftime('%Y-%m-%dT%H:%M:%f', ?1, '-5 minutes');

-- doctor_question_of_finished: a finished run has no open approvals
SELECT a.execution_id, a.id FROM approvals a
LEFT JOIN workflow_executions e ON e.id = a.execution_id
WHERE a.status = 'open' AND (e.id IS NULL OR e.status = 'ended');

-- doctor_waits_for_nobody: a waiting run has an open approval
SELECT id, 'at ' || coalesce(current_node_id, 'no place') FROM workflow_executions e
WHERE status = 'waiting' AND NOT EXISTS (
  SELECT 1 FROM approvals a WHERE a.execution_id = e.id AND a.status = 'open');

-- doctor_stuck_message: messages are delivered
SELECT target, id || ', sent ' || created_at FROM messages
WHERE created_at < strftime('%Y-%m-%dT%H:%M:%f', ?1, '-10 minutes');

-- doctor_bead: the bead of an active run is in progress
SELECT e.id, CASE WHEN b.id IS NULL THEN 'bead ' || e.bead_id || ' is gone'
  ELSE 'bead ' || e.bead_id || ' is ' || b.status END
FROM workflow_executions e LEFT JOIN beads b ON b.id = e.bead_id
WHERE e.status <> 'ended' AND (b.id IS NULL OR b.status NOT IN ('in_progress', 'waiting'));

-- doctor_notes: the first 100 notes of a run are kept
SELECT e.id, e.notes || ' counted' FROM workflow_executions e
WHERE min(e.notes, 100) <> (SELECT count(*) FROM notes n WHERE n.execution_id = e.id);
