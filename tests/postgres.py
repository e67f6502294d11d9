"""A PostgreSQL server of the tests' own, on a Unix socket in a temporary folder.

Tests that need it are skipped where PostgreSQL is not installed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import psycopg
import pytest


def _programs() -> Path | None:
    """The folder with initdb and pg_ctl; Debian does not put it on the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


class Server:
    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._databases = 0

    def start(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres")
        self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "horae", "--no-sync")
        self.control("start")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def socket(self) -> str:
        return str(self._folder / ".s.PGSQL.5432")

    def control(self, verb: str, *more: str) -> None:
        options = f"-c listen_addresses='' -k {self._folder} -c max_connections=50 -c fsync=off"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "-l", str(self._folder / "log"), *more, verb)

    def new_database(self) -> str:
        """The address of an empty database."""
        self._databases += 1
        name = f"store{self._databases}"
        with psycopg.connect(f"postgresql://horae@/postgres?host={self._folder}", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://horae@/{name}?host={self._folder}"

    def _run(self, program: str, *arguments: str) -> None:
        # The server refuses to run as root.
        as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*as_user, str(self._programs / program), *arguments]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=self._folder)


@contextmanager
def server() -> Iterator[Server]:
    programs = _programs()
    if programs is None or (os.geteuid() == 0 and not _has_user("postgres")):
        pytest.skip("PostgreSQL is not installed")
    folder = Path(mkdtemp(prefix="horae-postgres-", dir="/tmp"))  # socket paths are short
    running = Server(programs, folder)
    running.start()
    try:
        yield running
    finally:
        running.control("stop", "-m", "immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
