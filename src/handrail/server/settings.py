"""The settings of the server, beside those of engine and kernel. Times are in seconds.

The settings of an installation: one table with name, unit, default and purpose of each.

A row belongs to a part: the kernel's `Settings`, `EngineSettings`, `ServerSettings`, or commands,
which need the value before any of these. "later": the name is reserved, and nothing reads it yet.
`configuration.py` loads the values.

Loads the settings: from flags, else `HANDRAIL_*` variables, else the file `handrail.toml` in the
current folder, else the default.

A wrong value, or an unknown name in the file, is an error that names its origin; nothing starts
with only part of its settings.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from msgspec import structs

from handrail.engine.settings import EngineSettings
from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.reader import DURATION_UNITS, parse_duration
from handrail.kernel.stop.budgets import parse_budget

LogFormat = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class ServerSettings(Value):
    wait_max: float = 60
    """The longest that a request may wait for an event."""
    waiting_max: int = 5_000
    """Waiting requests and event streams at once; further ones are answered 503."""
    connections_max: int = 10_000
    """Connections at once; further ones are answered 503 and closed."""
    body_bytes_max: int = 10 * 1024 * 1024
    rate_limit: float = 1_000
    """Requests a second of one token; five times as many at once."""
    failed_tokens: float = 2
    """Requests a second with a wrong token from one address; five seconds' worth at once."""
    drain: float = 2
    """How long a server that shuts down still takes requests, while /readyz reports it."""
    page: bool = True
    public_url: str = ""
    """The URL at which people reach this server, for links in deliveries; without a slash."""
    webhook_private: bool = False
    """Whether webhooks may point to internal addresses, and use plain http."""
    log_format: LogFormat = "auto"
    """`auto`: console format on a terminal, else JSON."""
    log_level: LogLevel = "info"
    origins: dict[str, str] = {}
    """Origins of settings by name, for `GET /settings`; a missing name is a default."""


Part = Literal["kernel", "engine", "server", "command", "later"]
Unit = Literal["seconds", "number", "bytes", "a second", "port", "yes or no", "names", "text"]

PARTS: dict[Part, type[Value]] = {
    "kernel": Settings,
    "engine": EngineSettings,
    "server": ServerSettings,
}
TEN_YEARS_SECONDS = 10 * 365 * 86400.0
NUMBER_MAX = 2**53 - 1
DATABASE_DEFAULT = "sqlite:///.handrail/handrail.db"
YES_WORDS, NO_WORDS = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
_WHOLE_NUMBER = re.compile(r"\d{1,16}")


class Setting(NamedTuple):
    name: str
    part: Part
    unit: Unit
    default: Any
    help: str
    least: float = 0
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        return f"HANDRAIL_{self.name.upper()}"


