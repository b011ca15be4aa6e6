"""Judges whether a run still makes progress: evidence, ledger, repetition, the stop rules."""
