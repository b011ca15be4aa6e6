"""Who may make which call, pages included: what the server serves, by method and path."""

from handrail.api.access import OPEN, Access
from handrail.api.calls import OPERATIONS
from handrail.server.web_app import PAGE_PATHS

ACCESS_TABLE: dict[tuple[str, str], Access] = {
    **{("GET", path): OPEN for path in PAGE_PATHS},
    ("POST", "/sign-in/{code}"): OPEN,
    **{(operation.method, operation.path): operation.access for operation in OPERATIONS},
}
