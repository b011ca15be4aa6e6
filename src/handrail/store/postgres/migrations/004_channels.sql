-- Channels in operation: which are open, which members are busy elsewhere, and the log. The tables
-- were not in use before.

DROP TABLE channel_members;
DROP TABLE channels;

CREATE TABLE channels (
  id text COLLATE "C" PRIMARY KEY,
  seq bigint NOT NULL,
  head bytea NOT NULL,
  next_due timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  closed_at timestamptz,
  state json NOT NULL,
  CHECK (closed_at IS NULL OR next_due IS NULL)
);
CREATE INDEX channels_due ON channels (next_due) WHERE next_due IS NOT NULL;
CREATE TABLE channel_members (
  channel_id text COLLATE "C" NOT NULL REFERENCES channels (id),
  agent_id text COLLATE "C" NOT NULL,
  state text NOT NULL CHECK (state IN ('OFFLINE', 'IDLE', 'QUEUED', 'ACTIVE', 'WAITING')),
  busy bigint NOT NULL CHECK (busy IN (0, 1)),
  sole bigint NOT NULL CHECK (sole IN (0, 1)),
  turn bigint,
  PRIMARY KEY (channel_id, agent_id),
  CHECK ((turn IS NOT NULL) = (state IN ('ACTIVE', 'WAITING')))
);
CREATE INDEX channel_members_agent ON channel_members (agent_id);
CREATE UNIQUE INDEX one_active_per_channel ON channel_members (channel_id)
  WHERE state = 'ACTIVE' OR state = 'WAITING';
CREATE UNIQUE INDEX one_turn_per_agent ON channel_members (agent_id)
  WHERE sole = 1 AND (state = 'ACTIVE' OR state = 'WAITING');
CREATE TABLE channel_log (
  channel_id text COLLATE "C" NOT NULL REFERENCES channels (id),
  seq bigint NOT NULL,
  kind text NOT NULL CHECK (kind IN ('message', 'notice')),
  number bigint,
  message_id text NOT NULL,
  code text NOT NULL,
  author text NOT NULL,
  human bigint NOT NULL CHECK (human IN (0, 1)),
  text text NOT NULL,
  recipient text,
  at timestamptz NOT NULL,
  PRIMARY KEY (channel_id, seq),
  CHECK ((kind = 'message') = (number IS NOT NULL))
);
CREATE UNIQUE INDEX channel_log_number ON channel_log (channel_id, number) WHERE number IS NOT NULL;
