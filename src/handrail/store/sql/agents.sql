-- agents: all agents, or one
SELECT {AgentRow} FROM agents
WHERE true
  AND id = :id
ORDER BY id;

-- put_agents: register or change agents
INSERT INTO agents ({AgentRow}) {values AgentRow}
ON CONFLICT (id) DO UPDATE SET roles = excluded.roles, capacity = excluded.capacity,
  enabled = excluded.enabled, session = excluded.session, engine = excluded.engine,
  beat_at = excluded.beat_at;

-- register_agents: remote agents; never replaces a function, never enables a disabled agent
INSERT INTO agents ({AgentRow}) {values AgentRow}
ON CONFLICT (id) DO UPDATE SET roles = excluded.roles, capacity = excluded.capacity,
  session = excluded.session, beat_at = excluded.beat_at
WHERE agents.engine IS NULL;

-- remove_agent: remove an agent
DELETE FROM agents WHERE id = :id;

-- enable_agent: enable or disable an agent
UPDATE agents SET enabled = :enabled WHERE id = :id;

-- heartbeat_session: record that a session is alive
UPDATE agents SET beat_at = :at WHERE session = :session;

-- heartbeat_engine: record that an engine is alive
INSERT INTO engines (id, beat_at) VALUES (:engine, :at)
ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at;

-- heartbeat_functions: record that the functions of an engine are alive
UPDATE agents SET beat_at = :at WHERE engine = :engine;

-- engines: when each was last alive
SELECT id, beat_at FROM engines ORDER BY id;

-- delete_engine: delete an engine
DELETE FROM engines WHERE id = :engine;

-- delete_functions: delete the functions of an engine
DELETE FROM agents WHERE engine = :engine;

-- add_outage: record that no engine was alive in between
INSERT INTO outages (started_at, ended_at) SELECT :started_at::timestamptz, :ended_at::timestamptz
WHERE NOT EXISTS (SELECT 1 FROM outages WHERE ended_at > :started_at);

-- outages: outages that ended later
SELECT started_at, ended_at FROM outages WHERE ended_at > :since ORDER BY ended_at;

-- last_alive: the latest trace of any engine
SELECT max(at) FROM (
  SELECT at FROM (SELECT at FROM commits ORDER BY n DESC LIMIT 1) last
  UNION ALL SELECT max(beat_at) FROM engines
  UNION ALL SELECT max(ended_at) FROM outages) alive;
