-- runs: the newest first, with the titles of their beads
SELECT {RunListColumns e}, b.title
FROM workflow_executions e JOIN beads b ON b.id = e.bead_id
WHERE true
  AND e.id < :before
  AND e.bead_id = :bead_id
  AND e.status = :status
  AND e.status = 'ended' AND e.terminal_status = :terminal_status
  AND e.workflow_id = :workflow_id
  AND e.created_at >= :since
  AND e.ended_at >= :ended_since
  AND e.ended_at < :ended_before
  AND (lower(b.title) LIKE lower(:within::text) ESCAPE '\' OR lower(e.id) LIKE lower(:prefix::text) ESCAPE '\' OR lower(b.id) LIKE lower(:prefix) ESCAPE '\')
ORDER BY e.id DESC
LIMIT :limit;

-- runs_by_id: the oldest first, without their states
SELECT {RunRow -state} FROM workflow_executions
WHERE id > :after
  AND bead_id = :bead_id
  AND status = :status
ORDER BY id
LIMIT :limit;

-- active_run: the run of a bead that has not ended
SELECT id FROM workflow_executions WHERE bead_id = :bead_id AND ended_at IS NULL;

-- due_runs: runs of which a clock may have expired
SELECT id FROM workflow_executions WHERE next_due <= :now ORDER BY next_due LIMIT :limit;

-- transitions: of one run, in order
SELECT id, {TransitionRow} FROM workflow_transitions
WHERE execution_id = :execution_id
  AND id > :after_id
ORDER BY id
LIMIT :limit;

-- count_note: every note is counted
UPDATE workflow_executions SET notes = notes + 1 WHERE id = :execution_id RETURNING notes;

-- insert_notes: kept notes
INSERT INTO notes ({NoteRow}) {values NoteRow};

-- notes: notes in order, each with the total count
SELECT {NoteRow n}, coalesce(e.notes, 0)
FROM notes n LEFT JOIN workflow_executions e ON e.id = n.execution_id
WHERE n.execution_id = :execution_id ORDER BY n.id;
