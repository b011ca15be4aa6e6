-- bug: a bug by its signature, with its bead's status
SELECT g.digest, g.signature, g.bead_id, g.count, g.first_seen, g.last_seen, g.earlier,
  b.status
FROM bugs g LEFT JOIN beads b ON b.id = g.bead_id WHERE g.digest = $1;

-- put_bug: a new bug, or a new bead in place of the one that was read
INSERT INTO bugs (digest, signature, bead_id, count, first_seen, last_seen, earlier)
VALUES ($1::text, $2::text, $3::text, $4::bigint,
  $5::timestamptz, $6::timestamptz, $7::text)
ON CONFLICT (digest) DO UPDATE SET bead_id = excluded.bead_id, count = excluded.count,
  first_seen = excluded.first_seen, last_seen = excluded.last_seen, earlier = excluded.earlier
WHERE bugs.bead_id = excluded.earlier;

-- count_bug: count more occurrences
UPDATE bugs SET count = count + $1::bigint, last_seen = greatest(last_seen, $2::timestamptz)
WHERE digest = $3 AND bead_id = $4;

-- bugs: by bead, the newest first; lines with unused filters are left out
SELECT g.digest, g.signature, g.bead_id, g.count, g.first_seen, g.last_seen, g.earlier,
  b.status
FROM bugs g LEFT JOIN beads b ON b.id = g.bead_id
WHERE true
  AND g.bead_id < :before
ORDER BY g.bead_id DESC
LIMIT :limit;

-- bugs_since: how many were filed since a moment, and how many of them by one caller
SELECT count(*), count(*) FILTER (WHERE b.filed_by = $2::text)
FROM bugs g LEFT JOIN beads b ON b.id = g.bead_id
WHERE g.first_seen > $1::timestamptz;

-- locks: by repository; lines with unused filters are left out
SELECT repository, holder_execution_id, holder_step, fence, seq, head, next_due, updated_at, state
FROM commit_locks
WHERE true
  AND repository > :after
ORDER BY repository
LIMIT :limit;
