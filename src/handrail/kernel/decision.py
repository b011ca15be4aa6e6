"""What a machine answers: events to record, effects to perform after the commit, or a refusal.

Every machine of the kernel (the run, the channel, the commit lock) has the same three functions:

    decide(state, command, now) -> Decision   never raises for bad input, changes no argument
    evolve(state, event) -> state             no policy: the one path for live and replay
    measure(state) -> int                     for what must end

A refusal is a value. It changes nothing; its message names who, what and where, its hint what to do
next. A decision may carry events *and* a refusal: a command that comes after a deadline finds the
deadline's events recorded in the same commit, and is itself refused.
"""

from typing import Generic, TypeVar, cast, dataclass_transform

import msgspec

E = TypeVar("E")
F = TypeVar("F")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of the kernel's values: frozen, keyword-only, small on the wire.

    A frozen value holds only what was there before it, so no cycle goes through one, and Python's
    collector need not look at it: with a thousand runs in memory that was a quarter of the time.
    """


def prepare_types(*types: object) -> None:
    """To be called where a module that reads such values is imported.

    msgspec looks at a type when it first reads one, and does not expect a second thread meanwhile:
    that one finds a type half known, and the process ends with a segmentation fault.
    """
    for type_ in types:
        msgspec.json.Decoder(cast("type[object]", type_))


class Refusal(Value):
    """A command that was not taken. `code` is stable and for programs, the texts are for people."""

    code: str
    message: str
    hint: str = ""


class Decision(Value, Generic[E, F]):
    """What became of one command."""

    events: tuple[E, ...] = ()
    effects: tuple[F, ...] = ()
    refusal: Refusal | None = None
