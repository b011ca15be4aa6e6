"""Describe errors of language models: which model, what happened, and what to do next.

The class names of pydantic-ai's errors tell them apart, so that nothing has to be imported for it.
The provider's own message stands beside ours, shortened and without secrets.
"""

from typing import cast

from handrail.agents.secret_redaction import redact_secrets
from handrail.engine.dispatch.agent_results import describe_error

DETAIL_CHARS_MAX = 300
"""Characters of a provider's own message."""
_RETRY_LATER_HINT = "try again later, or use another model"
_RAISE_LIMIT_HINT = "try again, or raise the limit of seconds"
_RETRY_HINT = "try again, or use another model"

ERROR_TEXTS: dict[str, tuple[str, str]] = {
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
    "RunTimedOut": ("did not finish in {seconds:g} s", _RAISE_LIMIT_HINT),
    "ModelRequestTimeout": ("did not answer in {seconds:g} s", _RAISE_LIMIT_HINT),
    "ModelTimeoutError": ("did not answer in {seconds:g} s", _RAISE_LIMIT_HINT),
    "ModelConnectionError": (
        "could not be reached",
        "check the network and the provider's address",
    ),
    "ModelUnavailableError": ("is not available", _RETRY_LATER_HINT),
    "ModelServerError": ("failed on its provider's side", _RETRY_LATER_HINT),
    "ContentFilterError": ("refused to answer", "word the work otherwise, or let a person do it"),
    "UsageLimitExceeded": (
        "wanted more than one turn may take",
        "give it a smaller task, or raise the limit that it names",
    ),
    "UnexpectedModelBehavior": ("gave no answer that can be used", _RETRY_HINT),
    "ModelAPIError": ("gave no answer that can be read", "check the provider's address, or retry"),
}
"""Error -> what the model did, and what to do. Those of narrower meaning come first."""


def describe_model_error(error: Exception, model: str, agent: str, seconds: float) -> str:
    """Describe the error of this model in this agent's dispatch, in one line."""
    class_names = {cls.__name__ for cls in type(error).__mro__}
    error_name = next((name for name in ERROR_TEXTS if name in class_names), None)
    description, hint = (
        ERROR_TEXTS[error_name] if error_name is not None else ("failed", _RETRY_HINT)
    )
    detail = redact_secrets(_detail(error))
    suffix = f" ({detail})" if detail else ""
    return f"the model '{model}' of '{agent}' {description.format(seconds=seconds)}{suffix}; {hint}"


def _detail(error: Exception) -> str:
    """Return the provider's message, in one line."""
    body: object = getattr(error, "body", None)
    text = cast("dict[str, object]", body).get("message") if isinstance(body, dict) else None
    if not isinstance(text, str):
        text = getattr(error, "message", "") or describe_error(error)
    status = getattr(error, "status_code", None)
    line = " ".join(str(text).split())[:DETAIL_CHARS_MAX]
    return f"{status}: {line}" if status is not None else line
