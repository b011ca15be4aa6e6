"""Periodic work: clocks, leases, outages, retention, backup."""
