-- bead: one bead
SELECT {BeadRow} FROM beads WHERE id = :id;

-- insert_beads: new beads
INSERT INTO beads ({BeadRow}) {values BeadRow} ON CONFLICT (id) DO NOTHING;

-- work_beads: the newest first
SELECT {BeadRow}, 'work', NULL::text FROM beads
WHERE true
  AND id < :before
  AND status = :status
  AND workflow_id = :workflow_id
  AND due_at < :due_before
ORDER BY id DESC
LIMIT :limit;

-- beads_by_due: the soonest due first, those without a date last
SELECT {BeadRow}, 'work', NULL::text FROM beads
WHERE true
  AND (coalesce(due_at, 'infinity'), id) > (SELECT coalesce(due_at, 'infinity'), id FROM beads WHERE id = :before)
  AND status = :status
  AND workflow_id = :workflow_id
  AND due_at < :due_before
ORDER BY coalesce(due_at, 'infinity'), id
LIMIT :limit;

-- beads_by_priority: the highest first, of the same priority the newest
SELECT {BeadRow}, 'work', NULL::text FROM beads
WHERE true
  AND (priority, id) < (SELECT priority, id FROM beads WHERE id = :before)
  AND status = :status
  AND workflow_id = :workflow_id
  AND due_at < :due_before
ORDER BY priority DESC, id DESC
LIMIT :limit;

-- approval_beads: approvals as beads, the newest first
SELECT a.id, a.question, '', CASE a.status WHEN 'open' THEN 'open' ELSE 'closed' END, e.priority,
  'engine', '{}'::json, NULL::text, e.workflow_id, a.execution_id, a.created_at,
  coalesce(a.settled_at, a.created_at), NULL::timestamptz, 'approval', a.bead_id
FROM approvals a JOIN workflow_executions e ON e.id = a.execution_id
WHERE true
  AND a.id < :before
  AND a.status = 'open' AND :open::boolean
  AND a.status <> 'open' AND :closed::boolean
  AND e.workflow_id = :workflow_id
ORDER BY a.id DESC
LIMIT :limit;

-- update_bead_context: guarded by the time of the last update, and only without an active run
UPDATE beads SET context = :context, updated_at = :updated_at
WHERE id = :id AND updated_at = :expected_updated_at AND NOT EXISTS (
  SELECT 1 FROM workflow_executions e WHERE e.bead_id = beads.id AND e.ended_at IS NULL)
RETURNING {BeadRow};

-- insert_file: unless the bead has that name, or too many files
INSERT INTO bead_files ({FileRow}) SELECT {params FileRow}
WHERE (SELECT count(*) FROM bead_files WHERE bead_id = :bead_id) < :files_max
ON CONFLICT DO NOTHING;

-- files: files of a bead, without their contents
SELECT {FileRow -content} FROM bead_files WHERE bead_id = :bead_id ORDER BY name;

-- file: one file
SELECT {FileRow} FROM bead_files WHERE bead_id = :bead_id AND name = :name;
