-- Tables for notifications; links to approvals, webhooks, reminders.

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
);
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
);

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
);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook_id, n, i, id)
  WHERE delivered_at IS NULL;
CREATE INDEX webhook_deliveries_created ON webhook_deliveries (created_at);
CREATE TABLE webhook_feed (
  one bigint PRIMARY KEY CHECK (one = 1),
  position text NOT NULL
);

-- Moments at which people are reminded of an open approval; each fires once.
CREATE TABLE reminders (
  approval_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  due_at timestamptz NOT NULL,
  fired_at timestamptz,
  PRIMARY KEY (approval_id, kind)
);
CREATE INDEX reminders_due ON reminders (due_at) WHERE fired_at IS NULL;
