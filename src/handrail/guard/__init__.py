"""The stop rules around a program that Handrail does not run: the user's own loop, or a framework.

`run` is the guard itself; `adapter` is the base of the framework adapters, each in a module of the
framework's name; `detection` finds the adapter that an object needs.
"""

from handrail.guard.run import Guard, GuardedRun

__all__ = ["Guard", "GuardedRun"]
