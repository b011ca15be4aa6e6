-- The tables of version 0.1.0. `project` is reserved: one project has all rows for now.
-- Keys compare byte by byte (COLLATE "C"), so that their order is that of SQLite and of Python.
-- Documents are json, which keeps the text unchanged. `migrations.py` says how a file serves both
-- databases.

CREATE TABLE handrail_schema (version integer NOT NULL);  -- postgres

CREATE TABLE workflows (
  id text COLLATE "C" PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  kind text NOT NULL CHECK (kind IN ('workflow', 'team')),
  version integer NOT NULL,
  definition json NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  project text NOT NULL DEFAULT 'default'
) STRICT;
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
) STRICT;

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
  due_at timestamptz,
  project text NOT NULL DEFAULT 'default',
  CHECK ((error IS NOT NULL) = (status = 'error'))
) STRICT;
CREATE INDEX beads_status ON beads (status, id);
CREATE INDEX beads_due ON beads (due_at) WHERE due_at IS NOT NULL;

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
) STRICT;  -- sqlite
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,  -- postgres
  autovacuum_vacuum_cost_delay = 0);  -- postgres
CREATE INDEX executions_bead ON workflow_executions (bead_id, id);
CREATE UNIQUE INDEX one_active_run_per_bead ON workflow_executions (bead_id) WHERE ended_at IS NULL;
CREATE INDEX executions_due ON workflow_executions (next_due) WHERE next_due IS NOT NULL;
CREATE INDEX executions_status ON workflow_executions (status, id);
CREATE INDEX executions_ended ON workflow_executions (ended_at, id) WHERE ended_at IS NOT NULL;

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
) STRICT;
CREATE INDEX transitions_execution ON workflow_transitions (execution_id, id);

-- The truth: what each commit recorded of each stream, appended by id: in SQLite three times faster
-- than clustering by stream. `body` is NULL only where a finished run was archived; it is text,
-- because its hash is over its bytes.
CREATE TABLE journal (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch bigint NOT NULL,
  stream text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  count integer NOT NULL CHECK (count > 0),
  body text,
  hash bytea NOT NULL
) STRICT;
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
) STRICT;
CREATE INDEX commits_batch ON commits (batch);  -- postgres

-- The end of the chain, one row. A commit locks the row until its end; therefore `n` is the order
-- of commits, and a reader that sees a commit sees all before it.
CREATE TABLE chain (  -- postgres
  one boolean PRIMARY KEY DEFAULT true CHECK (one),  -- postgres
  n bigint NOT NULL,  -- postgres
  head bytea NOT NULL  -- postgres
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,  -- postgres
  autovacuum_vacuum_cost_delay = 0);  -- postgres
INSERT INTO chain (n, head) VALUES (0, '');  -- postgres

CREATE TABLE streams (
  name text COLLATE "C" PRIMARY KEY,
  seq bigint NOT NULL,
  head bytea NOT NULL
) STRICT;

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
) STRICT;
CREATE INDEX approvals_execution ON approvals (execution_id, id);
CREATE INDEX approvals_open ON approvals (created_at) WHERE status = 'open';
CREATE INDEX approvals_created ON approvals (created_at, id);
CREATE INDEX approvals_status ON approvals (status, id);

-- Open dispatches only: a row leaves when its result comes, its lease is lost or its run ends.
-- A queue is as fast as it is short: its dead rows are removed all the time. `reserved_until` keeps
-- two engines from claiming the same row at the same time; it guarantees nothing. `reserved_by` is
-- the engine that may still read the row meanwhile.
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
  PRIMARY KEY (execution_id, fence),  -- sqlite
  reserved_until timestamptz,  -- postgres
  reserved_by bigint,  -- postgres
  CHECK ((agent IS NULL) = (session IS NULL)),
  CHECK ((agent IS NULL) = (claimed_at IS NULL))
) STRICT, WITHOUT ROWID;  -- sqlite
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,  -- postgres
  autovacuum_vacuum_cost_delay = 0);  -- postgres
CREATE UNIQUE INDEX one_dispatch_per_step ON dispatches (execution_id, place);
CREATE INDEX dispatches_on_offer ON dispatches (role, priority DESC, offered_at) WHERE agent IS NULL;
CREATE INDEX dispatches_claimed ON dispatches (session) WHERE agent IS NOT NULL;

