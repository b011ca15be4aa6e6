"""Why the lane did not do something: a code, one line for people, and the details for deciding how
to go on.
"""

OUTPUT_CHARS_MAX = 4_000
"""Of the output of git or a hook."""


class CommitRejectedError(Exception):
    """Nothing was pushed. `code` is one of the rows of docs/healing.md."""

    def __init__(self, code: str, message: str, hint: str, **details: object) -> None:
        super().__init__(f"{message}; {hint}")
        self.code, self.details = code, details


def output_tail(output: bytes) -> str:
    """Return the end of a program's output, where the error is."""
    return output.decode("utf-8", "replace").strip()[-OUTPUT_CHARS_MAX:]
