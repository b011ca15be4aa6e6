"""Work for agents: dispatches, the matcher, local and remote agents."""
