-- insert_transitions: appended
INSERT INTO workflow_transitions ({TransitionRow}) {values TransitionRow};

-- put_approvals: open or settled approvals; a settled approval stays unchanged
INSERT INTO approvals ({ApprovalRow}) {values ApprovalRow}
ON CONFLICT (id) DO UPDATE SET status = excluded.status, deadline = excluded.deadline,
  decision = excluded.decision, answer = excluded.answer, answered_by = excluded.answered_by,
  settled_at = excluded.settled_at
WHERE approvals.status = 'open';

-- put_beads: beads of runs that begin, or as the runs left them
INSERT INTO beads ({BeadRow}) {values BeadRow}
ON CONFLICT (id) DO UPDATE SET status = excluded.status, context = excluded.context,
  error = excluded.error, workflow_id = excluded.workflow_id, execution_id = excluded.execution_id,
  updated_at = excluded.updated_at;

-- insert_messages: a message is sent once for its cause
INSERT INTO messages ({MessageRow}) {values MessageRow} ON CONFLICT (id) DO NOTHING;

-- insert_keys: responses to requests, for retries
INSERT INTO idempotency_keys ({IdempotencyKeyRow}) {values IdempotencyKeyRow};

-- add_spendings: what runs have spent of budgets
INSERT INTO budget_spending ({SpendingRow}) {values SpendingRow}
ON CONFLICT (name, period) DO UPDATE SET cost = budget_spending.cost + excluded.cost,
  tokens = budget_spending.tokens + excluded.tokens, updated_at = excluded.updated_at;

-- put_members: new members, or new states
INSERT INTO channel_members ({ChannelMemberRow}) {values ChannelMemberRow}
ON CONFLICT (channel_id, agent_id) DO UPDATE SET state = excluded.state, busy = excluded.busy,
  sole = excluded.sole, turn = excluded.turn;

-- insert_log: appended
INSERT INTO channel_log ({ChannelLogRow}) {values ChannelLogRow};
