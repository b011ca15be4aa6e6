"""A service as an agent: the dispatch is posted to its address, the response is the result.

    engine.add_agent(http_agent("https://triage.example.org/turn"), "qa-engineer")

Rules
1. Status 200 with a result as a JSON object, or with a text (`output_parser.py`). Anything else
   costs the attempt.
2. The `Idempotency-Key` is the dispatch's key: the same key means the same work, which the
   service may have done already.
3. Redirects to another host are not followed. Time and length of a response are bounded. A
   cancelled dispatch closes the connection.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from handrail.agents.dispatch_input import (
    AgentFunction,
    DispatchInput,
    as_dispatch_view,
    step_id_of,
)
from handrail.agents.output_parser import parse_output
from handrail.agents.secret_redaction import redact_secrets
from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.kernel.decision import Value
from handrail.kernel.result import Result

if TYPE_CHECKING:
    import httpx

REDIRECTS_MAX = 3
REDIRECT_STATUSES = (307, 308)
"""Redirects that repeat the request; others would change a POST to a GET."""
DETAIL_CHARS_MAX = 300


class ServiceLimits(Value):
    """The limits of one dispatch."""

    seconds: float = 300.0
    answer_bytes: int = 1_000_000


def http_agent(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    limits: ServiceLimits = ServiceLimits(),  # noqa: B008 - frozen
) -> AgentFunction:
    """Make an agent from the service at this address; `headers` authenticate the caller, for
    example.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"'{url}' is no address of a service; give http://… or https://…")
    base_headers = {**(headers or {}), "Content-Type": "application/json"}

    async def service_turn(dispatch: DispatchInput) -> Result:
        import httpx

        dispatch_view = as_dispatch_view(dispatch)
        service_label = f"the service {url} of '{step_id_of(dispatch_view)}'"
        request_headers = {**base_headers, "Idempotency-Key": dispatch_view.key}
        try:
            async with (
                asyncio.timeout(limits.seconds),
                httpx.AsyncClient(timeout=limits.seconds, follow_redirects=False) as client,
            ):
                body = await _post(
                    client, url, msgspec.json.encode(dispatch_view), request_headers, limits
                )
            return parse_output(body, dispatch_view)
        except TimeoutError:
            problem = f"did not answer in {limits.seconds:g} s; give it more time, or less to do"
        except httpx.HTTPError as error:
            problem = f"could not be asked ({type(error).__name__}: {error}); see that it runs"
        except _ServiceReplyError as error:
            problem = str(error)
        except ValueError as error:
            problem = f"answered what is no result: {error}; answer with a JSON object or a text"
        raise AgentFailedError(
            redact_secrets(f"{service_label} {problem}", (headers or {}).values())
        )

    return service_turn


class _ServiceReplyError(Exception):
    """An unusable response, and what to do."""


async def _post(
    client: "httpx.AsyncClient",
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: ServiceLimits,
) -> bytes:
    """Post the dispatch, following redirects on the same host, and return the response."""
    for _ in range(REDIRECTS_MAX + 1):
        async with client.stream("POST", url, content=body, headers=headers) as response:
            if response.status_code in REDIRECT_STATUSES and response.next_request is not None:
                url = _redirect_target(response)
                continue
            content = await _read_bounded(response, limits.answer_bytes)
            if response.status_code != 200:
                line = " ".join(content.decode("utf-8", "replace").split())[:DETAIL_CHARS_MAX]
                raise _ServiceReplyError(
                    f"answered {response.status_code} ({line}); it should answer 200"
                )
            return content
    raise _ServiceReplyError(f"redirects more than {REDIRECTS_MAX} times; give its real address")


def _redirect_target(response: "httpx.Response") -> str:
    source, target = (
        response.url,
        response.next_request.url if response.next_request else response.url,
    )
    if (source.scheme, source.netloc) != (target.scheme, target.netloc):
        raise _ServiceReplyError(
            f"sends us to another host, {target.host}; give that address if it is meant"
        )
    return str(target)


async def _read_bounded(response: "httpx.Response", bytes_max: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > bytes_max:
            raise _ServiceReplyError(f"answers with more than {bytes_max} bytes; let it say less")
    return bytes(body)
