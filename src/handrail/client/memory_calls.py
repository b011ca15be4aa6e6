"""The calls about remembered resolutions."""

from handrail.client.call import Call, decode_nothing, join_path, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.engine.pagination import Page
from handrail.engine.services.memory import MemoryView


class MemoryCalls:
    @endpoint
    def list_memories(
        self, *, q: str | None = None, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[MemoryView]]:
        """The newest first. `q` is in the ticket or the resolution."""
        return json_get("/memory", Page[MemoryView], {"q": q, "limit": limit, "cursor": cursor})

    @endpoint
    def get_memory(self, memory_id: str) -> Call[MemoryView]:
        """One of them."""
        return json_get(join_path("memory", memory_id), MemoryView)

    @endpoint
    def correct_memory(self, memory_id: str, resolution: str) -> Call[MemoryView]:
        """What tickets like it are answered from now on."""
        return json_send(
            "PATCH", join_path("memory", memory_id), MemoryView, {"resolution": resolution}
        )

    @endpoint
    def remove_memory(self, memory_id: str) -> Call[None]:
        """It answers no ticket any more."""
        return Call(method="DELETE", path=join_path("memory", memory_id), decode=decode_nothing)
