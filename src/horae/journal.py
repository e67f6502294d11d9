"""The journal: every event, decision and command of a run, one JSON object per line, append-only.

The first line holds the setup. An event is written before anything is done about it, so that after a crash the
scheduler can be rebuilt by replaying the events; the commands of the last one are then sent again.

    {"journal": 2, "setup": {...}}
    {"event": "JobSubmitted", "at": 0.0, "job": {...}}
    {"effects": 3}
    {"round": "all", "at": 0.0, "decision": {...}, "plan": {...}}
    {"command": "Start", "epoch": 0, ...}
    {"notice": "NodeInUse", "node": "n1", ...}

Times are seconds from the origin of the log. `effects` says how many lines the event led to: they are all there or,
after a crash, count as never written. Rounds and notices hold all that was decided, so that a scheduler can be rebuilt
from them without asking any policy.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple, Self, get_args

from horae.model.commands import CallForBids
from horae.model.effects import Effects, round_to_plain
from horae.model.errors import InputError, JournalError
from horae.model.events import Event
from horae.model.notices import DecisionRejected, FactRejected
from horae.model.plans import Reaction, Round
from horae.model.serialization import Plain, from_plain, to_plain
from horae.model.setup import Setup

VERSION = 2
_NAME_ONE = "name a file made with --journal"
_DAMAGED = "the journal is damaged here: take a whole copy of it"
_FULL = (ENOSPC, EDQUOT, EFBIG)
_EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}


class JournalLines:
    """The lines of a log: one per event, and those of its effects.

    A decision equal to the last one of its pool is omitted.
    """

    def __init__(self, last_decisions: Mapping[str, str] = MappingProxyType({})) -> None:
        self._last_decision = dict(last_decisions)

    def event(self, event: Event) -> str:
        return line_of({"event": type(event).__name__, **to_plain(event)})

    def effects(self, reaction: Reaction) -> list[str]:
        lines = [self._round(round_) for round_ in reaction.rounds]
        lines += [line_of({"command": type(command).__name__, **to_plain(command)}) for command in reaction.commands]
        lines += [line_of({"notice": type(notice).__name__, **to_plain(notice)}) for notice in reaction.notices]
        return lines

    def forget_decisions(self) -> None:
        """Makes the next lines readable without those before, as after a snapshot."""
        self._last_decision.clear()

    def _round(self, round_: Round) -> str:
        line = round_to_plain(round_)
        decision, plan = compact(line.pop("decision")), compact(line.pop("plan"))
        shown = "" if self._last_decision.get(round_.pool) == decision else f'"decision":{decision},'
        self._last_decision[round_.pool] = decision
        return f'{compact(line)[:-1]},{shown}"plan":{plan}}}\n'  # the decision may be long: it is converted once


def compact(plain: Plain) -> str:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def line_of(line: Mapping[str, Plain]) -> str:
    return compact(line) + "\n"


def header_line(setup: Setup, origin: str = "") -> str:
    """The first line: the setup and, where it is known, the date and time of second 0."""
    dated = {"origin": origin} if origin else {}
    return line_of({"journal": VERSION, "setup": to_plain(setup), **dated})


def count_line(effects: int) -> str:
    """The line between an event and its effects."""
    return line_of({"effects": effects})


class JournalWriter:
    """Writes the record of a run. With `flush`, every event reaches the file before it is acted upon.

    A file that cannot be written, e.g. on a full disk, is a `JournalError`.
    """

    def __init__(self, file: IO[str], *, flush: bool = False) -> None:
        self.file = file
        self._flush = flush
        self._lines = JournalLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(JournalError):  # closing writes what is buffered; the first error is the one to report
            self.close()

    def open(self, setup: Setup, origin: str = "") -> None:
        """Begins with the setup and, where it is known, the date and time of second 0."""
        self._write_text(header_line(setup, origin))

    def go_on(self, file: IO[str], last_decisions: Mapping[str, str]) -> None:
        """Continues in this file; from here on events are live."""
        self.file, self._flush = file, True
        self._lines = JournalLines(last_decisions)

    def flush(self) -> None:
        self._flush_file()

    def close(self) -> None:
        try:
            self.file.close()
        except OSError as error:
            raise _unwritable(error, self._name()) from None

    def heard(self, event: Event) -> None:
        self._write_text(self._lines.event(event))
        if self._flush:
            self._flush_file()

    def reacted(self, event: Event, reaction: Reaction) -> None:
        lines = self._lines.effects(reaction)
        if lines:
            self._write_text("".join([count_line(len(lines)), *lines]))

    def _write_text(self, text: str) -> None:
        try:
            self.file.write(text)
        except OSError as error:
            raise _unwritable(error, self._name()) from None

    def _flush_file(self) -> None:
        try:
            self.file.flush()
        except OSError as error:
            raise _unwritable(error, self._name()) from None

    def _name(self) -> object:
        return getattr(self.file, "name", "journal")


class JournalEntry(NamedTuple):
    """An event as recorded, and all lines that it led to."""

    line: int
    event: Event
    lines: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all effects are present; those of the last event may be incomplete."""
        return bool(self.lines) and len(self.lines) == 1 + int(json.loads(self.lines[0]).get("effects", 0))


