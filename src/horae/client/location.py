"""Where the service is: arguments, then the environment, then the folder of a service that this user runs.

HORAE_URL, HORAE_TOKEN    the address of a service, and the token that it knows the caller by
HORAE_STATE               the folder of a local service, else ~/.local/state/horae; there
  api.sock                  its Unix socket, over which the caller is known by the Unix user
  url, token                the same two as above, in files: where there is no socket
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from horae.model.errors import ServiceError

SOCKET = "api.sock"
START = "start one with `horae up`, or set HORAE_URL and HORAE_TOKEN"


@dataclass(frozen=True)
class Address:
    url: str
    token: str = ""
    socket: str = ""  # the path of a Unix socket; the URL then names only the protocol

    def __str__(self) -> str:
        return self.socket or self.url


def find_service(url: str | None = None, token: str | None = None, state: str | Path | None = None) -> Address:
    """The address of the service; a token of the environment is used only for an address of the environment."""
    if url is None and state is None and os.environ.get("HORAE_URL"):
        url, token = os.environ["HORAE_URL"], token or os.environ.get("HORAE_TOKEN")
    if url is not None:
        return _address(url, token or "")
    folder = Path(state) if state is not None else state_folder()
    socket = folder / SOCKET
    if socket.exists():
        return Address("http://horae", token or "", str(socket))
    if (folder / "url").exists():
        return _address(_line(folder / "url"), token or _line(folder / "token"))
    raise ServiceError(f"no service runs here: there is no {socket}", remedy=START)


def state_folder() -> Path:
    """The folder in which a local service keeps its state."""
    named = os.environ.get("HORAE_STATE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "horae"


def _address(url: str, token: str) -> Address:
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        return Address("http://horae", token, "/" + path.lstrip("/"))
    if not url.startswith(("http://", "https://")):
        raise ServiceError(f"{url!r} is no address of a service", remedy="write http://HOST:PORT or unix:/PATH")
    return Address(url.rstrip("/"), token)


def _line(path: Path) -> str:
    """The first line of a file; "" where there is no such file."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"{path} cannot be read: {error}", remedy="fix or remove it") from None
