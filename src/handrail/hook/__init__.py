"""Stop rules for coding agents that call hook programs: `handrail hook`.

An agent starts a hook program at each tool call and at the end of each turn, with one JSON object
on standard input, and reads another from its standard output. Here both feed a guarded run, whose
agent is the coding agent.

    payloads.py   what an agent sends, read as an event
    session.py    one conversation: events in, verdicts out; the guarded run under it
    answers.py    verdicts as the JSON that each agent reads
    record.py     conversations between two hook calls, in SQLite
    service.py    all of it for one payload; never raises
    daemon.py     a process that keeps conversations in memory; ends by itself
    launcher.py   what agents start: asks the daemon, imports nothing of this package
    settings_files.py  the hook entries in the agents' settings files
    options.py    the options of the command line; `cli/hook.py` is the command
    recording.py  ended runs to a Handrail database, running ones to a server

Rules
1. The agent is never broken: what goes wrong here lets the agent go on, with a word on standard
   error (`--fail closed` turns that around).
2. No text of the agent, its tools or its user reaches the disk: digests do.
3. Everything is bounded: the payload, the waits, what is remembered, how long it is kept.
"""