def pack(lines: Sequence[str]) -> bytes | None:
    """The lines of the effects of an event, compressed; None if it had none."""
    return zlib.compress("".join(lines).encode(), 1) if lines else None


def packed_entry(line: int, event: Event, packed: bytes | None) -> JournalEntry:
    """An event with the packed lines of its effects."""
    # Not splitlines: texts in the lines may contain characters at which it would split, too.
    lines = [f"{each}\n" for each in zlib.decompress(packed).decode().split("\n")[:-1]] if packed else []
    return JournalEntry(line, event, (count_line(len(lines)), *lines) if lines else ())


class EffectsReader:
    """Reads the effects of entries in order: a decision that did not change was written only once."""

    def __init__(self, name: str = "journal") -> None:
        self._name = name
        self._last_decision: dict[str, Plain] = {}

    def read(self, entry: JournalEntry) -> Effects:
        rounds, calls, rejected, is_void = [], [], [], False
        for offset, line in enumerate(entry.lines[1:], start=2):
            plain, number = _load(line, self._name, entry.line + offset), entry.line + offset
            if "round" in plain:
                pool = str(plain["round"])
                plain["decision"] = self._last_decision[pool] = plain.get("decision", self._last_decision.get(pool))
                rounds.append(plain)
            elif plain.get("command") == CallForBids.__name__:
                calls.append(_decode(CallForBids, _without(plain, "command"), self._name, number))
            elif plain.get("notice") == DecisionRejected.__name__:
                rejected.append(_decode(DecisionRejected, _without(plain, "notice"), self._name, number))
            is_void |= plain.get("notice") == FactRejected.__name__
        return Effects(tuple(rounds), tuple(calls), tuple(rejected), is_void)

    @property
    def last_decisions(self) -> dict[str, str]:
        """By pool: the last decisions, for a writer that continues from here."""
        return {pool: compact(decision) for pool, decision in self._last_decision.items()}


def _without(plain: Mapping[str, Plain], key: str) -> Plain:
    return {name: value for name, value in plain.items() if name != key}


class JournalFile(NamedTuple):
    setup: Setup
    entries: Iterator[JournalEntry]
    origin: str = ""  # the date and time of second 0, if known


def read_journal(path: Path) -> JournalFile:
    """Reads the setup at once, and the entries lazily."""
    return parse_journal(_lines(path), str(path))


def _lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with path.open("rb") as file:
            for line in file:
                number += 1
                yield line.decode() if line.endswith(b"\n") else _unended(line)
    except UnicodeDecodeError:
        raise JournalError("not UTF-8 text", file=str(path), line=number, remedy=_DAMAGED) from None
    except OSError as error:
        raise JournalError(str(error.strerror), file=str(path), remedy="name a file made with --journal") from None


