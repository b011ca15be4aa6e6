-- channels: by id
SELECT {ChannelRow} FROM channels
WHERE true
  AND id IN list(:ids)
  AND id > :after
  AND closed_at IS NULL AND :open::boolean
ORDER BY id
LIMIT :limit;

-- due_channels: channels with an expired turn or wait
SELECT id FROM channels WHERE next_due <= :now ORDER BY next_due LIMIT :limit;

-- agent_loads: how many dispatches and turns agents hold
SELECT i.value, a.capacity,
  (SELECT count(*) FROM dispatches d WHERE d.session = a.session AND d.agent IS NOT NULL)
  + (SELECT count(*) FROM channel_members m WHERE m.agent_id = i.value
    AND (m.state = 'ACTIVE' OR m.state = 'WAITING'))
FROM list(:agent_ids) AS i LEFT JOIN agents a ON a.id = i.value;

-- presence_changes: members whose state differs from the agent's row
SELECT channel_id, agent_id, change FROM (
  SELECT m.channel_id, m.agent_id, CASE
    WHEN a.id IS NULL OR a.beat_at < :silent_since
    THEN CASE WHEN m.state <> 'OFFLINE' THEN 'offline' END
    WHEN NOT a.enabled THEN CASE WHEN m.state <> 'OFFLINE' THEN 'disabled' END
    WHEN m.state = 'OFFLINE' THEN 'online'
    WHEN m.busy = 1 AND NOT EXISTS (SELECT 1 FROM channel_members h
      WHERE h.channel_id = m.channel_id AND (h.state = 'ACTIVE' OR h.state = 'WAITING'))
      AND (SELECT count(*) FROM dispatches d WHERE d.session = a.session AND d.agent IS NOT NULL)
      + (SELECT count(*) FROM channel_members o WHERE o.agent_id = m.agent_id
        AND o.channel_id <> m.channel_id AND (o.state = 'ACTIVE' OR o.state = 'WAITING'))
      < a.capacity THEN 'free' END AS change
  FROM channel_members m LEFT JOIN agents a ON a.id = m.agent_id) changes
WHERE change IS NOT NULL LIMIT :limit;

-- active_turns: which of these agents is ACTIVE, and where
SELECT channel_id, agent_id, turn FROM channel_members
WHERE agent_id IN list(:agent_ids) AND state = 'ACTIVE' ORDER BY channel_id;

-- channels_waiting_for: channels that wait until one of these agents is free
SELECT DISTINCT channel_id FROM channel_members m
WHERE agent_id IN list(:agent_ids) AND busy = 1
AND NOT EXISTS (SELECT 1 FROM channel_members h WHERE h.channel_id = m.channel_id
  AND (h.state = 'ACTIVE' OR h.state = 'WAITING'));

-- has_members: whether any channel has a member
SELECT 1 FROM channel_members LIMIT 1;

-- memberships: by agent
SELECT {ChannelMemberRow} FROM channel_members
WHERE true
  AND agent_id = :agent_id
ORDER BY agent_id, channel_id;

-- members: members of a channel
SELECT {ChannelMemberRow} FROM channel_members WHERE channel_id = :channel_id;

-- channel_log: log entries after a sequence number
SELECT {ChannelLogRow} FROM channel_log
WHERE channel_id = :channel_id AND seq > :after_seq ORDER BY seq LIMIT :limit;

-- channel_messages: the last of a range of messages
SELECT {ChannelLogRow} FROM channel_log
WHERE channel_id = :channel_id AND number > :after AND number <= :upto
ORDER BY number DESC LIMIT :limit;

-- add_late_answer: kept as evidence, the first of a channel
INSERT INTO notes ({NoteRow}) SELECT {params NoteRow}
WHERE (SELECT count(*) FROM notes WHERE execution_id = :execution_id) < :answers_max;
