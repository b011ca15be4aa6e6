"""`Argument` and `Option`, with which commands declare what they take: Typer's.

Where Typer is not installed they make values that argparse is told by (`small_install.py`).
"""

from typing import TYPE_CHECKING, NamedTuple


class DeclaredParameter(NamedTuple):
    is_option: bool
    flags: tuple[str, ...]
    help: str
    metavar: str | None


if TYPE_CHECKING:
    from typer import Argument, Option
else:
    try:
        from typer import Argument, Option
    except ModuleNotFoundError:

        def Argument(*, help: str, metavar: str) -> DeclaredParameter:  # noqa: A002, N802 - as Typer's
            return DeclaredParameter(False, (), help, metavar)

        def Option(  # noqa: N802 - as Typer's
            *flags: str,
            help: str,  # noqa: A002 - as Typer's
            metavar: str | None = None,
            **_of_typer: float,
        ) -> DeclaredParameter:
            return DeclaredParameter(True, flags, help, metavar)


__all__ = ["Argument", "DeclaredParameter", "Option"]
