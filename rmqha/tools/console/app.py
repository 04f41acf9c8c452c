"""The web console as an ASGI application: the pages and the paths of the API, guarded by host name and sign-in.

    browser --> Guard (access.py) --> path --> reads.py, changes.py --> rmqha.tools.view, rmqha.tools.manage

- `create_app`: the guarded application.
- `Guard`: refuses what `Access` refuses, and adds the security headers to each response.
"""
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rmqha.common.texts import JsonTextError, parse_json
from rmqha.tools.console.access import SESSION_PATH, Access, Person, Refusal, bearer
from rmqha.tools.console.changes import Body, Changes, sign_in
from rmqha.tools.console.journal import Journal, named, shown
from rmqha.tools.console.reads import Api
from rmqha.tools.console.source import Source
from rmqha.tools.terminal import CannotAnswerError, WorkFailedError
from rmqha.tools.view.questions import QuestionError, UnreadableAnswerError
from rmqha.tools.view.texts import Json

# Allow only the console's own files: no inline script or style, no other site, no embedding in a frame.
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """An ASGI application that wraps another one and checks each request."""

    def __init__(self, app: ASGIApp, access: Access, journal: Journal) -> None:
        self._app = app
        self._access = access
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)
        refusal = self._access.refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send_safely)
            return
        self._note(HTTPConnection(scope), refusal)
        response = JSONResponse({"error": refusal.message}, refusal.status)
        if refusal.status == 401:
            response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send_safely)

    def _note(self, request: HTTPConnection, refusal: Refusal) -> None:
        """Note who was refused: someone with a wrong token, or a user whose role does not suffice."""
        if refusal.status == 401 and bearer(request.headers):
            self._journal.refused(WRONG_TOKEN, address_of(request))
        elif refusal.status == 403 and bearer(request.headers):
            person = self._access.person(request.headers)
            who = WRONG_TOKEN if person is None else f"{shown(person)}: refused"
            asked = f"{request.scope['method']} {named(request.scope['path'])}"
            self._journal.refused(f"{who}: {asked}: {refusal.message}", address_of(request))


WRONG_TOKEN = "refused: a wrong token, or an ended session"


def address_of(request: HTTPConnection) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client is not None else "unknown"


PAGES = ("/", "/topics", "/topics/{name}", "/topics/{name}/messages", "/topics/{name}/publish",
         "/topics/{name}/settings", "/groups", "/groups/{name}", "/groups/{name}/seek", "/groups/{name}/settings",
         "/messages", "/dead-letters", "/dead-letters/{name}", "/brokers/{name}", "/config", "/accounts", "/store")
MAX_BODY_BYTES = 8 << 20  # of a message that is published; other changes are small
# requests answered at the same time; each may send several requests to brokers
_AT_ONCE = 4
_WAIT_S = 10.0
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
Read = Callable[[Request, Person], Json]
Change = Callable[[Request, Body, Person], Json]


def create_app(source: Source, access: Access) -> Guard:
    """Return the guarded application. `source` must be open while it is served."""
    journal = Journal()
    api, changes, turn = Api(source, access), Changes(source, journal), _Turn(access, journal)
    index = _file("index.html")
    routes = [Route(path, _always(index)) for path in PAGES]
    routes += [Route(f"/static/{name}", _always(_file(name))) for name in _files()]
    routes += [
        Route(SESSION_PATH, lambda request: json_answer(api.session(turn.arriving(request))), methods=["GET"]),
        Route(SESSION_PATH, turn.signing_in, methods=["POST"]),
        Route(f"{SESSION_PATH}/end", turn.signing_out, methods=["POST"]),
        Route("/api/messages/download", turn.downloading(api), methods=["GET"])]
    routes += [Route(path, turn.reading(read), methods=["GET"]) for path, read in _reads(api).items()]
    routes += [Route(path, turn.writing(change), methods=["POST"]) for path, change in _changes(changes).items()]
    return Guard(Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found}), access, journal)


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


