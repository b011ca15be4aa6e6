"""The settings of an installation: one table, with name, unit, default and what each is for.

A row belongs to a part, the value that carries it: the kernel's `Settings`, `EngineSettings`,
`ServerSettings`; or it is for commands, which need it before any of these. "later": the name is
taken, and nothing reads it yet. Where values come from stands in `configuration.py`.
"""

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from msgspec import structs

from handrail.engine.settings import EngineSettings
from handrail.kernel.decision import Value
from handrail.kernel.definition import Settings
from handrail.kernel.reading import UNITS, seconds
from handrail.server.settings import ServerSettings

Part = Literal["kernel", "engine", "server", "command", "later"]
Unit = Literal["seconds", "number", "bytes", "a second", "port", "yes or no", "names", "text"]

PARTS: dict[Part, type[Value]] = {
    "kernel": Settings,
    "engine": EngineSettings,
    "server": ServerSettings,
}
TEN_YEARS = 10 * 365 * 86400.0
NUMBER_MAX = 2**53 - 1
DATABASE = "sqlite:///.handrail/handrail.db"
YES, NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
_WHOLE = re.compile(r"\d{1,16}")


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


def _row(name: str, part: Part, unit: Unit, told: str, least: float = 0) -> Setting:
    field = next(one for one in structs.fields(PARTS[part]) if one.name == name)
    choices = get_args(field.type) if get_origin(field.type) is Literal else ()
    return Setting(name, part, unit, field.default, told, least, choices)


TABLE: tuple[Setting, ...] = (
    Setting(
        "database", "command", "text", DATABASE, "The database: sqlite:///FILE or postgresql://…"
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
    _row("roles", "kernel", "names", "Roles that every definition may use, beside the usual six."),
    _row("role_grace", "kernel", "seconds", "A step may wait so long for an agent of its role."),
    _row("node_timeout", "kernel", "seconds", "A node that names no timeout has this one.", 1),
    _row("queue_timeout", "kernel", "seconds", "A step may wait so long until it is begun.", 1),
    _row("human_deadline", "kernel", "seconds", "People may take so long to answer.", 1),
    _row("pause_deadline", "kernel", "seconds", "A run may be paused so long.", 1),
    _row("guard_silence", "kernel", "seconds", "A guarded program may be silent so long.", 60),
    _row(
        "dispatch_bound_max", "kernel", "number", "A definition that can need more is refused.", 1
    ),
    _row("lease", "engine", "seconds", "An agent silent for so long loses what it has claimed.", 1),
    _row("heartbeat", "engine", "seconds", "How often agents should say that they are alive.", 0.1),
    _row("offline_after", "engine", "seconds", "An agent silent for so long counts as offline.", 1),
    _row("idempotency_keep", "engine", "seconds", "An Idempotency-Key is remembered so long.", 60),
    _row("memory_max", "engine", "number", "So many resolved tickets are remembered.", 1),
    _row(
        "pulse", "engine", "seconds", "How often clocks, leases and messages are looked at.", 0.01
    ),
    _row("store_patience", "engine", "seconds", "A database that is away is waited for so long."),
    _row("turn_timeout", "engine", "seconds", "A turn in a channel may take so long.", 1),
    _row("wait_timeout", "engine", "seconds", "One that waits keeps its turn so long.", 1),
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
    _row("wait_max", "server", "seconds", "The longest that a request waits for something.", 1),
    _row("waiting_max", "server", "number", "Requests that wait, and event streams, at once.", 1),
    _row("connections_max", "server", "number", "Connections at once.", 1),
    _row("body_bytes_max", "server", "bytes", "The longest body of a request.", 1_000),
    _row("rate_limit", "server", "a second", "Requests of one token; five times that at once.", 1),
    _row("failed_tokens", "server", "a second", "Wrong tokens from one address.", 0.01),
    _row("drain", "server", "seconds", "A server that ends takes requests for so long."),
    _row("page", "server", "yes or no", "Whether the page is served."),
    _row("public_url", "server", "text", "Where people reach this server, for links to it."),
    _row("webhook_private", "server", "yes or no", "Whether webhooks may point inside."),
    _row("log_level", "server", "text", "What is logged: this, and what is worse."),
    _row("log_format", "server", "text", "auto: for people on a terminal, else JSON."),
    Setting("commit_lock_stale", "later", "seconds", 300.0, "A silent holder loses its lock.", 1),
)
NAMED: dict[str, Setting] = {setting.name: setting for setting in TABLE}


def read(setting: Setting, given: object) -> Any:  # noqa: ANN401 - of the setting's type
    """The value that was given, as text or as TOML has it; `ValueError` says what is expected."""
    if setting.choices:
        return _one_of(setting.choices, given)
    expected, reader, most = _READERS[setting.unit]
    value = reader(given)
    if value is None:
        raise ValueError(f"give {expected}")
    if most and not setting.least <= value <= most:
        least, most = shown(setting, setting.least), shown(setting, most)
        raise ValueError(f"give {expected}, from {least} to {most}")
    return value


def _one_of(choices: tuple[str, ...], given: object) -> str:
    said = str(given).strip().lower()
    if said not in choices:
        raise ValueError(f"give one of {', '.join(choices)}")
    return said


def shown(setting: Setting, value: Any) -> str:  # noqa: ANN401 - of the setting's type
    """As it may be written in the file, without quotes."""
    match setting.unit:
        case "seconds":
            return _duration(value)
        case "yes or no":
            return YES[0] if value else NO[0]
        case "names":
            return ", ".join(value)
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def _duration(value: float) -> str:
    """The fewest units that say it exactly: 30m, 1h30m, 0.5s."""
    left, parts = value, list[str]()
    for unit in ("d", "h", "m"):
        if left >= UNITS[unit]:
            parts.append(f"{left // UNITS[unit]:.0f}{unit}")
            left %= UNITS[unit]
    return "".join([*parts, f"{left:g}s"] if left or not parts else parts)


def _seconds(given: object) -> float | None:
    return seconds(given) if isinstance(given, str) else _number(given)


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    try:
        return float(given)
    except ValueError:
        return None


def _whole(given: object) -> int | None:
    if isinstance(given, str) and _WHOLE.fullmatch(given.strip()):
        return int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _yes(given: object) -> bool | None:
    said = str(given).strip().lower()
    return True if said in YES else False if said in NO else None


def _names(given: object) -> tuple[str, ...] | None:
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, list):
        return None
    parts = cast("list[object]", given)
    names = [one.strip() for one in parts if isinstance(one, str)]
    return tuple(name for name in names if name) if len(names) == len(parts) else None


def _text(given: object) -> str | None:
    return given if isinstance(given, str) and given.isprintable() else None


_READERS: dict[Unit, tuple[str, Callable[[object], Any], float]] = {
    "seconds": ("seconds, or a duration such as 10m", _seconds, TEN_YEARS),
    "number": ("a whole number", _whole, NUMBER_MAX),
    "bytes": ("a whole number of bytes", _whole, NUMBER_MAX),
    "a second": ("a number", _number, NUMBER_MAX),
    "port": ("the number of a port", _whole, 65_535),
    "yes or no": ("yes or no", _yes, 0),
    "names": ("names, in a list or with commas between", _names, 0),
    "text": ("a line of text", _text, 0),
}
"""Unit: what is expected, how it is read (None: it is not that), and the most it may be; 0: any."""
