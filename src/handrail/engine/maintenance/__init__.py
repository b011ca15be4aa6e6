"""What happens by itself: clocks, leases, outages, retention, backup."""
