"""A service that is healed, as its operator describes it: where its code is, how it is tested, and
how a request that failed can be made again.

Nothing of this comes from a bead, an agent or the repository: they would choose what is run.
"""

from pathlib import Path

import msgspec
import yaml

from handrail.commits import Copies, Lane, Repository
from handrail.kernel.decision import Value, learn
from handrail.kernel.definition import Constraints

GUARDED = (".git", ".githooks")


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
    def copies(self) -> Copies:
        return Copies(self.repository, Path(self.home) / "copies")

    @property
    def lane(self) -> Lane:
        return Lane(self.repository, Path(self.home) / "lane")

    @property
    def constraints(self) -> Constraints:
        """What no repair may touch. A folder of the lane's own rules is refused there as well."""
        hooks = (self.repository.hooks_within,) if self.repository.hooks_within else ()
        named = (*GUARDED, *hooks, *self.repository.protected)
        return Constraints(paths=tuple(one.rstrip("/") for one in dict.fromkeys(named)))


learn(Service)


def read_service(file: Path | str) -> Service:
    """The service that a YAML file describes. Raises `ValueError`, which says what is wrong."""
    place = Path(file)
    try:
        found = yaml.safe_load(place.read_text(encoding="utf-8"))
        return msgspec.convert(found, Service)
    except OSError as error:
        raise ValueError(f"'{place}' cannot be read: {error.strerror}; name a file") from None
    except (yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        told = f"'{place}' describes no service: {error}"
        raise ValueError(f"{told}; docs/healing.md shows one that does") from None
