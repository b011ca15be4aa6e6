-- The tables of version 0.1.0. `project` is reserved: one project has all rows for now.
-- Times are ISO 8601 texts in UTC with microseconds; documents are JSON texts.
-- Constraints compare with one value after the other: for a longer IN, SQLite builds a table in
-- memory for each row that it checks, which takes longer than writing the row.

CREATE TABLE workflows (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('workflow', 'team')),
  version INTEGER NOT NULL,
  definition TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  project TEXT NOT NULL DEFAULT 'default'
) STRICT;
CREATE INDEX workflows_name ON workflows (name);

-- Every version of a definition; a version never changes.
CREATE TABLE workflow_versions (
  workflow_id TEXT NOT NULL REFERENCES workflows (id),
  version INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  definition TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (workflow_id, version)
) STRICT;

CREATE TABLE beads (
  id TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status = 'open' OR status = 'in_progress' OR status = 'waiting'
    OR status = 'closed' OR status = 'error'),
  priority INTEGER NOT NULL,
  filed_by TEXT NOT NULL,
  context TEXT NOT NULL,
  error TEXT,
  workflow_id TEXT,
  execution_id TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  due_at TEXT,
  project TEXT NOT NULL DEFAULT 'default',
  CHECK ((error IS NOT NULL) = (status = 'error'))
) STRICT;
CREATE INDEX beads_status ON beads (status, id);

CREATE TABLE workflow_executions (
  id TEXT PRIMARY KEY,
  bead_id TEXT NOT NULL,
  workflow_id TEXT NOT NULL,
  workflow_version INTEGER NOT NULL,
  current_node_id TEXT,
  status TEXT NOT NULL CHECK (status = 'running' OR status = 'waiting' OR status = 'paused'
    OR status = 'ended'),
  terminal_status TEXT CHECK (terminal_status = 'done_success'
    OR terminal_status = 'done_partial' OR terminal_status = 'aborted_stuck'
    OR terminal_status = 'aborted_constraint' OR terminal_status = 'closed_by_human'),
  stop_rule TEXT,
  priority INTEGER NOT NULL,
  seq INTEGER NOT NULL CHECK (seq > 0),
  head BLOB NOT NULL,
  next_due TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  ended_at TEXT,
  state TEXT NOT NULL,
  state_seq INTEGER NOT NULL CHECK (state_seq <= seq),
  notes INTEGER NOT NULL DEFAULT 0,
  CHECK ((status = 'ended') = (terminal_status IS NOT NULL)),
  CHECK ((status = 'ended') = (ended_at IS NOT NULL)),
  CHECK ((status = 'ended') = (stop_rule IS NOT NULL)),
  CHECK ((status = 'ended') = (next_due IS NULL))
) STRICT;
CREATE INDEX executions_bead ON workflow_executions (bead_id, id);
CREATE UNIQUE INDEX one_active_run_per_bead ON workflow_executions (bead_id) WHERE ended_at IS NULL;
CREATE INDEX executions_due ON workflow_executions (next_due) WHERE next_due IS NOT NULL;
CREATE INDEX executions_status ON workflow_executions (status, id);
CREATE INDEX executions_ended ON workflow_executions (ended_at, id) WHERE ended_at IS NOT NULL;

CREATE TABLE workflow_transitions (
  id INTEGER PRIMARY KEY,
  execution_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  from_node_id TEXT NOT NULL,
  to_node_id TEXT NOT NULL,
  outcome TEXT NOT NULL,
  reason TEXT NOT NULL,
  actor TEXT NOT NULL,
  timestamp TEXT NOT NULL
) STRICT;
CREATE INDEX transitions_execution ON workflow_transitions (execution_id, id);

