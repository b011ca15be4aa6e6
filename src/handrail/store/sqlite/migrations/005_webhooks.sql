-- Tables for notifications; links to approvals, webhooks, reminders.

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