def _reads(api: Api) -> dict[str, Read]:
    return {
        "/api/cluster": lambda _, _person: api.cluster(),
        "/api/store": lambda _, _person: api.store(),
        "/api/history": lambda request, _person: api.history(request.query_params),
        "/api/search": lambda request, _person: api.search(request.query_params),
        "/api/groups": lambda request, _person: api.groups(request.query_params),
        "/api/groups/{name}": lambda request, _person: api.group(_name(request)),
        "/api/groups/{name}/settings": lambda request, _person: api.group_settings(_name(request)),
        "/api/topics": lambda request, _person: api.topics(request.query_params),
        "/api/topics/{name}": lambda request, _person: api.topic(_name(request)),
        "/api/topics/{name}/settings": lambda request, _person: api.topic_settings(_name(request)),
        "/api/topics/{name}/messages": lambda request, person: api.browse(_name(request), request.query_params, person),
        "/api/topics/{name}/tail": lambda request, person: api.tail(_name(request), request.query_params, person),
        "/api/messages": lambda request, person: api.messages(request.query_params, person),
        "/api/trace": lambda request, person: api.trace(request.query_params, person),
        "/api/dead-letters": lambda _, _person: api.dead_letter_groups(),
        "/api/dead-letters/{name}": lambda request, person: api.dead_letters(_name(request), request.query_params,
                                                                            person),
        "/api/brokers/{name}/config": lambda request, _person: api.broker_config(_name(request)),
        "/api/config/diff": lambda _, _person: api.config_differences(),
        "/api/accounts": lambda _, _person: api.accounts(),
        "/api/accounts/check": lambda request, _person: api.check_account(request.query_params),
    }


def _changes(changes: Changes) -> dict[str, Change]:
    return {
        "/api/topics": lambda _, body, person: changes.create_topic(body, person),
        "/api/topics/{name}/alter": lambda request, body, person: changes.alter_topic(_name(request), body, person),
        "/api/topics/{name}/delete": lambda request, body, person: changes.delete_topic(_name(request), body, person),
        "/api/topics/{name}/publish": lambda request, body, person: changes.publish(_name(request), body, person),
        "/api/groups/{name}/seek": lambda request, body, person: changes.seek(_name(request), body, person),
        "/api/groups/{name}/pause": lambda request, _body, person: changes.pause(_name(request), True, person),
        "/api/groups/{name}/resume": lambda request, _body, person: changes.pause(_name(request), False, person),
        "/api/groups/{name}/delete": lambda request, body, person: changes.delete_group(_name(request), body, person),
        "/api/dead-letters/{name}/resend": lambda request, body, person: changes.resend(_name(request), body, person),
        "/api/brokers/{name}/write-permission": lambda request, body, person: changes.write_permission(
            _name(request), body, person),
        "/api/brokers/{name}/config": lambda request, body, person: changes.config(_name(request), body, person),
        "/api/accounts": lambda _, body, person: changes.create_account(body, person),
        "/api/accounts/{name}/delete": lambda request, body, person: changes.delete_account(_name(request), body,
                                                                                           person),
    }


