"""How long tests wait before they call something stuck: long, for a machine may be slow and busy
with other things. Nothing waits that long unless it fails."""

import os

PATIENCE = float(os.environ.get("HANDRAIL_PATIENCE", "20"))
"""Seconds."""
