"""Who works on what: dispatches, the matcher, local and remote agents."""
