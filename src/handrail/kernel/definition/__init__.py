"""Definitions: the model, its checks, and everything computed from it before a run starts."""
