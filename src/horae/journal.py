"""The journal: every event, decision and command of a run, one JSON object a line, only ever appended to.

The first line holds the setup. An event is written before anything is done about it, so that after a crash the
scheduler can be rebuilt by replaying the events; the commands of the last one are then sent again.

    {"journal": 1, "setup": {...}}
    {"event": "JobSubmitted", "at": 0.0, "job": {...}}
    {"round": "all", "at": 0.0, "decision": {...}, "plan": {...}}
    {"command": "Start", "epoch": 0, ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from math import isfinite
from pathlib import Path
from typing import IO, NamedTuple, Self, get_args

from horae.model.decisions import Decision, Grants, Ranking, Shares
from horae.model.errors import InputError, JournalError
from horae.model.events import Event
from horae.model.plain import Plain, from_plain, to_plain
from horae.model.plans import Reaction, Round
from horae.model.pools import Setup
from horae.model.table import NOBODY

VERSION = 1
_DAMAGED = "the journal is damaged here: take a whole copy of it"
_FULL = (ENOSPC, EDQUOT, EFBIG)
_EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}


class JournalWriter:
    """The record of a run. With `flush`, every event reaches the file before it is acted upon.

    A file that cannot be written, e.g. on a full disk, is a `JournalError`.
    """

    def __init__(self, file: IO[str], *, flush: bool = False) -> None:
        self._file = file
        self._flush = flush
        self._last_decision: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(JournalError):  # closing writes what is buffered; the first error is the one to report
            self.close()

    def open(self, setup: Setup) -> None:
        self._write({"journal": VERSION, "setup": to_plain(setup)})

    def go_on(self, file: IO[str], missing: str) -> None:
        """Continue in this file, first with what a crash kept from being written; from here on it is live."""
        self._file, self._flush = file, True
        self._write_text(missing)
        self._flush_file()

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise _unwritable(error, self._name()) from None

    def heard(self, event: Event) -> None:
        self._write({"event": type(event).__name__, **to_plain(event)})
        if self._flush:
            self._flush_file()

    def reacted(self, event: Event, reaction: Reaction) -> None:
        for round_ in reaction.rounds:
            self._write(self._round(round_))
        for command in reaction.commands:
            self._write({"command": type(command).__name__, **to_plain(command)})

    def _round(self, round_: Round) -> dict[str, Plain]:
        """A decision that is the same as the last one of its pool is left out."""
        line: dict[str, Plain] = {"round": round_.pool, "at": round_.at}
        names = dict(zip(round_.rows.tolist(), round_.job_ids, strict=True))
        decision = decision_to_plain(round_.decision, names)
        text = json.dumps(decision)
        if self._last_decision.get(round_.pool) != text:
            self._last_decision[round_.pool] = text
            line["decision"] = decision
        line["plan"] = plan_to_plain(round_)
        return line

    def _write(self, line: Mapping[str, Plain]) -> None:
        self._write_text(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")

    def _write_text(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError as error:
            raise _unwritable(error, self._name()) from None

    def _flush_file(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise _unwritable(error, self._name()) from None

    def _name(self) -> object:
        return getattr(self._file, "name", "journal")


def decision_to_plain(decision: Decision, names: Mapping[int, str]) -> Plain:
    """A decision by job id instead of by row."""
    match decision:
        case Ranking():
            plain: dict[str, Plain] = {"ranking": [names[row] for row in decision.order.tolist()]}
            if decision.tier is not None:
                plain["tier"] = dict(sorted((names[row], tier) for row, tier in enumerate(decision.tier.tolist())))
            if len(decision.promoted):
                plain["promoted"] = sorted(names[row] for row in decision.promoted.tolist())
            return plain
        case Shares():
            shares = dict(sorted((names[row], share) for row, share in enumerate(decision.fraction.tolist())))
            return {"shares": shares, **_pairs_to_plain(decision, names), **_evidence_to_plain(decision)}
        case Grants():
            columns = (decision.row.tolist(), decision.option.tolist(), decision.lease_seconds.tolist())
            grants = [[names[row], option, seconds] for row, option, seconds in zip(*columns, strict=True)]
            said = {"notices": to_plain(decision.notices)} if decision.notices else {}
            rest = {"rest": decision_to_plain(decision.rest, names)}
            return {"grants": grants, **_company_to_plain(decision, names), **rest, **said}


def _pairs_to_plain(shares: Shares, names: Mapping[int, str]) -> dict[str, Plain]:
    pairs = shares.pairs
    if pairs is None:
        return {}
    columns = (pairs.first, pairs.second, pairs.first_option, pairs.second_option, pairs.fraction)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    named = [[names[first], names[second], one, other, part] for first, second, one, other, part in rows]
    return {"pairs": sorted(named)}


def _company_to_plain(grants: Grants, names: Mapping[int, str]) -> dict[str, Plain]:
    """By grant: who shares the GPUs, and its option; nothing for those alone."""
    if grants.partner is None or grants.partner_option is None:
        return {}
    columns = zip(grants.partner.tolist(), grants.partner_option.tolist(), strict=True)
    return {"beside": [[names[row], option] if row != NOBODY else None for row, option in columns]}


def _evidence_to_plain(shares: Shares) -> dict[str, Plain]:
    evidence = shares.evidence
    if evidence is None:
        return {}
    figures: dict[str, Plain] = {"value": evidence.value, "bound": evidence.bound, "prices": evidence.prices.tolist()}
    return {"evidence": {"objective": evidence.objective, **figures}}


def plan_to_plain(round_: Round) -> Plain:
    job_id = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
    plan = round_.plan
    plain: dict[str, Plain] = {
        "start": [
            {"job": job_id[item.serial], "shape": str(item.shape), "because": str(item.reason)}
            | ({"beside": job_id[item.partner]} if item.partner != NOBODY else {})
            for item in plan.placements
        ],
        "stop": [{"job": job_id[item.serial], "because": str(item.reason)} for item in plan.departures],
        "extend": [job_id[serial] for serial, _ in plan.extensions],
        "wait": [str(reason) for _, reason in sorted(plan.blocked.items())],
        "head": str(plan.head) if plan.head else None,
    }
    return {key: value for key, value in plain.items() if value}


class Entry(NamedTuple):
    """An event as it was recorded, and all lines that it led to."""

    line: int
    event: Event
    lines: tuple[str, ...]


class Journal(NamedTuple):
    setup: Setup
    entries: Iterator[Entry]


def read_journal(path: Path) -> Journal:
    """The setup at once, the entries as they are asked for."""
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
    """The text of a last line without its newline; empty if that was cut inside a character."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return ""


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the last one, if a crash cut that short; if only its newline is missing, it is whole."""
    for line in lines:
        if line.endswith("\n"):
            yield line
        elif _is_object(line):
            yield line + "\n"


def _is_object(line: str) -> bool:
    """Whether this is all of a JSON object: no part of one that begins where it begins is an object itself."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def create_journal(path: Path) -> JournalWriter:
    try:
        return JournalWriter(path.open("w", encoding="utf-8", newline="\n"))
    except OSError as error:
        raise _unwritable(error, path) from None


