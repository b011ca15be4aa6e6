-- The first schema.

CREATE TABLE handrail_schema (version integer NOT NULL);

CREATE TABLE workflows (
  id text COLLATE "C" PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  kind text NOT NULL CHECK (kind IN ('workflow', 'team')),
  version integer NOT NULL,
  definition json NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);
CREATE INDEX workflows_name ON workflows (name);

-- Every version of a definition; a version never changes.
CREATE TABLE workflow_versions (
  workflow_id text COLLATE "C" NOT NULL REFERENCES workflows (id),
  version integer NOT NULL,
  name text NOT NULL,
  kind text NOT NULL,
  definition json NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (workflow_id, version)
);

CREATE TABLE beads (
  id text COLLATE "C" PRIMARY KEY,
  title text NOT NULL,
  description text NOT NULL,
  status text COLLATE "C" NOT NULL
    CHECK (status IN ('open', 'in_progress', 'waiting', 'closed', 'error')),
  priority bigint NOT NULL,
  filed_by text NOT NULL,
  context json NOT NULL,
  error text,
  workflow_id text,
  execution_id text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  CHECK ((error IS NOT NULL) = (status = 'error'))
);
CREATE INDEX beads_status ON beads (status, id);

-- Pages keep room for the next version of a row: a run that only moves touches no index.
CREATE TABLE workflow_executions (
  id text COLLATE "C" PRIMARY KEY,
  bead_id text COLLATE "C" NOT NULL,
  workflow_id text NOT NULL,
  workflow_version integer NOT NULL,
  current_node_id text,
  status text COLLATE "C" NOT NULL CHECK (status IN ('running', 'waiting', 'paused', 'ended')),
  terminal_status text CHECK (terminal_status IN
    ('done_success', 'done_partial', 'aborted_stuck', 'aborted_constraint', 'closed_by_human')),
  stop_rule text,
  priority bigint NOT NULL,
  seq bigint NOT NULL CHECK (seq > 0),
  head bytea NOT NULL,
  next_due timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  ended_at timestamptz,
  state json NOT NULL,
  state_seq bigint NOT NULL CHECK (state_seq <= seq),
  notes bigint NOT NULL DEFAULT 0,
  CHECK ((status = 'ended') = (terminal_status IS NOT NULL)),
  CHECK ((status = 'ended') = (ended_at IS NOT NULL)),
  CHECK ((status = 'ended') = (stop_rule IS NOT NULL)),
  CHECK ((status = 'ended') = (next_due IS NULL))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0);
CREATE INDEX executions_bead ON workflow_executions (bead_id, id);
CREATE UNIQUE INDEX one_active_run_per_bead ON workflow_executions (bead_id) WHERE ended_at IS NULL;
CREATE INDEX executions_due ON workflow_executions (next_due) WHERE next_due IS NOT NULL;
CREATE INDEX executions_status ON workflow_executions (status, id);

CREATE TABLE workflow_transitions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  execution_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  from_node_id text NOT NULL,
  to_node_id text NOT NULL,
  outcome text NOT NULL,
  reason text NOT NULL,
  actor text NOT NULL,
  timestamp timestamptz NOT NULL
);
CREATE INDEX transitions_execution ON workflow_transitions (execution_id, id);

-- The truth: what each commit recorded of each stream. `body` is NULL only where a finished run was
-- archived; it is text, because its hash is over its bytes.
CREATE TABLE journal (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch bigint NOT NULL,
  stream text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  count integer NOT NULL CHECK (count > 0),
  body text,
  hash bytea NOT NULL
);
CREATE UNIQUE INDEX journal_stream ON journal (stream, seq);

-- One row per commit, chained over the whole database. Its entries are those of its batch
-- between the two ids.
CREATE TABLE commits (
  n bigint PRIMARY KEY,
  batch bigint NOT NULL,
  first_id bigint NOT NULL,
  last_id bigint NOT NULL,
  entries bigint NOT NULL,
  at timestamptz NOT NULL,
  hash bytea NOT NULL
);
CREATE INDEX commits_batch ON commits (batch);

-- The end of the chain, one row. A commit locks the row until its end; therefore `n` is the order
-- of commits, and a reader that sees a commit sees all before it.
CREATE TABLE chain (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  n bigint NOT NULL,
  head bytea NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);
INSERT INTO chain (n, head) VALUES (0, '');

CREATE TABLE streams (
  name text COLLATE "C" PRIMARY KEY,
  seq bigint NOT NULL,
  head bytea NOT NULL
);

