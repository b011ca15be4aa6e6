-- dispatches: dispatches of one run
SELECT {DispatchRow} FROM dispatches WHERE execution_id = :execution_id ORDER BY fence;

-- claimed_dispatches: the oldest claim first
SELECT {DispatchRow} FROM dispatches WHERE agent IS NOT NULL
  AND session = :session
ORDER BY claimed_at, execution_id, fence;

-- orphaned_dispatches: claimed dispatches without a live agent
SELECT {DispatchRow d}
FROM dispatches d LEFT JOIN agents a ON a.id = d.agent AND a.session = d.session
WHERE d.agent IS NOT NULL AND (a.id IS NULL OR a.beat_at <= :silent_since OR NOT a.enabled)
LIMIT :limit;

-- unmatched_dispatches: offered dispatches whose role no live agent has
SELECT {DispatchRow d} FROM dispatches d
WHERE d.agent IS NULL AND d.offered_at <= :offered_before AND d.role NOT IN (
  SELECT r.value FROM agents a, items(a.roles) AS r
  WHERE a.enabled AND a.beat_at > :silent_since)
ORDER BY d.offered_at LIMIT :limit;
