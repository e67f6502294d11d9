"""Requests to the service: retries, and answers that are errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from horae.client.location import Address
from horae.model.errors import ServiceError
from horae.service.models import Problem
from horae.service.unix_socket import ShortAddress

READ_DELAYS = (0.2,)  # a request that changes nothing is sent once more
SUBMIT_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)  # a submission has a key, so that the service accepts it once
DELAY_SECONDS_MAX = 10.0
OUTAGE_SECONDS_MAX = 300.0  # for so long, waiting for a job survives a service that does not answer
_GET = re.compile(r"\bGET /v1/(\w+)")
NOT_ANSWERED = (0, 502, 503)  # the status of a service that is being started anew
REMEDIES = {
    401: "set HORAE_TOKEN to a token of this service",
    403: "ask an operator of the service to do it, or for another role",
    404: "list what there is with `horae ls --all`",
    429: "wait for running jobs to end, or ask an operator for a higher limit",
}

# Lists of the API, as users of the command line know them.
LISTS = {
    "jobs": "horae ls --all",
    "nodes": "horae nodes",
    "tenants": "horae tenants ls",
    "pools": "horae pools",
    "tokens": "horae token ls",
}

Params = Mapping[str, object]


class Connection:
    """A service at an address. Times between retries are slept by `sleep`."""

    def __init__(self, address: Address, timeout_seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self.address = address
        self.sleep = sleep
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self._timeout_seconds = timeout_seconds
        try:
            self._socket = ShortAddress(Path(address.socket)) if address.socket else None
            self._http = httpx.Client(
                base_url=f"{address.url}/v1",
                headers=headers,
                timeout=timeout_seconds,
                transport=httpx.HTTPTransport(uds=self._socket.text) if self._socket else None,
            )
        except OSError as error:
            raise _not_running(address, error) from None
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise ServiceError(f"{address} is no address of a service: {error}", remedy="fix HORAE_URL") from None

    def close(self) -> None:
        self._http.close()
        if self._socket is not None:
            self._socket.close()

    def get(self, path: str, params: Params | None = None) -> Any:
        """The answer to a request that changes nothing."""
        return self.send("GET", path, params=params, delays=READ_DELAYS)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        delays: Sequence[float] = (),
    ) -> Any:
        """The answer as plain data; it is sent again, after these delays, while the service cannot be reached."""
        return self._plain(self._request(method, path, body, params, headers, delays))

    def read_bytes(self, path: str, params: Params | None = None) -> tuple[bytes, Mapping[str, str]]:
        """An answer that is no JSON, and its headers."""
        response = self._request("GET", path, None, params, None, READ_DELAYS)
        return response.content, response.headers

    def _request(
        self,
        method: str,
        path: str,
        body: object,
        params: Params | None,
        headers: Mapping[str, str] | None,
        delays: Sequence[float],
    ) -> httpx.Response:
        for delay in (*delays, None):
            try:
                sent = {"content": body} if isinstance(body, bytes) else {"json": body}
                response = self._http.request(method, path, params=_query(params), headers=dict(headers or {}), **sent)
            except (httpx.TransportError, httpx.DecodingError) as error:
                failure, wait_seconds = self._no_answer(error), 0.0
            else:
                if not response.is_error:
                    return response
                failure, wait_seconds = problem_of(response), _retry_after(response)
                if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    raise failure
            if delay is None:
                raise failure
            self.sleep(max(delay, wait_seconds))
        raise AssertionError("the last attempt answers or fails")

    @contextmanager
    def stream(
        self, path: str, params: Params | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """An answer that is read while it is made; it may pause for any time."""
        timeout = httpx.Timeout(self._timeout_seconds, read=None)
        try:
            with self._http.stream(
                "GET", path, params=_query(params), headers=dict(headers or {}), timeout=timeout
            ) as response:
                if response.is_error:
                    response.read()
                    raise problem_of(response)
                yield response
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self._no_answer(error) from None

    def _plain(self, response: httpx.Response) -> Any:
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise self.unreadable() from None

    def unreadable(self) -> ServiceError:
        problem = f"{self.address} answered what this version of Horae cannot read"
        return ServiceError(problem, remedy="check the address, and that client and service have the same version")

    def _no_answer(self, error: Exception) -> ServiceError:
        if isinstance(error, httpx.TimeoutException):
            problem = f"the service at {self.address} did not answer within {self._timeout_seconds:g} s"
            return ServiceError(problem, remedy="try again, or see its log")
        if isinstance(error, httpx.ConnectError):
            return _not_running(self.address, error)
        return ServiceError(f"the service at {self.address} closed the connection", remedy="try again, or see its log")


def _not_running(address: Address, error: Exception) -> ServiceError:
    problem = f"no service answers at {address} ({_cause(error)})"
    return ServiceError(problem, remedy="start it with `horae up`, or set HORAE_URL to another one")


def problem_of(response: httpx.Response) -> ServiceError:
    """An error answer as an error; answers that are no problem+json, too."""
    status = response.status_code
    remedy = REMEDIES.get(status, "see the log of the service" if status >= 500 else "check the request")
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        said = f"the service answered {status} {response.reason_phrase}".strip()
        return ServiceError(said, remedy=remedy, status=status)
    return ServiceError(
        problem.detail or problem.title,
        remedy=_GET.sub(lambda found: f"`{LISTS.get(found[1], found[0])}`", problem.remedy or remedy),
        field=problem.field or "",
        status=status,
    )


def _query(params: Params | None) -> list[tuple[str, str | int | float | bool | None]]:
    """Parameters without those that are not given; one per value of a list."""
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in (params or {}).items():
        if isinstance(value, list | tuple | set | frozenset):
            pairs += [(name, str(each)) for each in sorted(value)]
        elif isinstance(value, bool | int | float):
            pairs.append((name, value))
        elif value is not None:
            pairs.append((name, str(value)))
    return pairs


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(max(float(response.headers.get("Retry-After", "0")), 0.0), DELAY_SECONDS_MAX)
    except ValueError:  # a date
        return 0.0


def _cause(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix("[Errno ").partition("] ")[2] or text