CREATE TABLE agents (
  id text COLLATE "C" PRIMARY KEY,
  roles json NOT NULL,
  capacity integer NOT NULL CHECK (capacity > 0),
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),  -- sqlite
  enabled boolean NOT NULL,  -- postgres
  session text COLLATE "C" NOT NULL,
  engine text COLLATE "C",
  beat_at timestamptz NOT NULL,
  project text NOT NULL DEFAULT 'default'
) STRICT;  -- sqlite
) WITH (fillfactor = 50);  -- postgres
CREATE UNIQUE INDEX agents_session ON agents (session);

CREATE TABLE engines (
  id text COLLATE "C" PRIMARY KEY,
  beat_at timestamptz NOT NULL
) STRICT;  -- sqlite
) WITH (fillfactor = 50);  -- postgres

-- While no engine is alive, the clocks of runs stand still.
CREATE TABLE outages (
  started_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL PRIMARY KEY
) STRICT;

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
) STRICT;  -- sqlite
) WITH (fillfactor = 50);  -- postgres

-- Messages from one stream to another; deleted by the decision that consumes them.
CREATE TABLE messages (
  n INTEGER PRIMARY KEY,  -- sqlite
  id text NOT NULL UNIQUE,  -- sqlite
  id text COLLATE "C" PRIMARY KEY,  -- postgres
  target text NOT NULL,
  body text NOT NULL,
  created_at timestamptz NOT NULL
  , n bigint GENERATED ALWAYS AS IDENTITY  -- postgres
) STRICT;  -- sqlite
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,  -- postgres
  autovacuum_vacuum_cost_delay = 0);  -- postgres
CREATE INDEX messages_age ON messages (n);  -- postgres

CREATE TABLE idempotency_keys (
  key text COLLATE "C" NOT NULL,
  actor text COLLATE "C" NOT NULL,
  digest text NOT NULL,
  answer text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (key, actor)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- Budgets that runs share. `updated_by` is empty where a guarded program has set it.
CREATE TABLE budgets (
  name text COLLATE "C" NOT NULL PRIMARY KEY,
  per text NOT NULL CHECK (per IN ('run', 'day', 'month')),
  cost double precision,
  tokens bigint,
  warn_at double precision NOT NULL,
  updated_by text NOT NULL,
  updated_at timestamptz NOT NULL
) STRICT, WITHOUT ROWID;

-- What was spent of a budget in a period; periods are days and months of UTC.
CREATE TABLE budget_spending (
  name text COLLATE "C" NOT NULL,
  period text COLLATE "C" NOT NULL,
  cost double precision NOT NULL,
  tokens bigint NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (name, period)
) STRICT, WITHOUT ROWID;

CREATE TABLE notes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  execution_id text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  actor text NOT NULL,
  code text NOT NULL,
  body text NOT NULL
) STRICT;
CREATE INDEX notes_execution ON notes (execution_id, id);

-- Channels and their turns. A closed channel keeps its row and its number of turns.
CREATE TABLE channels (
  id text COLLATE "C" PRIMARY KEY,
  seq bigint NOT NULL,
  head bytea NOT NULL,
  next_due timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  closed_at timestamptz,
  state json NOT NULL,
  project text NOT NULL DEFAULT 'default',
  CHECK (closed_at IS NULL OR next_due IS NULL)
) STRICT;
CREATE INDEX channels_due ON channels (next_due) WHERE next_due IS NOT NULL;
-- At most one member of a channel holds the turn, and an agent with a capacity of 1 (`sole`) holds
-- one turn in all. `busy`: work elsewhere takes up all its capacity.
CREATE TABLE channel_members (
  channel_id text COLLATE "C" NOT NULL REFERENCES channels (id),
  agent_id text COLLATE "C" NOT NULL,
  state text NOT NULL CHECK (state IN ('OFFLINE', 'IDLE', 'QUEUED', 'ACTIVE', 'WAITING')),
  busy bigint NOT NULL CHECK (busy IN (0, 1)),
  sole bigint NOT NULL CHECK (sole IN (0, 1)),
  turn bigint,
  PRIMARY KEY (channel_id, agent_id),
  CHECK ((turn IS NOT NULL) = (state IN ('ACTIVE', 'WAITING')))
) STRICT, WITHOUT ROWID;
CREATE INDEX channel_members_agent ON channel_members (agent_id);
CREATE UNIQUE INDEX one_active_per_channel ON channel_members (channel_id)
  WHERE state = 'ACTIVE' OR state = 'WAITING';
