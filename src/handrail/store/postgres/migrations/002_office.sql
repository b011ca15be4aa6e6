-- Tables for the server: files of beads, credentials, statistics of ended runs, and indexes.

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
);

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
  revoked_at timestamptz
);
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
);
CREATE INDEX run_figures_workflow ON run_figures (workflow_id, ended_at);
CREATE TABLE node_figures (
  execution_id text COLLATE "C" NOT NULL REFERENCES run_figures (execution_id),
  node text COLLATE "C" NOT NULL,
  visits bigint NOT NULL,
  dispatches bigint NOT NULL,
  PRIMARY KEY (execution_id, node)
);

CREATE INDEX executions_ended ON workflow_executions (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX approvals_created ON approvals (created_at, id);
CREATE INDEX approvals_status ON approvals (status, id);
CREATE INDEX dispatches_claimed ON dispatches (session) WHERE agent IS NOT NULL;

-- Dispatches are found by run and step, which saves an index. Pages are filled: a claimed row
-- changes only by being deleted.
ALTER TABLE dispatches DROP CONSTRAINT dispatches_pkey;
ALTER TABLE dispatches RESET (fillfactor);

-- An engine reads again what it has reserved and could not use yet.
ALTER TABLE dispatches ADD COLUMN reserved_by bigint;
