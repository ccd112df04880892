"""The dashboard as an application of Starlette: one page, its files, one stream of events.

In: a `Board`; requests of browsers. Out: answers that change no group; a what-if may be begun and
cancelled. Must not know: how groups are read, sockets. Needs the extra ``dashboard``.

A page of another origin must not read this page. Browsers keep answers apart by origin, and the
check of the Host header refuses a foreign name that resolves to this address (DNS rebinding). The
policy of the page permits its own files only, and no name of a group or a client is ever HTML. A
what-if is asked for in JSON: a browser sends that from a page of another origin only after a
question that is refused here, and the Origin header is compared, too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kohort.dashboard.assets import DRAWING, asset
from kohort.dashboard.board import Board, Reader
from kohort.dashboard.playing import Play
from kohort.dashboard.trying import Busy, Trying, Wanted
from kohort.model.errors import ConfigError

LOCAL: Final = ("127.0.0.1", "localhost", "::1", "[::1]")
"""The names of the loopback in a Host header."""
MOST_STREAMS: Final = 200
"""Open streams of events; further ones are refused."""
_LONGEST_BODY: Final = 20_000
_AGAIN_S: Final = 0.25
_ALIVE_S: Final = 15.0
"""A comment is sent so often, so that a broken connection is noticed."""
_FILES: Final = {
    **dict.fromkeys(DRAWING, "text/javascript"),
    "dashboard.js": "text/javascript",
    "outcomes.js": "text/javascript",
    "whatif.js": "text/javascript",
    "lab.js": "text/javascript",
    "style.css": "text/css",
}
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def application(
    board: Board,
    hosts: Sequence[str] = LOCAL,
    trying: Trying | None = None,
    play: Play | None = None,
) -> Starlette:
    """The application.

    Args:
        board: the groups to show.
        hosts: names that a Host header may have; any other request is refused.
        trying: makes the comparisons of a what-if; None: the page has none.
        play: two groups that the page ``/lab`` disturbs; None: there is no such page.
    """
    streams = _Streams(board, trying)
    return Starlette(
        routes=[
            Route("/", _page),
            Route("/favicon.ico", _nothing),
            Route("/static/{name}", _file),
            Route("/events", streams.open),
            *_what_if(trying),
            *_lab(play),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        ],
    )


class _Headers:
    """Adds the headers that bound what a browser does with an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, sent)


def _page(_request: Request) -> Response:
    return Response(asset("index.html"), media_type="text/html")


def _nothing(_request: Request) -> Response:
    return Response(status_code=204)


def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _FILES:
        return PlainTextResponse("no such file", 404)
    return Response(asset(name), media_type=_FILES[name])


def _what_if(trying: Trying | None) -> list[BaseRoute]:
    """The requests about comparisons."""
    if trying is None:
        return []

    def choices(_request: Request) -> Response:
        return JSONResponse(trying.choices())

    async def begin(request: Request) -> Response:
        if (refused := _foreign(request)) is not None:
            return refused
        text = await _body(request)
        if text is None:
            return PlainTextResponse("the request is too long", 413)
        try:
            trying.begin(Wanted.of(json.loads(text)))
        except Busy as error:
            return PlainTextResponse(str(error), 409)
        except (ConfigError, ValueError, RecursionError) as error:
            return PlainTextResponse(str(error), 400)
        return Response(status_code=202)

    def cancel(request: Request) -> Response:
        if (refused := _foreign(request)) is not None:
            return refused
        trying.cancel()
        return Response(status_code=202)

    return [
        Route("/what-if", choices),
        Route("/what-if", begin, methods=["POST"]),
        Route("/what-if", cancel, methods=["DELETE"]),
    ]


def _lab(play: Play | None) -> list[BaseRoute]:
    """The page of two groups, and its requests."""
    if play is None:
        return []

    def page(_request: Request) -> Response:
        return Response(asset("lab.html"), media_type="text/html")

    def state(_request: Request) -> Response:
        return JSONResponse(play.state())

    async def act(request: Request) -> Response:
        if (refused := _foreign(request)) is not None:
            return refused
        text = await _body(request)
        try:
            values = json.loads(text or b"")
            play.act(str(values["act"]), str(values["member"]))
        except (ConfigError, ValueError, KeyError, TypeError, RecursionError) as error:
            return PlainTextResponse(str(error), 400)
        return Response(status_code=202)

    def as_test(_request: Request) -> Response:
        named = {"content-disposition": 'attachment; filename="test_group.py"'}
        return Response(play.as_test(), media_type="text/x-python", headers=named)

    return [
        Route("/lab", page),
        Route("/lab/state", state),
        Route("/lab/act", act, methods=["POST"]),
        Route("/lab/test_group.py", as_test),
    ]


async def _body(request: Request) -> bytes | None:
    """The text of a request; None if it is too long."""
    text = b""
    async for part in request.stream():
        text += part
        if len(text) > _LONGEST_BODY:
            return None
    return text


def _foreign(request: Request) -> Response | None:
    """The refusal of a request that another page may have made."""
    if request.headers.get("content-type", "") != "application/json":
        return PlainTextResponse("expected application/json", 415)
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers['host']}":
        return PlainTextResponse("another page asks", 403)
    return None


class _Streams:
    """The open streams of events."""

    def __init__(self, board: Board, trying: Trying | None) -> None:
        self._board = board
        self._trying = trying
        self._count = 0

    async def open(self, request: Request) -> Response:
        if self._count >= MOST_STREAMS:
            return PlainTextResponse(f"{MOST_STREAMS} pages are open; close one", 503)
        reader = Reader(request.query_params.get("group", ""))
        return StreamingResponse(self._events(reader), media_type="text/event-stream")

    async def _events(self, reader: Reader) -> AsyncIterator[str]:
        self._count += 1
        try:
            told, version = time.monotonic(), -1
            yield "retry: 2000\n\n"
            while not self._board.closed:
                news = self._board.news(reader)
                tried = None if self._trying is None else self._trying.news(version)
                if tried is not None:
                    version = tried[0]
                    news.append(("what-if", tried[1]))
                for name, values in news:
                    text = json.dumps(values, separators=(",", ":"))
                    yield f"event: {name}\ndata: {text}\n\n"
                    told = time.monotonic()
                if time.monotonic() - told > _ALIVE_S:
                    yield ": alive\n\n"
                    told = time.monotonic()
                await asyncio.sleep(_AGAIN_S)
        finally:
            self._count -= 1
