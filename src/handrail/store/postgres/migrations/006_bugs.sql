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
);
CREATE UNIQUE INDEX bugs_bead ON bugs (bead_id);
CREATE INDEX bugs_first_seen ON bugs (first_seen);
