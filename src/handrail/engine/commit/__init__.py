"""From a command to the disk: batches, stream changes, projections, one commit for all."""
