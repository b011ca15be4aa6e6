"""`handrail a2a`: every definition is an agent that others reach by the A2A protocol.

`cards.py` describes such an agent, `tasks.py` shows a run as a task, `task_list.py` lists tasks,
`message_content.py` reads a message, `methods.py` has the calls; `app.py` is the ASGI application.
The other direction, a remote A2A agent as a member of a team, is `handrail.agents.a2a`.
"""
