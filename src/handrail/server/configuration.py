"""Loads the settings: from flags, else `HANDRAIL_*` variables, else the file `handrail.toml` in the
current folder, else the default.

A wrong value, or an unknown name in the file, is an error that names its origin; nothing starts
with only part of its settings.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.server.setting_table import SETTINGS, SETTINGS_BY_NAME, Part, Setting, parse_setting
from handrail.server.settings import ServerSettings

CONFIG_FILE = "handrail.toml"
FILE_BYTES_MAX = 1_000_000
VARIABLE_PREFIX = "HANDRAIL_"
NON_SETTING_VARIABLES = frozenset({"HANDRAIL_TOKEN"})
"""A secret, set in the environment only."""
ORIGIN_DEFAULT = "default"
RANK_DEFAULT, RANK_FILE, RANK_ENVIRONMENT, RANK_FLAG = range(4)


class BadSettingError(Exception):
    """A setting is invalid; one line says which, where it was set, why, and what to write."""


class SettingValue(NamedTuple):
    """A value and its origin: "default", "handrail.toml", a variable or a flag. The higher rank
    wins."""

    setting: Setting
    value: Any
    origin: str
    rank: int


class Configuration:
    """Every setting with its value and origin."""

    def __init__(self, values: dict[str, SettingValue]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of the setting's type
        return self.values[name].value

    @property
    def engine(self) -> EngineSettings:
        return EngineSettings(
            kernel=Settings(**self._values_of("kernel")), **self._values_of("engine")
        )

    @property
    def server(self) -> ServerSettings:
        origins = {
            name: value.origin for name, value in self.values.items() if value.rank != RANK_DEFAULT
        }
        return ServerSettings(origins=origins, **self._values_of("server"))

    def _values_of(self, part: Part) -> dict[str, Any]:
        return {
            setting.name: self.values[setting.name].value
            for setting in SETTINGS
            if setting.part == part
        }


def load_configuration(
    environment: Mapping[str, str],
    folder: Path,
    flags: Mapping[str, object] | None = None,
) -> Configuration:
    """Load all settings. Flags that are None do not count."""
    values = {s.name: SettingValue(s, s.default, ORIGIN_DEFAULT, RANK_DEFAULT) for s in SETTINGS}
    for name, value in _load_file(folder / CONFIG_FILE).items():
        values[name] = SettingValue(
            SETTINGS_BY_NAME[name],
            _parse_value(name, value, f"{CONFIG_FILE}: {name}"),
            CONFIG_FILE,
            RANK_FILE,
        )
    for setting in SETTINGS:
        name, variable = setting.name, setting.variable
        if text := environment.get(variable, ""):
            values[name] = SettingValue(
                setting, _parse_value(name, text, variable), variable, RANK_ENVIRONMENT
            )
    for name, value in (flags or {}).items():
        flag = f"--{name.replace('_', '-')}"
        if value is not None:
            values[name] = SettingValue(
                SETTINGS_BY_NAME[name], _parse_value(name, value, flag), flag, RANK_FLAG
            )
    configuration = Configuration(values)
    _check_consistency(configuration)
    return configuration


def find_misspelled_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a message for each variable that looks like a misspelled setting."""
    known_variables = {setting.variable for setting in SETTINGS} | NON_SETTING_VARIABLES
    messages: list[str] = []
    for name in sorted(name for name in environment if name.startswith(VARIABLE_PREFIX)):
        closest = _closest_name(name.removeprefix(VARIABLE_PREFIX).lower(), SETTINGS_BY_NAME)
        if name not in known_variables and closest:
            messages.append(
                f"{name} is no setting; did you mean {SETTINGS_BY_NAME[closest].variable}?"
            )
    return messages


def _parse_value(name: str, value: object, origin: str) -> Any:  # noqa: ANN401 - of the setting's type
    try:
        return parse_setting(SETTINGS_BY_NAME[name], value)
    except ValueError as error:
        raise BadSettingError(f"{origin} is {str(value)[:80]!r}; {error}") from None


def _load_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadSettingError(
            f"{CONFIG_FILE} cannot be read: {error.strerror}; make it readable"
        ) from None
    try:
        if len(text) > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX:,} bytes")
        document = tomllib.loads(text.decode())
    except ValueError as error:
        raise BadSettingError(
            f"{CONFIG_FILE} is no TOML: {error}; write lines such as lease = '60s'"
        ) from None
    for name in document:
        if name not in SETTINGS_BY_NAME:
            closest = _closest_name(name, SETTINGS_BY_NAME)
            hint = f"did you mean '{closest}'?" if closest else "`handrail settings` lists them all"
            raise BadSettingError(f"{CONFIG_FILE}: there is no setting {name[:80]!r}; {hint}")
    return document


def _closest_name(name: str, candidates: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(name, list(candidates), n=1)), "")


def _check_consistency(configuration: Configuration) -> None:
    """Check settings against each other."""
    for longer in ("lease", "offline_after"):
        if configuration["heartbeat"] >= configuration[longer]:
            message = " and ".join(
                f"{name} is {configuration[name]:g} s" for name in ("heartbeat", longer)
            )
            raise BadSettingError(
                f"{message}; agents would be lost between two heartbeats, make heartbeat shorter"
            )
