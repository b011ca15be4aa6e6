"""Walks of agents in which no pattern ever comes three times in a row.

The guard's pattern rule must do all its work on them and never stop them.
"""

import random
from itertools import pairwise


def thue_morse(length: int) -> list[str]:
    """Two agents. Letter n is the parity of the ones in n; no block comes three times in a row."""
    return [("planner", "coder")[number.bit_count() % 2] for number in range(length)]


def square_free(length: int) -> list[str]:
    """Eight agents, no block even twice in a row, otherwise by chance (always the same).

    The differences of the Thue–Morse word are square-free over three letters. Each letter stands
    for a group of agents, and a repeat among agents would be a repeat among their groups.
    """
    chance = random.Random(8)
    groups = (("a1", "a2", "a3"), ("b1", "b2", "b3"), ("c1", "c2"))
    parity = [number.bit_count() % 2 for number in range(length + 1)]
    letters = (after - before for before, after in pairwise(parity))
    return [chance.choice(groups[letter + 1]) for letter in letters]


WALKS = {"thue_morse": thue_morse, "square_free": square_free}
