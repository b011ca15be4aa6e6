"""The exception of a refused command."""

from handrail.kernel.decision import Refusal


class RefusedError(Exception):
    """A command was refused. `refusal` says why and what to do."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message)
        self.refusal = refusal
