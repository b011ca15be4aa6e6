"""Credentials. Secrets stay outside: this module gets digests only."""

import logging

from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.log_events import log_event
from handrail.store.credentials import CredentialRow
from handrail.store.record import AlteredRowError
from handrail.store.rows import iso

log = logging.getLogger("handrail.engine")


class CredentialService:
    """Tokens, one-time sign-ins and sessions."""

    def __init__(self, access: StoreAccess, clock: Clock) -> None:
        self._access, self._store, self._clock = access, access.store, clock

    @property
    def is_local(self) -> bool:
        """Whether the database is in this process, so that credentials need no cache."""
        return self._store.inline

    async def add(self, row: CredentialRow) -> None:
        self._access.check_open()
        await self._access.call(self._store.credentials.add, row)

    async def get(self, digest: str) -> CredentialRow | None:
        """Return a credential, even if it has expired or was revoked. None also for one that was
        written to the database behind Handrail's back."""
        try:
            return await self._access.call(self._store.credentials.get, digest)
        except AlteredRowError as error:
            log_event(log, "row_altered", reason=str(error))
            return None

    async def list(self, kind: str) -> list[CredentialRow]:
        """List the credentials of a kind (token, sign_in, session), the newest first."""
        return await self._access.call(self._store.credentials.list, kind)

    async def revoke(self, credential_id: str, *, by: str) -> bool:
        """Revoke a credential; False if it does not exist, or was revoked before."""
        self._access.check_open()
        return await self._access.call(
            self._store.credentials.revoke, credential_id, iso(self._clock()), by
        )

    async def use_sign_in(self, digest: str) -> CredentialRow | None:
        """Use a one-time sign-in. None if it is unknown, was used, or has expired."""
        self._access.check_open()
        if await self.get(digest) is None:
            return None
        return await self._access.call(
            self._store.credentials.use_sign_in, digest, iso(self._clock())
        )

    async def has_tokens(self) -> bool:
        """Whether a token exists that was not revoked."""
        return await self._access.call(self._store.credentials.has_active_tokens)
