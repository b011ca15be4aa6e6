"""Handrail and the official SDK of A2A, on loopback. Where that is not installed, the tests that
need it are not collected; the others speak the protocol by themselves."""

from importlib.util import find_spec

from tests.client.protocol_servers import admin_client, server

__all__ = ["admin_client", "server"]
WITH_SDK = ("test_member.py", "test_team.py", "test_page.py", "test_protocol.py")
collect_ignore = [] if find_spec("a2a") else list(WITH_SDK)
