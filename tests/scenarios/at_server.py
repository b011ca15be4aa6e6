"""A scenario at a server: what it is, a definition that pays after an approval, what is asked."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.engine.at_work import chain, node
from tests.server.house import House, told

Play = Callable[[House], Awaitable[None]]
PAYS = chain(node("prepare"), node("look", "approval"), node("pay"), id="pays")


async def question(house: House) -> dict[str, Any]:
    (found,) = told(await house.viewer.get("/approvals", params={"status": "open"}))["items"]
    return found
