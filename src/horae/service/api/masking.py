"""Hides other tenants' jobs: a requester sees of them only that they exist.

Texts of reasons name other jobs after a few fixed phrases of `horae.model.reasons`; what stands there is replaced
unless the job is one that the requester may see.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from sqlalchemy import Connection, select

from horae.service.api.identity import Identity
from horae.service.store.schema import jobs

OTHER = "other-tenant job"
_ONE = re.compile(r"\b(preempted by|waits behind) ([^\s,;]+)")
_MANY = re.compile(r"\b(held while) (.+?) (leaves?)\b")
# Records of older versions name the process or the job that held a GPU.
_HOLDER = re.compile(r"\b(GPU \S+|job \S+) is held by .*")
_CHUNK = 500  # ids in one query


def visible_ids(connection: Connection, who: Identity, ids: Iterable[str]) -> set[str]:
    """Those of the ids that are jobs which the requester may see."""
    wanted = sorted(set(ids))
    if who.sees_all:
        return set(wanted)
    found: set[str] = set()
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        found |= set(connection.scalars(select(jobs.c.id).where(jobs.c.id.in_(chunk), jobs.c.tenant == who.tenant)))
    return found


def masked(ids: Iterable[str], visible: Collection[str]) -> list[str]:
    return [job_id if job_id in visible else OTHER for job_id in ids]


def named_jobs(text: str) -> list[str]:
    """The ids of jobs that the text of a reason names."""
    found = [match[2] for match in _ONE.finditer(text)]
    return found + [name for match in _MANY.finditer(text) for name in match[2].split(", ")]


def masked_text(text: str, visible: Collection[str]) -> str:
    """The text of a reason with the ids of other tenants' jobs replaced."""
    text = _ONE.sub(lambda match: f"{match[1]} {masked([match[2]], visible)[0]}", without_holder(text))
    return _MANY.sub(lambda match: f"{match[1]} {_summary(match[2].split(', '), visible)} {match[3]}", text)


def without_holder(text: str) -> str:
    """The text without the process that held a GPU, which may be another user's."""
    return _HOLDER.sub(r"\1 is still in use by another process", text)


def _summary(ids: list[str], visible: Collection[str]) -> str:
    return ", ".join(dict.fromkeys(masked(ids, visible)))


class ReasonMask:
    """Masks the reasons of one answer with one query."""

    def __init__(self, connection: Connection, who: Identity, texts: Iterable[str]) -> None:
        self._sees_all = who.sees_all
        named = [] if self._sees_all else [name for text in texts for name in named_jobs(text)]
        self._visible = visible_ids(connection, who, named) if named else set()

    def __call__(self, text: str) -> str:
        return text if self._sees_all or not text else masked_text(text, self._visible)
