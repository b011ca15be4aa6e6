-- The helpdesk's memory of resolved tickets.

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
