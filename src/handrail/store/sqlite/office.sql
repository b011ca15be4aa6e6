-- runs: the newest first; lines with unused filters are left out
SELECT e.id, e.bead_id, b.title, e.workflow_id, e.workflow_version, e.current_node_id, e.status,
  e.terminal_status, e.stop_rule, e.priority, e.created_at, e.updated_at, e.ended_at
FROM workflow_executions e JOIN beads b ON b.id = e.bead_id
WHERE true
  AND e.id < :before
  AND e.bead_id = :bead_id
  AND e.status = :status
  AND e.status = 'ended' AND e.terminal_status = :terminal_status
  AND e.workflow_id = :workflow_id
  AND e.created_at >= :since
  AND e.ended_at >= :ended_since
  AND e.ended_at < :ended_before
  AND (b.title LIKE :within ESCAPE '\' OR e.id LIKE :prefix ESCAPE '\' OR b.id LIKE :prefix ESCAPE '\')
ORDER BY e.id DESC
LIMIT :limit;

-- runs_of: the runs of a bead, the oldest first, without their states
SELECT id, bead_id, workflow_id, workflow_version, current_node_id, status, terminal_status,
  stop_rule, priority, seq, head, next_due, created_at, updated_at, ended_at, NULL, state_seq
FROM workflow_executions WHERE bead_id = ? AND id > ? ORDER BY id LIMIT ?;

-- back: the chain backwards
SELECT n, batch, first_id, last_id FROM commits WHERE n < ? ORDER BY n DESC LIMIT ?;

-- approval: one approval
SELECT id, execution_id, bead_id, node_id, type, status, question, digest, deadline, created_at,
  decision, answer, answered_by, settled_at
FROM approvals WHERE id = ?;

-- approvals_page: the newest first; lines with unused filters are left out
SELECT id, execution_id, bead_id, node_id, type, status, question, digest, deadline, created_at,
  decision, answer, answered_by, settled_at
FROM approvals
WHERE true
  AND execution_id = :execution_id
  AND status = 'open' AND :open
  AND status = :status
  AND (created_at, id) < (:before_at, :before_id)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- work_beads: the newest first; lines with unused filters are left out
SELECT id, title, description, status, priority, filed_by, context, error, workflow_id, execution_id,
  created_at, updated_at, 'work', NULL
FROM beads
WHERE true
  AND id < :before
  AND status = :status
  AND workflow_id = :workflow_id
ORDER BY id DESC
LIMIT :limit;

-- approval_beads: approvals as beads; lines with unused filters are left out
SELECT a.id, a.question, '', CASE a.status WHEN 'open' THEN 'open' ELSE 'closed' END, e.priority,
  'engine', '{}', NULL, e.workflow_id, a.execution_id, a.created_at,
  coalesce(a.settled_at, a.created_at), 'approval', a.bead_id
FROM approvals a JOIN workflow_executions e ON e.id = a.execution_id
WHERE true
  AND a.id < :before
  AND a.status = 'open' AND :open
  AND a.status <> 'open' AND :closed
  AND e.workflow_id = :workflow_id
ORDER BY a.id DESC
LIMIT :limit;

-- keep_answer: a response for retries; the first stays
INSERT INTO idempotency_keys (key, actor, digest, answer, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- change_bead: guarded by the time of the last update, and only without an active run
UPDATE beads SET context = ?, updated_at = ? WHERE id = ? AND updated_at = ?
AND NOT EXISTS (
  SELECT 1 FROM workflow_executions e WHERE e.bead_id = beads.id AND e.ended_at IS NULL);

-- put_file: insert a file unless the bead has that name, or too many files
INSERT INTO bead_files (bead_id, name, sha256, size, content_type, content, uploaded_by, created_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
WHERE (SELECT count(*) FROM bead_files WHERE bead_id = ?1) < ?9
ON CONFLICT DO NOTHING;

-- files: files of a bead, without their contents
SELECT bead_id, name, sha256, size, content_type, NULL, uploaded_by, created_at
FROM bead_files WHERE bead_id = ? ORDER BY name;

-- file: one file
SELECT bead_id, name, sha256, size, content_type, content, uploaded_by, created_at
FROM bead_files WHERE bead_id = ? AND name = ?;

-- definitions_page: the newest version of each, by id
SELECT v.workflow_id, v.version, v.name, v.kind, v.definition, v.created_by, v.created_at
FROM workflows w JOIN workflow_versions v ON v.workflow_id = w.id AND v.version = w.version
WHERE w.id > ? ORDER BY w.id LIMIT ?;

-- versions: of one definition, the newest first
SELECT workflow_id, version, name, kind, definition, created_by, created_at
FROM workflow_versions WHERE workflow_id = ? ORDER BY version DESC;

-- agent: one agent
SELECT id, roles, capacity, enabled, session, engine, beat_at FROM agents WHERE id = ?;

-- register: register a remote agent; never replaces a function, never enables a disabled agent
INSERT INTO agents (id, roles, capacity, enabled, session, engine, beat_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET roles = excluded.roles, capacity = excluded.capacity,
  session = excluded.session, beat_at = excluded.beat_at
WHERE agents.engine IS NULL;

-- enable_agent: enable or disable an agent
UPDATE agents SET enabled = ? WHERE id = ?;

-- held: dispatches claimed by a session, the oldest first
SELECT execution_id, fence, place, role, priority, offered_at, agent, session, claimed_at
FROM dispatches WHERE agent IS NOT NULL AND session = ?
ORDER BY claimed_at, execution_id, fence;

-- all_held: all claimed dispatches, the oldest first
SELECT execution_id, fence, place, role, priority, offered_at, agent, session, claimed_at
FROM dispatches WHERE agent IS NOT NULL ORDER BY claimed_at, execution_id, fence;

-- add_credential: insert a credential
INSERT INTO credentials (id, kind, digest, name, agent, role, works_as, created_by, created_at,
  expires_at, revoked_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- credential: by its digest
SELECT id, kind, digest, name, agent, role, works_as, created_by, created_at, expires_at, revoked_at
FROM credentials WHERE digest = ?;

-- credentials: of one kind, the newest first
SELECT id, kind, digest, name, agent, role, works_as, created_by, created_at, expires_at, revoked_at
FROM credentials WHERE kind = ? ORDER BY created_at DESC, id DESC;

-- revoke_credential: once
UPDATE credentials SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL;

-- use_sign_in: use a valid sign-in, once
UPDATE credentials SET revoked_at = ?1
WHERE digest = ?2 AND kind = 'sign_in' AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > ?1)
RETURNING id, kind, digest, name, agent, role, works_as, created_by, created_at, expires_at,
  revoked_at;

-- has_tokens: whether an active token exists
SELECT EXISTS (SELECT 1 FROM credentials WHERE kind = 'token' AND revoked_at IS NULL);

-- standing: open work, a limited number of rows of each kind
SELECT 'run', 'running', count(*), NULL FROM (
  SELECT 1 FROM workflow_executions WHERE status = 'running' LIMIT ?1) r
UNION ALL
SELECT 'run', 'waiting', count(*), NULL FROM (
  SELECT 1 FROM workflow_executions WHERE status = 'waiting' LIMIT ?1) w
UNION ALL
SELECT 'run', 'paused', count(*), NULL FROM (
  SELECT 1 FROM workflow_executions WHERE status = 'paused' LIMIT ?1) p
UNION ALL
SELECT 'offered', role, count(*), min(offered_at) FROM (
  SELECT role, offered_at FROM dispatches WHERE agent IS NULL LIMIT ?1) o GROUP BY role
UNION ALL
SELECT 'claimed', role, count(*), min(claimed_at) FROM (
  SELECT role, claimed_at FROM dispatches WHERE agent IS NOT NULL LIMIT ?1) c GROUP BY role
UNION ALL
SELECT 'approval', type, count(*), min(created_at) FROM (
  SELECT type, created_at FROM approvals WHERE status = 'open' LIMIT ?1) a GROUP BY type;

-- ended: runs by the moment of their end
SELECT e.id, e.ended_at, EXISTS (SELECT 1 FROM run_figures f WHERE f.execution_id = e.id)
FROM workflow_executions e
WHERE e.ended_at IS NOT NULL AND (e.ended_at, e.id) > (?, ?) ORDER BY e.ended_at, e.id LIMIT ?;

-- put_run_figures: statistics of runs, inserted once
INSERT INTO run_figures (execution_id, workflow_id, ended_at, seconds, terminal_status, escalations,
  tokens, cost)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- put_node_figures: statistics of nodes, inserted once
INSERT INTO node_figures (execution_id, node, visits, dispatches) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- sums: totals by definition; lines with unused filters are left out
SELECT workflow_id, count(*), sum(terminal_status = 'done_success'), sum(escalations > 0),
  avg(seconds), sum(tokens), sum(cost)
FROM run_figures
WHERE true
  AND workflow_id = :workflow_id
  AND ended_at >= :since
GROUP BY workflow_id ORDER BY workflow_id;

-- seconds_at: two neighbours in the order of durations; lines with unused filters are left out
SELECT seconds FROM run_figures
WHERE workflow_id = :workflow_id
  AND ended_at >= :since
ORDER BY seconds
LIMIT 2 OFFSET :offset;

-- node_sums: how many runs needed each number of dispatches; lines with unused filters are left out
SELECT r.workflow_id, n.node, n.dispatches, count(*)
FROM run_figures r JOIN node_figures n ON n.execution_id = r.execution_id
WHERE true
  AND r.workflow_id = :workflow_id
  AND r.ended_at >= :since
GROUP BY r.workflow_id, n.node, n.dispatches ORDER BY r.workflow_id, n.node, n.dispatches;
