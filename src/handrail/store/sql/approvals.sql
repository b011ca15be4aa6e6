-- approval: one approval
SELECT {ApprovalRow} FROM approvals WHERE id = :id;

-- approvals: the oldest first
SELECT {ApprovalRow} FROM approvals
WHERE true
  AND execution_id = :execution_id
  AND status = 'open' AND :open::boolean
  AND status = :status
ORDER BY created_at, id
LIMIT :limit;

-- newest_approvals: the newest first
SELECT {ApprovalRow} FROM approvals
WHERE true
  AND execution_id = :execution_id
  AND status = 'open' AND :open::boolean
  AND status = :status
  AND (created_at, id) < (:before_at::timestamptz, :before_id)
ORDER BY created_at DESC, id DESC
LIMIT :limit;