-- The truth: what each commit recorded of each stream. Appended by rowid, which is three times
-- faster than clustering by stream. `body` is NULL only where a finished run was archived.
CREATE TABLE journal (
  id INTEGER PRIMARY KEY,
  batch INTEGER NOT NULL,
  stream TEXT NOT NULL,
  seq INTEGER NOT NULL,
  count INTEGER NOT NULL CHECK (count > 0),
  body TEXT,
  hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX journal_stream ON journal (stream, seq);

-- One row per commit, chained over the whole database. Its entries are those of its batch
-- between the two ids.
CREATE TABLE commits (
  n INTEGER PRIMARY KEY,
  batch INTEGER NOT NULL,
  first_id INTEGER NOT NULL,
  last_id INTEGER NOT NULL,
  entries INTEGER NOT NULL,
  at TEXT NOT NULL,
  hash BLOB NOT NULL
) STRICT;

CREATE TABLE streams (
  name TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  head BLOB NOT NULL
) STRICT;

CREATE TABLE approvals (
  id TEXT PRIMARY KEY,
  execution_id TEXT NOT NULL,
  bead_id TEXT NOT NULL,
  node_id TEXT NOT NULL,
  type TEXT NOT NULL CHECK (type = 'clarification_request' OR type = 'approval'
    OR type = 'escalation'),
  status TEXT NOT NULL CHECK (status = 'open' OR status = 'answered' OR status = 'void'
    OR status = 'expired'),
  question TEXT NOT NULL,
  digest TEXT NOT NULL,
  deadline TEXT NOT NULL,
  created_at TEXT NOT NULL,
  decision TEXT,
  answer TEXT,
  answered_by TEXT,
  settled_at TEXT,
  CHECK ((status = 'answered') = (decision IS NOT NULL)),
  CHECK ((status = 'answered') = (answered_by IS NOT NULL)),
  CHECK ((status = 'open') = (settled_at IS NULL))
) STRICT;
CREATE INDEX approvals_execution ON approvals (execution_id, id);
CREATE INDEX approvals_open ON approvals (created_at) WHERE status = 'open';
CREATE INDEX approvals_created ON approvals (created_at, id);
CREATE INDEX approvals_status ON approvals (status, id);

-- Open dispatches only: a row leaves when its result comes, its lease is lost or its run ends.
CREATE TABLE dispatches (
  execution_id TEXT NOT NULL,
  fence INTEGER NOT NULL,
  place TEXT NOT NULL,
  role TEXT NOT NULL,
  priority INTEGER NOT NULL,
  offered_at TEXT NOT NULL,
  agent TEXT,
  session TEXT,
  claimed_at TEXT,
  PRIMARY KEY (execution_id, fence),
  CHECK ((agent IS NULL) = (session IS NULL)),
  CHECK ((agent IS NULL) = (claimed_at IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_dispatch_per_step ON dispatches (execution_id, place);
CREATE INDEX dispatches_on_offer ON dispatches (role, priority DESC, offered_at) WHERE agent IS NULL;
CREATE INDEX dispatches_claimed ON dispatches (session) WHERE agent IS NOT NULL;

CREATE TABLE agents (
  id TEXT PRIMARY KEY,
  roles TEXT NOT NULL,
  capacity INTEGER NOT NULL CHECK (capacity > 0),
  enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  session TEXT NOT NULL,
  engine TEXT,
  beat_at TEXT NOT NULL,
  project TEXT NOT NULL DEFAULT 'default'
) STRICT;
CREATE UNIQUE INDEX agents_session ON agents (session);

CREATE TABLE engines (
  id TEXT PRIMARY KEY,
  beat_at TEXT NOT NULL
) STRICT;

-- While no engine is alive, the clocks of runs stand still.
CREATE TABLE outages (
  started_at TEXT NOT NULL,
  ended_at TEXT NOT NULL PRIMARY KEY
) STRICT;

CREATE TABLE commit_locks (
  repository TEXT PRIMARY KEY,
  holder_execution_id TEXT,
  holder_step TEXT,
  fence INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  head BLOB NOT NULL,
  next_due TEXT,
  updated_at TEXT NOT NULL,
  state TEXT NOT NULL,
  CHECK ((holder_execution_id IS NULL) = (holder_step IS NULL))
) STRICT;

-- Messages from one stream to another; deleted by the decision that consumes them.
CREATE TABLE messages (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  target TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
  key TEXT NOT NULL,
  actor TEXT NOT NULL,
  digest TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (key, actor)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE notes (
  id INTEGER PRIMARY KEY,
  execution_id TEXT NOT NULL,
  at TEXT NOT NULL,
  actor TEXT NOT NULL,
  code TEXT NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX notes_execution ON notes (execution_id, id);

-- Channels and their turns. A closed channel keeps its row and its number of turns.
CREATE TABLE channels (
  id TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  head BLOB NOT NULL,
  next_due TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  closed_at TEXT,
  state TEXT NOT NULL,
  project TEXT NOT NULL DEFAULT 'default',
  CHECK (closed_at IS NULL OR next_due IS NULL)
) STRICT;
CREATE INDEX channels_due ON channels (next_due) WHERE next_due IS NOT NULL;
-- At most one member of a channel holds the turn, and an agent with a capacity of 1 (`sole`) holds
-- one turn in all. `busy`: work elsewhere takes up all its capacity.
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
-- Messages and notices of a channel; `seq` is that of the event.
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

-- Files that agents receive with a bead.
CREATE TABLE bead_files (
  bead_id TEXT NOT NULL,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size INTEGER NOT NULL,
  content_type TEXT NOT NULL,
  content BLOB NOT NULL,
  uploaded_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (bead_id, name),
  CHECK (size = length(content))
) STRICT;

-- Credentials. Only the digest of a secret is kept; a used sign-in is revoked.
CREATE TABLE credentials (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('token', 'sign_in', 'session')),
  digest TEXT NOT NULL,
  name TEXT NOT NULL,
  agent TEXT,
  role TEXT NOT NULL,
  works_as TEXT,
  created_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  expires_at TEXT,
  revoked_at TEXT,
  project TEXT NOT NULL DEFAULT 'default'
) STRICT;
CREATE UNIQUE INDEX credentials_digest ON credentials (digest);
CREATE INDEX credentials_kind ON credentials (kind, id);

-- Statistics, computed on demand from the events of ended runs; kept when a run is archived.
CREATE TABLE run_figures (
  execution_id TEXT PRIMARY KEY,
  workflow_id TEXT NOT NULL,
  ended_at TEXT NOT NULL,
  seconds REAL NOT NULL,
  terminal_status TEXT NOT NULL,
  escalations INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  cost REAL NOT NULL
) STRICT;
CREATE INDEX run_figures_workflow ON run_figures (workflow_id, ended_at);
CREATE TABLE node_figures (
  execution_id TEXT NOT NULL REFERENCES run_figures (execution_id),
  node TEXT NOT NULL,
  visits INTEGER NOT NULL,
  dispatches INTEGER NOT NULL,
  PRIMARY KEY (execution_id, node)
) STRICT, WITHOUT ROWID;

-- Memories of resolved tickets: one per run, found by the words of its ticket. The verdict is final
-- once the run is archived; before that the standing is read from the run itself.
CREATE TABLE memories (
  n INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  execution_id TEXT NOT NULL,
  bead_id TEXT NOT NULL,
  title TEXT NOT NULL,
  ticket TEXT NOT NULL,
  words TEXT NOT NULL CHECK (words <> ''),
  resolution TEXT NOT NULL,
  remembered_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  times_used INTEGER NOT NULL CHECK (times_used >= 0),
  used_at TEXT,
  corrected_by TEXT,
  corrected_at TEXT,
  verdict TEXT NOT NULL CHECK (verdict IN ('pending', 'kept', 'reopened', 'failed')),
  CHECK ((corrected_by IS NULL) = (corrected_at IS NULL)),
  CHECK ((times_used = 0) = (used_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX memories_id ON memories (id);
CREATE UNIQUE INDEX one_memory_per_run ON memories (execution_id);
CREATE INDEX memories_age ON memories (coalesce(used_at, created_at));
CREATE VIRTUAL TABLE memory_words USING fts5(words);
CREATE TRIGGER memory_words_insert AFTER INSERT ON memories BEGIN
  INSERT INTO memory_words (rowid, words) VALUES (new.n, new.words);
END;
CREATE TRIGGER memory_words_delete AFTER DELETE ON memories BEGIN
  DELETE FROM memory_words WHERE rowid = old.n;
END;

-- Which memory answered which run; a reopened ticket does not get the same memory again.
CREATE TABLE memory_uses (
  execution_id TEXT NOT NULL,
  memory_id TEXT NOT NULL,
  bead_id TEXT NOT NULL,
  used_at TEXT NOT NULL,
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
  id TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  approval_id TEXT NOT NULL,
  shown TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  used_at TEXT
) STRICT;
CREATE UNIQUE INDEX answer_links_digest ON answer_links (digest);
CREATE INDEX answer_links_approval ON answer_links (approval_id);
CREATE INDEX answer_links_expires ON answer_links (expires_at);

-- Webhooks, and the outcome of their last attempts.
CREATE TABLE webhooks (
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  events TEXT NOT NULL,
  people TEXT NOT NULL,
  secret TEXT NOT NULL,
  since INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  failures INTEGER NOT NULL,
  next_at TEXT NOT NULL,
  busy_until TEXT,
  delivered_at TEXT,
  disabled_at TEXT,
  reason TEXT NOT NULL,
  CHECK (disabled_at IS NULL OR reason <> '')
) STRICT;

-- Deliveries for each webhook, once; and the position in the feed up to which they were made: at
-- most one row.
CREATE TABLE webhook_deliveries (
  webhook_id TEXT NOT NULL,
  id TEXT NOT NULL,
  n INTEGER NOT NULL,
  i INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at TEXT NOT NULL,
  delivered_at TEXT,
  PRIMARY KEY (webhook_id, id)
) STRICT;
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook_id, n, i, id)
  WHERE delivered_at IS NULL;
CREATE INDEX webhook_deliveries_created ON webhook_deliveries (created_at);
CREATE TABLE webhook_feed (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  position TEXT NOT NULL
) STRICT;

-- Moments at which people are reminded of an open approval; each fires once.
CREATE TABLE reminders (
  approval_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  due_at TEXT NOT NULL,
  fired_at TEXT,
  PRIMARY KEY (approval_id, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX reminders_due ON reminders (due_at) WHERE fired_at IS NULL;

-- Reported errors by signature: the newest bead of each, and how often the error occurred.
CREATE TABLE bugs (
  digest TEXT PRIMARY KEY,
  signature TEXT NOT NULL,
  bead_id TEXT NOT NULL,
  count INTEGER NOT NULL CHECK (count > 0),
  first_seen TEXT NOT NULL,
  last_seen TEXT NOT NULL,
  earlier TEXT,
  CHECK (earlier IS NULL OR earlier <> bead_id)
) STRICT;
CREATE UNIQUE INDEX bugs_bead ON bugs (bead_id);
CREATE INDEX bugs_first_seen ON bugs (first_seen);
