"""Tokens of users, stored as hashes, and tokens of jobs, which are computed from a secret of the service."""

from __future__ import annotations

import hmac
import secrets
import time
from hashlib import sha256

from sqlalchemy import Connection, insert

from horae.service.models import TokenRequest, TokenView
from horae.service.store.schema import tokens

SECRET = "secret"  # the key of the service's secret in the table `meta`, where the loop writes it when a log begins


def hash_of(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def job_token(secret: str, job_id: str, epoch: int) -> str:
    """The token with which one lease of a job reports its progress; it is good for nothing else."""
    message = f"{epoch}:{job_id}".encode("utf-8", "surrogatepass")
    return f"{epoch}.{hmac.new(secret.encode(), message, sha256).hexdigest()}"


def epoch_of_job_token(token: str, secret: str, job_id: str) -> int | None:
    """The lease to which a token of this job belongs; None: it is no token of this job."""
    digits = token.partition(".")[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    right = job_token(secret, job_id, int(digits)).encode()
    return int(digits) if hmac.compare_digest(token.encode("utf-8", "surrogatepass"), right) else None


def make_token(connection: Connection, request: TokenRequest) -> TokenView:
    """A new token. Only its hash is stored, so that this is the only time it can be shown."""
    token, now = secrets.token_urlsafe(32), time.time()
    expires_at = None if request.days is None else now + 86_400 * request.days
    row = {"id": secrets.token_hex(8), "name": request.name, "role": request.role, "tenant": request.tenant}
    row["user"] = request.user
    connection.execute(insert(tokens).values(**row, hash=hash_of(token), wall=now, expires_wall=expires_at))
    return TokenView.model_validate({**row, "created_at": now, "expires_at": expires_at, "token": token})
