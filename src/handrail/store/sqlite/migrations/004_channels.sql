-- Channels in operation: which are open, which members are busy elsewhere, and the log. The tables
-- were not in use before.

DROP TABLE channel_members;
DROP TABLE channels;

CREATE TABLE channels (
  id TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  head BLOB NOT NULL,
  next_due TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  closed_at TEXT,
  state TEXT NOT NULL,
  CHECK (closed_at IS NULL OR next_due IS NULL)
) STRICT;
CREATE INDEX channels_due ON channels (next_due) WHERE next_due IS NOT NULL;
CREATE TABLE channel_members (
  channel_id TEXT NOT NULL REFERENCES channels (id),
  agent_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state = 'OFFLINE' OR state = 'IDLE' OR state = 'QUEUED'
    OR state = 'ACTIVE' OR state = 'WAITING'),
  busy INTEGER NOT NULL CHECK (busy = 0 OR busy = 1),
  sole INTEGER NOT NULL CHECK (sole = 0 OR sole = 1),
  turn INTEGER,
  PRIMARY KEY (channel_id, agent_id),
  CHECK ((turn IS NOT NULL) = (state = 'ACTIVE' OR state = 'WAITING'))
) STRICT, WITHOUT ROWID;
CREATE INDEX channel_members_agent ON channel_members (agent_id);
CREATE UNIQUE INDEX one_active_per_channel ON channel_members (channel_id)
  WHERE state = 'ACTIVE' OR state = 'WAITING';
CREATE UNIQUE INDEX one_turn_per_agent ON channel_members (agent_id)
  WHERE sole = 1 AND (state = 'ACTIVE' OR state = 'WAITING');
CREATE TABLE channel_log (
  channel_id TEXT NOT NULL REFERENCES channels (id),
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind = 'message' OR kind = 'notice'),
  number INTEGER,
  message_id TEXT NOT NULL,
  code TEXT NOT NULL,
  author TEXT NOT NULL,
  human INTEGER NOT NULL CHECK (human = 0 OR human = 1),
  text TEXT NOT NULL,
  recipient TEXT,
  at TEXT NOT NULL,
  PRIMARY KEY (channel_id, seq),
  CHECK ((kind = 'message') = (number IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX channel_log_number ON channel_log (channel_id, number) WHERE number IS NOT NULL;
