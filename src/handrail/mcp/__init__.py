"""`handrail mcp`: a coding agent that speaks the Model Context Protocol joins as a worker.

`asked.py` says what each tool takes, `tools.py` what it does, `words.py` what the model reads;
`seat.py` keeps alive what an agent has in hand. Only `serving.py` and `door.py` know the SDK and
the wire, and they are imported when the command runs.
"""
