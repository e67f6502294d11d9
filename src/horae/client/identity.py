"""The identity of the caller, as the service sees it."""

from __future__ import annotations

from pydantic import BaseModel


class Identity(BaseModel):
    """The caller: by the Unix socket, or by a token."""

    user: str = ""
    tenant: str = ""  # "": of no tenant, as operators may be
    role: str = ""