def _setting_of(name: str, part: Part, unit: Unit, help_text: str, least: float = 0) -> Setting:
    field = next(
        struct_field for struct_field in structs.fields(PARTS[part]) if struct_field.name == name
    )
    choices = get_args(field.type) if get_origin(field.type) is Literal else ()
    return Setting(name, part, unit, field.default, help_text, least, choices)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "database",
        "command",
        "text",
        DATABASE_DEFAULT,
        "The database: sqlite:///FILE or postgresql://…",
    ),
    Setting(
        "server",
        "command",
        "text",
        "",
        "The server to ask instead of a database: http://HOST:PORT.",
    ),
    Setting("host", "command", "text", "127.0.0.1", "The address that a server listens on."),
    Setting(
        "port", "command", "port", 8080, "The port that a server listens on; 0 takes a free one."
    ),
    Setting(
        "model",
        "command",
        "text",
        "",
        "The language model of the built-in teams, PROVIDER:MODEL; without one they work by rules.",
    ),
    Setting(
        "record_texts",
        "command",
        "text",
        "digests",
        "What is recorded of the texts of a program under `handrail guard`: digests, or full.",
        choices=("digests", "full"),
    ),
    _setting_of(
        "roles", "kernel", "names", "Roles that every definition may use, beside the usual six."
    ),
    _setting_of(
        "role_grace", "kernel", "seconds", "A step may wait so long for an agent of its role."
    ),
    _setting_of(
        "node_timeout", "kernel", "seconds", "A node that names no timeout has this one.", 1
    ),
    _setting_of(
        "queue_timeout", "kernel", "seconds", "A step may wait so long until it is begun.", 1
    ),
    _setting_of("human_deadline", "kernel", "seconds", "People may take so long to answer.", 1),
    _setting_of("pause_deadline", "kernel", "seconds", "A run may be paused so long.", 1),
    _setting_of(
        "wait_deadline",
        "kernel",
        "seconds",
        "Agents may wait so long for something outside of a run, from their first wait on.",
        1,
    ),
    _setting_of(
        "guard_silence", "kernel", "seconds", "A guarded program may be silent so long.", 60
    ),
    _setting_of(
        "dispatch_bound_max", "kernel", "number", "A definition that can need more is refused.", 1
    ),
    _setting_of(
        "lease", "engine", "seconds", "An agent silent for so long loses what it has claimed.", 1
    ),
    _setting_of(
        "heartbeat", "engine", "seconds", "How often agents should say that they are alive.", 0.1
    ),
    _setting_of(
        "offline_after", "engine", "seconds", "An agent silent for so long counts as offline.", 1
    ),
    _setting_of(
        "idempotency_keep", "engine", "seconds", "An Idempotency-Key is remembered so long.", 60
    ),
    _setting_of(
        "budgets",
        "engine",
        "names",
        "Budgets that runs share: 'support = 20 cost a day', 'all = 5000000 tokens a month'.",
    ),
    _setting_of("memory_max", "engine", "number", "So many resolved tickets are remembered.", 1),
    _setting_of(
        "pulse", "engine", "seconds", "How often clocks, leases and messages are looked at.", 0.01
    ),
    _setting_of(
        "store_patience", "engine", "seconds", "A database that is away is waited for so long."
    ),
    _setting_of("turn_timeout", "engine", "seconds", "A turn in a channel may take so long.", 1),
    _setting_of("wait_timeout", "engine", "seconds", "One that waits keeps its turn so long.", 1),
    Setting(
        "runs_folder",
        "engine",
        "text",
        ".handrail/runs",
        "Where the report of every run that ended is written; - for nowhere.",
    ),
    Setting(
        "issues_file",
        "engine",
        "text",
        ".handrail/issues.md",
        "Where an entry is added for every run that was aborted; - for nowhere.",
    ),
    Setting(
        "workspaces",
        "command",
        "names",
        (),
        "Folders in which the built-in coding team may work and run commands.",
    ),
    Setting(
        "service",
        "command",
        "text",
        "",
        "A file that describes the service whose errors the built-in agents mend.",
    ),
    _setting_of(
        "wait_max", "server", "seconds", "The longest that a request waits for something.", 1
    ),
    _setting_of(
        "waiting_max", "server", "number", "Requests that wait, and event streams, at once.", 1
    ),
    _setting_of("connections_max", "server", "number", "Connections at once.", 1),
    _setting_of("body_bytes_max", "server", "bytes", "The longest body of a request.", 1_000),
    _setting_of(
        "rate_limit", "server", "a second", "Requests of one token; five times that at once.", 1
    ),
    _setting_of("failed_tokens", "server", "a second", "Wrong tokens from one address.", 0.01),
    _setting_of("drain", "server", "seconds", "A server that ends takes requests for so long."),
    _setting_of("page", "server", "yes or no", "Whether the page is served."),
    _setting_of("public_url", "server", "text", "Where people reach this server, for links to it."),
    _setting_of("webhook_private", "server", "yes or no", "Whether webhooks may point inside."),
    _setting_of("log_level", "server", "text", "What is logged: this, and what is worse."),
    _setting_of("log_format", "server", "text", "auto: for people on a terminal, else JSON."),
    Setting("commit_lock_stale", "later", "seconds", 300.0, "A silent holder loses its lock.", 1),
)
SETTINGS_BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}


