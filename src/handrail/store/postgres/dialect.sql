-- Statements of PostgreSQL alone, or in place of a shared one; each says why.

-- lock_executions: lock runs with the expected head, in the order given (several engines write)
SELECT i.id FROM unnest(:id::text[], :expected::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM workflow_executions e WHERE e.id = i.id AND e.head = i.expected FOR UPDATE) found;

-- lock_locks: (as above)
SELECT i.id FROM unnest(:id::text[], :expected::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM commit_locks l WHERE l.repository = i.id AND l.head = i.expected FOR UPDATE) found;

-- lock_streams: (as above)
SELECT i.id FROM unnest(:id::text[], :expected::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM streams s WHERE s.name = i.id AND s.head = i.expected FOR UPDATE) found;

-- lock_channels: (as above)
SELECT i.id FROM unnest(:id::text[], :expected::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM channels c WHERE c.id = i.id AND c.head = i.expected FOR UPDATE) found;

-- hold_executions: lock runs with the expected head; fail if one has changed (one round trip)
SELECT 1 / (count(*) = cardinality(:id::text[]))::integer
FROM unnest(:id::text[], :expected::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM workflow_executions e WHERE e.id = i.id AND e.head = i.expected FOR UPDATE) found;

-- insert_executions: new runs; skip a run whose id or bead is taken (an error would end the
-- transaction; the keys returned are the winners)
INSERT INTO workflow_executions ({RunRow}) {values RunRow} ON CONFLICT DO NOTHING RETURNING id;

-- insert_locks: locks of repositories without one (as above)
INSERT INTO commit_locks ({LockRow}) {values LockRow} ON CONFLICT DO NOTHING RETURNING repository;

-- insert_streams: streams without a table of their own (as above)
INSERT INTO streams ({StreamRow}) {values StreamRow} ON CONFLICT DO NOTHING RETURNING name;

-- insert_channels: new channels (as above)
INSERT INTO channels ({ChannelRow}) {values ChannelRow} ON CONFLICT DO NOTHING RETURNING id;

-- move_executions: only the positions of runs change; no index is touched (locked before)
UPDATE workflow_executions e SET current_node_id = i.current_node_id, seq = i.seq, head = i.head,
  updated_at = i.updated_at::timestamptz
FROM unnest(:id::text[], :current_node_id::text[], :seq::bigint[], :head::bytea[],
  :updated_at::text[]) AS i(id, current_node_id, seq, head, updated_at)
WHERE e.id = i.id;

-- update_executions: any column may change; without a new state the old state stays (locked before)
UPDATE workflow_executions e SET {set RunRow -id -bead_id -created_at -state -state_seq},
  state = coalesce(i.state::json, e.state),
  state_seq = CASE WHEN i.state IS NULL THEN e.state_seq ELSE i.state_seq END
FROM {rows RunRow} WHERE e.id = i.id;

-- update_locks: (locked before)
UPDATE commit_locks l SET {set LockRow -repository}
FROM {rows LockRow} WHERE l.repository = i.repository;

-- update_streams: (locked before)
UPDATE streams s SET {set StreamRow -name} FROM {rows StreamRow} WHERE s.name = i.name;

-- update_channels: (locked before)
UPDATE channels c SET {set ChannelRow -id} FROM {rows ChannelRow} WHERE c.id = i.id;

-- delete_dispatches: closed dispatches (one statement for a batch)
DELETE FROM dispatches d USING unnest(:execution_id::text[], :fence::bigint[])
  AS i(execution_id, fence)
WHERE d.execution_id = i.execution_id AND d.fence = i.fence;

-- put_dispatches: offered or claimed (a second dispatch of a step gets a NULL fence, which fails;
-- an index of its own would cost every commit)
INSERT INTO dispatches AS d ({DispatchRow}) {values DispatchRow}
ON CONFLICT (execution_id, place) DO UPDATE SET agent = excluded.agent, session = excluded.session,
  claimed_at = excluded.claimed_at, reserved_until = NULL,
  fence = CASE WHEN d.fence = excluded.fence THEN d.fence END;

