"""Operations that only tests have."""

from typing import Any

from handrail.api.operation import VIEWER, Endpoint


def declared(method: str, path: str) -> Endpoint[[], dict[str, Any]]:
    """An operation without arguments that answers with some object."""

    def declare(_: object) -> dict[str, Any]: ...

    return Endpoint(declare, method, path, access=VIEWER)
