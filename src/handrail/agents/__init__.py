"""Agents that are not functions: each returns a `Result` for a dispatch, of an engine or a worker.

    model_agent(name)        a language model (`model.py`)
    program_agent(command)   a program of this machine (`program.py`)
    http_agent(url)          a service (`http.py`)

Each of these makes an async function for `engine.add_agent` or `Worker.add`. They are imported from
their modules: a program with functions of its own needs none of them.
"""
