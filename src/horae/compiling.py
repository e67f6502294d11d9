"""Kernels compiled by numba, cached on disk under a digest of every source that they are made of.

numba's own cache checks only the file of a kernel, and runs outdated machine code after a change in a module from which
the kernel takes functions or constants. It also numbers its files, so that two processes that compile a kernel for
different types at the same time may overwrite each other's. Here the name of a file contains all that it depends on, so
a file is never outdated, and one that is missing or damaged is compiled again. Of several processes that need the same
kernel, one compiles it while the others wait.

Compiling takes seconds, and loading what was compiled takes a part of one, so the first small calls of a process run as
plain Python. How many is decided by their sizes alone: what is on disk changes no decision.

numba chooses the location of the files: NUMBA_CACHE_DIR, else beside the sources, else the user's cache folder.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, flock
from functools import cache, cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from pickle import loads
from types import FunctionType
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.types import Array
from numba.extending import overload_method

from horae.uncompiled import plain, size_of

Function = TypeVar("Function", bound=Callable[..., Any])

ROOT = Path(__file__).parent.parent
SUFFIX = ".nbc"
UNUSED_SECONDS_MAX = 7 * 86400  # files of other versions are kept this long, for users who switch between versions
_VERSIONS = (sys.implementation.cache_tag, numba.__version__, np.__version__)
_IMPORT = re.compile(rb"^\s*(?:from|import)\s+(horae(?:\.\w+)+)", re.MULTILINE)
_DIGITS = 16  # of a digest in the name of a file
_CHECK_BYTES = sha256().digest_size


class Needed(NamedTuple):
    """A kernel for arguments of certain types."""

    module: str
    name: str
    types: tuple[Any, ...]

    def __str__(self) -> str:
        return _shown(self.module, self.name)


compilations: list[str] = []  # the kernels that this process has compiled, rather than loaded
_recorders: list[set[Needed]] = []


def kernel(*, small: int = 0, **options: Any) -> Callable[[Function], Function]:
    """Compiles a function and caches the result; the options are those of `numba.njit`.

    `small`: the number of array elements in the first calls of a process that run as plain Python. A function that only
    kernels call needs just `njit`: its code is stored within theirs.
    """

    def compiled(function: Function) -> Function:
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            return function
        made: Any = _Kernel(function, targetoptions={"nopython": True, "boundscheck": None, **options})
        made.small_left = small
        with suppress(RuntimeError):  # no writable folder: it is compiled every time
            made._cache = kept = _KernelCache(function)
            made.compile = _in_one_process(made.compile, kept.files)
        return made

    return compiled


class _Kernel(CPUDispatcher):
    small_left = 0  # array elements that plain Python may still be given

    def __call__(self, *arguments: Any) -> Any:
        if _recorders:
            _recorders[-1].add(
                Needed(self.py_func.__module__, self.py_func.__name__, tuple(map(self.typeof_pyval, arguments)))
            )
            return self._plain(*arguments)
        if self.small_left > 0:
            size = size_of(arguments)
            self.small_left -= size
            if self.small_left >= 0:
                return self._plain(*arguments)
        return super().__call__(*arguments)

    @cached_property
    def _plain(self) -> Callable[..., Any]:
        return plain(self)


@contextmanager
def recording() -> Iterator[set[Needed]]:
    """Runs all kernels as plain Python, and collects those that larger calls of the same types would need."""
    _recorders.append(set())
    try:
        yield _recorders[-1]
    finally:
        _recorders.pop()


def compile_needed(needed: Needed) -> None:
    """Compiles a kernel, unless that was done before; later processes load it."""
    getattr(import_module(needed.module), needed.name).compile(needed.types)


def source_bytes(needed: Needed) -> int:
    """The size of all sources of a kernel, which tells roughly how long it takes to compile."""
    return sum(path.stat().st_size for path in sources_of(Path(str(import_module(needed.module).__file__))))


def _shown(module: str, name: str) -> str:
    return f"{module.removeprefix('horae.').removesuffix('_kernel')}.{name}"


def part(function: Function) -> Function:
    """Compiles a plain function for kernels to call, and the functions of its module that it calls in turn.

    The module need not know about numba: its functions can also be called as plain Python.
    """
    scope = _compiled(function.__module__)
    known = scope.get(function.__qualname__)  # a nested function is compiled separately
    return known if known is not None else _njit(function, scope)


@cache
def _compiled(module: str) -> dict[str, Any]:
    """The contents of a module, with its functions compiled."""
    scope = dict(vars(sys.modules[module]))
    for name, each in scope.items():
        if isinstance(each, FunctionType) and each.__module__ == module:
            scope[name] = _njit(each, scope)
    return scope


def forget_parts() -> None:
    """Clears the cache of parts, so that they are compiled again on the next request."""
    _compiled.cache_clear()


def _njit(function: Any, scope: dict[str, Any]) -> Any:
    return numba.njit(error_model="numpy")(FunctionType(function.__code__, scope, None, None, function.__closure__))


@overload_method(Array, "tolist")
def _tolist(array: Any) -> Callable[[Any], Any] | None:
    """An array as a list: numba lacks `tolist`;
    without a compiler, lists are faster than arrays for a handful of values."""

    def listed(array: Any) -> Any:
        return list(array)

    return listed if array.ndim == 1 else None


def _in_one_process(compile_: Callable[[object], object], files: _Files) -> Callable[[object], object]:
    """Looks up a signature of a kernel on disk, and compiles it if needed, while no other process does so."""

    def compile_alone(signature: object) -> object:
        # First numba's own lock: a thread that has it may wait for other processes, but not for other threads.
        with global_compiler_lock, files.locked(signature):
            return compile_(signature)

    return compile_alone


def sources_of(file: Path) -> list[Path]:
    """The file and all modules of ours that it imports, directly or indirectly."""
    found, waiting = set[Path](), [file]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += _read(each)[1]
    return sorted(found)


@cache
def _read(file: Path) -> tuple[bytes, tuple[Path, ...]]:
    """The digest of a file, and the files of the modules that it imports."""
    content = file.read_bytes()
    names = {match.decode() for match in _IMPORT.findall(content)}
    return sha256(content).digest(), tuple(path for name in names for path in _files_of(name))


def _files_of(module: str) -> list[Path]:
    path = ROOT.joinpath(*module.split("."))
    if path.is_dir():
        return list(path.glob("*.py"))  # any of them may be what is imported from the package
    file = path.with_suffix(".py")
    return [file] if file.exists() else []


@cache
def _digest(file: Path) -> str:
    """A digest of everything that the kernels in a file are made of."""
    digest = sha256(repr(_VERSIONS).encode())
    for each in sources_of(file):
        digest.update(str(each.relative_to(ROOT) if each.is_relative_to(ROOT) else each).encode())
        digest.update(_read(each)[0])
    return digest.hexdigest()[:_DIGITS]


class _KernelCache(FunctionCache):
    """The cache of one kernel; a file that cannot be read or written is not an error."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        file = Path(function.__code__.co_filename)
        name = f"{file.stem}.{function.__qualname__}"
        self.files = _Files(Path(self.cache_path), name, _digest(file))
        self._cache_file = self.files  # type: ignore[assignment]

        self._shown = _shown(function.__module__, function.__qualname__)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None:
            compilations.append(self._shown)
            if sys.stderr.isatty():
                print(f"compiling {self._shown}; later runs load it", file=sys.stderr)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _Files:
    """The cache file interface of numba: one file per key, which is a signature and a processor."""

    def __init__(self, folder: Path, name: str, digest: str) -> None:
        self._folder = folder
        self._name = name
        self._digest = digest

    def load(self, key: object) -> object | None:
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        check, data = content[:_CHECK_BYTES], content[_CHECK_BYTES:]
        if sha256(data).digest() != check:
            return None
        with suppress(OSError):
            os.utime(path)  # mark it as in use
        return loads(data)

    def save(self, key: object, value: object) -> None:
        """Writes a file atomically: to a temporary name first, then moved to its place."""
        data: bytes = dumps(value)  # type: ignore[no-untyped-call]
        path = self._path(key)
        beside = path.with_suffix(f".{uuid4().hex}")
        try:
            beside.write_bytes(sha256(data).digest() + data)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        self._remove_unused()

    @contextmanager
    def locked(self, key: object) -> Iterator[None]:
        """A lock that one process at a time holds for a key; it is released when the process ends."""
        path = self._path(key).with_suffix(".lock")
        with ExitStack() as stack:
            with suppress(OSError):  # without a lock several processes do the same work, which only takes longer
                flock(stack.enter_context(path.open("w")), LOCK_EX)
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()  # the result is on disk for processes that wait for the removed file

    def flush(self) -> None:
        for path in self._folder.glob(f"{self._name}-{self._digest}.*"):
            path.unlink(missing_ok=True)

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._name}-{self._digest}.{sha256(repr(key).encode()).hexdigest()[:_DIGITS]}{SUFFIX}"

    def _remove_unused(self) -> None:
        """Removes files of other versions of this kernel, and files that a crash left behind."""
        oldest = time.time() - UNUSED_SECONDS_MAX
        for path in self._folder.glob(f"{self._name}-*"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
