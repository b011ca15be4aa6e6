"""The settings of this server."""

from handrail.api.admin import SettingCalls, SettingView
from handrail.engine.engine import Engine
from handrail.server.binding import serves
from handrail.server.configuration import ORIGIN_DEFAULT
from handrail.server.setting_table import SETTINGS
from handrail.server.settings import ServerSettings
from handrail.views.pages import Page


@serves(SettingCalls.list)
async def list_settings(engine: Engine, settings: ServerSettings) -> Page[SettingView]:
    parts = {"kernel": engine.settings.kernel, "engine": engine.settings, "server": settings}
    items = tuple(
        SettingView(
            name=row.name,
            value=getattr(parts[row.part], row.name),
            unit=row.unit,
            default=row.default,
            origin=settings.origins.get(row.name, ORIGIN_DEFAULT),
            help=row.help,
        )
        for row in SETTINGS
        if row.part in parts
    )
    return Page(items=items)
