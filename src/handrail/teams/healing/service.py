"""A service to be healed, as its operator describes it: where its code is, how it is tested, and
how a failed request can be repeated.

Nothing of this comes from a bead, an agent or the repository: they would choose what is run.
"""

import os
import shlex
from pathlib import Path

import msgspec
import yaml
from msgspec.structs import replace

from handrail.commits import CommitLane, Repository, WorkingCopies
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.limits import Constraints

GUARDED_PATHS = (".git", ".githooks")
PYTHON_TEST_COMMANDS = ("python -m unittest", "python -m pytest")


class Service(Value, forbid_unknown_fields=True):
    """`home` is a folder of Handrail's own; working copies of beads lie there, and the lane.

    `app` names a WSGI or ASGI app ("shop.app:app") that is asked again what failed, and `examples`
    a file of the repository that says what it answers. `tests` is the command that runs all tests;
    "" for the one that fits what is there. `python` is what runs the service's Python, with its
    packages: an interpreter, or a command ("uv run python"); "" for the one that runs Handrail.
    `test_commands` are what a bead's own test may begin with, besides Python's ("npm test").
    `reverts`: a pushed commit whose run does not end well is taken back.
    """

    repository: Repository
    home: str
    app: str = ""
    examples: str = "examples.json"
    tests: str = ""
    python: str = ""
    test_commands: tuple[str, ...] = ()
    reverts: bool = True

    @property
    def working_copies(self) -> WorkingCopies:
        return WorkingCopies(self.repository, Path(self.home) / "copies")

    @property
    def lane(self) -> CommitLane:
        return CommitLane(self.repository, Path(self.home) / "lane")

    @property
    def python_command(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.python))

    @property
    def constraints(self) -> Constraints:
        """What no repair may touch. A folder of the lane's own rules is refused there as well."""
        hooks = (
            (self.repository.tracked_hooks_folder,) if self.repository.tracked_hooks_folder else ()
        )
        guarded = (*GUARDED_PATHS, *hooks, *self.repository.protected)
        return Constraints(paths=tuple(path.rstrip("/") for path in dict.fromkeys(guarded)))


prepare_types(Service)


def read_service(file: Path | str) -> Service:
    """Read the service from a YAML file. Raises `ValueError`, which says what is wrong."""
    path = Path(file)
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        service = msgspec.convert(document, Service)
        return replace(service, python=_find_python(service, path.parent))
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}; name a file") from None
    except (yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        message = f"'{path}' describes no service: {error}"
        raise ValueError(f"{message}; docs/healing.md shows one that does") from None


def _find_python(service: Service, folder: Path) -> str:
    """Return the command of Python; a path in it begins at the folder of the service's file."""
    program, *arguments = service.python_command or ("",)
    if "/" not in program:
        return service.python
    interpreter = Path(os.path.abspath(folder / program))  # noqa: PTH100 - a link stays one: it makes the environment
    if not os.access(interpreter, os.X_OK):
        raise ValueError(
            f"`python` is '{interpreter}', which is no program; name the service's own"
        )
    return shlex.join((str(interpreter), *arguments))
