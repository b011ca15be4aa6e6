"""Handrail runs teams of AI agents and people so that every run ends, with a reason."""