def parse_setting(setting: Setting, raw: object) -> Any:  # noqa: ANN401 - of the setting's type
    """Return the value of a text or TOML value; `ValueError` says what is expected."""
    if setting.choices:
        return _parse_choice(setting.choices, raw)
    expected, parse, maximum = _PARSERS[setting.unit]
    value = parse(raw)
    if value is None:
        raise ValueError(f"give {expected}")
    if maximum and not setting.least <= value <= maximum:
        minimum, maximum = format_setting(setting, setting.least), format_setting(setting, maximum)
        raise ValueError(f"give {expected}, from {minimum} to {maximum}")
    return value


def _parse_choice(choices: tuple[str, ...], raw: object) -> str:
    text = str(raw).strip().lower()
    if text not in choices:
        raise ValueError(f"give one of {', '.join(choices)}")
    return text


def format_setting(setting: Setting, value: Any) -> str:  # noqa: ANN401 - of the setting's type
    """Return the value as written in the file, without quotes."""
    match setting.unit:
        case "seconds":
            return _format_duration(value)
        case "yes or no":
            return YES_WORDS[0] if value else NO_WORDS[0]
        case "names":
            return ", ".join(value)
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def _format_duration(value: float) -> str:
    """Return the shortest exact form: 30m, 1h30m, 0.5s."""
    remaining, parts = value, list[str]()
    for unit in ("d", "h", "m"):
        if remaining >= DURATION_UNITS[unit]:
            parts.append(f"{remaining // DURATION_UNITS[unit]:.0f}{unit}")
            remaining %= DURATION_UNITS[unit]
    return "".join([*parts, f"{remaining:g}s"] if remaining or not parts else parts)


def _parse_seconds(raw: object) -> float | None:
    return parse_duration(raw) if isinstance(raw, str) else _parse_number(raw)


def _parse_number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    try:
        return float(raw)
    except ValueError:
        return None


def _parse_whole_number(raw: object) -> int | None:
    if isinstance(raw, str) and _WHOLE_NUMBER.fullmatch(raw.strip()):
        return int(raw)
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else None


def _parse_yes_or_no(raw: object) -> bool | None:
    text = str(raw).strip().lower()
    return True if text in YES_WORDS else False if text in NO_WORDS else None


def _parse_names(raw: object) -> tuple[str, ...] | None:
    if isinstance(raw, str):
        raw = raw.split(",")
    if not isinstance(raw, list):
        return None
    parts = cast("list[object]", raw)
    names = [part.strip() for part in parts if isinstance(part, str)]
    return tuple(name for name in names if name) if len(names) == len(parts) else None


def _parse_text(raw: object) -> str | None:
    return raw if isinstance(raw, str) and raw.isprintable() else None


_PARSERS: dict[Unit, tuple[str, Callable[[object], Any], float]] = {
    "seconds": ("seconds, or a duration such as 10m", _parse_seconds, TEN_YEARS_SECONDS),
    "number": ("a whole number", _parse_whole_number, NUMBER_MAX),
    "bytes": ("a whole number of bytes", _parse_whole_number, NUMBER_MAX),
    "a second": ("a number", _parse_number, NUMBER_MAX),
    "port": ("the number of a port", _parse_whole_number, 65_535),
    "yes or no": ("yes or no", _parse_yes_or_no, 0),
    "names": ("names, in a list or with commas between", _parse_names, 0),
    "text": ("a line of text", _parse_text, 0),
}
"""By unit: the expected form, the parser (None: invalid), and the maximum (0: none)."""


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
                f"{name} is not a setting; did you mean {SETTINGS_BY_NAME[closest].variable}?"
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
            raise ValueError(f"the file has more than {FILE_BYTES_MAX:,} bytes")
        document = tomllib.loads(text.decode())
    except ValueError as error:
        raise BadSettingError(
            f"{CONFIG_FILE} is not valid TOML: {error}; write lines such as lease = '60s'"
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
    for text in configuration["budgets"]:
        try:
            parse_budget(text)
        except ValueError as error:
            raise BadSettingError(f"budgets: {error}") from None
    for longer in ("lease", "offline_after"):
        if configuration["heartbeat"] >= configuration[longer]:
            message = " and ".join(
                f"{name} is {configuration[name]:g} s" for name in ("heartbeat", longer)
            )
            raise BadSettingError(
                f"{message}; agents would count as lost between two heartbeats; "
                "make heartbeat shorter"
            )
