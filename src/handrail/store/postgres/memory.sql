-- remember: one memory per run; a person's correction stays
INSERT INTO memories (id, execution_id, bead_id, title, ticket, words, resolution, remembered_by,
  created_at, times_used, verdict)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 'pending')
ON CONFLICT (execution_id) DO UPDATE SET resolution = excluded.resolution
WHERE memories.corrected_by IS NULL;

-- forget_oldest: delete the least recently used beyond a number
WITH gone AS (
  DELETE FROM memories WHERE n IN (
    SELECT n FROM memories ORDER BY coalesce(used_at, created_at)
    LIMIT greatest(0, (SELECT count(*) FROM memories) - $1))
  RETURNING id)
DELETE FROM memory_uses WHERE memory_id IN (SELECT id FROM gone);

-- forget_uses: delete the uses of deleted memories
DELETE FROM memory_uses WHERE memory_id = $1;

-- remembered: the memory of a run
SELECT id, execution_id, bead_id, title, ticket, words, resolution, remembered_by, created_at,
  times_used, used_at, corrected_by, corrected_at, standing
FROM memories_standing WHERE execution_id = $1;

-- memory: one memory
SELECT id, execution_id, bead_id, title, ticket, words, resolution, remembered_by, created_at,
  times_used, used_at, corrected_by, corrected_at, standing
FROM memories_standing WHERE id = $1;

-- recall: valid memories with any of the words, except those that answered the bead in another run
SELECT m.id, m.execution_id, m.bead_id, m.title, m.ticket, m.words, m.resolution, m.remembered_by,
  m.created_at, m.times_used, m.used_at, m.corrected_by, m.corrected_at, m.standing
FROM memories_standing m
WHERE array_to_tsvector(string_to_array(m.words, ' ')) @@ $1::tsquery
AND m.standing = 'kept' AND NOT EXISTS (
  SELECT 1 FROM memory_uses u
  WHERE u.bead_id = $2 AND u.memory_id = m.id AND u.execution_id <> $3)
ORDER BY ts_rank(array_to_tsvector(string_to_array(m.words, ' ')), $1::tsquery) DESC
LIMIT $4;

-- memories: the newest first; lines with unused filters are left out
SELECT id, execution_id, bead_id, title, ticket, words, resolution, remembered_by, created_at,
  times_used, used_at, corrected_by, corrected_at, standing
FROM memories_standing
WHERE true
  AND id < :before
  AND (title ILIKE :within OR ticket ILIKE :within OR resolution ILIKE :within)
ORDER BY id DESC
LIMIT :limit;

-- use_memory: record a use, once per run
WITH used AS (
  INSERT INTO memory_uses (execution_id, memory_id, bead_id, used_at)
  SELECT $1, $2, $3, $4::timestamptz WHERE EXISTS (SELECT 1 FROM memories WHERE id = $2)
  ON CONFLICT DO NOTHING RETURNING memory_id, used_at)
UPDATE memories m SET times_used = m.times_used + 1, used_at = u.used_at
FROM used u WHERE m.id = u.memory_id;

-- correct_memory: guarded by what was read
UPDATE memories SET resolution = $1, corrected_by = $2, corrected_at = $3
WHERE id = $4 AND resolution = $5;

-- forget_memory: guarded by what was read
DELETE FROM memories WHERE id = $1 AND resolution = $2;

-- settle_memories: make the standing of memories of archived runs final
UPDATE memories m SET verdict = s.standing FROM memories_standing s
WHERE s.n = m.n AND m.execution_id = ANY($1);

-- prune_uses: delete the uses by archived runs
DELETE FROM memory_uses WHERE execution_id = ANY($1);
