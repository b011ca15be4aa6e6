-- insert_credentials: new credentials
INSERT INTO credentials ({CredentialRow}) {values CredentialRow};

-- credential: by its digest, with what is on record of it
SELECT {CredentialRow c}, (SELECT j.body FROM journal j WHERE j.stream = 'credential:' || c.id
  ORDER BY j.seq DESC LIMIT 1)
FROM credentials c WHERE c.digest = :digest;

-- credentials: of one kind, the newest first
SELECT {CredentialRow} FROM credentials WHERE kind = :kind ORDER BY created_at DESC, id DESC;

-- revoke_credential: once
UPDATE credentials SET revoked_at = :at WHERE id = :id AND revoked_at IS NULL
RETURNING {CredentialRow};

-- use_sign_in: use a valid sign-in, once
UPDATE credentials SET revoked_at = :at
WHERE digest = :digest AND kind = 'sign_in' AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > :at)
RETURNING {CredentialRow};

-- has_active_tokens: whether an active token exists
SELECT EXISTS (SELECT 1 FROM credentials WHERE kind = 'token' AND revoked_at IS NULL);
