"""How long tests wait before they call something stuck: long, for a machine may be slow and busy
with other things. Nothing waits that long unless it fails."""

import asyncio
import inspect
import os
import time
from collections.abc import Callable
from typing import Any

PATIENCE = float(os.environ.get("HANDRAIL_PATIENCE", "20"))
"""Seconds."""


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE, message: str = "") -> Any:
    """Poll a condition of another thread or process until it holds; return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, message or "the condition does not come to hold"
        time.sleep(0.01)
    return value


async def wait_until_async(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Let other tasks go on until the condition, which may be awaited, holds; return its value."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.001)
