"""When the package is built, or installed from its sources, the page is built into it.

That it cannot be built keeps nobody from installing: the server then has no page, and says why.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):  # type: ignore[type-arg] - hatchling leaves it open
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page = _page(Path(self.root))
        try:
            page.build()
        except page.NotBuilt as error:
            self.app.display_warning(f"The page was not built: {error}")


def _page(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", root / "web/build.py")
    assert spec is not None, "a file"
    assert spec.loader is not None, "a module"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
