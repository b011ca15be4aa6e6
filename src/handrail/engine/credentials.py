"""Credentials and kept answers, for whoever lets people and agents in. Secrets stay outside: what
comes here are digests."""

from collections.abc import Sequence

from handrail.engine.core import Core
from handrail.store.office import CredentialRow
from handrail.store.port import KeyRow, iso


class WithCredentials(Core):
    """An engine that knows who may come in."""

    async def add_credential(self, row: CredentialRow) -> None:
        self._check()
        await self._io(self.store.add_credential, row)

    async def credential(self, digest: str) -> CredentialRow | None:
        """Also one that has expired or was revoked."""
        return await self._io(self.store.credential, digest)

    async def credentials(self, kind: str) -> list[CredentialRow]:
        """Of that kind (token, sign_in, session), the newest first."""
        return await self._io(self.store.credentials, kind)

    async def revoke_credential(self, credential_id: str) -> bool:
        """False if there is none, or it was revoked before."""
        self._check()
        return await self._io(self.store.revoke_credential, credential_id, iso(self.clock()))

    async def use_sign_in(self, digest: str) -> CredentialRow | None:
        """A one-time sign-in, once. None if it is unknown, was used, or has expired."""
        self._check()
        return await self._io(self.store.use_sign_in, digest, iso(self.clock()))

    async def has_tokens(self) -> bool:
        """Whether there is a token that was not revoked."""
        return await self._io(self.store.has_tokens)

    async def kept_answer(self, key: str, actor: str) -> KeyRow | None:
        """The answer that was given to this request before. `start`, `answer` and others keep keys
        of their own in the same place: give yours a prefix of its own ("http:")."""
        return await self._io(self.store.key, key, actor)

    async def keep_answers(self, rows: Sequence[KeyRow]) -> None:
        """What was answered, for repetitions. Under each key and actor the first answer stands."""
        self._check()
        await self._io(self.store.keep_answers, rows)
