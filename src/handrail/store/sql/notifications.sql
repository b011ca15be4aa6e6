-- insert_link: unless the approval has too many
INSERT INTO answer_links ({AnswerLinkRow}) SELECT {params AnswerLinkRow}
WHERE (SELECT count(*) FROM answer_links WHERE approval_id = :approval_id) < :links_max
ON CONFLICT (digest) DO NOTHING;

-- link: by its digest, with what is on record of it
SELECT {AnswerLinkRow l}, (SELECT j.body FROM journal j WHERE j.stream = 'link:' || l.id
  ORDER BY j.seq DESC LIMIT 1)
FROM answer_links l WHERE l.digest = :digest;

-- use_link: use a link, once
UPDATE answer_links SET used_at = :at WHERE id = :id AND used_at IS NULL
RETURNING {AnswerLinkRow};

-- insert_webhook: unless there are too many
INSERT INTO webhooks ({WebhookRow}) SELECT {params WebhookRow}
WHERE (SELECT count(*) FROM webhooks) < :webhooks_max;

-- webhooks: the oldest first
SELECT {WebhookRow} FROM webhooks ORDER BY id;

-- remove_deliveries: remove the deliveries of a webhook
DELETE FROM webhook_deliveries WHERE webhook_id = :webhook_id;

-- remove_webhook: remove a webhook, after its deliveries
DELETE FROM webhooks WHERE id = :webhook_id RETURNING {WebhookRow};

-- enable_webhook: re-enable a webhook
UPDATE webhooks SET disabled_at = NULL, reason = '', failures = 0, next_at = :at,
  busy_until = NULL, since = :since
WHERE id = :webhook_id AND disabled_at IS NOT NULL;

-- lease_webhook: lease a webhook for sending, if it is free and due
UPDATE webhooks SET busy_until = :until
WHERE id = :webhook_id AND disabled_at IS NULL AND next_at <= :now
  AND (busy_until IS NULL OR busy_until <= :now);

-- release_webhook: release a webhook without having sent anything
UPDATE webhooks SET busy_until = NULL WHERE id = :webhook_id;

-- delivery_done: mark a delivery as done, once
UPDATE webhook_deliveries SET delivered_at = :at WHERE webhook_id = :webhook_id AND id = :id;

-- webhook_delivered: reset a webhook after a success
UPDATE webhooks SET failures = 0, reason = '', next_at = :at, delivered_at = :at,
  busy_until = NULL
WHERE id = :webhook_id AND disabled_at IS NULL;

-- webhook_failed: record a failure, with the next attempt or the end of attempts
UPDATE webhooks SET failures = failures + 1, next_at = :next_at, reason = :reason,
  disabled_at = :disabled_at, busy_until = NULL
WHERE id = :webhook_id AND disabled_at IS NULL;

-- delivery_position: the position of deliveries in the feed
SELECT position FROM webhook_feed WHERE one = 1;

-- insert_delivery_position: the first position
INSERT INTO webhook_feed (one, position) VALUES (1, :position) ON CONFLICT (one) DO NOTHING;

-- advance_delivery_position: move the position, if it is unchanged
UPDATE webhook_feed SET position = :position WHERE one = 1 AND position = :expected;

-- insert_delivery: once, for an enabled webhook
INSERT INTO webhook_deliveries ({DeliveryRow}) SELECT {params DeliveryRow}
WHERE EXISTS (SELECT 1 FROM webhooks w WHERE w.id = :webhook_id AND w.disabled_at IS NULL)
ON CONFLICT (webhook_id, id) DO NOTHING;

-- insert_reminders: each once
INSERT INTO reminders ({ReminderRow}) {values ReminderRow}
ON CONFLICT (approval_id, kind) DO NOTHING;

-- next_delivery: the oldest pending delivery
SELECT {DeliveryRow} FROM webhook_deliveries WHERE webhook_id = :webhook_id
AND delivered_at IS NULL ORDER BY webhook_id, n, i, id LIMIT 1;

-- pending_deliveries: how many deliveries are pending
SELECT webhook_id, count(*) FROM webhook_deliveries WHERE delivered_at IS NULL GROUP BY webhook_id;

-- due_reminders: due reminders of open approvals
SELECT {ReminderRow r} FROM reminders r
WHERE r.fired_at IS NULL AND r.due_at <= :now
  AND EXISTS (SELECT 1 FROM approvals a WHERE a.id = r.approval_id AND a.status = 'open')
ORDER BY r.due_at LIMIT :limit;

-- fire_reminder: fire a reminder, once
UPDATE reminders SET fired_at = :at
WHERE approval_id = :approval_id AND kind = :kind AND fired_at IS NULL;

-- delete_old_links: delete links that expired long ago
DELETE FROM answer_links WHERE expires_at < :before;

-- delete_old_deliveries: delete old deliveries, delivered or not
DELETE FROM webhook_deliveries WHERE created_at < :before;

-- delete_old_reminders: delete reminders of settled approvals
DELETE FROM reminders WHERE due_at < :before
  AND NOT EXISTS (SELECT 1 FROM approvals a WHERE a.id = approval_id AND a.status = 'open');
