-- stray_entry: an entry that belongs to no commit
SELECT j.stream, j.seq FROM journal j LEFT JOIN commits c ON c.batch = j.batch
WHERE c.n IS NULL OR j.id NOT BETWEEN c.first_id AND c.last_id;

-- stray_transition: a transition of no run
SELECT t.execution_id, t.seq FROM workflow_transitions t
WHERE NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = t.execution_id);

-- stray_approval: an approval of no run
SELECT a.execution_id, a.id FROM approvals a
WHERE NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = a.execution_id);

-- stray_bead: a bead whose run does not exist
SELECT b.execution_id, b.id FROM beads b WHERE b.execution_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM workflow_executions e WHERE e.id = b.execution_id);

-- doctor_version: a run's version is its last sequence number, its head the last hash
SELECT e.id, 'the row says ' || e.seq || ', the journal ' || coalesce(j.seq, 0)
FROM workflow_executions e
LEFT JOIN journal j ON j.stream = e.id AND j.seq = (SELECT max(seq) FROM journal WHERE stream = e.id)
WHERE j.seq IS NULL OR j.seq <> e.seq OR j.hash <> e.head OR e.state_seq > e.seq;

-- doctor_lock_version: the same for a commit lock
SELECT l.repository, 'the row says ' || l.seq || ', the journal ' || coalesce(j.seq, 0)
FROM commit_locks l LEFT JOIN journal j ON j.stream = 'lock:' || l.repository
  AND j.seq = (SELECT max(seq) FROM journal WHERE stream = 'lock:' || l.repository)
WHERE j.seq IS NULL OR j.seq <> l.seq OR j.hash <> l.head;

-- doctor_stream_version: the same for any other stream
SELECT s.name, 'the row says ' || s.seq || ', the journal ' || coalesce(j.seq, 0)
FROM streams s
LEFT JOIN journal j ON j.stream = s.name AND j.seq = (SELECT max(seq) FROM journal WHERE stream = s.name)
WHERE j.seq IS NULL OR j.seq <> s.seq OR j.hash <> s.head;

-- doctor_gap: the sequence numbers of a stream have no gaps
SELECT stream, 'after ' || before || ' comes ' || (seq - count + 1)
FROM (SELECT stream, seq, count, lag(seq, 1, 0::bigint) OVER (PARTITION BY stream ORDER BY seq) AS before
  FROM journal) j
WHERE seq - count <> before;

-- doctor_dispatch_twice: a step has one open dispatch
SELECT execution_id, place FROM dispatches GROUP BY execution_id, place HAVING count(*) > 1;

-- doctor_dispatch_of_finished: a finished run has no dispatches
SELECT d.execution_id, d.place FROM dispatches d
LEFT JOIN workflow_executions e ON e.id = d.execution_id
WHERE e.id IS NULL OR e.status = 'ended';

-- doctor_lost_session: a claimed dispatch has a live session, or is taken back after the lease
SELECT d.execution_id, d.place || ', claimed by ' || d.agent
FROM dispatches d LEFT JOIN agents a ON a.id = d.agent AND a.session = d.session
WHERE d.agent IS NOT NULL AND d.claimed_at < :stale_before
  AND (a.id IS NULL OR a.beat_at < :stale_before);

-- doctor_two_holders: a repository has one lock, with one holder
SELECT repository, count(*) || ' rows' FROM commit_locks GROUP BY repository HAVING count(*) > 1;

-- doctor_holder_finished: a lock's holder has not ended, unless a message to the lock is under way
SELECT l.repository, 'held by ' || l.holder_execution_id FROM commit_locks l
LEFT JOIN workflow_executions e ON e.id = l.holder_execution_id
WHERE l.holder_execution_id IS NOT NULL AND (e.id IS NULL OR e.status = 'ended')
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.target = 'lock:' || l.repository);

-- doctor_two_runs: a bead has one active run
SELECT bead_id, min(id) || ', ' || max(id) FROM workflow_executions WHERE status <> 'ended'
GROUP BY bead_id HAVING count(*) > 1;

-- doctor_half_ended: an ended run has all columns of an end, another run none of them
SELECT id, 'its status is ' || status FROM workflow_executions
WHERE (status = 'ended') <> (ended_at IS NOT NULL)
  OR (status = 'ended') <> (terminal_status IS NOT NULL)
  OR (status = 'ended') <> (stop_rule IS NOT NULL);

-- doctor_no_clock: every active run has a clock
SELECT id, 'its status is ' || status FROM workflow_executions
WHERE status <> 'ended' AND next_due IS NULL;

-- doctor_overdue: an engine handles every expired clock
SELECT id, 'due since ' || next_due FROM workflow_executions
WHERE next_due < :stale_before;

-- doctor_lock_overdue: the same for a commit lock
SELECT repository, 'due since ' || next_due FROM commit_locks
WHERE next_due < :stale_before;

-- doctor_question_of_finished: a finished run has no open approvals
SELECT a.execution_id, a.id FROM approvals a
LEFT JOIN workflow_executions e ON e.id = a.execution_id
WHERE a.status = 'open' AND (e.id IS NULL OR e.status = 'ended');

-- doctor_waits_for_nobody: a waiting run has an open approval
SELECT id, 'at ' || coalesce(current_node_id, 'no place') FROM workflow_executions e
WHERE status = 'waiting' AND NOT EXISTS (
  SELECT 1 FROM approvals a WHERE a.execution_id = e.id AND a.status = 'open');

-- doctor_stuck_message: messages are delivered
SELECT target, id || ', sent ' || created_at FROM messages
WHERE created_at < :stuck_before;

-- doctor_bead: the bead of an active run is in progress
SELECT e.id, CASE WHEN b.id IS NULL THEN 'bead ' || e.bead_id || ' is gone'
  ELSE 'bead ' || e.bead_id || ' is ' || b.status END
FROM workflow_executions e LEFT JOIN beads b ON b.id = e.bead_id
WHERE e.status <> 'ended' AND (b.id IS NULL OR b.status NOT IN ('in_progress', 'waiting'));

-- doctor_notes: the first notes of a run are kept
SELECT e.id, e.notes || ' counted' FROM workflow_executions e
WHERE CASE WHEN e.notes < :notes_max THEN e.notes ELSE :notes_max END
  <> (SELECT count(*) FROM notes n WHERE n.execution_id = e.id);

-- doctor_channel_version: a channel's version is its last sequence number, its head the last hash
SELECT c.id, 'the row says ' || c.seq || ', the journal ' || coalesce(j.seq, 0)
FROM channels c LEFT JOIN journal j ON j.stream = 'channel:' || c.id
  AND j.seq = (SELECT max(seq) FROM journal WHERE stream = 'channel:' || c.id)
WHERE j.seq IS NULL OR j.seq <> c.seq OR j.hash <> c.head;

-- doctor_two_active: one member of a channel holds the turn
SELECT channel_id, min(agent_id) || ', ' || max(agent_id) FROM channel_members
WHERE state = 'ACTIVE' OR state = 'WAITING' GROUP BY channel_id HAVING count(*) > 1;

-- doctor_two_turns: an agent with a capacity of 1 holds one turn
SELECT agent_id, min(channel_id) || ', ' || max(channel_id) FROM channel_members
WHERE sole = 1 AND (state = 'ACTIVE' OR state = 'WAITING') GROUP BY agent_id HAVING count(*) > 1;

-- doctor_turn_overdue: an engine ends every expired turn and wait
SELECT id, 'due since ' || next_due FROM channels
WHERE next_due < :stale_before;
