"""The command line without the extra `server`: `guard`, `replay --traces` and `hook`.

They need msgspec alone. Typer reads the parameters of a command where it is installed; here
argparse is told the same declarations. What turns out to need a package of the extra, such as a
server to record on or rules in YAML, says the line that installs it.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Container
from importlib import import_module
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from handrail.cli.command import EXIT_WRONG_INPUT, execute
from handrail.cli.parameters import DeclaredParameter
from handrail.engine.errors import install_hint

COMMANDS = ("guard", "replay")
HELP = """\
  handrail guard MODULE:OBJECT     runs an existing team under guard, unchanged
  handrail replay --traces FILE…   judges runs that other programs recorded
  handrail hook                    answers the hooks of coding agents
The other commands need the extra `server`;"""


def main(arguments: list[str], packages: Container[str]) -> int:
    """Run the command; return the exit code. `packages` are those of the extra."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(HELP, install_hint("server"))
        return 0
    if name not in COMMANDS:
        return _refuse(name, "this needs the extra `server`")
    try:
        command = getattr(import_module(f"handrail.cli.{name}"), name)
        values = vars(make_parser(command).parse_args(rest))
        return execute(lambda: command(**values), lambda: name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        return _refuse(name, f"this needs '{error.name}' of the extra `server`")


def _refuse(name: str, message: str) -> int:
    print(f"handrail {name}: {message}; {install_hint('server')}", file=sys.stderr)
    return EXIT_WRONG_INPUT


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_WRONG_INPUT, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def make_parser(command: Callable[..., object]) -> argparse.ArgumentParser:
    """Make a parser of what the command's signature declares."""
    parser = _Parser(
        prog=f"handrail {command.__name__}", description=inspect.getdoc(command), allow_abbrev=False
    )
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        _add_parameter(parser, parameter, *get_args(hints[parameter.name]))
    return parser


def _add_parameter(
    parser: argparse.ArgumentParser,
    parameter: inspect.Parameter,
    kind: Any,  # noqa: ANN401 - an annotation
    declared: DeclaredParameter,
) -> None:
    if get_origin(kind) in (Union, UnionType):  # … | None
        kind = get_args(kind)[0]
    how: dict[str, Any] = {"help": declared.help.replace("%", "%%")}
    if declared.is_option:
        how |= {"dest": parameter.name, "default": parameter.default}
    if kind is bool:
        how["action"] = "store_true"
    elif get_origin(kind) is Literal:
        how["choices"] = get_args(kind)
    else:
        how["metavar"] = declared.metavar
    if get_origin(kind) is list:
        how["nargs"] = "*"
    option = f"--{parameter.name.replace('_', '-')}"
    names = (declared.flags or (option,)) if declared.is_option else (parameter.name,)
    parser.add_argument(*names, **how)
