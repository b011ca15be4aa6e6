-- messages: the oldest messages
SELECT {MessageRow} FROM messages ORDER BY n LIMIT :limit;

-- key: the response to a request
SELECT {IdempotencyKeyRow} FROM idempotency_keys WHERE key = :key AND actor = :actor;

-- insert_new_keys: responses for retries; the first stays
INSERT INTO idempotency_keys ({IdempotencyKeyRow}) {values IdempotencyKeyRow}
ON CONFLICT DO NOTHING;

-- delete_old_keys: a limited number at a time
DELETE FROM idempotency_keys WHERE (key, actor) IN (
  SELECT key, actor FROM idempotency_keys WHERE created_at < :before
  ORDER BY created_at LIMIT :limit);
