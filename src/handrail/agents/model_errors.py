"""What went wrong with a language model, in words: who, what, and what to do next.

The errors of pydantic-ai are told apart by the names of their classes, so that nothing has to be
imported for it. The provider's own words stand beside ours, shortened and without secrets.
"""

from typing import cast

from handrail.agents.secrets import without_secrets
from handrail.engine.returned import told

DETAIL_MAX = 300
"""Characters of a provider's own words."""
_LATER = "try again later, or use another model"
_LONGER = "try again, or raise the limit of seconds"
_AGAIN = "try again, or use another model"

MEANINGS: dict[str, tuple[str, str]] = {
    "ModelRateLimitError": (
        "is rate limited",
        "wait, let fewer agents work at once, or use another model",
    ),
    "ModelQuotaExceededError": ("has no quota left", "top up the account, or use another model"),
    "ModelAuthenticationError": (
        "was refused its credentials",
        "check the key in the provider's variable",
    ),
    "ModelNotFoundError": (
        "is unknown to its provider",
        "check the model's name and the provider's address",
    ),
    "ModelContextWindowExceededError": (
        "cannot read so much",
        "use one with a larger context window",
    ),
    "ModelRequestRejectedError": ("rejected the request", "mend what it names, or use another"),
    "RunTimedOut": ("did not finish in {seconds:g} s", _LONGER),
    "ModelRequestTimeout": ("did not answer in {seconds:g} s", _LONGER),
    "ModelTimeoutError": ("did not answer in {seconds:g} s", _LONGER),
    "ModelConnectionError": (
        "could not be reached",
        "check the network and the provider's address",
    ),
    "ModelUnavailableError": ("is not available", _LATER),
    "ModelServerError": ("failed on its provider's side", _LATER),
    "ContentFilterError": ("refused to answer", "word the work otherwise, or let a person do it"),
    "UsageLimitExceeded": (
        "wanted more than one turn may take",
        "give it a smaller task, or raise the limit that it names",
    ),
    "UnexpectedModelBehavior": ("gave no answer that can be used", _AGAIN),
    "ModelAPIError": ("gave no answer that can be read", "check the provider's address, or retry"),
}
"""Error -> what the model did, and what to do. Those of narrower meaning come first."""


def about(error: Exception, model: str, agent: str, seconds: float) -> str:
    """The error of this model at this agent's turn, in one line."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    known = next((name for name in MEANINGS if name in kinds), None)
    what, next_ = MEANINGS[known] if known is not None else ("failed", _AGAIN)
    detail = without_secrets(_detail(error))
    said = f" ({detail})" if detail else ""
    return f"the model '{model}' of '{agent}' {what.format(seconds=seconds)}{said}; {next_}"


def _detail(error: Exception) -> str:
    """The provider's words, in one line."""
    body: object = getattr(error, "body", None)
    words = cast("dict[str, object]", body).get("message") if isinstance(body, dict) else None
    if not isinstance(words, str):
        words = getattr(error, "message", "") or told(error)
    status = getattr(error, "status_code", None)
    line = " ".join(str(words).split())[:DETAIL_MAX]
    return f"{status}: {line}" if status is not None else line