-- single_step: one step of a run with the expected head, else it fails: closes one dispatch, opens
-- one, adds one transition (one statement instead of five: a sixth of a single run's round trip)
WITH moved AS (
  UPDATE workflow_executions SET current_node_id = $3::text, seq = $4::bigint, head = $5::bytea,
    updated_at = ($6::text)::timestamptz
  WHERE id = $1::text AND head = $2::bytea RETURNING 1),
over AS (DELETE FROM dispatches WHERE execution_id = $1 AND fence = $7::bigint RETURNING 1),
offered AS (
  INSERT INTO dispatches AS d ({DispatchRow})
  SELECT $1, $8::bigint, $9::text, $10::text, $11::bigint, ($12::text)::timestamptz, $13::text,
    $14::text, ($15::text)::timestamptz
  FROM (SELECT count(*) FROM over) AS after_it
  ON CONFLICT (execution_id, place) DO UPDATE SET agent = excluded.agent, session = excluded.session,
    claimed_at = excluded.claimed_at, reserved_until = NULL,
    fence = CASE WHEN d.fence = excluded.fence THEN d.fence END),
passed AS (
  INSERT INTO workflow_transitions ({TransitionRow})
  VALUES ($1, $16::bigint, $17::text, $18::text, $19::text, $20::text, $21::text,
    ($22::text)::timestamptz))
SELECT 1 / count(*)::integer FROM moved;

-- beads_left: beads of archived runs that stay, because another of their runs does (no run may
-- write them before they are on record)
SELECT {BeadRow} FROM beads WHERE id IN list(:bead_ids) ORDER BY id FOR UPDATE;

-- delete_messages: consumed messages (one statement for a batch)
DELETE FROM messages m USING unnest(:id::text[]) AS i(id) WHERE m.id = i.id;

-- lock_agents: block other engines from giving these agents a turn (several engines write)
SELECT pg_advisory_xact_lock(key) FROM (
  SELECT DISTINCT hashtextextended(agent_id, 0) AS key
  FROM unnest(:channel_id::text[], :agent_id::text[], :turn::bigint[])
    AS i(channel_id, agent_id, turn) ORDER BY key
) wanted;

-- free_holders: channels whose agent holds the turn already, or has capacity for it (as above)
SELECT wanted.channel_id FROM (
  SELECT i.channel_id, i.agent_id, m.turn IS NOT NULL AS kept,
    row_number() OVER (PARTITION BY i.agent_id, m.turn IS NULL ORDER BY i.channel_id) AS nth
  FROM unnest(:channel_id::text[], :agent_id::text[], :turn::bigint[])
    AS i(channel_id, agent_id, turn)
  LEFT JOIN channel_members m
  ON m.channel_id = i.channel_id AND m.agent_id = i.agent_id AND m.turn = i.turn) wanted
LEFT JOIN agents a ON a.id = wanted.agent_id
WHERE a.id IS NULL OR wanted.kept OR a.capacity >= wanted.nth + (
  SELECT count(*) FROM channel_members m WHERE m.agent_id = wanted.agent_id
  AND m.channel_id <> wanted.channel_id AND (m.state = 'ACTIVE' OR m.state = 'WAITING'));

-- delete_members: members that left or were removed (one statement for a batch)
DELETE FROM channel_members m USING unnest(:channel_id::text[], :agent_id::text[])
  AS i(channel_id, agent_id)
WHERE m.channel_id = i.channel_id AND m.agent_id = i.agent_id;

-- known_entries: whether the journal already has one of these entries; it should not (an error
-- would end the transaction)
SELECT 1 FROM unnest(:stream::text[], :seq::bigint[]) AS i(stream, seq)
CROSS JOIN LATERAL (SELECT FROM journal j WHERE j.stream = i.stream AND j.seq = i.seq OFFSET 0) found
LIMIT 1;

-- insert_commit: insert the entries in order, then the commit; update the chain last (its row orders
-- the engines, and the server hashes)
WITH this AS MATERIALIZED (SELECT nextval('journal_id_seq') AS batch),
written AS (
  INSERT INTO journal (batch, stream, seq, count, body, hash)
  SELECT this.batch, i.stream, i.seq, i.count, i.body, i.hash
  FROM this CROSS JOIN {rows JournalEntry} ORDER BY i.ordinal
  RETURNING id, hash),
sums AS MATERIALIZED (
  SELECT min(id) AS first_id, max(id) AS last_id, count(*) AS entries,
    sha256(string_agg(hash, ''::bytea ORDER BY id)) AS digest
  FROM written),
moved AS (
  UPDATE chain SET n = chain.n + 1, head = sha256(chain.head || sums.digest) FROM sums
  RETURNING chain.n, chain.head)
INSERT INTO commits (n, batch, first_id, last_id, entries, at, hash)
SELECT moved.n, this.batch, sums.first_id, sums.last_id, sums.entries, :at::timestamptz, moved.head
FROM moved CROSS JOIN this CROSS JOIN sums
RETURNING n, hash;

-- commit_hash: the hash of one commit (a standby that took over may lack it)
SELECT hash FROM commits WHERE n = :n;

-- executions_by_id: runs with their states, and their entries since (one round trip)
SELECT {RunRow e}, CASE WHEN e.state_seq < e.seq THEN (
    SELECT array_agg(j.body ORDER BY j.seq) FROM journal j
    WHERE j.stream = e.id AND j.seq > e.state_seq) END
FROM unnest(:ids::text[]) AS i(id)
CROSS JOIN LATERAL (SELECT * FROM workflow_executions WHERE id = i.id OFFSET 0) e;

-- postpone_runs: set the next clock of runs that were not due (skips runs locked by a commit)
UPDATE workflow_executions e SET next_due = i.due::timestamptz
FROM unnest(:id::text[], :head::bytea[], :due::text[]) AS i(id, head, due)
CROSS JOIN LATERAL (
  SELECT FROM workflow_executions r WHERE r.id = i.id AND r.head = i.head
  FOR UPDATE SKIP LOCKED) found
WHERE e.id = i.id AND e.head = i.head;

-- reserve_dispatches: dispatches offered to a role, including those that this store has reserved and
-- not claimed (several engines; a crash loses reservations, which does no harm)
WITH loose AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
free AS MATERIALIZED (
  SELECT execution_id, fence FROM dispatches
  WHERE role = :role AND agent IS NULL
    AND (reserved_until IS NULL OR reserved_by = :reserved_by
      OR reserved_until < clock_timestamp())
  ORDER BY priority DESC, offered_at LIMIT :limit FOR UPDATE SKIP LOCKED),
taken AS (
  UPDATE dispatches d
  SET reserved_until = clock_timestamp() + interval '5 seconds', reserved_by = :reserved_by
  FROM free WHERE d.execution_id = free.execution_id AND d.fence = free.fence
  RETURNING {DispatchRow d})
SELECT taken.* FROM taken CROSS JOIN loose ORDER BY priority DESC, offered_at;

-- heartbeat_session: record that a session is alive (need not be on disk at once)
WITH loose AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
UPDATE agents SET beat_at = :at FROM loose WHERE session = :session;

-- heartbeat_engine: record that an engine is alive (need not be on disk at once)
WITH loose AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO engines (id, beat_at) SELECT :engine, :at::timestamptz FROM loose
ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at;

-- lock_topic: let one writer at a time write about this (several engines write)
SELECT pg_advisory_xact_lock(:topic::integer, hashtext(:key));

-- journal: the entries of one stream (commits of several engines have their numbers later)
SELECT j.stream, j.seq, j.count, coalesce(j.body, ''), j.hash, c.n, j.id
FROM journal j JOIN commits c ON c.batch = j.batch
WHERE j.stream = :stream AND j.seq > :after_seq ORDER BY j.seq LIMIT :limit;

-- search_memories: valid memories with any of the words, except those that answered the bead in
-- another run (text search)
SELECT {MemoryRow m} FROM memories_standing m
WHERE array_to_tsvector(string_to_array(m.words, ' ')) @@ :words::tsquery
AND m.standing = 'kept' AND NOT EXISTS (
  SELECT 1 FROM memory_uses u
  WHERE u.bead_id = :bead_id AND u.memory_id = m.id AND u.execution_id <> :execution_id)
ORDER BY ts_rank(array_to_tsvector(string_to_array(m.words, ' ')), :words) DESC
LIMIT :limit;

-- stray_chain: the chain ends with the last commit (SQLite has no such table)
SELECT 'chain', c.n FROM chain c
LEFT JOIN (SELECT n, hash FROM commits ORDER BY n DESC LIMIT 1) last ON true
WHERE coalesce(last.n, 0) <> c.n OR coalesce(last.hash, ''::bytea) <> c.head;

-- doctor_chain: the same (SQLite has no such table)
SELECT 'chain', 'it says ' || c.n || ', the last commit is ' || coalesce(last.n, 0) FROM chain c
LEFT JOIN (SELECT n, hash FROM commits ORDER BY n DESC LIMIT 1) last ON true
WHERE coalesce(last.n, 0) <> c.n OR coalesce(last.hash, ''::bytea) <> c.head;
