"""Where the lines of a text are, and how many cells each has, for files of a million lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from horae.model.arrays import Ints

_BLOCK_BYTES = 1 << 22  # arrays of the size of the file would be slow to fill
_NEWLINE, _SPACE = 10, 32

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    begins: Ints
    ends: Ints
    cells: Ints  # of each line
    padded: bool  # whether a cell may have spaces around it

    def blank(self, data: bytes) -> npt.NDArray[np.bool_]:
        """By line: whether there is nothing on it but spaces."""
        blank = self.ends == self.begins
        if self.padded:
            for line in np.flatnonzero((self.cells == 1) & ~blank).tolist():
                blank[line] = not data[self.begins[line] : self.ends[line]].strip()
        return blank


def lay_out(data: bytes, begin: int, separator: str) -> Layout:
    """All lines from this byte on; the last of them must have its end."""
    mark, first = ord(separator), begin
    ends: list[Ints] = [np.empty(0, dtype=np.int64)]
    cells: list[Ints] = [np.empty(0, dtype=np.int64)]
    padded = False
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + _BLOCK_BYTES) + 1
        block = np.frombuffer(data, dtype=np.uint8, count=end - begin, offset=begin)
        newlines = np.flatnonzero(block == _NEWLINE)
        separators = np.flatnonzero(block == mark)
        ends.append(newlines + begin)
        cells.append(np.diff(np.searchsorted(separators, newlines), prepend=0) + 1)
        padded = padded or _is_padded(block, mark)
        begin = end
    line_ends = np.concatenate(ends)
    begins = np.concatenate([np.array([first] if len(line_ends) else [], dtype=np.int64), line_ends[:-1] + 1])
    return Layout(begins, line_ends, np.concatenate(cells), padded)


def _is_padded(block: Bytes, mark: int) -> bool:
    """Whether a space or the like stands next to a separator or at an end of a line."""
    spaces = np.flatnonzero((block <= _SPACE) & (block != _NEWLINE) & (block != mark))
    if not len(spaces):
        return False
    before = block[np.maximum(spaces - 1, 0)]
    after = block[spaces + 1]  # the last byte of a block ends a line
    beside = (before == mark) | (before == _NEWLINE) | (after == mark) | (after == _NEWLINE) | (spaces == 0)
    return bool(beside.any())


def only(data: bytes, layout: Layout, keep: npt.NDArray[np.bool_]) -> bytes:
    """The text less the lines that are not to be kept."""
    edges = np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return b"".join(
        data[layout.begins[start] : layout.ends[stop] + 1] for start, stop in zip(starts, stops, strict=True)
    )