def reopen_journal(path: Path) -> IO[str]:
    """A journal that was read without an error, to be continued: a line that a crash cut short is removed first."""
    try:
        with path.open("r+b") as file:
            end, last = 0, b"\n"
            for line in file:
                end, last = end + len(line), line
            if not last.endswith(b"\n"):
                if _is_object(_unended(last)):
                    file.write(b"\n")
                else:
                    file.truncate(end - len(last))
        return path.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise _unwritable(error, path) from None


def _unwritable(error: OSError, name: object) -> JournalError:
    remedy = "make room for it, or write elsewhere" if error.errno in _FULL else "name a file in a folder of yours"
    return JournalError(f"cannot be written: {error.strerror}", file=str(name), remedy=remedy)


def parse_journal(lines: Iterable[str], name: str = "journal") -> Journal:
    numbered = enumerate(_whole(lines), start=1)
    _, first = next(numbered, (0, ""))
    header = _load(first, name, 1)
    if header.get("journal") != VERSION or "setup" not in header:
        raise JournalError(
            f"not a journal of version {VERSION}", file=name, line=1, remedy="name a file made with --journal"
        )
    return Journal(_decode(Setup, header["setup"], name, 1), _entries(numbered, name))


def _entries(numbered: Iterator[tuple[int, str]], name: str) -> Iterator[Entry]:
    event: Event | None = None
    number, led_to = 0, list[str]()
    for line_number, line in numbered:
        plain = _load(line, name, line_number)
        if "event" in plain:
            if event is not None:
                yield Entry(number, event, tuple(led_to))
            kind = _EVENTS.get(str(plain.pop("event")))
            if kind is None:
                raise JournalError("unknown kind of event", file=name, line=line_number, remedy="use a newer Horae")
            event, number, led_to = _decode(kind, plain, name, line_number), line_number, []
            if not isfinite(event.at):
                raise JournalError(f"is {event.at}", file=name, line=line_number, field="at", remedy=_DAMAGED)
        else:
            led_to.append(line)
    if event is not None:
        yield Entry(number, event, tuple(led_to))


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
