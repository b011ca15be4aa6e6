-- locks: by repository
SELECT {LockRow} FROM commit_locks
WHERE true
  AND repository IN list(:repositories)
  AND repository > :after
ORDER BY repository
LIMIT :limit;

-- due_locks: locks whose holder may be silent for too long
SELECT repository FROM commit_locks WHERE next_due <= :now ORDER BY next_due LIMIT :limit;
