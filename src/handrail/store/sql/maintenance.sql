-- finished_runs: a page of runs that ended before a moment
SELECT id FROM workflow_executions WHERE status = 'ended' AND ended_at < :before AND id > :after
ORDER BY id LIMIT :limit;

-- settle_memories: make the standing of memories of archived runs final
UPDATE memories SET verdict = (SELECT s.standing FROM memories_standing s WHERE s.n = memories.n)
WHERE execution_id IN list(:run_ids);

-- prune_execution: delete an archived run, if unchanged
DELETE FROM workflow_executions
WHERE id = :id AND head = :head AND notes = :notes AND status = 'ended';

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
AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.bead_id = beads.id);

-- prune_uses: delete the uses of memories by archived runs
DELETE FROM memory_uses WHERE execution_id IN list(:run_ids);

-- has_data: whether anything was ever stored
SELECT EXISTS (SELECT 1 FROM commits) OR EXISTS (SELECT 1 FROM journal)
  OR EXISTS (SELECT 1 FROM workflow_versions) OR EXISTS (SELECT 1 FROM beads)
  OR EXISTS (SELECT 1 FROM workflow_executions);
