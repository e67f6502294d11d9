"""Sessions of browsers: the token of a login is in a cookie, which counts only as far as no other site can abuse it."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from starlette.types import Message, Scope, Send

from horae.service.api.problems import Refused

# A page of another site cannot send this header: the browser would ask the service first, which does not agree.
HEADER = "X-Horae-Dashboard"
_SNIFFING = (b"x-content-type-options", b"nosniff")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def cookie_name(host: str) -> str:
    """The cookie of the service at this address. Browsers give cookies to all ports of a host, so that each service
    needs a name of its own."""
    _, _, port = host.rpartition(":")
    return f"horae-session-{port}" if port.isascii() and port.isdigit() else "horae-session"


def session_token(scope: Scope) -> str | None:
    """The token in the cookie of a request. Changes are refused unless the dashboard's own module sends them."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if b"cookie" not in headers:
        return None
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers[b"cookie"])
    except CookieError:
        return None
    found = cookies.get(cookie_name(headers.get(b"host", "")))
    if found is None:
        return None
    if scope["method"] not in SAFE_METHODS and HEADER.lower().encode() not in headers:
        remedy = f"send the header {HEADER}, or Authorization: Bearer <token> instead of a cookie"
        raise Refused(403, "a change was requested with a cookie alone", remedy=remedy)
    return found.value


def wants_page(scope: Scope) -> bool:
    """Whether a request is a browser's that opens a page, which is led to the login instead of getting an error."""
    if scope["method"] != "GET" or scope["path"].startswith(("/v1/", "/data/")):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def unsniffed(send: Send) -> Send:
    """Answers to a browser, marked so that it never takes text, such as the output of a job, for a page."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start" and _SNIFFING not in message["headers"]:
            message = {**message, "headers": [*message["headers"], _SNIFFING]}
        await send(message)

    return marked
