"""Reads the bytes of a text file, compressed or not, and rejects files that are invalid as a whole."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from horae.model.errors import InputError

LINE_BYTES_MAX = 1 << 20
FILE_BYTES_MAX = 4 << 30  # uncompressed: about a hundred million jobs
HEAD_BYTES = 1 << 16  # read to detect the format
PARQUET = b"PAR1"
COMMENT = "#"  # begins lines before the header that are ignored
REMEDY = "name a CSV or YAML file in UTF-8"

_CHUNK_BYTES = LINE_BYTES_MAX  # so that a line that is too long spans chunks, and is detected before it is stored
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's value for a gzip header
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LETTER_BEGINS = 0xC0  # the first byte of a multi-byte character is at least this
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_bytes(path: Path, line_bytes_max: int | None = LINE_BYTES_MAX) -> bytes:
    """The whole of a UTF-8 text file, decompressed, without its byte-order mark."""
    data = b"".join(_checked(path, line_bytes_max)).removeprefix(_BYTE_ORDER_MARK)
    _check_text(path, data)
    return data


def read_head(path: Path) -> bytes:
    """The beginning of a file, decompressed; not checked."""
    return next(_chunks(path), b"")[:HEAD_BYTES].removeprefix(_BYTE_ORDER_MARK)


def header_of(head: bytes) -> str:
    """The first line that is neither blank nor a comment; empty where there is none."""
    return next((line for line in head.decode(errors="replace").splitlines() if is_content(line)), "")


def is_content(line: str) -> bool:
    """Whether a line at the beginning of a file is neither blank nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith(COMMENT)


def check_head(path: Path, head: bytes) -> None:
    """Raises an error where the beginning of a file is not text."""
    if len(head) >= HEAD_BYTES - len(_BYTE_ORDER_MARK):  # it may end in the middle of a character
        last = next((size for size in range(1, 5) if head[-size] >= _LETTER_BEGINS), 0)
        head = head[: len(head) - last]
    _check_text(path, head)


def starts_with(path: Path, magic: bytes) -> bool:
    return read_head(path).startswith(magic)


def _checked(path: Path, line_bytes_max: int | None) -> Iterator[bytes]:
    """The chunks of a file; raises an error where a line is too long."""
    lines = pending = total = 0
    for chunk in _chunks(path):
        yield chunk
        total += len(chunk)
        if total > FILE_BYTES_MAX:
            problem = f"is larger than {FILE_BYTES_MAX / (1 << 30):.3g} GiB when unpacked"
            raise InputError(problem, file=str(path), remedy="split it into several files, and read each by itself")
        first = chunk.find(b"\n")
        length = pending + (len(chunk) if first < 0 else first)
        if line_bytes_max is not None and length > line_bytes_max:
            raise InputError(
                f"is a line of more than {line_bytes_max:,} bytes",
                file=str(path),
                line=lines + 1,
                remedy="name a text file with one row a line",
            )
        lines += chunk.count(b"\n")
        pending = length if first < 0 else len(chunk) - chunk.rfind(b"\n") - 1


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            first = file.read(_CHUNK_BYTES)
            if first.startswith(_GZIP):
                yield from _unpacked(path, chain([first], _raw_chunks(file)))
            else:
                yield from chain([first] if first else [], _raw_chunks(file))
    except OSError as error:
        raise InputError(str(error.strerror or error), file=str(path), remedy=REMEDY) from None


def _raw_chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _unpacked(path: Path, packed: Iterator[bytes]) -> Iterator[bytes]:
    """Decompresses a gzip file, which may have several members and trailing zeros."""
    lines, member = 0, zlib.decompressobj(_GZIP_WINDOW)
    rest = b""
    for chunk in packed:
        rest += chunk
        while rest:
            if member.eof:
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                member = zlib.decompressobj(_GZIP_WINDOW)
            before = member.copy()
            try:
                piece = member.decompress(rest, _CHUNK_BYTES)
            except zlib.error:
                raise _damaged(path, lines + _lines_that_unpack(before, rest), "is broken gzip data") from None
            rest = member.unused_data if member.eof else member.unconsumed_tail
            lines += piece.count(b"\n")
            if piece:
                yield piece
    if not member.eof:
        raise _damaged(path, lines, "is cut short")


def _lines_that_unpack(member: zlib._Decompress, packed: bytes) -> int:
    """The number of lines that end before the damaged position, found with decreasing chunk sizes."""
    lines, size = 0, _CHUNK_BYTES
    while size:
        attempt = member.copy()
        try:
            piece = attempt.decompress(packed, size)
        except zlib.error:
            size //= 2
            continue
        if not piece:
            break
        lines, member, packed = lines + piece.count(b"\n"), attempt, attempt.unconsumed_tail
    # A wrong checksum takes the last byte with it, unless that is decompressed before the checksum is seen.
    with suppress(zlib.error):
        for byte in packed:
            lines += member.decompress(bytes([byte])).count(b"\n")
    return lines


def _damaged(path: Path, lines: int, problem: str) -> InputError:
    where = "after this line" if lines else "before its first line ends"
    return InputError(f"{problem} {where}", file=str(path), line=lines, remedy="fetch or copy the file again")


def _check_text(path: Path, data: bytes) -> None:
    if data.startswith(_UTF_16):
        raise InputError("is UTF-16, not UTF-8 text", file=str(path), line=1, remedy=REMEDY)
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InputError("is not UTF-8 text", file=str(path), line=line, remedy=REMEDY) from None
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise InputError("has a NUL byte, so it is no text", file=str(path), line=line, remedy=REMEDY)
