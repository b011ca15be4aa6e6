"""A scenario at a server: what it is, a definition that pays after an approval, what is asked."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.engine.engines import chain, node
from tests.server.harness import ServerHarness, expect_json

Play = Callable[[ServerHarness], Awaitable[None]]
PAYS = chain(node("prepare"), node("look", "approval"), node("pay"), id="pays")


async def question(harness: ServerHarness) -> dict[str, Any]:
    (found,) = expect_json(await harness.viewer.get("/approvals", params={"status": "open"}))[
        "items"
    ]
    return found
