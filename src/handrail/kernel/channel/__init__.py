"""Turn-taking in channels: state, commands and events, decide, evolve."""
