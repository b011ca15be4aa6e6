"""The settings of an installation: one table with name, unit, default and purpose of each.

A row belongs to a part: the kernel's `Settings`, `EngineSettings`, `ServerSettings`, or commands,
which need the value before any of these. "later": the name is reserved, and nothing reads it yet.
`configuration.py` loads the values.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from msgspec import structs

from handrail.engine.settings import EngineSettings
from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.reader import DURATION_UNITS, parse_duration
from handrail.server.settings import ServerSettings

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