class _RequestError(Exception):
    """A request has an invalid body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Turn:
    """Limits how many requests query the brokers at the same time, and turns results into responses."""

    def __init__(self, access: Access, journal: Journal) -> None:
        self._access = access
        self._journal = journal
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def _person(self, request: Request) -> Person:
        person = self._access.person(request.headers)
        if person is None:  # the session has ended since the guard let the request pass
            raise QuestionError("the session has ended: sign in again")
        return replace(person, address=address_of(request))

    def arriving(self, request: Request) -> Person | None:
        """Return who opens the page; note a token, right or wrong."""
        person = self._access.person(request.headers)
        if person is None and bearer(request.headers):
            self._journal.refused(WRONG_TOKEN, address_of(request))
        elif person is not None and person.name is not None and not person.has_session:
            self._journal.signed_in(replace(person, address=address_of(request)))
        return person

    def reading(self, read: Read) -> Callable[[Request], Response]:
        """Return an endpoint for reading; it runs on the library's threads."""
        def endpoint(request: Request) -> Response:
            return self._answer(lambda: json_answer(read(request, self._person(request))))
        return endpoint

    def downloading(self, api: Api) -> Callable[[Request], Response]:
        """Return the endpoint that returns the body of one message as a file."""
        def download(request: Request) -> Response:
            body, name = api.body(request.query_params, self._person(request))
            safe = "".join(char if char.isalnum() and char.isascii() else "_" for char in name)[:100]
            return Response(body, media_type="application/octet-stream", headers={
                "content-disposition": f'attachment; filename="{safe}.bin"'})

        def endpoint(request: Request) -> Response:
            return self._answer(lambda: download(request))
        return endpoint

    def writing(self, change: Change) -> Callable[[Request], Any]:
        """Return an endpoint for a change, whose request has a JSON object as its body."""
        async def endpoint(request: Request) -> Response:
            try:
                body = await _object(request)
            except _RequestError as error:
                return _error(error.status, str(error))
            return await run_in_threadpool(self._answer, lambda: json_answer(change(
                request, body, self._person(request))))
        return endpoint

    async def signing_in(self, request: Request) -> Response:
        """Begin a session of an account."""
        try:
            body = await _object(request)
        except _RequestError as error:
            return _error(error.status, str(error))

        def answer() -> Response:
            status, content = sign_in(self._access.sign_in, body, address_of(request), self._journal)
            return json_answer(content, status)
        return await run_in_threadpool(self._answer, answer)

    async def signing_out(self, request: Request) -> Response:
        """End a session; a token has none."""
        if self._access.sign_in is not None:
            self._access.sign_in.close(bearer(request.headers))
        return json_answer({"done": "signed out"})

    def _answer(self, work: Callable[[], Response]) -> Response:
        if not self._free.acquire(timeout=_WAIT_S):
            return _error(503, "too many requests at once: try again later")
        try:
            return work()
        except UnreadableAnswerError as error:
            return _error(502, error.message)
        except QuestionError as error:
            return _error(404 if error.not_there else 400, error.message)
        except WorkFailedError as error:
            return _error(409, error.message)
        except CannotAnswerError as error:
            return _error(502, error.message)
        finally:
            self._free.release()


async def _object(request: Request) -> Body:
    """Return the JSON object in a request's body. _RequestError."""
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > MAX_BODY_BYTES:
                raise _RequestError(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    except ClientDisconnect:
        raise _RequestError(408, "the body did not arrive") from None
    try:
        body = parse_json(data, "the body")
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise _RequestError(400, "the body contains half of a surrogate pair, which is not a valid character") from None
    except JsonTextError as error:
        raise _RequestError(400, str(error)) from None
    except RecursionError:
        raise _RequestError(400, "the body is too deeply nested") from None
    if not isinstance(body, dict):
        raise _RequestError(400, "the body is not a JSON object")
    return body


def json_answer(content: Json, status: int = 200) -> Response:
    """Return a JSON response in ASCII: texts of brokers and clients may contain halves of surrogate pairs, which UTF-8
    can't encode.

    Raise ValueError for NaN and infinities, which JSON does not have.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("ascii"), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return json_answer({"error": message}, status)


async def _not_found(request: Request, error: Any) -> Response:
    return _error(error.status_code, f"{request.method} {request.url.path[:200]} is not available here")


def _always(answer: Response) -> Callable[[Request], Response]:
    return lambda _request: answer


def _files() -> list[str]:
    return sorted(each.name for each in resources.files(__package__).joinpath("static").iterdir()
                  if each.name.rpartition(".")[2] in _TYPES)


def _file(name: str) -> Response:
    content = resources.files(__package__).joinpath("static", name).read_bytes()
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]])
