-- lock_executions: lock runs with the expected head, one after the other, in the order given
SELECT i.id FROM unnest($1::text[], $2::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM workflow_executions e WHERE e.id = i.id AND e.head = i.expected FOR UPDATE) found;

-- insert_executions: insert new runs; skip a run whose id or bead is taken
INSERT INTO workflow_executions (id, bead_id, workflow_id, workflow_version, current_node_id, status,
  terminal_status, stop_rule, priority, seq, head, next_due, created_at, updated_at, ended_at, state,
  state_seq)
SELECT i.id, i.bead_id, i.workflow_id, i.workflow_version, i.current_node_id, i.status,
  i.terminal_status, i.stop_rule, i.priority, i.seq, i.head, i.next_due::timestamptz,
  i.created_at::timestamptz, i.updated_at::timestamptz, i.ended_at::timestamptz, i.state::json,
  i.state_seq
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
  $8::text[], $9::bigint[], $10::bigint[], $11::bytea[], $12::text[], $13::text[], $14::text[],
  $15::text[], $16::text[], $17::bigint[])
AS i(id, bead_id, workflow_id, workflow_version, current_node_id, status, terminal_status, stop_rule,
  priority, seq, head, next_due, created_at, updated_at, ended_at, state, state_seq)
ON CONFLICT DO NOTHING RETURNING id;

-- hold_executions: lock runs with the expected head; fail if one has changed
SELECT 1 / (count(*) = cardinality($1::text[]))::integer
FROM unnest($1::text[], $2::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM workflow_executions e WHERE e.id = i.id AND e.head = i.expected FOR UPDATE) found;

-- move_executions: only the positions of the runs change; no index is touched
UPDATE workflow_executions e SET current_node_id = i.current_node_id, seq = i.seq, head = i.head,
  updated_at = i.updated_at::timestamptz
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::text[])
AS i(id, current_node_id, seq, head, updated_at)
WHERE e.id = i.id;

-- update_executions: any column may change; without a new state the old state stays
UPDATE workflow_executions e SET current_node_id = i.current_node_id, seq = i.seq, head = i.head,
  updated_at = i.updated_at::timestamptz, workflow_id = i.workflow_id,
  workflow_version = i.workflow_version, status = i.status, priority = i.priority,
  terminal_status = i.terminal_status, stop_rule = i.stop_rule,
  next_due = i.next_due::timestamptz, ended_at = i.ended_at::timestamptz,
  state = coalesce(i.state::json, e.state),
  state_seq = CASE WHEN i.state IS NULL THEN e.state_seq ELSE i.state_seq END
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::bigint[],
  $8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
  $15::bigint[])
AS i(id, current_node_id, seq, head, updated_at, workflow_id, workflow_version, status, priority,
  terminal_status, stop_rule, next_due, ended_at, state, state_seq)
WHERE e.id = i.id;

-- lock_locks: like runs
SELECT i.id FROM unnest($1::text[], $2::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM commit_locks l WHERE l.repository = i.id AND l.head = i.expected FOR UPDATE) found;

-- insert_locks: locks of repositories without one
INSERT INTO commit_locks (repository, holder_execution_id, holder_step, fence, seq, head, next_due,
  updated_at, state)
SELECT i.repository, i.holder_execution_id, i.holder_step, i.fence, i.seq, i.head,
  i.next_due::timestamptz, i.updated_at::timestamptz, i.state::json
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[],
  $8::text[], $9::text[])
AS i(repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state)
ON CONFLICT DO NOTHING RETURNING repository;

-- update_locks: update locks
UPDATE commit_locks l SET holder_execution_id = i.holder_execution_id, holder_step = i.holder_step,
  fence = i.fence, seq = i.seq, head = i.head, next_due = i.next_due::timestamptz,
  updated_at = i.updated_at::timestamptz, state = i.state::json
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[],
  $8::text[], $9::text[])
AS i(repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state)
WHERE l.repository = i.repository;

