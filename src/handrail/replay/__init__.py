"""Recorded runs, decided again under other rules; and which rules would have been better."""
