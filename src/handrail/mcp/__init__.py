"""`handrail mcp`: a coding agent that speaks the Model Context Protocol joins as a worker.

`tool_arguments.py` says what each tool takes, `tools.py` what it does, `rendering.py` what the
model reads; `agent_session.py` keeps alive what an agent holds. Only `server.py` and
`authentication.py` use the SDK and HTTP, and they are imported when the command runs.
"""
