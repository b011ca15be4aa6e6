"""Replays recorded runs under other stop rules, and proposes better limits."""
