-- open_work: counts of open work, a limited number of rows of each kind
SELECT 'run', 'running', count(*), NULL::timestamptz FROM (
  SELECT 1 FROM workflow_executions WHERE status = 'running' LIMIT :limit) r
UNION ALL
SELECT 'run', 'waiting', count(*), NULL::timestamptz FROM (
  SELECT 1 FROM workflow_executions WHERE status = 'waiting' LIMIT :limit) w
UNION ALL
SELECT 'run', 'paused', count(*), NULL::timestamptz FROM (
  SELECT 1 FROM workflow_executions WHERE status = 'paused' LIMIT :limit) p
UNION ALL
SELECT 'offered', role, count(*), min(offered_at) FROM (
  SELECT role, offered_at FROM dispatches WHERE agent IS NULL LIMIT :limit) o GROUP BY role
UNION ALL
SELECT 'claimed', role, count(*), min(claimed_at) FROM (
  SELECT role, claimed_at FROM dispatches WHERE agent IS NOT NULL LIMIT :limit) c GROUP BY role
UNION ALL
SELECT 'approval', type, count(*), min(created_at) FROM (
  SELECT type, created_at FROM approvals WHERE status = 'open' LIMIT :limit) a GROUP BY type;

-- ended_runs: runs by the moment of their end
SELECT e.id, e.ended_at, EXISTS (SELECT 1 FROM run_figures f WHERE f.execution_id = e.id)
FROM workflow_executions e
WHERE e.ended_at IS NOT NULL AND (e.ended_at, e.id) > (:ended_at, :id)
ORDER BY e.ended_at, e.id LIMIT :limit;

-- insert_run_stats: statistics of runs, each once
INSERT INTO run_figures ({RunStatsRow}) {values RunStatsRow} ON CONFLICT DO NOTHING;

-- insert_node_stats: statistics of nodes, each once
INSERT INTO node_figures ({NodeStatsRow}) {values NodeStatsRow} ON CONFLICT DO NOTHING;

-- definition_stats: totals by definition; a percentile is a weighted mean of the two nearest ranks
SELECT workflow_id, count(*), count(*) FILTER (WHERE terminal_status = 'done_success'),
  count(*) FILTER (WHERE escalations > 0), avg(seconds),
  sum(seconds * (1 - abs(rank - 0.5 * last))) FILTER (WHERE abs(rank - 0.5 * last) < 1),
  sum(seconds * (1 - abs(rank - 0.9 * last))) FILTER (WHERE abs(rank - 0.9 * last) < 1),
  sum(seconds * (1 - abs(rank - 0.99 * last))) FILTER (WHERE abs(rank - 0.99 * last) < 1),
  sum(tokens)::bigint, sum(cost)
FROM (
  SELECT *, row_number() OVER (PARTITION BY workflow_id ORDER BY seconds) - 1 AS rank,
    count(*) OVER (PARTITION BY workflow_id) - 1 AS last
  FROM run_figures
  WHERE true
    AND workflow_id = :workflow_id
    AND ended_at >= :since
) ranked GROUP BY workflow_id ORDER BY workflow_id;

-- node_stats: how many runs needed each number of dispatches
SELECT r.workflow_id, n.node, n.dispatches, count(*)
FROM run_figures r JOIN node_figures n ON n.execution_id = r.execution_id
WHERE true
  AND r.workflow_id = :workflow_id
  AND r.ended_at >= :since
GROUP BY r.workflow_id, n.node, n.dispatches ORDER BY r.workflow_id, n.node, n.dispatches;
