"""A thread that posts the progress of a run at a bounded rate. Training never waits for it nor sees its errors."""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import Any, Callable, Mapping
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

_TIMEOUT_SECONDS = 2.0
_BACK_OFF_SECONDS_MAX = 60.0
_log = logging.getLogger("horae_sdk")


class _NoRedirects(HTTPRedirectHandler):
    """A redirect is an error: the token must not go to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def progress_url(base: str, job: str) -> str:
    return f"{base.rstrip('/')}/v1/jobs/{quote(job, safe='')}/progress"


class Reporter:
    """Posts `body()` after news, the newest content only, once per `seconds`; after failures less and less often."""

    def __init__(self, url: str, token: str | None, body: Callable[[], Mapping[str, object]], seconds: float) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._body = body
        self._seconds = seconds
        self._sent = b""
        self._failures = 0
        # The service is named by its own address: a proxy for the outside world would not reach it.
        self._opener = build_opener(ProxyHandler({}), _NoRedirects())
        self._news = threading.Event()
        self._closing = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, name="horae-reports", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is news."""
        if not self._news.is_set():  # which is cheaper than setting it
            self._news.set()

    def close(self) -> None:
        """Post the last news; give up after two seconds."""
        if os.getpid() != self._process:  # a forked process has no such thread
            return
        self._closing.set()
        self._news.set()
        self._thread.join(_TIMEOUT_SECONDS)

    def _work(self) -> None:
        while not self._closing.is_set():
            self._news.wait()
            self._news.clear()
            if not self._post():
                self._news.set()
            self._closing.wait(self._pause_seconds())
        self._post()

    def _pause_seconds(self) -> float:
        return min(self._seconds * 2.0 ** min(self._failures, 30), max(_BACK_OFF_SECONDS_MAX, self._seconds))

    def _post(self) -> bool:
        try:
            data = json.dumps(self._body(), allow_nan=False).encode()
            if data != self._sent:
                request = Request(self._url, data=data, headers=self._headers, method="POST")
                with self._opener.open(request, timeout=_TIMEOUT_SECONDS):
                    self._sent = data
        except Exception as error:  # whatever it is, training goes on
            self._failures += 1
            if self._failures == 1:
                _log.warning("progress is not reported for now: %s: %s", self._url, error)
            return False
        self._failures = 0
        return True
