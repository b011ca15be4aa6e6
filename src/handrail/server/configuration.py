"""Where the value of a setting comes from: flags, else `HANDRAIL_*` variables, else the file
`handrail.toml` in the current folder, else its default.

A wrong value or an unknown name in the file is an error that names the place; nothing starts with
half of its settings.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from handrail.engine.settings import EngineSettings
from handrail.kernel.definition import Settings
from handrail.server.setting_table import NAMED, TABLE, Part, Setting, read
from handrail.server.settings import ServerSettings

FILE = "handrail.toml"
FILE_BYTES_MAX = 1_000_000
PREFIX = "HANDRAIL_"
NOT_SETTINGS = frozenset({"HANDRAIL_TOKEN"})
"""A secret stands in the environment alone."""
DEFAULT = "default"
BY_DEFAULT, IN_FILE, IN_ENVIRONMENT, AS_FLAG = range(4)


class BadSetting(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """One line: which setting, where it is given, what is wrong with it, and what to write."""


class Given(NamedTuple):
    """A value and its origin: "default", "handrail.toml", a variable or a flag. Of two values the
    one with the higher rank counts."""

    setting: Setting
    value: Any
    origin: str
    rank: int


class Configuration:
    """Every setting with its value and where it came from."""

    def __init__(self, given: dict[str, Given]) -> None:
        self.given = given

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of the setting's type
        return self.given[name].value

    @property
    def engine(self) -> EngineSettings:
        return EngineSettings(kernel=Settings(**self._values("kernel")), **self._values("engine"))

    @property
    def server(self) -> ServerSettings:
        origins = {name: one.origin for name, one in self.given.items() if one.rank != BY_DEFAULT}
        return ServerSettings(origins=origins, **self._values("server"))

    def _values(self, part: Part) -> dict[str, Any]:
        return {s.name: self.given[s.name].value for s in TABLE if s.part == part}


def configured(
    environment: Mapping[str, str],
    folder: Path,
    flags: Mapping[str, object] | None = None,
) -> Configuration:
    """All settings. Of the flags those that are not None count."""
    given = {s.name: Given(s, s.default, DEFAULT, BY_DEFAULT) for s in TABLE}
    for name, value in _file(folder / FILE).items():
        given[name] = Given(NAMED[name], _read(name, value, f"{FILE}: {name}"), FILE, IN_FILE)
    for setting in TABLE:
        name, variable = setting.name, setting.variable
        if text := environment.get(variable, ""):
            given[name] = Given(setting, _read(name, text, variable), variable, IN_ENVIRONMENT)
    for name, value in (flags or {}).items():
        flag = f"--{name.replace('_', '-')}"
        if value is not None:
            given[name] = Given(NAMED[name], _read(name, value, flag), flag, AS_FLAG)
    found = Configuration(given)
    _agree(found)
    return found


def strangers(environment: Mapping[str, str]) -> list[str]:
    """Variables that are no setting and look like one, each with what may be meant."""
    known = {setting.variable for setting in TABLE} | NOT_SETTINGS
    found: list[str] = []
    for name in sorted(name for name in environment if name.startswith(PREFIX)):
        meant = _near(name.removeprefix(PREFIX).lower(), NAMED)
        if name not in known and meant:
            found.append(f"{name} is no setting; did you mean {NAMED[meant].variable}?")
    return found


def _read(name: str, value: object, place: str) -> Any:  # noqa: ANN401 - of the setting's type
    try:
        return read(NAMED[name], value)
    except ValueError as error:
        raise BadSetting(f"{place} is {str(value)[:80]!r}; {error}") from None


def _file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadSetting(f"{FILE} cannot be read: {error.strerror}; make it readable") from None
    try:
        if len(text) > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX:,} bytes")
        document = tomllib.loads(text.decode())
    except ValueError as error:
        raise BadSetting(f"{FILE} is no TOML: {error}; write lines such as lease = '60s'") from None
    for name in document:
        if name not in NAMED:
            meant = _near(name, NAMED)
            hint = f"did you mean '{meant}'?" if meant else "`handrail settings` lists them all"
            raise BadSetting(f"{FILE}: there is no setting {name[:80]!r}; {hint}")
    return document


def _near(name: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def _agree(found: Configuration) -> None:
    """What two settings must have to do with each other."""
    for longer in ("lease", "offline_after"):
        if found["heartbeat"] >= found[longer]:
            told = " and ".join(f"{name} is {found[name]:g} s" for name in ("heartbeat", longer))
            raise BadSetting(
                f"{told}; agents would be lost between two heartbeats, make heartbeat shorter"
            )
