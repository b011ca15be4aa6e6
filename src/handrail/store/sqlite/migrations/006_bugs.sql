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
