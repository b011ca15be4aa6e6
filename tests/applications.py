"""The applications of servers that are gone, for those that come after them in this process.

To make one takes an eighth of a second, and most tests at a server are over sooner. An application
knows nothing but whose it is (`handrail.server.app.application`), so the next server may have it.
"""

import weakref
from collections.abc import Callable
from threading import Lock
from types import ModuleType
from typing import Any

KEPT_MAX = 16


class Kept:
    """An application, and whose it is as long as that is there."""

    def __init__(self, served: Any) -> None:
        self.whose, self.size = weakref.ref(served), served.settings.body_bytes_max
        self.app: Any = None

    def fits(self, served: Any) -> bool:
        """Whether it is nobody's any more, and takes requests of the same size."""
        old = self.whose()
        return self.size == served.settings.body_bytes_max and (
            old is None or (old.engine is not served.engine and old.engine._access.closed.is_set())
        )


def keep(module: ModuleType) -> None:
    """From now on: `handrail.server.app`."""
    make, kept, lock = module.application, list[Kept](), Lock()

    def application(whose: Callable[[], Any]) -> Any:
        served = whose()
        with lock:
            one = next((one for one in kept if one.fits(served)), None)
            if one is not None:
                one.whose = weakref.ref(served)
                one.app.state.clear()
                return one.app
        one = Kept(served)
        one.app = make(lambda: one.whose())
        with lock:
            kept.append(one)
            del kept[:-KEPT_MAX]
        return one.app

    module.application = application  # type: ignore[attr-defined] - whatever a module has
