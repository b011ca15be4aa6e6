-- insert_channel: insert a new channel
INSERT INTO channels (id, seq, head, next_due, created_at, updated_at, closed_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- update_channel: guarded like a run
UPDATE channels SET seq = ?, head = ?, next_due = ?, created_at = ?, updated_at = ?, closed_at = ?,
  state = ?
WHERE id = ? AND head = ?;

-- delete_member: delete a member that left or was removed
DELETE FROM channel_members WHERE channel_id = ? AND agent_id = ?;

-- put_member: a new member, or a new state
INSERT INTO channel_members (channel_id, agent_id, state, busy, sole, turn)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (channel_id, agent_id) DO UPDATE SET state = excluded.state, busy = excluded.busy,
  sole = excluded.sole, turn = excluded.turn;

-- insert_log: appended
INSERT INTO channel_log (channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- channels_by_id: channels with all columns
SELECT id, seq, head, next_due, created_at, updated_at, closed_at, state FROM channels
WHERE id IN (SELECT value FROM json_each(?));

-- channels_due: channels with an expired turn or wait
SELECT id FROM channels WHERE next_due <= ? ORDER BY next_due LIMIT ?;

-- engaged: how many dispatches and turns agents hold
SELECT i.value, a.capacity,
  (SELECT count(*) FROM dispatches d WHERE d.session = a.session AND d.agent IS NOT NULL)
  + (SELECT count(*) FROM channel_members m WHERE m.agent_id = i.value
    AND (m.state = 'ACTIVE' OR m.state = 'WAITING'))
FROM json_each(?) i LEFT JOIN agents a ON a.id = i.value;

-- presence: members whose state differs from the agent's row
SELECT channel_id, agent_id, change FROM (
  SELECT m.channel_id, m.agent_id, CASE
    WHEN a.id IS NULL OR a.beat_at < ?1 THEN CASE WHEN m.state <> 'OFFLINE' THEN 'offline' END
    WHEN a.enabled = 0 THEN CASE WHEN m.state <> 'OFFLINE' THEN 'disabled' END
    WHEN m.state = 'OFFLINE' THEN 'online'
    WHEN m.busy = 1 AND NOT EXISTS (SELECT 1 FROM channel_members h
      WHERE h.channel_id = m.channel_id AND (h.state = 'ACTIVE' OR h.state = 'WAITING'))
      AND (SELECT count(*) FROM dispatches d WHERE d.session = a.session AND d.agent IS NOT NULL)
      + (SELECT count(*) FROM channel_members o WHERE o.agent_id = m.agent_id
        AND o.channel_id <> m.channel_id AND (o.state = 'ACTIVE' OR o.state = 'WAITING'))
      < a.capacity THEN 'free' END AS change
  FROM channel_members m LEFT JOIN agents a ON a.id = m.agent_id)
WHERE change IS NOT NULL LIMIT ?2;

-- turns: which of these agents is ACTIVE, and where
SELECT channel_id, agent_id, turn FROM channel_members
WHERE agent_id IN (SELECT value FROM json_each(?)) AND state = 'ACTIVE'
ORDER BY channel_id;

-- busy_in: channels that wait until one of these agents is free
SELECT DISTINCT channel_id FROM channel_members m
WHERE agent_id IN (SELECT value FROM json_each(?)) AND busy = 1
AND NOT EXISTS (SELECT 1 FROM channel_members h WHERE h.channel_id = m.channel_id
  AND (h.state = 'ACTIVE' OR h.state = 'WAITING'));

-- has_members: whether any channel has a member
SELECT 1 FROM channel_members LIMIT 1;

-- memberships: memberships of one agent, or of all
SELECT channel_id, agent_id, state, busy, sole, turn FROM channel_members
WHERE ?1 IS NULL OR agent_id = ?1 ORDER BY agent_id, channel_id;

-- members_of: members of a channel
SELECT channel_id, agent_id, state, busy, sole, turn FROM channel_members WHERE channel_id = ?;

-- channels_page: open channels
SELECT id, seq, head, next_due, created_at, updated_at, closed_at, state FROM channels
WHERE id > ? AND closed_at IS NULL ORDER BY id LIMIT ?;

-- channels_all: open and closed channels
SELECT id, seq, head, next_due, created_at, updated_at, closed_at, state FROM channels
WHERE id > ? ORDER BY id LIMIT ?;

-- channel_log_page: log entries after a sequence number
SELECT channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at FROM channel_log
WHERE channel_id = ? AND seq > ? ORDER BY seq LIMIT ?;

-- channel_messages: the last of a range of messages
SELECT channel_id, seq, kind, number, message_id, code, author, human, text,
  recipient, at FROM channel_log
WHERE channel_id = ? AND number > ? AND number <= ? ORDER BY number DESC LIMIT ?;

-- add_late: keep a late answer as evidence, the first of a channel
INSERT INTO notes (execution_id, at, actor, code, body)
SELECT ?1, ?2, ?3, ?4, ?5 WHERE (SELECT count(*) FROM notes WHERE execution_id = ?1) < ?6;

-- late: late answers of a channel
SELECT at, actor, code, body FROM notes WHERE execution_id = ? ORDER BY id;

-- doctor_channel_version: a channel's version is its last sequence number, its head the last hash
SELECT c.id, 'the row says ' || c.seq || ', the journal ' || coalesce(j.seq, 0)
FROM channels c LEFT JOIN journal j ON j.stream = 'channel:' || c.id
  AND j.seq = (SELECT max(seq) FROM journal WHERE stream = 'channel:' || c.id)
WHERE j.seq IS NULL OR j.seq <> c.seq OR j.hash <> c.head;

-- doctor_two_active: one member of a channel holds the turn
SELECT channel_id, group_concat(agent_id, ', ') FROM channel_members
WHERE state = 'ACTIVE' OR state = 'WAITING' GROUP BY channel_id HAVING count(*) > 1;

-- doctor_two_turns: an agent with a capacity of 1 holds one turn
SELECT agent_id, group_concat(channel_id, ', ') FROM channel_members
WHERE sole = 1 AND (state = 'ACTIVE' OR state = 'WAITING') GROUP BY agent_id HAVING count(*) > 1;

-- doctor_turn_overdue: an engine ends every expired turn and wait
SELECT id, 'due since ' || next_due FROM channels
WHERE next_due < strftime('%Y-%m-%dT%H:%M:%f', ?1, '-5 minutes');
