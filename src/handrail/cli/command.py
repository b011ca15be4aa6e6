"""Run one command: await a coroutine, print an error in one line, return the exit code.

A command is one function in the module of its subject. Command modules are imported for every call,
`handrail --help` too, so that at import time they need typer and the light modules here only; a
command imports the engine, the server or the client in its body. No command imports another one.
This module needs no typer: the small install runs commands without it.
"""

import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

from handrail.cli.output import printable
from handrail.client.errors import ClientError, UnreachableError
from handrail.store.rows import StoreError

EXIT_FAILED, EXIT_WRONG_INPUT, EXIT_INTERRUPTED = 1, 2, 130
TOKEN_VARIABLE = "HANDRAIL_TOKEN"  # noqa: S105 - its name
RETRY_LATER_STATUSES = (429, 500, 502, 503, 504)
"""Statuses that mean: not now. Every other refusal is about the request."""


class InputError(Exception):
    """Wrong usage: the message says what is wrong, where, and what to do."""


@contextmanager
def as_input_error(*kinds: type[Exception]) -> Generator[None]:
    """Raise these errors as wrong input, with the same message."""
    try:
        yield
    except kinds as error:
        raise InputError(str(error)) from error


@contextmanager
def file_as_input(label: str, hint: str) -> Generator[None]:
    """Raise as wrong input that a file cannot be read or written."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{label}: {reason}; {hint}") from None


def execute(command: Callable[[], Any], name: Callable[[], str]) -> int:
    """Call the command, await it, print its error in one line; return the exit code."""
    try:
        code = command()
        return (_run_coroutine(code) if inspect.iscoroutine(code) else code) or 0
    except (InputError, StoreError, ClientError) as error:
        print_error(name(), describe_error(error))
        return EXIT_FAILED if _is_failure(error) else EXIT_WRONG_INPUT


def _run_coroutine(command: Coroutine[Any, Any, int | None]) -> int | None:
    import asyncio

    try:
        return asyncio.run(command)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _is_failure(error: Exception) -> bool:
    """Return whether the same input may succeed later."""
    if isinstance(error, ClientError):
        return isinstance(error, UnreachableError) or error.status in RETRY_LATER_STATUSES
    return isinstance(error, StoreError)


def print_error(command: str, message: str) -> None:
    """Print one line on standard error."""
    print(f"handrail {command}: {' '.join(printable(message).split())}", file=sys.stderr)


def describe_error(error: Exception) -> str:
    """Describe the error without the API call in which it occurred: the user made none."""
    if not isinstance(error, ClientError):
        return str(error)
    if isinstance(error, UnreachableError):
        return error.detail
    if error.status == 401 and not os.environ.get(TOKEN_VARIABLE):
        return (
            f"the server requires a token, but {TOKEN_VARIABLE} is not set; create one "
            "where the server's database is: `handrail token create --database URL`"
        )
    detail = error.detail or error.title
    parts = [detail]
    parts += [f"{item.path}: {item.message}" for item in error.errors if item.message not in detail]
    if error.status == 401:
        parts.append(f"set {TOKEN_VARIABLE} to a valid one")
    return "; ".join(parts)
