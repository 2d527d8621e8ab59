"""Who may speak to a page's server: somebody who knows its token, from a page that it has served itself.

The server listens on loopback alone. That keeps out other machines, but neither other users of this one nor web pages
that a browser here has open. So the URL carries a token, which becomes a cookie at the first visit. A request must name
a loopback host (a name that an attacker's DNS points here is none), and if it says where it comes from, that must be
the page itself.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_BYTES = 24
MOST_BYTES = 64 * 1024  # of a request's body
_ICON = Path(__file__).parent / "pages" / "icon.svg"
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_METHODS = ("GET", "HEAD", "POST")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_NO_STORE = (b"cache-control", b"no-store")
# Asked for again by the page itself, so that the strict cookie goes along wherever the link was clicked.
_GO_ON = (
    '<!doctype html><meta charset="utf-8"><title>Railbed</title><meta http-equiv="refresh" content="0; url={path}">'
)


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


class Guard:
    """An application behind its token; `path` is where its pages begin, and where the cookie goes."""

    def __init__(self, app: ASGIApp, token: str, path: str = "/") -> None:
        self.app = app
        self.token = token
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refused(scope)
            if answer is None:
                await self.app(scope, receive, _with_headers(send))
            else:
                await answer(scope, receive, _with_headers(send))

    def _refused(self, scope: Scope) -> Response | None:
        """The answer to a request that does not get to the application."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        name, port = _split(host)
        if name not in _HOSTS:
            return _no("this server answers to 127.0.0.1 and localhost alone")
        if scope["method"] not in _METHODS:
            return PlainTextResponse("only GET and POST\n", 405)
        if scope["method"] == "POST" and not _short(headers.get("content-length", "")):
            return PlainTextResponse(f"a body of at most {MOST_BYTES} bytes, and its length before it\n", 413)
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return _no("the request comes from another page")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and scope["method"] == "POST":
            return _no("the request comes from another page")
        cookie = f"railbed-{port}{self.path.strip('/')}"  # a browser may have those of both pages
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if tokens and scope["method"] == "GET" and scope["path"] == self.path:
            return self._enter(tokens[0], cookie)
        if scope["path"] == "/favicon.ico":  # asked for by browsers on their own, for answers that are no page too
            return FileResponse(_ICON, media_type="image/svg+xml", headers={"cache-control": "max-age=86400"})
        if self._same(_cookie(headers.get("cookie", ""), cookie)):
            return None
        return _no("open the URL that the command has printed, with its token")

    def _enter(self, token: str, cookie: str) -> Response:
        if not self._same(token):
            return _no("that is not the token of this server: open the URL that the command has printed last")
        answer = HTMLResponse(_GO_ON.format(path=self.path), headers={"cache-control": "no-store"})
        answer.set_cookie(cookie, self.token, path=self.path, httponly=True, samesite="strict")
        return answer

    def _same(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())


def _short(length: str) -> bool:
    return length.isascii() and length.isdecimal() and len(length) < 10 and int(length) <= MOST_BYTES


def _split(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host, "80"
    return name, port


def _cookie(header: str, name: str) -> str:
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _no(why: str) -> Response:
    return PlainTextResponse(f"{why}\n", 403)


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            cache = [] if any(name == b"cache-control" for name, _ in message["headers"]) else [_NO_STORE]
            message = {**message, "headers": [*message["headers"], *own, *cache]}
        await send(message)

    return with_headers
