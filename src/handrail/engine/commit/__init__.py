"""Commands become commits: batches, stream changes, projections, and one commit per batch."""