-- lock_streams: like runs
SELECT i.id FROM unnest($1::text[], $2::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM streams s WHERE s.name = i.id AND s.head = i.expected FOR UPDATE) found;

-- insert_streams: streams without a table of their own
INSERT INTO streams (name, seq, head)
SELECT i.name, i.seq, i.head FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS i(name, seq, head)
ON CONFLICT DO NOTHING RETURNING name;

-- update_streams: update streams
UPDATE streams s SET seq = i.seq, head = i.head
FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS i(name, seq, head)
WHERE s.name = i.name;

-- delete_dispatches: delete closed dispatches
DELETE FROM dispatches d USING unnest($1::text[], $2::bigint[]) AS i(execution_id, fence)
WHERE d.execution_id = i.execution_id AND d.fence = i.fence;

-- put_dispatches: offered or claimed; a second dispatch of a step gets a NULL fence, which fails
INSERT INTO dispatches AS d (execution_id, fence, place, role, priority, offered_at, agent, session,
  claimed_at)
SELECT i.execution_id, i.fence, i.place, i.role, i.priority, i.offered_at::timestamptz, i.agent,
  i.session, i.claimed_at::timestamptz
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[],
  $8::text[], $9::text[])
AS i(execution_id, fence, place, role, priority, offered_at, agent, session, claimed_at)
ON CONFLICT (execution_id, place) DO UPDATE SET agent = excluded.agent, session = excluded.session,
  claimed_at = excluded.claimed_at, reserved_until = NULL,
  fence = CASE WHEN d.fence = excluded.fence THEN d.fence END;

-- hand_on: one step of a run with the expected head, else it fails: closes one dispatch, opens one,
-- adds one transition; does in one statement what those around it do
WITH moved AS (
  UPDATE workflow_executions SET current_node_id = $3::text, seq = $4::bigint, head = $5::bytea,
    updated_at = ($6::text)::timestamptz
  WHERE id = $1::text AND head = $2::bytea RETURNING 1),
over AS (DELETE FROM dispatches WHERE execution_id = $1 AND fence = $7::bigint RETURNING 1),
offered AS (
  INSERT INTO dispatches AS d (execution_id, fence, place, role, priority, offered_at, agent, session,
    claimed_at)
  SELECT $1, $8::bigint, $9::text, $10::text, $11::bigint, ($12::text)::timestamptz, $13::text,
    $14::text, ($15::text)::timestamptz
  FROM (SELECT count(*) FROM over) AS after_it
  ON CONFLICT (execution_id, place) DO UPDATE SET agent = excluded.agent, session = excluded.session,
    claimed_at = excluded.claimed_at, reserved_until = NULL,
    fence = CASE WHEN d.fence = excluded.fence THEN d.fence END),
passed AS (
  INSERT INTO workflow_transitions (execution_id, seq, from_node_id, to_node_id, outcome, reason,
    actor, timestamp)
  VALUES ($1, $16::bigint, $17::text, $18::text, $19::text, $20::text, $21::text,
    ($22::text)::timestamptz))
SELECT 1 / count(*)::integer FROM moved;

-- insert_transitions: appended
INSERT INTO workflow_transitions (execution_id, seq, from_node_id, to_node_id, outcome, reason, actor,
  timestamp)
SELECT i.execution_id, i.seq, i.from_node_id, i.to_node_id, i.outcome, i.reason, i.actor,
  i.timestamp::timestamptz
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[]) WITH ORDINALITY
AS i(execution_id, seq, from_node_id, to_node_id, outcome, reason, actor, timestamp, n)
ORDER BY i.n;

-- put_approvals: open or settled approvals; a settled approval stays unchanged
INSERT INTO approvals AS a (id, execution_id, bead_id, node_id, type, status, question, digest,
  deadline, created_at, decision, answer, answered_by, settled_at)
