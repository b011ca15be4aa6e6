"""What a durable step costs, next to what else one could use; `__main__` says how to run it."""
