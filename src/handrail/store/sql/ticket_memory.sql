-- put_memory: one memory per run; a person's correction stays
INSERT INTO memories (id, execution_id, bead_id, title, ticket, words, resolution, remembered_by,
  created_at, times_used, verdict)
VALUES (:id, :execution_id, :bead_id, :title, :ticket, :words, :resolution, :remembered_by,
  :created_at, 0, 'pending')
ON CONFLICT (execution_id) DO UPDATE SET resolution = excluded.resolution
WHERE memories.corrected_by IS NULL;

-- delete_oldest_memories: the least recently used beyond a number
DELETE FROM memories WHERE n IN (
  SELECT n FROM memories ORDER BY coalesce(used_at, created_at)
  LIMIT (SELECT CASE WHEN count(*) > :memories_max::bigint THEN count(*) - :memories_max ELSE 0 END
    FROM memories))
RETURNING id;

-- delete_memory_uses: delete the uses of deleted memories
DELETE FROM memory_uses WHERE memory_id IN list(:memory_ids);

-- memories: the newest first
SELECT {MemoryRow} FROM memories_standing
WHERE true
  AND id = :id
  AND id < :before
  AND (lower(title) LIKE lower(:within::text) ESCAPE '\' OR lower(ticket) LIKE lower(:within) ESCAPE '\' OR lower(resolution) LIKE lower(:within) ESCAPE '\')
ORDER BY id DESC
LIMIT :limit;

-- memory: one memory
SELECT {MemoryRow} FROM memories_standing WHERE id = :id;

-- memory_of_run: the memory of a run
SELECT {MemoryRow} FROM memories_standing WHERE execution_id = :execution_id;

-- insert_memory_use: once per run
INSERT INTO memory_uses (execution_id, memory_id, bead_id, used_at)
SELECT :execution_id::text, :memory_id::text, :bead_id::text, :at::timestamptz
WHERE EXISTS (SELECT 1 FROM memories WHERE id = :memory_id)
ON CONFLICT DO NOTHING;

-- count_memory_use: count a use
UPDATE memories SET times_used = times_used + 1, used_at = :at WHERE id = :memory_id;

-- correct_memory: guarded by what was read
UPDATE memories SET resolution = :resolution, corrected_by = :by, corrected_at = :at
WHERE id = :id AND resolution = :expected_resolution;

-- delete_memory: guarded by what was read
DELETE FROM memories WHERE id = :id AND resolution = :expected_resolution;
