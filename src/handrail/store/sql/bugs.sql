-- bugs: by bead, the newest first, with the status of the bead
SELECT g.digest, g.signature, g.bead_id, g.count, g.first_seen, g.last_seen, g.earlier, b.status
FROM bugs g LEFT JOIN beads b ON b.id = g.bead_id
WHERE true
  AND g.digest = :digest
  AND g.bead_id < :before
ORDER BY g.bead_id DESC
LIMIT :limit;

-- put_bug: a new bug, or a new bead in place of the one that was read
INSERT INTO bugs (digest, signature, bead_id, count, first_seen, last_seen, earlier)
VALUES (:digest, :signature, :bead_id, :count, :first_seen, :last_seen, :earlier)
ON CONFLICT (digest) DO UPDATE SET bead_id = excluded.bead_id, count = excluded.count,
  first_seen = excluded.first_seen, last_seen = excluded.last_seen, earlier = excluded.earlier
WHERE bugs.bead_id = excluded.earlier;

-- increment_bug: count more occurrences
UPDATE bugs SET count = count + :occurrences,
  last_seen = CASE WHEN last_seen < :at::timestamptz THEN :at ELSE last_seen END
WHERE digest = :digest AND bead_id = :bead_id;

-- bugs_since: how many were filed since a moment, and how many of them by one caller
SELECT count(*), count(*) FILTER (WHERE b.filed_by = :filed_by)
FROM bugs g LEFT JOIN beads b ON b.id = g.bead_id WHERE g.first_seen > :at;
