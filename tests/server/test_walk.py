"""How far one has to read to follow a command through the code (`scripts/walk.py`)."""

from scripts.walk import trace_walks

FILES_MAX = 40


async def test_a_command_passes_through_at_most_forty_files():
    walks = await trace_walks()
    counts = {name: len(set(walk.files)) for name, walk in walks.items()}
    assert counts.keys() == {"bead create", "result"}
    assert max(counts.values()) <= FILES_MAX, f"{counts}; see scripts/walk.py --files"
