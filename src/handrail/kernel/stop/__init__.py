"""What judges whether a run still makes progress: evidence, ledger, repetition, the stop rules."""
