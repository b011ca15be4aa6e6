-- remember: one memory per run; a person's correction stays
INSERT INTO memories (id, execution_id, bead_id, title, ticket, words, resolution, remembered_by,
  created_at, times_used, verdict)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 'pending')
ON CONFLICT (execution_id) DO UPDATE SET resolution = excluded.resolution
WHERE corrected_by IS NULL;

-- forget_oldest: delete the least recently used beyond a number
DELETE FROM memories WHERE n IN (
  SELECT n FROM memories ORDER BY coalesce(used_at, created_at)
  LIMIT max(0, (SELECT count(*) FROM memories) - ?))
RETURNING id;

-- forget_uses: delete the uses of deleted memories
DELETE FROM memory_uses WHERE memory_id = ?;

-- remembered: the memory of a run
SELECT id, execution_id, bead_id, title, ticket, words, resolution, remembered_by, created_at,
  times_used, used_at, corrected_by, corrected_at, standing
FROM memories_standing WHERE execution_id = ?;

-- memory: one memory
SELECT id, execution_id, bead_id, title, ticket, words, resolution, remembered_by, created_at,
  times_used, used_at, corrected_by, corrected_at, standing
FROM memories_standing WHERE id = ?;

-- recall: valid memories with any of the words, except those that answered the bead in another run
SELECT m.id, m.execution_id, m.bead_id, m.title, m.ticket, m.words, m.resolution, m.remembered_by,
  m.created_at, m.times_used, m.used_at, m.corrected_by, m.corrected_at, m.standing
FROM memory_words w JOIN memories_standing m ON m.n = w.rowid
WHERE w.memory_words MATCH ?1 AND m.standing = 'kept' AND NOT EXISTS (
  SELECT 1 FROM memory_uses u
  WHERE u.bead_id = ?2 AND u.memory_id = m.id AND u.execution_id <> ?3)
ORDER BY w.rank
LIMIT ?4;

-- memories: the newest first; lines with unused filters are left out
SELECT id, execution_id, bead_id, title, ticket, words, resolution, remembered_by, created_at,
  times_used, used_at, corrected_by, corrected_at, standing
FROM memories_standing
WHERE true
  AND id < :before
  AND (title LIKE :within ESCAPE '\' OR ticket LIKE :within ESCAPE '\' OR resolution LIKE :within ESCAPE '\')
ORDER BY id DESC
LIMIT :limit;

-- use_memory: record a use, once per run
INSERT INTO memory_uses (execution_id, memory_id, bead_id, used_at)
SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM memories WHERE id = ?2)
ON CONFLICT DO NOTHING;

-- count_use: count a use
UPDATE memories SET times_used = times_used + 1, used_at = ? WHERE id = ?;

-- correct_memory: guarded by what was read
UPDATE memories SET resolution = ?, corrected_by = ?, corrected_at = ?
WHERE id = ? AND resolution = ?;

-- forget_memory: guarded by what was read
DELETE FROM memories WHERE id = ? AND resolution = ?;

-- settle_memory: make the standing of an archived run's memory final
UPDATE memories SET verdict = (
  SELECT s.standing FROM memories_standing s WHERE s.n = memories.n)
WHERE execution_id = ?;

-- prune_uses: delete the uses by an archived run
DELETE FROM memory_uses WHERE execution_id = ?;