CREATE UNIQUE INDEX one_turn_per_agent ON channel_members (agent_id)
  WHERE sole = 1 AND (state = 'ACTIVE' OR state = 'WAITING');
-- Messages and notices of a channel; `seq` is that of the event.
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
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX channel_log_number ON channel_log (channel_id, number) WHERE number IS NOT NULL;

-- Files that agents receive with a bead.
CREATE TABLE bead_files (
  bead_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  sha256 text NOT NULL,
  size bigint NOT NULL,
  content_type text NOT NULL,
  content bytea NOT NULL,
  uploaded_by text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (bead_id, name),
  CHECK (size = length(content))
) STRICT;

-- Credentials. Only the digest of a secret is kept; a used sign-in is revoked.
CREATE TABLE credentials (
  id text COLLATE "C" PRIMARY KEY,
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('token', 'sign_in', 'session')),
  digest text COLLATE "C" NOT NULL,
  name text NOT NULL,
  agent text,
  role text NOT NULL,
  works_as text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  revoked_at timestamptz,
  project text NOT NULL DEFAULT 'default'
) STRICT;
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);
CREATE INDEX credentials_kind ON credentials (kind, id);

-- Statistics, computed on demand from the events of ended runs; kept when a run is archived.
CREATE TABLE run_figures (
  execution_id text COLLATE "C" PRIMARY KEY,
  workflow_id text COLLATE "C" NOT NULL,
  ended_at timestamptz NOT NULL,
  seconds double precision NOT NULL,
  terminal_status text NOT NULL,
  escalations bigint NOT NULL,
  tokens bigint NOT NULL,
  cost double precision NOT NULL
) STRICT;
CREATE INDEX run_figures_workflow ON run_figures (workflow_id, ended_at);
CREATE TABLE node_figures (
  execution_id text COLLATE "C" NOT NULL REFERENCES run_figures (execution_id),
  node text COLLATE "C" NOT NULL,
  visits bigint NOT NULL,
  dispatches bigint NOT NULL,
  PRIMARY KEY (execution_id, node)
) STRICT, WITHOUT ROWID;

