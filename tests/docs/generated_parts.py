"""The parts of the documentation that the code writes: options, calls, methods, findings, rules.

    uv run python -m tests.docs.generated_parts

puts them into their pages; `test_reference.py` asks whether they stand there. Whatever has to be
explained is written by people, around these parts.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from tests.server.calls import ACCESS_TABLE
from typer.main import get_command

from handrail.api.calls import OPERATIONS
from handrail.api.openapi import openapi_document
from handrail.api.operation import API_PREFIX, Access, Operation
from handrail.api.runs import RunCalls
from handrail.cli.app import app
from handrail.engine.audit.doctor import INVARIANTS
from handrail.kernel.definition.limits import LIMITS, PROFILES, Constraints, Ladder, StopRules
from handrail.kernel.stop.rules import RULES, terminal_status_of
from handrail.views.diagrams import UNFORCED_STATUSES

ROOT = Path(__file__).resolve().parents[2]
USUAL = {400, 401, 403, 413, 422, 429, 503}
"""Every call may answer so; docs/api.md says it once."""
PAGING = ("cursor", "limit")
"""What every list takes: said once, too."""
LONG = 60
"""Characters of a shape that is told once, at the first call that answers with it."""
GLOBAL = ("--install-completion", "--show-completion", "--help")


def commands(command: Any = None, name: str = "handrail") -> Iterator[tuple[str, Any]]:
    """Every command of the command line by its whole name, groups as well if they do something."""
    command = command or get_command(app)
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield name, command
    for one, below in inner.items():
        yield from commands(below, f"{name} {one}")


def options() -> str:
    """A table of every command's arguments and options, with the words of its help."""
    rows = ["| command | option | what it is |", "|---|---|---|"]
    for name, command in commands():
        for one in command.params:
            shown = f"`{', '.join(one.opts)}`" if one.param_type_name == "option" else ""
            if set(one.opts) & set(GLOBAL):
                continue
            told = (one.help or "").replace("|", "\\|")
            rows.append(
                f"| `{name}` | {shown or f'`{one.metavar or one.name.upper()}`'} | {told} |"
            )
    return "\n".join(rows) + "\n"


def findings() -> str:
    """What `handrail doctor` can find, and what to do about it."""
    rows = [f"| `{code}` | {means} | {remedy} |" for code, (means, remedy) in INVARIANTS.items()]
    return "\n".join(("| code | what was found | do |", "|---|---|---|", *rows)) + "\n"


def methods() -> str:
    """Every method of both clients, with its arguments."""
    rows = list[str]()
    for one in (*OPERATIONS, RunCalls.get_report_markdown):
        told = " ".join(one.doc.split()).replace("|", "\\|")
        rows.append(f"| `{one.name}({_arguments(one)})` | {told} |")
    return "\n".join(("| method | what it does |", "|---|---|", *sorted(rows))) + "\n"


def _arguments(operation: Operation[..., Any]) -> str:
    """Those that may be left out with an `=`."""
    given = operation.signature.parameters.values()
    return ", ".join(f"{one.name}=" if one.default is not one.empty else one.name for one in given)


def access() -> str:
    """Who may make which call, and what it is limited to."""
    rows = [
        f"| `{method} {path}` | {_callers(who)} | {who.restriction} |"
        for (method, path), who in ACCESS_TABLE.items()
    ]
    return "\n".join(("| call | who | limited to |", "|---|---|---|", *rows)) + "\n"


def _callers(who: Access) -> str:
    roles = [who.people or "", "agent" if who.agents else "", "reporter" if who.reporters else ""]
    return "anybody" if who.open else ", ".join(filter(None, roles))


def calls() -> str:
    """Every call: what it does, what it takes, what it answers."""
    schema, seen = openapi_document(), dict[str, str]()
    return "\n".join(
        "\n".join(_call(schema, f"{method.upper()} {path.removeprefix(API_PREFIX)}", call, seen))
        for path, methods in sorted(schema["paths"].items())
        for method, call in methods.items()
    )