def _unended(line: bytes) -> str:
    """The text of a last line without its newline; empty if it was cut inside a character."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return ""


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the last one, if a crash truncated it; if only its newline is missing, it is complete."""
    for line in lines:
        if line.endswith("\n"):
            yield line
        elif _is_object(line):
            yield line + "\n"


def _is_object(line: str) -> bool:
    """Whether this is a complete JSON object: no proper prefix of an object is itself an object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def create_journal(path: Path) -> JournalWriter:
    try:
        return JournalWriter(path.open("w", encoding="utf-8", newline="\n"))
    except OSError as error:
        raise _unwritable(error, path) from None


def reopen_journal(path: Path, lines: int) -> IO[str]:
    """Opens a journal that was read without an error, to be continued after this many lines;
    later lines are removed."""
    try:
        with path.open("r+b") as file:
            end = 0
            for _, line in zip(range(lines), file, strict=False):
                end += len(line)
            file.seek(end)
            file.truncate()
            if lines and not line.endswith(b"\n"):
                file.write(b"\n")
        return path.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise _unwritable(error, path) from None


def _unwritable(error: OSError, name: object) -> JournalError:
    remedy = "make room for it, or write elsewhere" if error.errno in _FULL else "name a file in a folder of yours"
    return JournalError(f"cannot be written: {error.strerror}", file=str(name), remedy=remedy)


def parse_journal(lines: Iterable[str], name: str = "journal") -> JournalFile:
    numbered = enumerate(_whole(lines), start=1)
    _, first = next(numbered, (0, ""))
    if first and not first.startswith("{"):
        raise JournalError("is no journal", file=name, line=1, remedy=_NAME_ONE)
    if not first:
        raise JournalError("the journal has no complete line", file=name, line=1, remedy=_NAME_ONE)
    header = _load(first, name, 1)
    if header.get("journal") != VERSION or "setup" not in header:
        raise _other_version(header.get("journal"), name)
    origin = str(header.get("origin", ""))
    return JournalFile(_decode(Setup, header["setup"], name, 1), _entries(numbered, name), origin)


def _other_version(version: Plain, name: str) -> JournalError:
    if isinstance(version, int) and version != VERSION:
        problem = f"a journal of version {version}, and not a journal of version {VERSION}"
        return JournalError(problem, file=name, line=1, remedy="run it again with this version of Horae")
    return JournalError(f"not a journal of version {VERSION}", file=name, line=1, remedy=_NAME_ONE)


def _entries(numbered: Iterator[tuple[int, str]], name: str) -> Iterator[JournalEntry]:
    event: Event | None = None
    number, led_to = 0, list[str]()
    for line_number, line in numbered:
        plain = _load(line, name, line_number)
        if "event" in plain:
            if event is not None:
                yield JournalEntry(number, event, tuple(led_to))
            event, number, led_to = event_of(plain, name, line_number), line_number, []
        else:
            led_to.append(line)
    if event is not None:
        yield JournalEntry(number, event, tuple(led_to))


def event_of(line: dict[str, Plain], name: str, number: int) -> Event:
    """The event of a line that has been read as JSON."""
    kind = _EVENTS.get(str(line.pop("event")))
    if kind is None:
        raise JournalError("unknown kind of event", file=name, line=number, remedy="use a newer Horae")
    event: Event = _decode(kind, line, name, number)
    if not isfinite(event.at):
        raise JournalError(f"is {event.at}", file=name, line=number, field="at", remedy=_DAMAGED)
    return event


def _load(line: str, name: str, number: int) -> dict[str, Plain]:
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise JournalError("not a JSON object", file=name, line=number, remedy=_DAMAGED)
    return plain


def _decode(kind: type, plain: Plain, name: str, number: int) -> Plain:
    try:
        return from_plain(kind, plain)
    except InputError as error:
        raise error.located(file=name, line=number) from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise JournalError(f"not a {kind.__name__}: {error}", file=name, line=number, remedy=_DAMAGED) from None