-- Memories of resolved tickets: one per run, found by the words of its ticket. The verdict is final
-- once the run is archived; before that the standing is read from the run itself.
CREATE TABLE memories (
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text COLLATE "C" NOT NULL,
  execution_id text COLLATE "C" NOT NULL,
  bead_id text COLLATE "C" NOT NULL,
  title text NOT NULL,
  ticket text NOT NULL,
  words text NOT NULL CHECK (words <> ''),
  resolution text NOT NULL,
  remembered_by text NOT NULL,
  created_at timestamptz NOT NULL,
  times_used bigint NOT NULL CHECK (times_used >= 0),
  used_at timestamptz,
  corrected_by text,
  corrected_at timestamptz,
  verdict text NOT NULL CHECK (verdict IN ('pending', 'kept', 'reopened', 'failed')),
  CHECK ((corrected_by IS NULL) = (corrected_at IS NULL)),
  CHECK ((times_used = 0) = (used_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX memories_id ON memories (id);
CREATE UNIQUE INDEX one_memory_per_run ON memories (execution_id);
CREATE INDEX memories_age ON memories (coalesce(used_at, created_at));
CREATE INDEX memories_words ON memories  -- postgres
USING gin (array_to_tsvector(string_to_array(words, ' ')));  -- postgres
CREATE VIRTUAL TABLE memory_words USING fts5(words);  -- sqlite
CREATE TRIGGER memory_words_insert AFTER INSERT ON memories BEGIN  -- sqlite
  INSERT INTO memory_words (rowid, words) VALUES (new.n, new.words);  -- sqlite
END;  -- sqlite
CREATE TRIGGER memory_words_delete AFTER DELETE ON memories BEGIN  -- sqlite
  DELETE FROM memory_words WHERE rowid = old.n;  -- sqlite
END;  -- sqlite

-- Which memory answered which run; a reopened ticket does not get the same memory again.
CREATE TABLE memory_uses (
  execution_id text COLLATE "C" NOT NULL,
  memory_id text COLLATE "C" NOT NULL,
  bead_id text COLLATE "C" NOT NULL,
  used_at timestamptz NOT NULL,
  PRIMARY KEY (execution_id, memory_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_uses_bead ON memory_uses (bead_id, memory_id);
CREATE INDEX memory_uses_memory ON memory_uses (memory_id);

-- The standing of each memory: its ticket was reopened, or its run ended well, badly, or not yet.
CREATE VIEW memories_standing AS
SELECT m.*, CASE
    WHEN b.execution_id <> m.execution_id THEN 'reopened'
    WHEN m.verdict <> 'pending' THEN m.verdict
    WHEN e.terminal_status IN ('done_success', 'done_partial') THEN 'kept'
    WHEN e.terminal_status IS NOT NULL THEN 'failed'
    ELSE 'pending'
  END AS standing
FROM memories m
LEFT JOIN beads b ON b.id = m.bead_id
LEFT JOIN workflow_executions e ON e.id = m.execution_id;

-- One-time links for one person's answer to one approval. Only the digest of a secret is kept.
CREATE TABLE answer_links (
  id text COLLATE "C" PRIMARY KEY,
  digest text COLLATE "C" NOT NULL,
  approval_id text COLLATE "C" NOT NULL,
  shown text NOT NULL,
  name text NOT NULL,
  role text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  used_at timestamptz
) STRICT;
CREATE UNIQUE INDEX answer_links_digest ON answer_links (digest);
CREATE INDEX answer_links_approval ON answer_links (approval_id);
CREATE INDEX answer_links_expires ON answer_links (expires_at);

-- Webhooks, and the outcome of their last attempts.
CREATE TABLE webhooks (
  id text COLLATE "C" PRIMARY KEY,
  url text NOT NULL,
  events text NOT NULL,
  people text NOT NULL,
  secret text NOT NULL,
  since bigint NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  failures bigint NOT NULL,
  next_at timestamptz NOT NULL,
  busy_until timestamptz,
  delivered_at timestamptz,
  disabled_at timestamptz,
  reason text NOT NULL,
  CHECK (disabled_at IS NULL OR reason <> '')
) STRICT;

-- Deliveries for each webhook, once; and the position in the feed up to which they were made: at
-- most one row.
CREATE TABLE webhook_deliveries (
  webhook_id text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  i bigint NOT NULL,
  kind text NOT NULL,
  body text NOT NULL,
  created_at timestamptz NOT NULL,
  delivered_at timestamptz,
  PRIMARY KEY (webhook_id, id)
) STRICT;
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook_id, n, i, id)
  WHERE delivered_at IS NULL;
CREATE INDEX webhook_deliveries_created ON webhook_deliveries (created_at);
CREATE TABLE webhook_feed (
  one bigint PRIMARY KEY CHECK (one = 1),
  position text NOT NULL
) STRICT;

-- Moments at which people are reminded of an open approval; each fires once.
CREATE TABLE reminders (
  approval_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  due_at timestamptz NOT NULL,
  fired_at timestamptz,
  PRIMARY KEY (approval_id, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX reminders_due ON reminders (due_at) WHERE fired_at IS NULL;

-- Reported errors by signature: the newest bead of each, and how often the error occurred.
CREATE TABLE bugs (
  digest text COLLATE "C" PRIMARY KEY,
  signature text NOT NULL,
  bead_id text COLLATE "C" NOT NULL,
  count bigint NOT NULL CHECK (count > 0),
  first_seen timestamptz NOT NULL,
  last_seen timestamptz NOT NULL,
  earlier text COLLATE "C",
  CHECK (earlier IS NULL OR earlier <> bead_id)
) STRICT;
CREATE UNIQUE INDEX bugs_bead ON bugs (bead_id);
CREATE INDEX bugs_first_seen ON bugs (first_seen);
