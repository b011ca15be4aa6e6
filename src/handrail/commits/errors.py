"""Why the lane did not do something: a code, one line for people, and the details for whoever has
to decide what becomes of it."""

OUTPUT_CHARS_MAX = 4_000
"""Of what git or a hook said."""


class CommitRejectedError(Exception):
    """Nothing was pushed. `code` is one of the rows of docs/healing.md."""

    def __init__(self, code: str, message: str, hint: str, **details: object) -> None:
        super().__init__(f"{message}; {hint}")
        self.code, self.details = code, details


def output_tail(output: bytes) -> str:
    """The end of what a program said, where it says what is wrong."""
    return output.decode("utf-8", "replace").strip()[-OUTPUT_CHARS_MAX:]
