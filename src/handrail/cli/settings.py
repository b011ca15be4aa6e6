"""`handrail settings`: each setting with its value and where that came from."""

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.database import load_settings
from handrail.cli.options import AsJson, Database, Server

if TYPE_CHECKING:
    from handrail.api.admin import SettingView
    from handrail.server.configuration import SettingValue

COLUMNS = ("setting", "value", "from", "what it is for")


async def settings(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List settings, each with its value and where that came from.

    Flags override HANDRAIL_* variables, which override the file handrail.toml in this folder, which
    overrides the defaults. With --server, lists the settings of that server.
    """
    if not server:
        _show_local_settings(database, as_json=as_json)
        return
    async with open_client(database, server) as client:
        page = await client.settings.list()
    output.show(page, output.TextTable(COLUMNS, map(_setting_row, page.items)), as_json=as_json)


def _show_local_settings(database: str, *, as_json: bool) -> None:
    from handrail.server.configuration import find_misspelled_variables
    from handrail.server.setting_table import format_setting

    configuration = load_settings(database=database)
    for line in find_misspelled_variables(os.environ):
        output.print_note(line)
    values = [_hide_password(value) for value in configuration.values.values()]
    rows = [
        (
            item.setting.name,
            format_setting(item.setting, item.value),
            item.origin,
            item.setting.help,
        )
        for item in values
    ]
    document = {"items": [_setting_document(value) for value in values]}
    output.show(document, output.TextTable(COLUMNS, rows), as_json=as_json)


def _setting_row(setting: "SettingView") -> list[output.Cell]:
    """Return a row; a server of another version may have settings that are unknown here."""
    from handrail.server.setting_table import SETTINGS_BY_NAME, format_setting

    known_setting = SETTINGS_BY_NAME.get(setting.name)
    value = (
        format_setting(known_setting, setting.value)
        if known_setting is not None
        else str(setting.value)
    )
    return [setting.name, value, setting.origin, setting.help]


def _hide_password(setting_value: "SettingValue") -> "SettingValue":
    """Hide the password in an address: the output may be shown to anybody."""
    if setting_value.setting.unit != "text":
        return setting_value
    try:
        password = urlsplit(str(setting_value.value)).password
    except ValueError:
        password = None
    hidden = (
        setting_value.value.replace(f":{password}@", ":***@") if password else setting_value.value
    )
    return setting_value._replace(value=hidden)


def _setting_document(setting_value: "SettingValue") -> dict[str, Any]:
    setting = setting_value.setting
    return {
        "name": setting.name,
        "value": setting_value.value,
        "origin": setting_value.origin,
        "default": setting.default,
        "unit": setting.unit,
        "help": setting.help,
    }
