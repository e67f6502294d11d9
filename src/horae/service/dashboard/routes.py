"""Routes of the dashboard: each page as HTML and as data, and the files that it loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from horae.service.api.event_queries import last_seq
from horae.service.api.problems import problem_of
from horae.service.api.routes.jobs import All, Who
from horae.service.dashboard import login
from horae.service.dashboard.page import Page, View
from horae.service.dashboard.registry import PAGES
from horae.service.dashboard.rendering import FOLDER, HEADERS, compact_json, rendered

Route = Callable[[Request, Who, All], Awaitable[Response]]


class _Files(StaticFiles):
    """The dashboard's own scripts and styles; a browser asks each time whether they have changed."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        answer = super().file_response(*args, **options)
        answer.headers.update({**HEADERS, "Cache-Control": "no-cache"})
        return answer


def mount(app: FastAPI) -> None:
    """Adds all pages to the API, outside of its description: they are for people."""
    router = APIRouter(include_in_schema=False)
    router.include_router(login.router)
    router.add_api_route("/", _home)
    for page in PAGES:
        router.add_api_route(page.path, _as_page(page))
        router.add_api_route(f"/data{page.path}", _as_data(page))
    app.include_router(router)
    app.mount("/static", _Files(directory=FOLDER / "static"))


async def _home() -> Response:
    return RedirectResponse(PAGES[0].path, 303)


async def _data(page: Page, request: Request, who: Who, all_: All) -> dict[str, Any]:
    """The data of a page, and the last event before it was read: later ones are sent as a stream."""
    seq = await all_.read(last_seq)
    found = await page.data(View(all_, who, request.path_params, request.query_params))
    return {"seq": seq, **found}


def _as_page(page: Page) -> Route:
    async def show(request: Request, who: Who, all_: All) -> Response:
        frame: dict[str, Any] = {"who": who, "pages": PAGES, "page": page, "url": f"/data{request.url.path}"}
        try:
            return rendered(page.name, data=await _data(page, request, who, all_), **frame)
        except Exception as error:
            refused = problem_of(error)
            return rendered("problem", refused.problem.status, problem=refused.problem, **frame)

    return show


def _as_data(page: Page) -> Route:
    async def read(request: Request, who: Who, all_: All) -> Response:
        data = await _data(page, request, who, all_)
        return Response(compact_json(data), headers={"Cache-Control": "no-store"}, media_type="application/json")

    return read
