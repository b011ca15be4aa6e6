"""`handrail settings`: each setting with its value and where that came from."""

import os
from typing import Any
from urllib.parse import urlsplit

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.database import WRONG_INPUT, InputError, complain, settings
from handrail.client.clients import AsyncClient
from handrail.client.shapes import SettingView
from handrail.server.configuration import Given, strangers
from handrail.server.setting_table import NAMED, shown

HEADS = ("setting", "value", "from", "what it is for")


def list_settings(where: Where) -> int:
    """Of this folder and environment; with a server named, those that it runs with."""
    if where.server:
        return ask(where, lambda client: _of_server(client, where))
    try:
        found = settings(database=where.database)
    except InputError as error:
        complain(where.command, error)
        return WRONG_INPUT
    for line in strangers(os.environ):
        tables.note(line)
    given = [_without_password(one) for one in found.given.values()]
    if where.as_json:
        tables.print_json({"items": [_document(one) for one in given]})
        return 0
    rows = [(g.setting.name, shown(g.setting, g.value), g.origin, g.setting.help) for g in given]
    tables.print_table(HEADS, rows)
    return 0


async def _of_server(client: AsyncClient, where: Where) -> None:
    page = await client.settings()
    if where.as_json:
        tables.print_json(page)
        return
    tables.print_table(HEADS, [_row(one) for one in page.items])


def _row(one: SettingView) -> list[tables.Cell]:
    """A server of another version may have settings that are not known here."""
    known = NAMED.get(one.name)
    value = shown(known, one.value) if known is not None else str(one.value)
    return [one.name, value, one.origin, one.help]


def _without_password(given: Given) -> Given:
    """An address may have a password in it, and this may be shown to anybody."""
    if given.setting.unit != "text":
        return given
    try:
        password = urlsplit(str(given.value)).password
    except ValueError:
        password = None
    hidden = given.value.replace(f":{password}@", ":***@") if password else given.value
    return given._replace(value=hidden)


def _document(given: Given) -> dict[str, Any]:
    row = given.setting
    return {
        "name": row.name,
        "value": given.value,
        "origin": given.origin,
        "default": row.default,
        "unit": row.unit,
        "help": row.help,
    }
