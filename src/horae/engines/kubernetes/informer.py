"""List and watch: what there is of one kind, and every change, without a loss.

A thread lists, then watches from the version of the list. When the watch breaks, it continues from the last version
that it has seen; when that is too old (410), it lists anew, and what is no longer there counts as deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import structlog

from horae.engines.kubernetes.api import GONE, ApiProblem, Json, Kind, KubernetesApi

WATCH_SECONDS = 290.0  # the server ends a watch after this time, and the next one continues
PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)

log = structlog.get_logger("kubernetes")


class Change(NamedTuple):
    kind: Kind
    key: str  # the uid
    object: Json | None  # None: deleted
    is_listed: bool = False  # by a list: true even if it is older than what was seen, as after a restoration


class Synced(NamedTuple):
    """All that the kind's list had has been told."""

    kind: Kind


News = Change | Synced


class Informer:
    def __init__(self, api: KubernetesApi, kind: Kind, tell: Callable[[list[News]], None], **selectors: str) -> None:
        self._api = api
        self._kind = kind
        self._tell = tell
        self._selectors = selectors
        self._known: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {kind.plural}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait: the thread ends with its present answer, and tells nothing more."""
        self._stopped.set()

    def _run(self) -> None:
        version, failures = "", 0
        while not self._stopped.is_set():
            try:
                if not version:
                    version = self._list()
                version = self._watch(version)
                failures = 0
            except ApiProblem as problem:
                if problem.status != 0:
                    version = ""  # 410: the changes since then are no longer known; or the server is an older one
                if problem.status == GONE:
                    continue
                failures += 1
                if failures in (1, len(PAUSES_SECONDS)):
                    log.warning("cannot watch", kind=self._kind.plural, problem=str(problem))
                self._stopped.wait(PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS)) - 1])

    def _list(self) -> str:
        listed = self._api.list(self._kind, **self._selectors)
        changes: list[News] = [Change(self._kind, each["metadata"]["uid"], each, True) for each in listed.items]
        present = {each.key for each in changes if isinstance(each, Change)}
        changes += [Change(self._kind, key, None) for key in sorted(self._known - present)]
        self._known = present
        self._say([*changes, Synced(self._kind)])
        return listed.version

    def _watch(self, version: str) -> str:
        """Tells the changes until the watch ends; returns the version from which the next one continues."""
        try:
            with self._api.watch(self._kind, version, WATCH_SECONDS, **self._selectors) as changes:
                for change in changes:
                    if self._stopped.is_set():
                        return version
                    version = self._heard(change)
        except ApiProblem as problem:
            if problem.status != 0:
                raise
            if self._heard_nothing_since(version):
                raise
        return version

    def _heard_nothing_since(self, version: str) -> bool:
        """Whether the last watch has brought nothing new; then the next one begins after a pause."""
        stuck, self._stuck_at = version == self._stuck_at, version
        return stuck

    _stuck_at = ""

    def _heard(self, change: Json) -> str:
        if change["type"] == "ERROR":
            status = change["object"]
            raise ApiProblem(int(status.get("code", 500)), str(status.get("reason")), str(status.get("message")))
        metadata = change["object"]["metadata"]
        if change["type"] != "BOOKMARK":
            key, is_gone = metadata["uid"], change["type"] == "DELETED"
            (self._known.discard if is_gone else self._known.add)(key)
            self._say([Change(self._kind, key, None if is_gone else change["object"])])
        return str(metadata["resourceVersion"])

    def _say(self, news: list[News]) -> None:
        if not self._stopped.is_set():
            self._tell(news)
