-- finished_runs: a page of runs that ended before a moment
SELECT id FROM workflow_executions WHERE status = 'ended' AND ended_at < :before AND id > :after
ORDER BY id LIMIT :limit;

-- settle_memories: make the standing of memories of archived runs final
UPDATE memories SET verdict = (SELECT s.standing FROM memories_standing s WHERE s.n = memories.n)
WHERE execution_id IN list(:run_ids);

-- prune_execution: delete an archived run, if unchanged
DELETE FROM workflow_executions
WHERE id = :id AND head = :head AND notes = :notes AND status = 'ended'
RETURNING bead_id;

-- prune_transitions: delete the transitions of archived runs
DELETE FROM workflow_transitions WHERE execution_id IN list(:run_ids);

-- prune_approvals: delete the approvals of archived runs
DELETE FROM approvals WHERE execution_id IN list(:run_ids);

-- prune_notes: delete the notes of archived runs
DELETE FROM notes WHERE execution_id IN list(:run_ids);

-- prune_bodies: delete the bodies of entries; the chain keeps their hashes
UPDATE journal SET body = NULL WHERE stream IN list(:run_ids);

-- prune_beads: delete the beads of archived runs without other stored runs
DELETE FROM beads WHERE execution_id IN list(:run_ids)
AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.bead_id = beads.id)
RETURNING {BeadRow};

-- prune_uses: delete the uses of memories by archived runs
DELETE FROM memory_uses WHERE execution_id IN list(:run_ids);

-- has_data: whether anything was ever stored
SELECT EXISTS (SELECT 1 FROM commits) OR EXISTS (SELECT 1 FROM journal)
  OR EXISTS (SELECT 1 FROM workflow_versions) OR EXISTS (SELECT 1 FROM beads)
  OR EXISTS (SELECT 1 FROM workflow_executions);

-- pruned_streams: those streams that exist
SELECT name FROM streams WHERE name IN list(:names);

-- recorded_credentials: a page, by key
SELECT {CredentialRow} FROM credentials WHERE id > :id ORDER BY id LIMIT :limit;

-- recorded_versions: (as above)
SELECT {DefinitionRow} FROM workflow_versions WHERE (workflow_id, version) > (:workflow_id, :version)
ORDER BY workflow_id, version LIMIT :limit;

-- recorded_budgets: (as above)
SELECT {BudgetRow} FROM budgets WHERE name > :name ORDER BY name LIMIT :limit;

-- recorded_beads: (as above)
SELECT {BeadRow} FROM beads WHERE id > :id ORDER BY id LIMIT :limit;

-- recorded_files: (as above)
SELECT {FileRow} FROM bead_files WHERE (bead_id, name) > (:bead_id, :name)
ORDER BY bead_id, name LIMIT :limit;

-- recorded_webhooks: (as above)
SELECT {WebhookRow} FROM webhooks WHERE id > :id ORDER BY id LIMIT :limit;

-- recorded_links: (as above)
SELECT {AnswerLinkRow} FROM answer_links WHERE id > :id ORDER BY id LIMIT :limit;

-- recorded_memories: (as above)
SELECT {MemoryRow} FROM memories_standing WHERE id > :id ORDER BY id LIMIT :limit;

-- kept_notes: of a run or a channel, in order
SELECT {NoteRow} FROM notes WHERE execution_id = :stream ORDER BY id;

-- streams_with_notes: every run and channel that has one, a page
SELECT DISTINCT execution_id FROM notes WHERE execution_id > :after ORDER BY execution_id LIMIT :limit;

-- wrong_definitions: what the table of definitions should say, and does not
SELECT w.id FROM workflows w
LEFT JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
WHERE v.version IS NULL OR v.name <> w.name OR v.kind <> w.kind
  OR v.definition::text <> w.definition::text OR v.created_at <> w.updated_at
  OR w.project <> 'default'
  OR w.version < (SELECT max(version) FROM workflow_versions WHERE workflow_id = w.id)
  OR w.created_at <> (SELECT created_at FROM workflow_versions WHERE workflow_id = w.id
    ORDER BY version LIMIT 1)
ORDER BY w.id;