SELECT i.id, i.execution_id, i.bead_id, i.node_id, i.type, i.status, i.question, i.digest,
  i.deadline::timestamptz, i.created_at::timestamptz, i.decision, i.answer, i.answered_by,
  i.settled_at::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[])
AS i(id, execution_id, bead_id, node_id, type, status, question, digest, deadline, created_at,
  decision, answer, answered_by, settled_at)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, deadline = excluded.deadline,
  decision = excluded.decision, answer = excluded.answer, answered_by = excluded.answered_by,
  settled_at = excluded.settled_at
WHERE a.status = 'open';

-- put_beads: beads of runs that begin, or as the runs left them
INSERT INTO beads (id, title, description, status, priority, filed_by, context, error, workflow_id,
  execution_id, created_at, updated_at)
SELECT i.id, i.title, i.description, i.status, i.priority, i.filed_by, i.context::json, i.error,
  i.workflow_id, i.execution_id, i.created_at::timestamptz, i.updated_at::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[],
  $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
AS i(id, title, description, status, priority, filed_by, context, error, workflow_id, execution_id,
  created_at, updated_at)
ON CONFLICT (id) DO UPDATE SET status = excluded.status, context = excluded.context,
  error = excluded.error, workflow_id = excluded.workflow_id, execution_id = excluded.execution_id,
  updated_at = excluded.updated_at;

-- insert_messages: a message is sent once for its cause
INSERT INTO messages (id, target, body, created_at)
SELECT i.id, i.target, i.body, i.created_at::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
AS i(id, target, body, created_at, n)
ORDER BY i.n
ON CONFLICT (id) DO NOTHING;

-- delete_messages: delete consumed messages
DELETE FROM messages m USING unnest($1::text[]) AS i(id) WHERE m.id = i.id;

-- insert_keys: responses to requests, for retries
INSERT INTO idempotency_keys (key, actor, digest, answer, created_at)
SELECT i.key, i.actor, i.digest, i.answer, i.created_at::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
AS i(key, actor, digest, answer, created_at);

-- known_entries: whether the journal already has one of these entries; it should not
SELECT 1 FROM unnest($1::text[], $2::bigint[]) AS i(stream, seq)
CROSS JOIN LATERAL (SELECT FROM journal j WHERE j.stream = i.stream AND j.seq = i.seq OFFSET 0) found
LIMIT 1;

-- insert_commit: insert the entries in order, then the commit; update the chain last
WITH this AS MATERIALIZED (SELECT nextval('journal_id_seq') AS batch),
written AS (
  INSERT INTO journal (batch, stream, seq, count, body, hash)
  SELECT this.batch, i.stream, i.seq, i.count, i.body, i.hash
  FROM this CROSS JOIN unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[])
    WITH ORDINALITY AS i(stream, seq, count, body, hash, n)
  ORDER BY i.n
  RETURNING id, hash),
sums AS MATERIALIZED (
  SELECT min(id) AS first_id, max(id) AS last_id, count(*) AS entries,
    sha256(string_agg(hash, ''::bytea ORDER BY id)) AS digest
  FROM written),
moved AS (
  UPDATE chain SET n = chain.n + 1, head = sha256(chain.head || sums.digest) FROM sums
  RETURNING chain.n, chain.head)
INSERT INTO commits (n, batch, first_id, last_id, entries, at, hash)
SELECT moved.n, this.batch, sums.first_id, sums.last_id, sums.entries, $6::timestamptz, moved.head
FROM moved CROSS JOIN this CROSS JOIN sums
RETURNING n, hash;

