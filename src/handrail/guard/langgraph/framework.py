"""What all parts of the adapter need of LangGraph and LangChain."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from handrail.guard.adapter import import_framework
from handrail.guard.errors import StoppedError, stop_error
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard, GuardedRun
from handrail.kernel.run.state import Stop

log = logging.getLogger("handrail.guard")

EXTRA = "langgraph"

Config = Mapping[str, Any] | None
"""LangChain's `RunnableConfig`."""


@contextmanager
def absorbing_start(guard: Guard) -> Generator[None]:
    """Let a program run without a guard if its run cannot begin; a run that may not begin stops."""
    try:
        yield
    except StoppedError:
        raise
    except Exception:  # an error of the guard's own is none of the program
        if guard.on_error == "raise":
            raise
        log.exception("a run could not begin, so it is not guarded")


def bubble_up_type() -> type[Exception]:
    """Return the type of errors that LangGraph neither retries nor gives to a tool's caller."""
    return import_framework("langgraph.errors", EXTRA).GraphBubbleUp


def graph_stop_error(stop: Stop, run: GuardedRun, partial: object) -> StoppedError:
    """Return the stop as an error that passes through a graph like one of LangGraph's own."""
    return stop_error(stop, run, partial, bubble_up_type())


def model_call(
    message: Any, usage: Mapping[str, Any], llm_output: Mapping[str, Any] | None = None
) -> ModelCall:
    """Return the call by the message's own metadata, or else by what the whole response says."""
    metadata: dict[str, Any] = getattr(message, "response_metadata", None) or {}
    about: dict[str, Any] = {**(llm_output or {}), **metadata}
    details: dict[str, Any] = usage.get("input_token_details") or {}
    return ModelCall(
        model=str(about.get("model_name") or about.get("model") or about.get("model_id") or ""),
        provider=str(about.get("model_provider") or ""),
        input_tokens=usage.get("input_tokens") or usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("output_tokens") or usage.get("completion_tokens") or 0,
        cache_read_tokens=details.get("cache_read") or 0,
        cache_write_tokens=details.get("cache_creation") or 0,
    )
