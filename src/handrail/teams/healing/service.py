"""A service to be healed, as its operator describes it: where its code is, how it is tested, and
how a failed request can be repeated.

Nothing of this comes from a bead, an agent or the repository: they would choose what is run.
"""

from pathlib import Path

import msgspec
import yaml

from handrail.commits import CommitLane, Repository, WorkingCopies
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.limits import Constraints

GUARDED_PATHS = (".git", ".githooks")


class Service(Value, forbid_unknown_fields=True):
    """`home` is a folder of Handrail's own; working copies of beads lie there, and the lane.

    `app` names a WSGI app ("shop.app:app") that is asked again what failed, and `examples` a file
    of the repository that says what it answers. `tests` is the command that runs all tests; "" for
    the one that fits what is there. `reverts`: a pushed commit whose run does not end well is taken
    back.
    """

    repository: Repository
    home: str
    app: str = ""
    examples: str = "examples.json"
    tests: str = ""
    reverts: bool = True

    @property
    def working_copies(self) -> WorkingCopies:
        return WorkingCopies(self.repository, Path(self.home) / "copies")

    @property
    def lane(self) -> CommitLane:
        return CommitLane(self.repository, Path(self.home) / "lane")

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
        return msgspec.convert(document, Service)
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}; name a file") from None
    except (yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        message = f"'{path}' describes no service: {error}"
        raise ValueError(f"{message}; docs/healing.md shows one that does") from None
