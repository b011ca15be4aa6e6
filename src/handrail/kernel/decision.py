"""The answer of a state machine: events to record, effects to run after the commit, a refusal.

Every machine of the kernel (the run, the channel, the commit lock) has the same three functions:

    decide(state, command, now) -> Decision   never raises for bad input, changes no argument
    evolve(state, event) -> state             no policy: the one path for live and replay
    measure(state) -> int                     only for machines that must end

A refusal is a value. It changes nothing; its message names who, what and where, its hint the next
step. A decision may carry events *and* a refusal: for a command that arrives after a deadline, it
records the deadline's events and refuses the command, in the same commit.
"""

from typing import Generic, TypeVar, cast, dataclass_transform

import msgspec

E = TypeVar("E")
F = TypeVar("F")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of the kernel's values: frozen, keyword-only, small on the wire.

    A frozen value refers only to older values and cannot be part of a cycle, so Python's garbage
    collector skips it: with a thousand runs in memory, collection took a quarter of the time.
    """


def prepare_types(*types: object) -> None:
    """Build msgspec's type information; a module that decodes these types calls this on import.

    msgspec inspects a type at its first decoding, and not thread-safely: a second thread finds the
    type half inspected, and the process dies with a segmentation fault.
    """
    for type_ in types:
        msgspec.json.Decoder(cast("type[object]", type_))


class Refusal(Value):
    """Why a command was refused. `code` is stable and for programs, the texts are for people."""

    code: str
    message: str
    hint: str = ""


def refuse(code: str, message: str, hint: str = "") -> Refusal:
    return Refusal(code=code, message=message, hint=hint)


class Decision(Value, Generic[E, F]):
    """The answer to one command. `fault`: why the result that it brought is on record but counts
    for nothing."""

    events: tuple[E, ...] = ()
    effects: tuple[F, ...] = ()
    refusal: Refusal | None = None
    fault: str = ""

    @property
    def accepted(self) -> bool:
        return self.refusal is None and not self.fault
