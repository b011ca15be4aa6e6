"""What is read: runs, events, locks, statistics, and why a run waits."""
