"""What takes a turn: whatever gives a `Result` for a `Dispatch` of the engine."""
