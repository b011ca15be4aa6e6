"""Why the lane did not do something: a code, one line for people, and the details for whoever has
to decide what becomes of it."""

TOLD_CHARS = 4_000
"""Of what git or a hook said."""


class NotApplied(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """Nothing was pushed. `code` is one of the rows of docs/healing.md."""

    def __init__(self, code: str, told: str, hint: str, **details: object) -> None:
        super().__init__(f"{told}; {hint}")
        self.code, self.details = code, details


def last_words(said: bytes) -> str:
    """The end of what a program said, where it says what is wrong."""
    return said.decode("utf-8", "replace").strip()[-TOLD_CHARS:]
