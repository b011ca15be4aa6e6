-- lock_channels: like runs
SELECT i.id FROM unnest($1::text[], $2::bytea[]) AS i(id, expected)
CROSS JOIN LATERAL (
  SELECT FROM channels c WHERE c.id = i.id AND c.head = i.expected FOR UPDATE) found;

-- lock_agents: block other engines from giving these agents a turn
SELECT pg_advisory_xact_lock(key) FROM (
  SELECT DISTINCT hashtextextended(agent_id, 0) AS key
  FROM unnest($1::text[], $2::text[], $3::bigint[]) AS i(channel_id, agent_id, turn) ORDER BY key
) wanted;

-- free_holders: channels whose agent holds the turn already, or has capacity for it
SELECT wanted.channel_id FROM (
  SELECT i.channel_id, i.agent_id, m.turn IS NOT NULL AS kept,
    row_number() OVER (PARTITION BY i.agent_id, m.turn IS NULL ORDER BY i.channel_id) AS nth
  FROM unnest($1::text[], $2::text[], $3::bigint[]) AS i(channel_id, agent_id, turn)
  LEFT JOIN channel_members m
  ON m.channel_id = i.channel_id AND m.agent_id = i.agent_id AND m.turn = i.turn) wanted
LEFT JOIN agents a ON a.id = wanted.agent_id
WHERE a.id IS NULL OR wanted.kept OR a.capacity >= wanted.nth + (
  SELECT count(*) FROM channel_members m WHERE m.agent_id = wanted.agent_id
  AND m.channel_id <> wanted.channel_id AND (m.state = 'ACTIVE' OR m.state = 'WAITING'));

-- insert_channels: insert new channels
INSERT INTO channels (id, seq, head, next_due, created_at, updated_at, closed_at, state)
SELECT i.id, i.seq, i.head, i.next_due::timestamptz, i.created_at::timestamptz,
  i.updated_at::timestamptz, i.closed_at::timestamptz, i.state::json
FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[])
AS i(id, seq, head, next_due, created_at, updated_at, closed_at, state)
ON CONFLICT DO NOTHING RETURNING id;

-- update_channels: update channels
UPDATE channels c SET seq = i.seq, head = i.head, next_due = i.next_due::timestamptz,
  created_at = i.created_at::timestamptz, updated_at = i.updated_at::timestamptz,
  closed_at = i.closed_at::timestamptz, state = i.state::json
FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[],
  $8::text[])
AS i(id, seq, head, next_due, created_at, updated_at, closed_at, state)
WHERE c.id = i.id;

-- delete_members: delete members that left or were removed
DELETE FROM channel_members m USING unnest($1::text[], $2::text[]) AS i(channel_id, agent_id)
WHERE m.channel_id = i.channel_id AND m.agent_id = i.agent_id;

-- put_members: new members, or new states
INSERT INTO channel_members (channel_id, agent_id, state, busy, sole, turn)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (channel_id, agent_id) DO UPDATE SET state = excluded.state, busy = excluded.busy,
  sole = excluded.sole, turn = excluded.turn;

-- put_holders: the same for members that hold the turn, after the others lost it
INSERT INTO channel_members (channel_id, agent_id, state, busy, sole, turn)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
ON CONFLICT (channel_id, agent_id) DO UPDATE SET state = excluded.state, busy = excluded.busy,
  sole = excluded.sole, turn = excluded.turn;

-- insert_log: appended
INSERT INTO channel_log (channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at)
SELECT i.channel_id, i.seq, i.kind, i.number, i.message_id, i.code, i.author, i.human, i.text,
  i.recipient, i.at::timestamptz
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[],
  $8::bigint[], $9::text[], $10::text[], $11::text[])
AS i(channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at);

-- channels_by_id: channels with all columns
SELECT id, seq, head, next_due, created_at, updated_at, closed_at, state FROM channels
WHERE id = ANY(ARRAY(SELECT json_array_elements_text($1::text::json)));

-- channels_due: channels with an expired turn or wait
SELECT id FROM channels WHERE next_due <= $1 ORDER BY next_due LIMIT $2;

-- engaged: how many dispatches and turns agents hold
SELECT i.id, a.capacity,
  (SELECT count(*) FROM dispatches d WHERE d.session = a.session AND d.agent IS NOT NULL)
  + (SELECT count(*) FROM channel_members m WHERE m.agent_id = i.id
    AND (m.state = 'ACTIVE' OR m.state = 'WAITING'))
FROM json_array_elements_text($1::text::json) AS i(id) LEFT JOIN agents a ON a.id = i.id;

