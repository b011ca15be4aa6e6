"""A guarded object that stays the framework's object.

It passes for the object that it wraps: `isinstance` holds, and every attribute that an adapter does
not change is read from the object and set on it. Frameworks can hold it where they hold their own.
"""

from typing import Any, cast

from handrail.guard.run import Guard


class FrameworkObject:
    """Stands for a framework's object. The adapter of the framework adds its calls."""

    OWN_ATTRIBUTES = frozenset({"wrapped", "run_guard", "run_name"})

    def __init__(self, wrapped: Any, guard: Guard, name: str) -> None:
        self.wrapped, self.run_guard, self.run_name = wrapped, guard, name

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The framework's own class, for `isinstance`."""
        return cast("Any", type(self.wrapped))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.OWN_ATTRIBUTES:  # a copy has none of these yet
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.OWN_ATTRIBUTES:
            object.__setattr__(self, name, value)
        else:
            setattr(self.wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.wrapped, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.wrapped)})

    def __repr__(self) -> str:
        return f"guarded({self.wrapped!r})"

    def __enter__(self) -> Any:
        self.wrapped.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self.wrapped.__exit__(*error)

    async def __aenter__(self) -> Any:
        await self.wrapped.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self.wrapped.__aexit__(*error)


def first_argument(args: tuple[Any, ...], options: dict[str, Any], *names: str) -> Any:
    """Return a call's first argument, by position or by one of these names; None without one."""
    if args:
        return args[0]
    return next((options[name] for name in names if name in options), None)