CREATE TABLE approvals (
  id text COLLATE "C" PRIMARY KEY,
  execution_id text COLLATE "C" NOT NULL,
  bead_id text NOT NULL,
  node_id text NOT NULL,
  type text NOT NULL CHECK (type IN ('clarification_request', 'approval', 'escalation')),
  status text NOT NULL CHECK (status IN ('open', 'answered', 'void', 'expired')),
  question text NOT NULL,
  digest text NOT NULL,
  deadline timestamptz NOT NULL,
  created_at timestamptz NOT NULL,
  decision text,
  answer text,
  answered_by text,
  settled_at timestamptz,
  CHECK ((status = 'answered') = (decision IS NOT NULL)),
  CHECK ((status = 'answered') = (answered_by IS NOT NULL)),
  CHECK ((status = 'open') = (settled_at IS NULL))
);
CREATE INDEX approvals_execution ON approvals (execution_id, id);
CREATE INDEX approvals_open ON approvals (created_at) WHERE status = 'open';

-- Open dispatches only: a row leaves when its result comes, its lease is lost or its run ends.
-- A queue is as fast as it is short: its dead rows are removed all the time. `reserved_until` keeps
-- two engines from claiming the same row at the same time; it guarantees nothing.
CREATE TABLE dispatches (
  execution_id text COLLATE "C" NOT NULL,
  fence bigint NOT NULL,
  place text COLLATE "C" NOT NULL,
  role text COLLATE "C" NOT NULL,
  priority bigint NOT NULL,
  offered_at timestamptz NOT NULL,
  agent text COLLATE "C",
  session text COLLATE "C",
  claimed_at timestamptz,
  reserved_until timestamptz,
  PRIMARY KEY (execution_id, fence),
  CHECK ((agent IS NULL) = (session IS NULL)),
  CHECK ((agent IS NULL) = (claimed_at IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX one_dispatch_per_step ON dispatches (execution_id, place);
CREATE INDEX dispatches_on_offer ON dispatches (role, priority DESC, offered_at) WHERE agent IS NULL;

CREATE TABLE agents (
  id text COLLATE "C" PRIMARY KEY,
  roles json NOT NULL,
  capacity integer NOT NULL CHECK (capacity > 0),
  enabled boolean NOT NULL,
  session text COLLATE "C" NOT NULL,
  engine text COLLATE "C",
  beat_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX agents_session ON agents (session);

CREATE TABLE engines (
  id text COLLATE "C" PRIMARY KEY,
  beat_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- While no engine is alive, the clocks of runs stand still.
CREATE TABLE outages (
  started_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL PRIMARY KEY
);

CREATE TABLE commit_locks (
  repository text COLLATE "C" PRIMARY KEY,
  holder_execution_id text,
  holder_step text,
  fence bigint NOT NULL,
  seq bigint NOT NULL,
  head bytea NOT NULL,
  next_due timestamptz,
  updated_at timestamptz NOT NULL,
  state json NOT NULL,
  CHECK ((holder_execution_id IS NULL) = (holder_step IS NULL))
) WITH (fillfactor = 50);

-- Messages from one stream to another; deleted by the decision that consumes them.
CREATE TABLE messages (
  id text COLLATE "C" PRIMARY KEY,
  target text NOT NULL,
  body text NOT NULL,
  created_at timestamptz NOT NULL,
  n bigint GENERATED ALWAYS AS IDENTITY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0);
CREATE INDEX messages_age ON messages (n);

CREATE TABLE idempotency_keys (
  key text COLLATE "C" NOT NULL,
  actor text COLLATE "C" NOT NULL,
  digest text NOT NULL,
  answer text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (key, actor)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE notes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  execution_id text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  actor text NOT NULL,
  code text NOT NULL,
  body text NOT NULL
);
CREATE INDEX notes_execution ON notes (execution_id, id);

-- Channels and their turns; at most one member of a channel holds the turn.
CREATE TABLE channels (
  id text COLLATE "C" PRIMARY KEY,
  seq bigint NOT NULL,
  head bytea NOT NULL,
  next_due timestamptz,
  updated_at timestamptz NOT NULL,
  state json NOT NULL
);
CREATE TABLE channel_members (
  channel_id text COLLATE "C" NOT NULL REFERENCES channels (id),
  agent_id text COLLATE "C" NOT NULL,
  state text NOT NULL CHECK (state IN ('OFFLINE', 'IDLE', 'QUEUED', 'ACTIVE', 'WAITING')),
  PRIMARY KEY (channel_id, agent_id)
);
CREATE UNIQUE INDEX one_active_per_channel ON channel_members (channel_id) WHERE state = 'ACTIVE';
