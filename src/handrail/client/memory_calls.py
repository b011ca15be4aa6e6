"""The calls about remembered resolutions."""

from handrail.client.call import Call, get, nothing, path, send
from handrail.client.endpoint import endpoint
from handrail.engine.memory import Memory
from handrail.engine.pages import Page


class MemoryCalls:
    @endpoint
    def memories(
        self, *, q: str | None = None, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[Memory]]:
        """The newest first. `q` is in the ticket or the resolution."""
        return get("/memory", Page[Memory], {"q": q, "limit": limit, "cursor": cursor})

    @endpoint
    def memory(self, memory_id: str) -> Call[Memory]:
        """One of them."""
        return get(path("memory", memory_id), Memory)

    @endpoint
    def correct_memory(self, memory_id: str, resolution: str) -> Call[Memory]:
        """What tickets like it are answered from now on."""
        return send("PATCH", path("memory", memory_id), Memory, {"resolution": resolution})

    @endpoint
    def remove_memory(self, memory_id: str) -> Call[None]:
        """It answers no ticket any more."""
        return Call(method="DELETE", path=path("memory", memory_id), read=nothing)
