"""Credentials and stored answers. Secrets stay outside: this module gets digests only."""

from collections.abc import Sequence

from handrail.engine.core import EngineCore
from handrail.store.engine_store import IdempotencyKeyRow, iso
from handrail.store.store import CredentialRow


class WithCredentials(EngineCore):
    """An engine that stores credentials."""

    async def add_credential(self, row: CredentialRow) -> None:
        self._check_open()
        await self._call_store(self.store.add_credential, row)

    async def credential(self, digest: str) -> CredentialRow | None:
        """Return a credential, even if it has expired or was revoked."""
        return await self._call_store(self.store.get_credential, digest)

    async def credentials(self, kind: str) -> list[CredentialRow]:
        """List the credentials of a kind (token, sign_in, session), the newest first."""
        return await self._call_store(self.store.list_credentials, kind)

    async def revoke_credential(self, credential_id: str) -> bool:
        """Revoke a credential; False if it does not exist, or was revoked before."""
        self._check_open()
        return await self._call_store(
            self.store.revoke_credential, credential_id, iso(self.clock())
        )

    async def use_sign_in(self, digest: str) -> CredentialRow | None:
        """Use a one-time sign-in. None if it is unknown, was used, or has expired."""
        self._check_open()
        return await self._call_store(self.store.use_sign_in, digest, iso(self.clock()))

    async def has_tokens(self) -> bool:
        """Whether a token exists that was not revoked."""
        return await self._call_store(self.store.has_active_tokens)

    async def stored_answer(self, key: str, actor: str) -> IdempotencyKeyRow | None:
        """Return the stored answer to this request. `start`, `answer` and others store their keys
        in the same table: give yours a prefix of its own ("http:")."""
        return await self._call_store(self.store.get_idempotency_key, key, actor)

    async def store_answers(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        """Store answers for repetitions. Under each key and actor the first answer stands."""
        self._check_open()
        await self._call_store(self.store.put_idempotency_keys, rows)
