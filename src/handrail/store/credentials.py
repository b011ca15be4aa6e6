"""Credentials in the store."""

from handrail.store.columns import Row, Time
from handrail.store.database import Subject
from handrail.store.record import CREDENTIALS, AlteredRowError, Change, is_on_record, record


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
        with self._database.transaction() as transaction:
            transaction.write_rows("insert_credentials", [row])
            record(transaction, row.created_at, _change(row, "created", row.created_by))

    def get(self, digest: str) -> CredentialRow | None:
        """Return the credential, even if expired or revoked. Raises AlteredRowError for one that
        was not made, or changed, by Handrail."""
        values = self._database.fetch_one("credential", digest=digest)
        if values is None:
            return None
        row, body = CredentialRow(*values[:-1]), values[-1]
        if not is_on_record(CREDENTIALS, row, body):
            raise AlteredRowError(
                f"the credential '{row.id}' ({row.kind}) is not the one on record; "
                "see what else was altered with `handrail verify`"
            )
        return row

    def revoke(self, credential_id: str, at: str, by: str) -> bool:
        """Return False if there is no such credential, or it was revoked before."""
        with self._database.transaction() as transaction:
            values = transaction.fetch_one("revoke_credential", id=credential_id, at=at)
            if values is not None:
                record(transaction, at, _change(CredentialRow(*values), "revoked", by))
        return values is not None

    def use_sign_in(self, digest: str, at: str) -> CredentialRow | None:
        """Use and revoke the one-time sign-in. None if it is unknown, used or expired."""
        with self._database.transaction() as transaction:
            values = transaction.fetch_one("use_sign_in", digest=digest, at=at)
            if values is None:
                return None
            row = CredentialRow(*values)
            record(transaction, at, _change(row, "used", row.name))
        return row

    def has_active_tokens(self) -> bool:
        """Return whether a token exists that was not revoked."""
        return bool(self._fetch_row(bool, "has_active_tokens"))

    def list(self, kind: str) -> list[CredentialRow]:
        """List credentials, the newest first."""
        return self._fetch_rows(CredentialRow, "credentials", kind=kind)


def _change(row: CredentialRow, what: str, by: str) -> Change:
    about = f"{row.agent or row.name} ({row.role})"
    return Change(table=CREDENTIALS, row=row, type=f"{row.kind}_{what}", by=by, about=about)
