"""The calls about remembered resolutions."""

from handrail.client.call import Call, decode_nothing, join_path, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.views.memories import MemoryView
from handrail.views.pages import Page


class MemoryCalls:
    @endpoint
    def list_memories(
        self, *, q: str | None = None, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[MemoryView]]:
        """List memories, the newest first. `q` matches part of the ticket or the resolution."""
        return json_get("/memory", Page[MemoryView], {"q": q, "limit": limit, "cursor": cursor})

    @endpoint
    def get_memory(self, memory_id: str) -> Call[MemoryView]:
        """Return one memory."""
        return json_get(join_path("memory", memory_id), MemoryView)

    @endpoint
    def correct_memory(self, memory_id: str, resolution: str) -> Call[MemoryView]:
        """Replace the resolution: similar tickets get it from now on."""
        return json_send(
            "PATCH", join_path("memory", memory_id), MemoryView, {"resolution": resolution}
        )

    @endpoint
    def remove_memory(self, memory_id: str) -> Call[None]:
        """Remove a memory: it answers no further tickets."""
        return Call(method="DELETE", path=join_path("memory", memory_id), decode=decode_nothing)
