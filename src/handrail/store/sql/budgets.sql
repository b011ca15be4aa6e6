-- budget: by its name
SELECT {BudgetRow} FROM budgets WHERE name = :name;

-- budgets: a page, by name
SELECT {BudgetRow} FROM budgets WHERE name > :after ORDER BY name LIMIT :limit;

-- put_budget: set by a person
INSERT INTO budgets ({BudgetRow}) VALUES ({params BudgetRow})
ON CONFLICT (name) DO UPDATE SET per = excluded.per, cost = excluded.cost,
  tokens = excluded.tokens, warn_at = excluded.warn_at, updated_by = excluded.updated_by,
  updated_at = excluded.updated_at;

-- put_program_budget: set by a program, unless a person has set it
INSERT INTO budgets ({BudgetRow}) VALUES ({params BudgetRow})
ON CONFLICT (name) DO UPDATE SET per = excluded.per, cost = excluded.cost,
  tokens = excluded.tokens, warn_at = excluded.warn_at, updated_at = excluded.updated_at
WHERE budgets.updated_by = '';

-- delete_budget: what was spent stays
DELETE FROM budgets WHERE name = :name RETURNING {BudgetRow};

-- add_spending: to the sum of a period
INSERT INTO budget_spending ({SpendingRow}) VALUES ({params SpendingRow})
ON CONFLICT (name, period) DO UPDATE SET cost = budget_spending.cost + excluded.cost,
  tokens = budget_spending.tokens + excluded.tokens, updated_at = excluded.updated_at
RETURNING {SpendingRow};

-- delete_spending_before: periods that are long over
DELETE FROM budget_spending WHERE updated_at < :updated_at;

-- spending: of a period
SELECT {SpendingRow} FROM budget_spending WHERE name = :name AND period = :period;
