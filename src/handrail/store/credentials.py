"""Credentials in the store."""

from handrail.store.columns import Row, Time
from handrail.store.database import Subject


class CredentialRow(Row):
    """A token, a one-time sign-in or a browser's session. Only the secret's digest is kept."""

    id: str
    kind: str
    """token, sign_in or session"""
    digest: str
    """SHA-256 of the secret, in hex; unique."""
    name: str
    agent: str | None
    role: str
    works_as: str | None
    """The roles that an agent may register, as a JSON array; None: any."""
    created_by: str
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None


class CredentialStore(Subject):
    def add(self, row: CredentialRow) -> None:
        self._database.write_rows("insert_credentials", [row])

    def get(self, digest: str) -> CredentialRow | None:
        """Return the credential, even if expired or revoked."""
        return self._fetch_row(CredentialRow, "credential", digest=digest)

    def revoke(self, credential_id: str, at: str) -> bool:
        """Return False if there is no such credential, or it was revoked before."""
        return self._update("revoke_credential", id=credential_id, at=at)

    def use_sign_in(self, digest: str, at: str) -> CredentialRow | None:
        """Use and revoke the one-time sign-in. None if it is unknown, used or expired."""
        with self._database.transaction() as transaction:
            row = transaction.fetch_one("use_sign_in", digest=digest, at=at)
        return CredentialRow(*row) if row is not None else None

    def has_active_tokens(self) -> bool:
        """Return whether a token exists that was not revoked."""
        return bool(self._fetch_row(bool, "has_active_tokens"))

    def list(self, kind: str) -> list[CredentialRow]:
        """List credentials, the newest first."""
        return self._fetch_rows(CredentialRow, "credentials", kind=kind)
