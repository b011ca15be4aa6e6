"""How far one has to read to follow a command through the code (`scripts/walk.py`)."""

from scripts.walk import trace_walks

FILES_MAX = 40


async def test_a_command_passes_through_at_most_forty_files():
    # What is entered in one walk only is not on the way: a slow machine meets a clock in between.
    walks = [await trace_walks() for _ in range(3)]
    for name in ("bead create", "result"):
        files = set.intersection(*(set(walk[name].files) for walk in walks))
        assert len(files) <= FILES_MAX, f"{name}; see scripts/walk.py --files"