-- presence: members whose state differs from the agent's row
SELECT channel_id, agent_id, change FROM (
  SELECT m.channel_id, m.agent_id, CASE
    WHEN a.id IS NULL OR a.beat_at < $1 THEN CASE WHEN m.state <> 'OFFLINE' THEN 'offline' END
    WHEN NOT a.enabled THEN CASE WHEN m.state <> 'OFFLINE' THEN 'disabled' END
    WHEN m.state = 'OFFLINE' THEN 'online'
    WHEN m.busy = 1 AND NOT EXISTS (SELECT FROM channel_members h
      WHERE h.channel_id = m.channel_id AND (h.state = 'ACTIVE' OR h.state = 'WAITING'))
      AND (SELECT count(*) FROM dispatches d WHERE d.session = a.session AND d.agent IS NOT NULL)
      + (SELECT count(*) FROM channel_members o WHERE o.agent_id = m.agent_id
        AND o.channel_id <> m.channel_id AND (o.state = 'ACTIVE' OR o.state = 'WAITING'))
      < a.capacity THEN 'free' END AS change
  FROM channel_members m LEFT JOIN agents a ON a.id = m.agent_id) found
WHERE change IS NOT NULL LIMIT $2;

-- turns: which of these agents is ACTIVE, and where
SELECT channel_id, agent_id, turn FROM channel_members
WHERE agent_id = ANY(ARRAY(SELECT json_array_elements_text($1::text::json))) AND state = 'ACTIVE'
ORDER BY channel_id;

-- busy_in: channels that wait until one of these agents is free
SELECT DISTINCT channel_id FROM channel_members m
WHERE agent_id = ANY(ARRAY(SELECT json_array_elements_text($1::text::json))) AND busy = 1
AND NOT EXISTS (SELECT FROM channel_members h WHERE h.channel_id = m.channel_id
  AND (h.state = 'ACTIVE' OR h.state = 'WAITING'));

-- has_members: whether any channel has a member
SELECT 1 FROM channel_members LIMIT 1;

-- memberships: memberships of one agent, or of all
SELECT channel_id, agent_id, state, busy, sole, turn FROM channel_members
WHERE $1::text IS NULL OR agent_id = $1 ORDER BY agent_id, channel_id;

-- members_of: members of a channel
SELECT channel_id, agent_id, state, busy, sole, turn FROM channel_members WHERE channel_id = $1;

-- channels_page: open channels
SELECT id, seq, head, next_due, created_at, updated_at, closed_at, state FROM channels
WHERE id > $1 AND closed_at IS NULL ORDER BY id LIMIT $2;

-- channels_all: open and closed channels
SELECT id, seq, head, next_due, created_at, updated_at, closed_at, state FROM channels
WHERE id > $1 ORDER BY id LIMIT $2;

-- channel_log_page: log entries after a sequence number
SELECT channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at FROM channel_log
WHERE channel_id = $1 AND seq > $2 ORDER BY seq LIMIT $3;

-- channel_messages: the last of a range of messages
SELECT channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at FROM channel_log
WHERE channel_id = $1 AND number > $2 AND number <= $3 ORDER BY number DESC LIMIT $4;

-- add_late: keep a late answer as evidence, the first of a channel
INSERT INTO notes (execution_id, at, actor, code, body)
SELECT $1::text, $2::timestamptz, $3::text, $4::text, $5::text
WHERE (SELECT count(*) FROM notes WHERE execution_id = $1::text) < $6::bigint;

-- late: late answers of a channel
SELECT at, actor, code, body FROM notes WHERE execution_id = $1 ORDER BY id;

-- doctor_channel_version: a channel's version is its last sequence number, its head the last hash
SELECT c.id, 'the row says ' || c.seq || ', the journal ' || coalesce(j.seq, 0)
FROM channels c LEFT JOIN journal j ON j.stream = 'channel:' || c.id
  AND j.seq = (SELECT max(seq) FROM journal WHERE stream = 'channel:' || c.id)
WHERE j.seq IS NULL OR j.seq <> c.seq OR j.hash <> c.head;

-- doctor_two_active: one member of a channel holds the turn
SELECT channel_id, string_agg(agent_id, ', ') FROM channel_members
WHERE state IN ('ACTIVE', 'WAITING') GROUP BY channel_id HAVING count(*) > 1;

-- doctor_two_turns: an agent with a capacity of 1 holds one turn
SELECT agent_id, string_agg(channel_id, ', ') FROM channel_members
WHERE sole = 1 AND state IN ('ACTIVE', 'WAITING') GROUP BY agent_id HAVING count(*) > 1;

-- doctor_turn_overdue: an engine ends every expired turn and wait
SELECT id, 'due since ' || next_due FROM channels
WHERE next_due < $1::timestamptz - interval '5 minutes';
