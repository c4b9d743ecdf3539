"""The server of the page: on 127.0.0.1, for the browser that knows the token of its address.

Each request must name this host and port (no other name may lead here, as in DNS rebinding), must
carry the token in its path, and must not come from another site. The page loads no
file from elsewhere, and its content security policy forbids it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ParameterError
from .forms import ABOUT, CLAIM, COMPARED, COSTS, DEPLOYMENT, EXAMPLE, FACTS, PLAN, SETTING
from .jobs import Busy, ChildProcess, Jobs
from .rendering import FILES, content, page
from .uploads import MAX_BYTES, SentFile, checked
from .work import TASKS

HOST = "127.0.0.1"
MAX_FORM = 64 * 2**10
"""Largest size of a form without its files, in bytes."""
SENDING = 120.0
"""Seconds that the files of a request may take to arrive."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Headers of every response."""


class PageGuard:
    """Lets a request through if it names this host, knows the token, and is of this site.

    Args:
        app: the application behind it.
        host: host and port, as in the address.
        token: the first part of the path.
    """

    def __init__(self, app: ASGIApp, host: str, token: str) -> None:
        self._app, self._host, self._token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # There are no websockets.
        if scope["type"] != "http":
            return
        refused = self._refusal(scope)

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await (refused or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        names = [name for name, _ in scope["headers"]]
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        if names.count(b"host") != 1 or headers["host"] != self._host:
            return PlainTextResponse("This page has another address.", 421)
        # The bytes of the path: a token in another encoding is another token.
        first = scope.get("raw_path", b"").partition(b"?")[0].split(b"/")[1:2]
        if not first or not hmac.compare_digest(first[0], self._token.encode()):
            return PlainTextResponse("Open the address that fedprivacy page printed.", 403)
        if not _of_this_site(scope["method"], headers, f"http://{self._host}"):
            return PlainTextResponse("Another site must not use this page.", 403)
        return None


def _of_this_site(method: str, headers: dict[str, str], own: str) -> bool:
    """Return whether a request comes from this page, or opens it in a window."""
    site = headers.get("sec-fetch-site", "same-origin")
    origin = headers.get("origin")
    if method == "POST":
        # Every browser names the origin of a POST.
        return origin == own and site == "same-origin"
    opens = headers.get("sec-fetch-mode") == "navigate"
    opens = opens and headers.get("sec-fetch-dest") == "document"
    return origin in (None, own) and (site in ("same-origin", "none") or opens)


def application(jobs: Jobs, token: str, host: str, begin: bool = True) -> ASGIApp:
    """Return the application of the page.

    Args:
        jobs: answers the requests; it is closed with the application.
        token: the first part of every path.
        host: host and port of the address.
        begin: whether a first child is started at once, so that the next ones are quick.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        first = asyncio.create_task(_begin(jobs)) if begin else None
        try:
            yield
        finally:
            if first is not None:
                first.cancel()
            jobs.close()

    routes = [
        Route("/", _page, methods=["GET"]),
        Route("/ask/{task}", _asking(jobs), methods=["POST"]),
        Route("/{name}", _file, methods=["GET"]),
    ]
    return PageGuard(
        Starlette(routes=[Mount(f"/{token}", routes=routes)], lifespan=lifespan), host, token
    )


async def _begin(jobs: Jobs) -> None:
    async with jobs.job() as job:
        await job.send(_request("plan", EXAMPLE, []))
        async for _ in job.messages():
            break


def _page(_: Request) -> Response:
    text = page(
        plan=PLAN,
        claim=CLAIM,
        facts=FACTS,
        about=ABOUT,
        deployment=DEPLOYMENT,
        example=EXAMPLE,
        costs=COSTS,
        compared=COMPARED,
        setting={name: PLAN[name] for name in SETTING},
        megabytes=MAX_BYTES >> 20,
    )
    return Response(text, media_type="text/html; charset=utf-8")


def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("There is no such file.", 404)
    return Response(content(name), media_type=f"{FILES[name]}; charset=utf-8")


def _request(task: str, fields: dict[str, str], uploads: list[SentFile]) -> bytes:
    return json.dumps(
        {"task": task, "fields": fields, "files": [vars(each) for each in uploads]}
    ).encode()


def _asking(jobs: Jobs) -> Callable[[Request], Any]:
    """Return the endpoint that answers forms: one line of JSON, then the bytes of the files."""

    async def asked(request: Request) -> Response:
        task = request.path_params["task"]
        if task not in TASKS:
            return PlainTextResponse("There is no such task.", 404)
        stack = contextlib.AsyncExitStack()
        try:
            async with asyncio.timeout(SENDING):
                job = await _begun(request, task, jobs, stack)
        except ParameterError as problem:
            await stack.aclose()
            return PlainTextResponse(str(problem), 400)
        except TimeoutError:
            await stack.aclose()
            return PlainTextResponse("The files took too long to arrive.", 408)
        except Busy:
            return PlainTextResponse("The page is busy. Wait a moment, and try again.", 503)
        # The child is dead, or the browser has gone.
        except BaseException:
            await stack.aclose()
            raise

        return _Answer(job, stack)

    return asked


class _Answer(StreamingResponse):
    """The messages of a child, which ends with the response, also if the browser goes away."""

    def __init__(self, job: ChildProcess, stack: contextlib.AsyncExitStack) -> None:
        super().__init__(job.messages(), media_type="application/x-ndjson")
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)


async def _begun(
    request: Request, task: str, jobs: Jobs, stack: contextlib.AsyncExitStack
) -> ChildProcess:
    """Return a child that has the whole request.

    Raises:
        ParameterError: the request is malformed, or too large.
        Busy: too many requests wait.
    """
    pieces = request.stream()
    first = b""
    async for piece in pieces:
        first += piece
        if b"\n" in first or len(first) > MAX_FORM:
            break
    line, end, rest = first.partition(b"\n")
    if not end or len(line) > MAX_FORM:
        raise ParameterError(f"The form must be one line of at most {MAX_FORM} bytes.")
    fields, uploads = _form(line)
    job = await stack.enter_async_context(jobs.job())
    left = sum(each.size for each in uploads)
    await job.send(_request(task, fields, uploads))
    await _forward(job, rest, pieces, left)
    return job


async def _forward(job: ChildProcess, rest: bytes, pieces: AsyncIterator[bytes], left: int) -> None:
    """Send the files to the child as they arrive, to the end of the request.

    Raises:
        ParameterError: they are shorter or longer than the form says.
    """
    async for piece in _after(rest, pieces):
        left -= len(piece)
        if left < 0:
            break
        if piece:
            await job.send(piece)
    if left:
        apart = f"{left} bytes shorter" if left > 0 else f"at least {-left} bytes longer"
        raise ParameterError(f"The files must be as long as the form says, but they are {apart}.")


async def _after(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


def _form(line: bytes) -> tuple[dict[str, str], list[SentFile]]:
    try:
        form = json.loads(line)
        fields = {str(name): str(text) for name, text in form["fields"].items()}
        files = form["files"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise ParameterError("The form must be JSON with fields and files.") from problem
    return fields, checked(files)


def serve(port: int, opened: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C or a signal ends this process.

    Args:
        port: from 0 to 65535; 0 for any free port.
        opened: called with the address once the port is taken.

    Raises:
        ParameterError: the port is taken.
    """
    try:
        listening = socket.create_server((HOST, port))
    except OSError as problem:
        raise ParameterError(
            f"--port must be a free port of this computer, got {port}; leave it out for any"
        ) from problem
    token = secrets.token_urlsafe(32)
    host = f"{HOST}:{listening.getsockname()[1]}"
    jobs = Jobs()
    try:
        settings = uvicorn.Config(
            application(jobs, token, host),
            log_level="critical",
            access_log=False,
            server_header=False,
            ws="none",
            http="h11",
            loop="asyncio",
            timeout_graceful_shutdown=1,
            limit_concurrency=256,
        )
        server = uvicorn.Server(settings)
        # The end of a terminal ends the page too.
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda *_: setattr(server, "should_exit", True))
        opened(f"http://{host}/{token}/")
        server.run(sockets=[listening])
    finally:
        jobs.close()
