"""`handrail heal`: describe a service, and check that it can be healed."""

from pathlib import Path
from typing import Annotated

import typer

from handrail.cli import output
from handrail.cli.arguments import AsJson
from handrail.cli.command import InputError, as_input_error
from handrail.cli.command_group import command_group
from handrail.cli.connection import load_settings

SERVICE_FILE = "service.yaml"
Folder = Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The service's folder.")]

heal = command_group("Describe a service to heal, and check that it can be.")


@heal.command()
def init(folder: Folder = Path()) -> None:
    """Write service.yaml by looking at the repository in a folder."""
    from handrail.teams.coding.workspace import NotAllowedError
    from handrail.teams.healing.setup import sketch_service, write_service

    file = folder / SERVICE_FILE
    with as_input_error(NotAllowedError):
        sketch = sketch_service(folder)
    home = Path("~/.local/state/handrail/heal").expanduser() / folder.resolve().name
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(write_service(sketch, home))
    except FileExistsError:
        raise InputError(f"'{file}' is there already; edit it, or remove it first") from None
    app = f"{sketch.app} ({sketch.framework})" if sketch.app else "not found, name it there"
    print(
        f"{file}: written; app {app}, tests {sketch.tests or 'not found'}, "
        f"python {sketch.python or 'the one that runs Handrail'}"
    )
    print(f"  next: {output.program_name()} heal check")


@heal.command()
async def check(folder: Folder = Path(), as_json: AsJson = False) -> int:
    """Say what of healing works: reproduce, test, hooks, push, model. Exits with 1 on any no."""
    from handrail.teams.healing.service import read_service
    from handrail.teams.healing.setup import check_service

    with as_input_error(ValueError):
        service = read_service(folder / SERVICE_FILE)
    checks = await check_service(service, load_settings()["model"])
    rows = [(line.name, line.state, line.detail) for line in checks]
    output.show(checks, output.TextTable(("check", "ok", "detail"), rows), as_json=as_json)
    return 1 if any(line.state == "no" for line in checks) else 0
