-- last_commit: the end of the chain
SELECT {CommitRow} FROM commits ORDER BY n DESC LIMIT 1;

-- commits: the chain with the entries of each commit; limits on commits and on entries
SELECT {CommitRow c}, j.stream, j.seq, j.count, coalesce(j.body, ''), j.hash, c.n, j.id
FROM (
  SELECT *, sum(entries) OVER (ORDER BY n) - entries AS entries_before FROM (
    SELECT * FROM commits WHERE n > :after_n ORDER BY n LIMIT :commits) next
) c LEFT JOIN journal j ON j.id BETWEEN c.first_id AND c.last_id AND j.batch = c.batch
WHERE c.entries_before < :entries
ORDER BY c.n, j.id;

-- commits_backwards: the entries of the commits before one, the newest first
SELECT j.stream, j.seq, j.count, coalesce(j.body, ''), j.hash, c.n, j.id
FROM (
  SELECT *, sum(entries) OVER (ORDER BY n DESC) - entries AS entries_after FROM (
    SELECT * FROM commits WHERE n < :before_n ORDER BY n DESC LIMIT :limit) next
) c LEFT JOIN journal j ON j.id BETWEEN c.first_id AND c.last_id AND j.batch = c.batch
WHERE c.entries_after < :limit
ORDER BY c.n DESC, j.id DESC;

-- stream: a stream without a table of its own
SELECT {StreamRow} FROM streams WHERE name = :name;

-- streams: all streams without a table of their own, or one
SELECT {StreamRow} FROM streams
WHERE true
  AND name = :name
ORDER BY name;
