"""Checks webhook targets: only public addresses over https, none of the internal network.

Every address of a name is checked, and the connection goes to a checked address: a name that
resolves differently a moment later gains nothing. The setting `webhook_private` also allows
internal addresses and plain http.
"""

import asyncio
import ipaddress
import socket
from typing import NamedTuple

import httpx

URL_CHARS_MAX = 2_000
RESOLVE_SECONDS_MAX = 5.0
TRANSLATED_NETWORKS = (
    ipaddress.ip_network("64:ff9b::/96"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("2002::/16"),
    ipaddress.ip_network("2001::/32"),
)
"""IPv6 addresses that stand for an arbitrary IPv4 address."""


class WebhookTargetError(Exception):
    """A target is not allowed; the text says why, and what to do."""


class WebhookTarget(NamedTuple):
    """A checked address, and the host name that resolved to it."""

    url: httpx.URL
    host: str
    name: str


def parse_target_url(text: str, *, private: bool) -> httpx.URL:
    """Parse a URL; raises `WebhookTargetError` if it is not allowed."""
    try:
        url = httpx.URL(text)
        port = url.port
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise WebhookTargetError(f"it is no URL: {error}; write https://HOST/PATH") from error
    schemes = ("https", "http") if private else ("https",)
    if url.scheme not in schemes or not url.host or len(text) > URL_CHARS_MAX or port == 0:
        message = (
            f"it is no URL of at most {URL_CHARS_MAX:,} characters with {' or '.join(schemes)}"
        )
        raise WebhookTargetError(f"{message}; write https://HOST/PATH")
    if url.userinfo:
        raise WebhookTargetError(
            "it holds a user or a password; leave them out, what is sent is signed"
        )
    return url


async def resolve_target(url: httpx.URL, *, private: bool) -> WebhookTarget:
    """Resolve a URL to the address to connect to now."""
    port = url.port or (443 if url.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS_MAX):
            address_infos = await loop.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise WebhookTargetError(
            f"the name {url.host} leads nowhere; is it spelled right?"
        ) from error
    addresses = [str(info[4][0]) for info in address_infos]
    if not private and not all(map(is_public, addresses)):
        message = f"{url.host} is inside of this network"
        raise WebhookTargetError(f"{message}; if it shall be told, set webhook_private = yes")
    return WebhookTarget(url.copy_with(host=addresses[0]), url.netloc.decode("ascii"), url.host)


def is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if any(parsed in network for network in TRANSLATED_NETWORKS):
            return False
        parsed = parsed.ipv4_mapped or parsed
    return parsed.is_global and not parsed.is_multicast
