"""Who may make which call, pages included: what the server serves, by method and path."""

from handrail.api.calls import OPERATIONS
from handrail.api.operation import OPEN, Access
from handrail.server.routes.web_app import WEB_APP_PATHS

ACCESS_TABLE: dict[tuple[str, str], Access] = {
    **{("GET", path): OPEN for path in ("/", *WEB_APP_PATHS, "/sign-in/{code}", "/assets/{name}")},
    ("POST", "/sign-in/{code}"): OPEN,
    **{(operation.method, operation.path): operation.access for operation in OPERATIONS},
}
