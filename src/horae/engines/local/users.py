"""Unix users as which jobs run."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def own(self, path: Path) -> None:
        os.chown(path, self.uid, self.gid, follow_symlinks=False)


def user_of(name: str) -> User | None:
    """The user of this name; None for the one as which this process runs, unless that is root: jobs of root are
    started as any other user's. Raises ValueError if there is no such user, or this process may not act as it."""
    if not name:
        return None
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise ValueError(f"there is no user {name!r} on this machine") from None
    if os.geteuid() != 0:
        if found.pw_uid == os.geteuid():
            return None
        raise ValueError(f"only a service of root can run jobs as {name!r}")
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return User(name, found.pw_uid, found.pw_gid, groups, found.pw_dir, found.pw_shell or "/bin/sh")