-- insert_bead: insert a new bead
INSERT INTO beads (id, title, description, status, priority, filed_by, context, error, workflow_id,
  execution_id, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (id) DO NOTHING;

-- bead: one bead
SELECT id, title, description, status, priority, filed_by, context, error, workflow_id, execution_id,
  created_at, updated_at
FROM beads WHERE id = $1;

-- active_run: the run of a bead that has not ended
SELECT id FROM workflow_executions WHERE bead_id = $1 AND ended_at IS NULL;

-- delete_message: delete a message that led to no decision
DELETE FROM messages WHERE id = $1;

-- messages: the oldest messages
SELECT id, target, body, created_at FROM messages ORDER BY n LIMIT $1;

-- key: the response to a request
SELECT key, actor, digest, answer, created_at FROM idempotency_keys WHERE key = $1 AND actor = $2;

-- forget_keys: delete old keys, a limited number at a time
DELETE FROM idempotency_keys k USING (
  SELECT key, actor FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2) old
WHERE k.key = old.key AND k.actor = old.actor;

-- last_commit: the end of the chain
SELECT n, hash, at, entries FROM commits ORDER BY n DESC LIMIT 1;

-- commit_hash: the hash of one commit
SELECT hash FROM commits WHERE n = $1;

-- executions_by_id: runs with their states, and their entries since
SELECT e.id, e.bead_id, e.workflow_id, e.workflow_version, e.current_node_id, e.status,
  e.terminal_status, e.stop_rule, e.priority, e.seq, e.head, e.next_due, e.created_at, e.updated_at,
  e.ended_at, e.state, e.state_seq, CASE WHEN e.state_seq < e.seq THEN (
    SELECT array_agg(j.body ORDER BY j.seq) FROM journal j
    WHERE j.stream = e.id AND j.seq > e.state_seq) END
FROM unnest($1::text[]) AS i(id)
CROSS JOIN LATERAL (SELECT * FROM workflow_executions WHERE id = i.id OFFSET 0) e;

-- locks_by_repository: the locks of repositories
SELECT repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state
FROM commit_locks WHERE repository = ANY($1::text[]);

-- stream: a stream by name
SELECT name, seq, head FROM streams WHERE name = $1;

-- due: runs of which a clock may have expired
SELECT id FROM workflow_executions WHERE next_due <= $1 ORDER BY next_due LIMIT $2;

-- locks_due: locks whose holder may be silent for too long
SELECT repository FROM commit_locks WHERE next_due <= $1 ORDER BY next_due LIMIT $2;

-- postpone: set the next clock of runs that were not due; skip runs locked by a commit
UPDATE workflow_executions e SET next_due = i.due::timestamptz
FROM unnest($1::text[], $2::bytea[], $3::text[]) AS i(id, head, due)
CROSS JOIN LATERAL (
  SELECT FROM workflow_executions r WHERE r.id = i.id AND r.head = i.head
  FOR UPDATE SKIP LOCKED) found
WHERE e.id = i.id AND e.head = i.head;

-- reserve: dispatches offered to this role, including those that this store has reserved and not
-- claimed; a crash loses reservations, which does no harm
WITH loose AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
free AS MATERIALIZED (
  SELECT execution_id, fence FROM dispatches
  WHERE role = $1 AND agent IS NULL
    AND (reserved_until IS NULL OR reserved_by = $3 OR reserved_until < clock_timestamp())
  ORDER BY priority DESC, offered_at LIMIT $2 FOR UPDATE SKIP LOCKED),
taken AS (
  UPDATE dispatches d
  SET reserved_until = clock_timestamp() + interval '5 seconds', reserved_by = $3
  FROM free WHERE d.execution_id = free.execution_id AND d.fence = free.fence
  RETURNING d.execution_id, d.fence, d.place, d.role, d.priority, d.offered_at, d.agent, d.session,
    d.claimed_at)
SELECT taken.* FROM taken CROSS JOIN loose ORDER BY priority DESC, offered_at;

-- put_agent: register or change an agent
INSERT INTO agents (id, roles, capacity, enabled, session, engine, beat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET roles = excluded.roles, capacity = excluded.capacity,
  enabled = excluded.enabled, session = excluded.session, engine = excluded.engine,
  beat_at = excluded.beat_at;

-- remove_agent: remove an agent
DELETE FROM agents WHERE id = $1;

-- agents: all agents
SELECT id, roles, capacity, enabled, session, engine, beat_at FROM agents ORDER BY id;

-- beat: record that a session is alive; need not be on disk at once
WITH loose AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
UPDATE agents SET beat_at = $1 FROM loose WHERE session = $2;

-- beat_engine: record that an engine and its functions are alive; need not be on disk at once
WITH loose AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
functions AS (UPDATE agents SET beat_at = $2 WHERE engine = $1)
INSERT INTO engines (id, beat_at) SELECT $1, $2 FROM loose
ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at;

-- engines: when each was last alive
SELECT id, beat_at FROM engines ORDER BY id;

-- forget_engine: delete an engine and its functions
WITH functions AS (DELETE FROM agents WHERE engine = $1)
DELETE FROM engines WHERE id = $1;

-- orphans: claimed dispatches without a live agent
SELECT d.execution_id, d.fence, d.place, d.role, d.priority, d.offered_at, d.agent, d.session,
  d.claimed_at
FROM dispatches d LEFT JOIN agents a ON a.id = d.agent AND a.session = d.session
WHERE d.agent IS NOT NULL AND (a.id IS NULL OR a.beat_at <= $1 OR NOT a.enabled)
LIMIT $2;

-- unmanned: offered dispatches whose role no live agent has
SELECT d.execution_id, d.fence, d.place, d.role, d.priority, d.offered_at, d.agent, d.session,
  d.claimed_at
FROM dispatches d
WHERE d.agent IS NULL AND d.offered_at <= $1 AND d.role NOT IN (
  SELECT r.role FROM agents a, json_array_elements_text(a.roles) AS r(role)
  WHERE a.enabled AND a.beat_at > $2)
ORDER BY d.offered_at LIMIT $3;

-- lock_outages: let one engine at a time record outages
SELECT pg_advisory_xact_lock(1213353813);

-- add_outage: record that no engine was alive in between
INSERT INTO outages (started_at, ended_at) SELECT $1, $2
WHERE NOT EXISTS (SELECT 1 FROM outages WHERE ended_at > $1);

-- outages: outages that ended later
SELECT started_at, ended_at FROM outages WHERE ended_at > $1 ORDER BY ended_at;

-- last_alive: the latest trace of any engine
SELECT greatest((SELECT at FROM commits ORDER BY n DESC LIMIT 1),
  (SELECT max(beat_at) FROM engines), (SELECT max(ended_at) FROM outages));

-- put_definition: a version is written once; the newest is the definition
WITH current AS (
  INSERT INTO workflows (id, name, kind, version, definition, created_at, updated_at)
  VALUES ($1, $3, $4, $2, $5, $7, $7)
  ON CONFLICT (id) DO UPDATE SET name = excluded.name, kind = excluded.kind,
    version = excluded.version, definition = excluded.definition, updated_at = excluded.updated_at
  WHERE excluded.version > workflows.version)
INSERT INTO workflow_versions (workflow_id, version, name, kind, definition, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING;

-- lock_definitions: block other versions while an owner's version is checked
SELECT pg_advisory_xact_lock(1213353815);

-- foreign_definition: by id or name, with a version by another owner
SELECT w.id FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id
WHERE (w.id IN ($1, $2) OR w.name IN ($1, $2)) AND v.created_by <> $3
ORDER BY w.id LIMIT 1;

-- version: a version by id, else by the name of the newest version
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id
WHERE (w.id = $1 OR w.name = $1) AND v.version = $2
ORDER BY w.id = $1 DESC, w.updated_at DESC LIMIT 1;

-- newest_version: the newest version by id, else by name
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
WHERE w.id = $1 OR w.name = $1 ORDER BY w.id = $1 DESC, w.updated_at DESC LIMIT 1;

-- definitions: the newest version of each definition
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
ORDER BY w.id;

-- add_note: every note is counted, the first are kept
WITH counted AS (UPDATE workflow_executions SET notes = notes + 1 WHERE id = $1 RETURNING notes)
INSERT INTO notes (execution_id, at, actor, code, body)
SELECT $1, $2, $3, $4, $5 FROM counted WHERE counted.notes <= $6;

-- notes: notes in order, each with the total count
SELECT n.execution_id, n.at, n.actor, n.code, n.body, e.notes
FROM notes n JOIN workflow_executions e ON e.id = n.execution_id
WHERE n.execution_id = $1 ORDER BY n.id;

-- journal: the entries of one stream
SELECT c.n, j.id, j.stream, j.seq, j.count, coalesce(j.body, ''), j.hash
FROM journal j JOIN commits c ON c.batch = j.batch
WHERE j.stream = $1 AND j.seq > $2 ORDER BY j.seq LIMIT $3;

-- commits: the chain with the entries of each commit; limits on commits and on entries
SELECT c.n, c.hash, c.at, c.entries, j.id, j.stream, j.seq, j.count, coalesce(j.body, ''), j.hash
FROM (
  SELECT *, sum(entries) OVER (ORDER BY n) - entries AS entries_before FROM (
    SELECT * FROM commits WHERE n > $1 ORDER BY n LIMIT $2) next
) c
LEFT JOIN LATERAL (
  SELECT * FROM journal
  WHERE id BETWEEN c.first_id AND c.last_id AND batch = c.batch ORDER BY id OFFSET 0) j ON true
WHERE c.entries_before < $3
ORDER BY c.n, j.id;

-- transitions: transitions of one run
SELECT id, from_node_id, to_node_id, outcome, reason, actor, timestamp FROM workflow_transitions
WHERE execution_id = $1 ORDER BY id;

-- approvals: approvals of one run, of one status, or all
SELECT id, execution_id, bead_id, node_id, type, status, question, digest, deadline, created_at,
  decision, answer, answered_by, settled_at
FROM approvals
WHERE ($1::text IS NULL OR execution_id = $1) AND ($2::text IS NULL OR status = $2)
ORDER BY created_at, id LIMIT $3;

-- dispatches: dispatches of one run
SELECT execution_id, fence, place, role, priority, offered_at, agent, session, claimed_at
FROM dispatches WHERE execution_id = $1 ORDER BY fence;

-- executions: a page of runs, without their states
SELECT id, bead_id, workflow_id, workflow_version, current_node_id, status, terminal_status,
  stop_rule, priority, seq, head, next_due, created_at, updated_at, ended_at, NULL::text, state_seq
FROM workflow_executions
WHERE id > $1 AND ($2::text IS NULL OR bead_id = $2) AND ($3::text IS NULL OR status = $3)
ORDER BY id LIMIT $4;

-- transition_rows: a page of a run's transitions, with all columns
SELECT id, execution_id, seq, from_node_id, to_node_id, outcome, reason, actor, timestamp
FROM workflow_transitions WHERE execution_id = $1 AND id > $2 ORDER BY id LIMIT $3;

-- all_locks: all commit locks
SELECT repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state
FROM commit_locks ORDER BY repository;

-- all_streams: streams without a table of their own
SELECT name, seq, head FROM streams ORDER BY name;

-- finished: a page of runs that ended before a moment
SELECT id FROM workflow_executions WHERE status = 'ended' AND ended_at < $1 AND id > $2
ORDER BY id LIMIT $3;

-- prune_executions: delete archived runs, if unchanged
DELETE FROM workflow_executions e
USING unnest($1::text[], $2::bytea[], $3::bigint[]) AS i(id, head, notes)
WHERE e.id = i.id AND e.head = i.head AND e.notes = i.notes AND e.status = 'ended';

-- prune_transitions: delete the transitions of archived runs
DELETE FROM workflow_transitions WHERE execution_id = ANY($1::text[]);

-- prune_approvals: delete the approvals of archived runs
DELETE FROM approvals WHERE execution_id = ANY($1::text[]);

-- prune_notes: delete the notes of archived runs
DELETE FROM notes WHERE execution_id = ANY($1::text[]);

-- prune_bodies: delete the bodies of entries; the chain keeps their hashes
UPDATE journal SET body = NULL WHERE stream = ANY($1::text[]);

-- prune_beads: delete the beads of archived runs without other stored runs
DELETE FROM beads b WHERE b.execution_id = ANY($1::text[])
AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.bead_id = b.id);

-- anything: whether anything was ever stored
SELECT EXISTS (SELECT 1 FROM commits) OR EXISTS (SELECT 1 FROM journal)
  OR EXISTS (SELECT 1 FROM workflow_versions) OR EXISTS (SELECT 1 FROM beads)
  OR EXISTS (SELECT 1 FROM workflow_executions);

-- stray_entry: an entry that belongs to no commit
SELECT j.stream, j.seq FROM journal j LEFT JOIN commits c ON c.batch = j.batch
WHERE c.n IS NULL OR j.id NOT BETWEEN c.first_id AND c.last_id;

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
FROM (SELECT stream, seq, count, lag(seq, 1, 0::bigint) OVER (PARTITION BY stream ORDER BY seq) AS before
  FROM journal) j
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
WHERE d.agent IS NOT NULL AND d.claimed_at < $1::timestamptz - interval '5 minutes'
  AND (a.id IS NULL OR a.beat_at < $1::timestamptz - interval '5 minutes');

-- doctor_two_holders: a repository has one lock, with one holder
SELECT repository, count(*) || ' rows' FROM commit_locks GROUP BY repository HAVING count(*) > 1;

-- doctor_holder_finished: a lock's holder has not ended, unless a message to the lock is under way
SELECT l.repository, 'held by ' || l.holder_execution_id FROM commit_locks l
LEFT JOIN workflow_executions e ON e.id = l.holder_execution_id
WHERE l.holder_execution_id IS NOT NULL AND (e.id IS NULL OR e.status = 'ended')
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.target = 'lock:' || l.repository);

-- doctor_two_runs: a bead has one active run
SELECT bead_id, string_agg(id, ', ') FROM workflow_executions WHERE status <> 'ended'
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
WHERE next_due < $1::timestamptz - interval '5 minutes';

-- doctor_lock_overdue: the same for a commit lock
SELECT repository, 'due since ' || next_due FROM commit_locks
WHERE next_due < $1::timestamptz - interval '5 minutes';

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
WHERE created_at < $1::timestamptz - interval '10 minutes';

-- doctor_bead: the bead of an active run is in progress
SELECT e.id, CASE WHEN b.id IS NULL THEN 'bead ' || e.bead_id || ' is gone'
  ELSE 'bead ' || e.bead_id || ' is ' || b.status END
FROM workflow_executions e LEFT JOIN beads b ON b.id = e.bead_id
WHERE e.status <> 'ended' AND (b.id IS NULL OR b.status NOT IN ('in_progress', 'waiting'));

-- doctor_notes: the first 100 notes of a run are kept
SELECT e.id, e.notes || ' counted' FROM workflow_executions e
WHERE least(e.notes, 100) <> (SELECT count(*) FROM notes n WHERE n.execution_id = e.id);

-- stray_chain: the chain ends with the last commit
SELECT 'chain', c.n FROM chain c
LEFT JOIN (SELECT n, hash FROM commits ORDER BY n DESC LIMIT 1) last ON true
WHERE coalesce(last.n, 0) <> c.n OR coalesce(last.hash, ''::bytea) <> c.head;

-- doctor_chain: the same
SELECT 'chain', 'it says ' || c.n || ', the last commit is ' || coalesce(last.n, 0) FROM chain c
LEFT JOIN (SELECT n, hash FROM commits ORDER BY n DESC LIMIT 1) last ON true
WHERE coalesce(last.n, 0) <> c.n OR coalesce(last.hash, ''::bytea) <> c.head;