def _call(
    schema: dict[str, Any], name: str, call: dict[str, Any], seen: dict[str, str]
) -> Iterator[str]:
    yield f"### `{name}`\n"
    yield " ".join(call.get("description", "").split()) + "\n"
    given = [one for one in call.get("parameters", ()) if one["in"] != "path"]
    if asked := [one for one in given if one["name"] not in PAGING]:
        yield f"- query: {', '.join(map(_parameter, asked))}"
    body = next(iter(call.get("requestBody", {}).get("content", {}).values()), None)
    if body is not None:
        yield f"- body: {_shape(schema, body['schema'])}"
    for status, answer in sorted(call["responses"].items()):
        if int(status) < 300:
            held = next(iter(answer.get("content", {}).values()), None)
            told = _shape(schema, held["schema"]).replace("**", "") if held else "nothing"
            first = seen.setdefault(told, name) if len(told) > LONG else name
            yield f"- {status}: {told if first == name else f'as `{first}`'}"
    others = sorted(int(status) for status in call["responses"] if int(status) >= 300)
    if special := [status for status in others if status not in USUAL]:
        yield f"- also {', '.join(map(str, special))}"
    yield ""


def _parameter(one: dict[str, Any]) -> str:
    told = " ".join(one.get("description", "").split()).rstrip(".")
    return f"`{one['name']}`" + (f" ({told})" if told else "")


def _shape(schema: dict[str, Any], of: dict[str, Any]) -> str:
    """The fields of an object, those that are needed in bold; else what it is."""
    name = of.get("$ref", "").rpartition("/")[2]
    found = schema["components"]["schemas"].get(name, of)
    if held := found.get("properties"):
        needed = set(found.get("required", ()))
        if {"items", "next_cursor"} <= set(held):
            return f"a page; each item: {_shape(schema, held['items']['items'])}"
        return ", ".join(f"**`{one}`**" if one in needed else f"`{one}`" for one in held)
    kinds = [_shape(schema, one) for key in ("oneOf", "anyOf") for one in found.get(key, ())]
    if kinds:
        return " or ".join(dict.fromkeys(kinds))
    if found.get("type") == "array":
        return f"a list of {_shape(schema, found['items'])}"
    return {"object": "an object", "string": "a text", "null": "nothing"}.get(
        found.get("type", ""), "anything"
    )


def stop_rules() -> str:
    """Why a run ends: every stop rule in the order of precedence."""
    rows = ["| rule | the run ends because | as | set by |", "|---|---|---|---|"]
    for row in RULES:
        status = UNFORCED_STATUSES.get(row.rule) or (
            f"{terminal_status_of(row.rule, goal_met=False)}{' *' * row.may_be_partial}"
        )
        status = re.sub(r"\w+_\w+", r"`\g<0>`", status)
        fields = ", ".join(f"`{name}`" for name in (row.limit, *row.settings) if name)
        rows.append(f"| `{row.rule}` | {row.cause} | {status} | {fields} |")
    return "\n".join(rows) + "\n"


def limits() -> str:
    """The fields of `stop_rules`, with the figure that each profile fills in."""
    profiles = list(PROFILES.values())
    rows = [
        f"| field | {' | '.join(PROFILES)} | ends the run when |",
        "|---|" + "---|" * len(profiles) + "---|",
    ]
    for name in StopRules.__struct_fields__:
        figures = [_figure(name, getattr(profile, name)) for profile in profiles]
        rows.append(f"| `{name}` | {' | '.join(figures)} | {LIMITS[name].meaning} |")
    return "\n".join(rows) + "\n"


def _figure(name: str, value: object) -> str:
    if name == "profile":
        return ""
    if name in ("max_duration", "wait_deadline") and isinstance(value, int):
        return f"{value // 60}m"
    if value in ({}, ()):
        return "none"
    if isinstance(value, Ladder):
        return ", ".join(name for name, on in asdict(value).items() if on)
    return {None: "off", Constraints(): "none"}.get(value, str(value))


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "options": ("docs/cli.md", options),
    "calls": ("docs/api.md", calls),
    "methods": ("docs/client.md", methods),
    "access": ("docs/access.md", access),
    "findings": ("docs/errors.md", findings),
    "stop rules": ("docs/statuses.md", stop_rules),
    "limits": ("docs/definitions.md", limits),
}
"""Name of the part, the page it stands on, what writes it."""


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: generated -->\n\n", f"\n<!-- end of {name} -->"


def with_part(text: str, name: str, part: str) -> str:
    """The page with this part in its place."""
    begin, end = marks(name)
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{part}{end}{after}"


if __name__ == "__main__":
    for part, (page, write) in PARTS.items():
        file = ROOT / page
        file.write_text(with_part(file.read_text(encoding="utf-8"), part, write()), "utf-8")
