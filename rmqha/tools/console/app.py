"""The console as an ASGI application: pages, files, API."""
import json
import threading
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rmqha.common.texts import JsonTextError, parse_json
from rmqha.tools.console.access import Access
from rmqha.tools.console.api import Api
from rmqha.tools.console.guard import Guard
from rmqha.tools.console.source import Source
from rmqha.tools.console.writes import Writes
from rmqha.tools.ha.broker_admin import ReplicationToolError
from rmqha.tools.view.as_json import Json
from rmqha.tools.view.questions import QuestionError, UnreadableAnswerError

PAGES = ("/", "/topics", "/topics/{name}", "/groups", "/groups/{name}", "/messages", "/store")
MAX_BODY_BYTES = 64 * 1024
_AT_ONCE = 4  # answers that are worked out at the same time: each may be several requests to brokers
_WAIT_S = 10.0
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def create_app(source: Source, access: Access) -> Guard:
    """The application, guarded. `source` is open while it is served."""
    api, writes = Api(source, access), Writes(source)
    turn = _Turn()
    index = _file("index.html")
    routes = [Route(path, _always(index)) for path in PAGES]
    routes += [Route(f"/static/{name}", _always(_file(name))) for name in _files()]
    reads: dict[str, Callable[[Request], Json]] = {
        "/api/session": lambda _: api.session(),
        "/api/cluster": lambda _: api.cluster(),
        "/api/groups": lambda _: api.groups(),
        "/api/groups/{name}": lambda request: api.group(request.path_params["name"]),
        "/api/topics": lambda _: api.topics(),
        "/api/topics/{name}": lambda request: api.topic(request.path_params["name"]),
        "/api/store": lambda _: api.store(),
        "/api/history": lambda request: api.history(request.query_params),
        "/api/messages": lambda request: api.messages(request.query_params),
        "/api/trace": lambda request: api.trace(request.query_params),
    }
    routes += [Route(path, turn.reading(read), methods=["GET"]) for path, read in reads.items()]
    changes: dict[str, Callable[[Request, Any], Json]] = {
        "/api/topics": lambda _, body: writes.topic(body),
        "/api/groups/{name}/offsets": lambda request, body: writes.offsets(request.path_params["name"], body),
        "/api/brokers/{name}/write-permission":
            lambda request, body: writes.write_permission(request.path_params["name"], body),
    }
    routes += [Route(path, turn.writing(write), methods=["POST"]) for path, write in changes.items()]
    return Guard(Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found}), access)


class _Turn:
    """Lets few questions go to the brokers at the same time, and makes answers of what they give."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def reading(self, read: Callable[[Request], Json]) -> Callable[[Request], Response]:
        """Runs on the library's threads."""
        def endpoint(request: Request) -> Response:
            return self._answer(lambda: read(request))
        return endpoint

    def writing(self, write: Callable[[Request, Any], Json]) -> Callable[[Request], Any]:
        """The same with a JSON object as body."""
        async def endpoint(request: Request) -> Response:
            data = b""
            try:
                async for chunk in request.stream():
                    data += chunk
                    if len(data) > MAX_BODY_BYTES:
                        return _error(413, f"the body has more than {MAX_BODY_BYTES} bytes")
            except ClientDisconnect:
                return _error(408, "the body has not come")
            try:
                body = parse_json(data, "the body")
                json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            except UnicodeEncodeError:
                return _error(400, "the body has half a surrogate pair, which is not a character")
            except JsonTextError as error:
                return _error(400, str(error))
            except RecursionError:
                return _error(400, "the body is not valid here: it has too many levels")
            if not isinstance(body, dict):
                return _error(400, "the body is not a JSON object")
            return await run_in_threadpool(self._answer, lambda: write(request, body))
        return endpoint

    def _answer(self, work: Callable[[], Json]) -> Response:
        if not self._free.acquire(timeout=_WAIT_S):
            return _error(503, "too many questions at once: ask again")
        try:
            return json_answer(work())
        except UnreadableAnswerError as error:
            return _error(502, error.message)
        except QuestionError as error:
            return _error(404 if error.not_there else 400, error.message)
        except ReplicationToolError as error:
            return _error(502, error.message)
        finally:
            self._free.release()


def json_answer(content: Json, status: int = 200) -> Response:
    """JSON in ASCII: what brokers and clients send may have halves of surrogate pairs, which are not UTF-8.

    ValueError for NaN and infinities, which JSON does not have.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("ascii"), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return json_answer({"error": message}, status)


async def _not_found(request: Request, error: Any) -> Response:
    return _error(error.status_code, f"{request.method} {request.url.path[:200]} is not served here")


def _always(answer: Response) -> Callable[[Request], Response]:
    return lambda _request: answer


def _files() -> list[str]:
    return sorted(each.name for each in resources.files(__package__).joinpath("static").iterdir()
                  if each.name.rpartition(".")[2] in _TYPES)


def _file(name: str) -> Response:
    content = resources.files(__package__).joinpath("static", name).read_bytes()
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]])
