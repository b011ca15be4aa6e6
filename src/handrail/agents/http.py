"""A service as an agent: the dispatch is posted to its address, its answer is the result.

    engine.add_agent(http_agent("https://triage.example.org/turn"), "qa-engineer")

Rules
1. Status 200 with a result as a JSON object, or with a text (`said.py`). Anything else costs the
   attempt.
2. The `Idempotency-Key` is the dispatch's key: the same again means the same work, which the
   service may have done already.
3. It is not followed to another host: whoever answers there was not asked to. Time and length of an
   answer are bounded. Cancelled, it hangs up.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from handrail.agents.given import Given, Works, view, who
from handrail.agents.said import result_of
from handrail.agents.secrets import without_secrets
from handrail.engine.returned import AgentFailed
from handrail.kernel.decision import Value
from handrail.kernel.result import Result

if TYPE_CHECKING:
    import httpx

REDIRECTS_MAX = 3
MOVED = (307, 308)
"""Redirects that mean the same request elsewhere; others would change a POST to a GET."""
DETAIL_CHARS = 300


class ServiceLimits(Value):
    """What one turn may take."""

    seconds: float = 300.0
    answer_bytes: int = 1_000_000


def http_agent(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    limits: ServiceLimits = ServiceLimits(),  # noqa: B008 - frozen
) -> Works:
    """An agent that is a service at this address; `headers` say who asks, for example."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"'{url}' is no address of a service; give http://… or https://…")
    sent = {**(headers or {}), "Content-Type": "application/json"}

    async def service_turn(dispatch: Given) -> Result:
        import httpx

        given = view(dispatch)
        told = f"the service {url} of '{who(given)}'"
        asking = {**sent, "Idempotency-Key": given.key}
        try:
            async with (
                asyncio.timeout(limits.seconds),
                httpx.AsyncClient(timeout=limits.seconds, follow_redirects=False) as client,
            ):
                said = await _post(client, url, msgspec.json.encode(given), asking, limits)
            return result_of(said, given)
        except TimeoutError:
            wrong = f"did not answer in {limits.seconds:g} s; give it more time, or less to do"
        except httpx.HTTPError as error:
            wrong = f"could not be asked ({type(error).__name__}: {error}); see that it runs"
        except _Unusable as error:
            wrong = str(error)
        except ValueError as error:
            wrong = f"answered what is no result: {error}; answer with a JSON object or a text"
        raise AgentFailed(without_secrets(f"{told} {wrong}", (headers or {}).values()))

    return service_turn


class _Unusable(Exception):  # noqa: N818 - never leaves this module
    """An answer that is none, and what to do."""


async def _post(
    client: "httpx.AsyncClient",
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    limits: ServiceLimits,
) -> bytes:
    """What the service says, wherever on its own host it says it."""
    for _ in range(REDIRECTS_MAX + 1):
        async with client.stream("POST", url, content=body, headers=headers) as answer:
            if answer.status_code in MOVED and answer.next_request is not None:
                url = _moved(answer)
                continue
            said = await _read(answer, limits.answer_bytes)
            if answer.status_code != 200:
                line = " ".join(said.decode("utf-8", "replace").split())[:DETAIL_CHARS]
                raise _Unusable(f"answered {answer.status_code} ({line}); it should answer 200")
            return said
    raise _Unusable(f"redirects more than {REDIRECTS_MAX} times; give its real address")


def _moved(answer: "httpx.Response") -> str:
    here, there = answer.url, answer.next_request.url if answer.next_request else answer.url
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        raise _Unusable(f"sends us to another host, {there.host}; give that address if it is meant")
    return str(there)


async def _read(answer: "httpx.Response", most: int) -> bytes:
    said = bytearray()
    async for chunk in answer.aiter_bytes():
        said += chunk
        if len(said) > most:
            raise _Unusable(f"answers with more than {most} bytes; let it say less")
    return bytes(said)
