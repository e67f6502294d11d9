"""Errors as problem+json (RFC 9457): what is wrong, in which field, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException

from horae.model.errors import InputError
from horae.model.safe_text import printable, shown
from horae.service.models import Problem

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Request too large",
    422: "Invalid request",
    429: "Limit reached",
    500: "Internal error",
    503: "Not available",
    507: "Disk full",
}
_TAGS = {"body", "query", "path", "header", "one", "many"}
log = structlog.get_logger("horae.api")


class Refused(Exception):
    """A request that is refused, with the answer to it."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
        example: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            title=TITLES.get(status, "Error"), status=status, detail=detail, field=field, remedy=remedy, example=example
        )
        self.headers = dict(headers or {})


def invalid(error: InputError, *, field: str = "", example: Any = None) -> Refused:
    """The answer to an input error of the core."""
    return Refused(422, error.problem, field=error.field or field or None, remedy=error.remedy or None, example=example)


def no_such(kind: str, name: str) -> Refused:
    return Refused(404, f"there is no {kind} {shown(name)}", remedy=f"list them with GET /v1/{kind}s")


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    body = problem.model_dump_json(exclude_none=True)
    return Response(body, problem.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def problem_of(error: BaseException) -> Refused:
    """The answer to any error; what is unexpected is logged, and its text is not sent."""
    match error:
        case Refused():
            return error
        case InputError():
            return invalid(error)
        case RequestValidationError():
            return _of_validation(error.errors())
        case HTTPException():  # also what FastAPI makes of an error while it reads the body
            return error.__cause__ if isinstance(error.__cause__, Refused) else _of_http(error)
        case UnicodeError() | OverflowError() | DataError():
            return Refused(422, "a value cannot be stored", remedy="use valid text and numbers of at most 64 bits")
        case NoConnection():
            return Refused(503, "too many requests at a time", remedy="try again", headers={"Retry-After": "1"})
        case DBAPIError():
            return _of_database(error)
    log.error("request failed", exc_info=error)
    return Refused(500, "an internal error; the service's log has its details", remedy="report it to the operator")


def install(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        refused = problem_of(error)
        return response(refused.problem, refused.headers)

    kinds: tuple[type[Exception], ...] = (
        Refused, InputError, RequestValidationError, HTTPException, UnicodeError, OverflowError, DBAPIError,
        NoConnection, Exception,
    )  # fmt: skip
    for kind in kinds:
        app.add_exception_handler(kind, answer)


def _of_validation(errors: Any) -> Refused:
    details = errors[0]
    place = [str(part) for part in details["loc"] if str(part) not in _TAGS]
    field = ".".join(place) or None
    match details["type"]:
        case "missing":
            return Refused(422, "is missing", field=field, remedy="add it")
        case "extra_forbidden":
            return Refused(422, "is not a known field", field=field, remedy="remove it or check its spelling")
        case "json_invalid":
            return Refused(422, "the body is not JSON", remedy="send a JSON object with Content-Type: application/json")
        case "value_error":
            problem, _, remedy = str(details["ctx"]["error"]).partition("; ")
            return Refused(422, problem, field=field, remedy=remedy or None)
    remedy = re.sub("^(Input|String|List)", "it", details["msg"].partition(", unable")[0])
    return Refused(422, f"is {shown(details.get('input'))}", field=field, remedy=printable(remedy))


def _of_http(error: HTTPException) -> Refused:
    remedy = "the routes are listed in /openapi.json" if error.status_code in (404, 405) else None
    return Refused(error.status_code, str(error.detail), remedy=remedy, headers=error.headers)


def _of_database(error: DBAPIError) -> Refused:
    text = str(error.orig)
    if "disk is full" in text or "No space left" in text or "could not extend file" in text:
        return Refused(507, "the disk of the service is full; nothing was changed", remedy="tell the operator")
    if isinstance(error, OperationalError):
        log.warning("store not available", error=text)
        return Refused(503, "the store is not available", remedy="try again", headers={"Retry-After": "1"})
    log.error("request failed", exc_info=error)
    return Refused(500, "an internal error; the service's log has its details", remedy="report it to the operator")
