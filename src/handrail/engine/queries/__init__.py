"""Read access: runs, events, locks, statistics, and why a run waits."""
