"""Login by token: it goes into a cookie that scripts cannot read and that other sites cannot send."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from horae.service.api.problems import Refused, response
from horae.service.api.routes.jobs import All
from horae.service.api.sessions import cookie_name
from horae.service.dashboard.rendering import HEADERS, rendered

router = APIRouter()
SESSION_SECONDS = 30 * 86_400
BODY_BYTES_MAX = 4096


@router.get("/login")
async def form(next: str = "/") -> Response:
    return rendered("login", target=_own_path(next), problem="")


@router.post("/login")
async def login(request: Request, all_: All) -> Response:
    if not _is_own_form(request):
        return _foreign_form()
    body = await request.body()
    fields = parse_qs(body.decode("utf-8", "replace")) if len(body) <= BODY_BYTES_MAX else {}
    token, target = fields.get("token", [""])[0].strip(), _own_path(fields.get("next", ["/"])[0])
    if not token or await all_.tokens.find(token) is None:
        problem = "This token is not valid, or has expired. `horae token create` makes one."
        return rendered("login", 401, target=target, problem=problem)
    answer = RedirectResponse(target, 303, headers=HEADERS)
    answer.set_cookie(
        cookie_name(request.headers.get("host", "")),
        token,
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def logout(request: Request) -> Response:
    if not _is_own_form(request):
        return _foreign_form()
    answer = RedirectResponse("/login", 303, headers=HEADERS)
    answer.delete_cookie(cookie_name(request.headers.get("host", "")), httponly=True, samesite="strict")
    return answer


def _is_own_form(request: Request) -> bool:
    """Whether a form comes from a page of this service: browsers tell, and other programs have no session to lose."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _foreign_form() -> Response:
    refused = Refused(403, "the form is of another site", remedy="open /login")
    return response(refused.problem)


def _own_path(target: str) -> str:
    """A path of this service; anything else would lead away from it."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own else "/"
