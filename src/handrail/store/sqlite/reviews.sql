-- add_link: insert a link, unless the approval has too many
INSERT INTO answer_links (id, digest, approval_id, shown, name, role, created_by, created_at,
  expires_at, used_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
WHERE (SELECT count(*) FROM answer_links WHERE approval_id = ?3) < ?11
ON CONFLICT (digest) DO NOTHING;

-- link: by its digest
SELECT id, digest, approval_id, shown, name, role, created_by, created_at, expires_at, used_at
FROM answer_links WHERE digest = ?1;

-- use_link: use a link, once
UPDATE answer_links SET used_at = ?1 WHERE id = ?2 AND used_at IS NULL;

-- add_webhook: insert a webhook, unless there are too many
INSERT INTO webhooks (id, url, events, people, secret, since, created_by, created_at, failures,
  next_at, busy_until, delivered_at, disabled_at, reason)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
  ?14
WHERE (SELECT count(*) FROM webhooks) < ?15;

-- webhooks: the oldest first
SELECT id, url, events, people, secret, since, created_by, created_at, failures, next_at,
  busy_until, delivered_at, disabled_at, reason
FROM webhooks ORDER BY id;

-- remove_deliveries: remove the deliveries of a webhook
DELETE FROM webhook_deliveries WHERE webhook_id = ?1;

-- remove_webhook: remove a webhook, after its deliveries
DELETE FROM webhooks WHERE id = ?1;

-- enable_webhook: re-enable a webhook
UPDATE webhooks SET disabled_at = NULL, reason = '', failures = 0, next_at = ?1,
  busy_until = NULL, since = ?2
WHERE id = ?3 AND disabled_at IS NOT NULL;

-- take_webhook: lease a webhook for sending, if it is free and due
UPDATE webhooks SET busy_until = ?1
WHERE id = ?2 AND disabled_at IS NULL AND next_at <= ?3
  AND (busy_until IS NULL OR busy_until <= ?3);

-- release_webhook: release a webhook without having sent anything
UPDATE webhooks SET busy_until = NULL WHERE id = ?1;

-- delivery_done: mark a delivery as done, once
UPDATE webhook_deliveries SET delivered_at = ?1 WHERE webhook_id = ?2 AND id = ?3;

-- webhook_delivered: reset a webhook after a success
UPDATE webhooks SET failures = 0, reason = '', next_at = ?1, delivered_at = ?1,
  busy_until = NULL
WHERE id = ?2 AND disabled_at IS NULL;

-- webhook_failed: record a failure, with the next attempt or the end of attempts
UPDATE webhooks SET failures = failures + 1, next_at = ?1, reason = ?2, disabled_at = ?3,
  busy_until = NULL
WHERE id = ?4 AND disabled_at IS NULL;

-- told_until: the position of deliveries in the feed
SELECT position FROM webhook_feed WHERE one = 1;

-- begin_telling: insert the first position
INSERT INTO webhook_feed (one, position) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING;

-- go_on_telling: move the position, if it is unchanged
UPDATE webhook_feed SET position = ?1 WHERE one = 1 AND position = ?2;

-- put_delivery: insert a delivery, once, for an enabled webhook
INSERT INTO webhook_deliveries (webhook_id, id, n, i, kind, body, created_at, delivered_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE EXISTS (SELECT 1 FROM webhooks w WHERE w.id = ?1 AND w.disabled_at IS NULL)
ON CONFLICT (webhook_id, id) DO NOTHING;

-- put_reminder: insert a reminder, once
INSERT INTO reminders (approval_id, kind, due_at, fired_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (approval_id, kind) DO NOTHING;

-- next_delivery: the oldest pending delivery
SELECT webhook_id, id, n, i, kind, body, created_at, delivered_at
FROM webhook_deliveries WHERE webhook_id = ?1 AND delivered_at IS NULL
ORDER BY webhook_id, n, i, id LIMIT 1;

-- waiting_deliveries: how many deliveries are pending
SELECT webhook_id, count(*) FROM webhook_deliveries WHERE delivered_at IS NULL GROUP BY webhook_id;

-- due_reminders: due reminders of open approvals
SELECT r.approval_id, r.kind, r.due_at, r.fired_at FROM reminders r
WHERE r.fired_at IS NULL AND r.due_at <= ?1
  AND EXISTS (SELECT 1 FROM approvals a WHERE a.id = r.approval_id AND a.status = 'open')
ORDER BY r.due_at LIMIT ?2;

-- fire_reminder: fire a reminder, once
UPDATE reminders SET fired_at = ?1 WHERE approval_id = ?2 AND kind = ?3 AND fired_at IS NULL;

-- forget_links: delete links that expired long ago
DELETE FROM answer_links WHERE expires_at < ?1;

-- forget_deliveries: delete old deliveries, delivered or not
DELETE FROM webhook_deliveries WHERE created_at < ?1;

-- forget_reminders: delete reminders of settled approvals
DELETE FROM reminders WHERE due_at < ?1
  AND NOT EXISTS (SELECT 1 FROM approvals a WHERE a.id = approval_id AND a.status = 'open');
