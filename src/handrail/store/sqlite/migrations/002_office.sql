-- Tables for the server: files of beads, credentials, statistics of ended runs, and indexes.

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
  revoked_at TEXT
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

CREATE INDEX executions_ended ON workflow_executions (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX approvals_created ON approvals (created_at, id);
CREATE INDEX approvals_status ON approvals (status, id);
CREATE INDEX dispatches_claimed ON dispatches (session) WHERE agent IS NOT NULL;
