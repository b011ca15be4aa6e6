"""`handrail settings`: each setting with its value and where that came from."""

import os
from typing import Any
from urllib.parse import urlsplit

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.database import EXIT_WRONG_INPUT, InputError, load_settings, print_error
from handrail.client.clients import AsyncClient
from handrail.client.shapes import SettingView
from handrail.server.configuration import SettingValue, find_misspelled_variables
from handrail.server.setting_table import SETTINGS_BY_NAME, format_setting

COLUMNS = ("setting", "value", "from", "what it is for")


def list_settings(target: ApiTarget) -> int:
    """List the settings of this folder and environment; with a server named, those of the
    server.
    """
    if target.server:
        return call_api(target, lambda client: _print_server_settings(client, target))
    try:
        configuration = load_settings(database=target.database)
    except InputError as error:
        print_error(target.command, error)
        return EXIT_WRONG_INPUT
    for line in find_misspelled_variables(os.environ):
        output.print_note(line)
    setting_values = [
        _hide_password(setting_value) for setting_value in configuration.values.values()
    ]
    if target.as_json:
        output.print_json(
            {"items": [_setting_document(setting_value) for setting_value in setting_values]}
        )
        return 0
    rows = [
        (
            item.setting.name,
            format_setting(item.setting, item.value),
            item.origin,
            item.setting.help,
        )
        for item in setting_values
    ]
    output.print_table(COLUMNS, rows)
    return 0


async def _print_server_settings(client: AsyncClient, target: ApiTarget) -> None:
    page = await client.list_settings()
    if target.as_json:
        output.print_json(page)
        return
    output.print_table(COLUMNS, [_setting_row(setting) for setting in page.items])


def _setting_row(setting: SettingView) -> list[output.Cell]:
    """Return a row; a server of another version may have settings that are unknown here."""
    known_setting = SETTINGS_BY_NAME.get(setting.name)
    value = (
        format_setting(known_setting, setting.value)
        if known_setting is not None
        else str(setting.value)
    )
    return [setting.name, value, setting.origin, setting.help]


def _hide_password(setting_value: SettingValue) -> SettingValue:
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


def _setting_document(setting_value: SettingValue) -> dict[str, Any]:
    setting = setting_value.setting
    return {
        "name": setting.name,
        "value": setting_value.value,
        "origin": setting_value.origin,
        "default": setting.default,
        "unit": setting.unit,
        "help": setting.help,
    }
