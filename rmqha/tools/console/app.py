"""The web console as an ASGI application: pages, a read API and a few changes, guarded by host name and token.

- `Source`: the data of all pages: the poller's pictures, and queries made on demand.
- `Api`: the read API, one function per path, from a query to JSON. docs/console.md lists the paths.
- `Writes`: the changes, if allowed: a topic, a group's offsets, a broker's write permission.
- `Guard`: refuses what `Access` (in access.py) refuses, and adds the security headers to each response.
"""
import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from importlib import resources
from typing import Any, Self

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rmqha import __version__
from rmqha.common import sys_flags
from rmqha.common import topics as topic_validator
from rmqha.common.texts import JsonTextError, parse_json
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.connection import NO_ACCOUNT, Account
from rmqha.tools.console.access import Access
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view import texts
from rmqha.tools.view.questions import (
    MAX_LISTED_BYTES,
    Messages,
    QuestionError,
    Questions,
    UnreadableAnswerError,
    ViewPoller,
    asked,
    message_json,
    trace_json,
)
from rmqha.tools.view.snapshot import BEHIND, CLUSTER, IN, KINDS, LAG, LOG, OUT, Collector, History, Picture
from rmqha.tools.view.texts import Json

_FIRST_PICTURE_S = 5.0


@dataclass(frozen=True)
class Wanted:
    """The cluster to show, and how to query it."""

    namesrv: str
    cluster: str | None = None
    broker: str | None = None
    interval_s: float = 2.0
    timeout_s: float = 2.0
    account: Account = NO_ACCOUNT


class Source:
    """The data of all pages; a context manager that polls the cluster while it is open."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        timeout_ms = round(wanted.timeout_s * 1000)
        self._collector = Collector(wanted.namesrv, timeout_ms, wanted.cluster, wanted.broker, wanted.account)
        self.history = History()
        self.poller = ViewPoller(self._collector, self.history, wanted.interval_s)
        self._admin = DefaultMQAdminExt(wanted.namesrv, wanted.account.rpc_hook, timeout_ms, tls=wanted.account.tls)
        self.questions = Questions(self._admin)
        self.messages = Messages(self.questions)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._collector)
            stack.callback(self._admin.shutdown)
            # starts the client before several threads use it
            assert self._admin.instance
            stack.callback(self.poller.shutdown)
            self.poller.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def picture(self) -> Picture:
        """Return the latest picture; raise QuestionError when the cluster has never answered."""
        latest = self.poller.latest or self.poller.wait_for_picture(_FIRST_PICTURE_S)
        if latest is None:
            raise QuestionError(self.poller.error or "the cluster has not answered yet")
        return latest


# points of a line within a table
SPARK_POINTS = 60
Query = Mapping[str, str]


class Api:
    """The read API of the pages. QuestionError: the request can't be answered, or the object does not exist."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source = source
        self._access = access

    def session(self) -> Json:
        """Return the console's version and what it allows; needs no token."""
        wanted = self._source.wanted
        return {"version": __version__, "writes": self._access.writes,
                "token_for_reading": self._access.token_for_reading, "interval_s": self._source.poller.interval_s,
                "namesrv": None if self._access.token_for_reading else wanted.namesrv}

    def cluster(self) -> Json:
        """Return brokers, replication and totals, each with its latest values."""
        picture = self._source.picture()
        answer = texts.overview(picture)
        del answer["groups"]
        answer["error"] = self._source.poller.error
        history = self._source.history
        answer["lines"] = {
            kind: {broker.address: history.values(kind, broker.address, SPARK_POINTS)
                   for broker in picture.snapshot.brokers}
            for kind in (IN, OUT, LOG, LAG)}
        for kind in (IN, OUT, BEHIND):
            answer["lines"].setdefault(kind, {})[CLUSTER] = history.values(kind, CLUSTER, SPARK_POINTS)
        return answer

    def groups(self) -> Json:
        """Return all groups, those furthest behind first."""
        picture = self._source.picture()
        rows = [{**texts.group_json(picture, group),
                 "line": self._source.history.values(BEHIND, group.name, SPARK_POINTS)}
                for group in picture.snapshot.groups]
        return {"at_ms": picture.snapshot.at_ms, "errors": list(picture.snapshot.groups_errors),
                "groups": sorted(rows, key=lambda row: (-row["behind"], row["name"]))}

    def group(self, name: str) -> Json:
        """Return a group's queues, clients and backlog over time."""
        picture = self._source.picture()
        group = picture.snapshot.group(name)
        if group is None:
            raise QuestionError(f"unknown group {name!r}", not_there=True)
        answer = texts.group_json(picture, group)
        answer["places"] = [texts.place_json(place) for place in group.places]
        answer["history"] = self._source.history.line(BEHIND, name)
        try:
            answer["clients"], answer["clients_error"] = asdict(self._source.questions.clients(
                picture.snapshot, name)), ""
        except QuestionError as error:
            answer["clients"], answer["clients_error"] = None, error.message
        return answer

    def topics(self) -> Json:
        """Return all topics of the masters that answer."""
        return {"topics": [asdict(row) for row in self._source.questions.topics(self._source.picture().snapshot)]}

    def topic(self, name: str) -> Json:
        """Return a topic's queues, and its groups with how far each is behind in it."""
        picture = self._source.picture()
        detail = self._source.questions.topic(name)
        groups = []
        for each in detail.groups:
            group = picture.snapshot.group(each)
            places = [place for place in group.places if place.topic == name] if group is not None else []
            groups.append({"name": each, "behind": sum(place.behind for place in places) if places else None})
        return {"name": detail.name, "queues": [asdict(queue) for queue in detail.queues], "groups": groups}

    def store(self) -> Json:
        """Return each broker's files and disk, from its runtime table."""
        picture = self._source.picture()
        return {"at_ms": picture.snapshot.at_ms,
                "brokers": [texts.broker_json(picture, broker) for broker in picture.snapshot.brokers]}

    def history(self, query: Query) -> Json:
        """Return one series: [ms, value], oldest first."""
        kind = query.get("kind", "")
        if kind not in KINDS:
            raise QuestionError(f"kind must be one of {', '.join(KINDS)}")
        name = query.get("name", CLUSTER)
        return {"kind": kind, "name": name, "points": self._source.history.line(kind, name)}

    def messages(self, query: Query) -> Json:
        """Return messages by topic and key, or by id; if there are several, only the beginnings of their bodies."""
        topic, msg_id, key = (query.get(name, "").strip() for name in ("topic", "id", "key"))
        if msg_id:
            found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        elif topic and key:
            found = self._source.messages.by_key(topic, key)
        else:
            raise QuestionError("give a message id (with the topic, if a producer made the id), or a topic and a key")
        cut = {} if len(found) == 1 else {"max_body_bytes": MAX_LISTED_BYTES}
        return {"messages": [message_json(msg, **cut) for msg in found]}

    def trace(self, query: Query) -> Json:
        """Return a message's trace: the events recorded by its clients, and its state in each group by offset."""
        topic, msg_id, trace_topic = (query.get(name, "").strip() for name in ("topic", "id", "trace_topic"))
        if not msg_id:
            raise QuestionError("give a message id")
        found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        if not found:
            raise QuestionError(f"message {msg_id!r} not found", not_there=True)
        events, errors = self._source.messages.trace(found[0].msg_id or msg_id, *([trace_topic] if trace_topic else []))
        return {"events": [trace_json(view) for view in events], "errors": errors,
                "tracks": self._source.messages.tracks(found[0])}


log = logging.getLogger("RocketmqTools")

MAX_QUEUES = 1024
EARLIEST, LATEST = "earliest", "latest"
# as a time: the end of each queue
_END = -1
_LAST_MS = 253_402_300_799_999  # 9999-12-31
_TIMES = {EARLIEST: 0, LATEST: _END}
Body = Mapping[str, Any]


class Writes:
    """The changes. Each method returns what it did; QuestionError for an invalid or refused request."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._admin = source.questions.admin

    def topic(self, body: Body) -> Json:
        """Create or change a topic on all masters that answer: {"topic", "queues"}."""
        name, queues = body.get("topic"), body.get("queues", 8)
        reason = topic_validator.check_topic(name) if isinstance(name, str) else "topic: a name"
        if reason is not None or not isinstance(name, str):
            raise QuestionError(reason or "topic: a name")
        if not isinstance(queues, int) or isinstance(queues, bool) or not 1 <= queues <= MAX_QUEUES:
            raise QuestionError(f"queues must be 1 to {MAX_QUEUES}, for each broker")
        config = TopicConfig(name, queues, queues, sys_flags.PERM_READ | sys_flags.PERM_WRITE)
        masters = [broker for broker in self._source.picture().snapshot.brokers if broker.is_master]
        for broker in masters:
            asked(partial(self._admin.create_and_update_topic_config, broker.address, config))
        return self._done(f"topic {name} with {queues} queues", brokers=[broker.name for broker in masters])

    def offsets(self, group: str, body: Body) -> Json:
        """Move a group, running or not, to a time in a topic: {"topic", "to": ms, "earliest" or "latest"}."""
        topic, to = body.get("topic"), body.get("to")
        if not isinstance(topic, str) or not topic:
            raise QuestionError("topic: a name")
        at_ms = _TIMES.get(to) if isinstance(to, str) else to
        if not isinstance(at_ms, int) or isinstance(at_ms, bool) or not _END <= at_ms <= _LAST_MS:
            raise QuestionError('to must be a time in ms, "earliest" or "latest"')
        moved = asked(lambda: self._reset(topic, group, at_ms))
        return self._done(f"offsets of {group} in {topic} to {to}", queues=moved)

    def _reset(self, topic: str, group: str, at_ms: int) -> int:
        """Return the number of queues. The brokers notify a group's clients; without clients they only set the offsets.
        """
        now = self._source.picture().snapshot
        if self._source.questions.clients(now, group).clients:
            return len(self._admin.reset_offset_by_timestamp(topic, group, at_ms, True))
        return len(self._admin.reset_offset_by_timestamp_old(group, topic, at_ms, True))

    def write_permission(self, broker: str, body: Body) -> Json:
        """Remove or restore the write permission of a broker name at each name server: {"allow": true or false}."""
        allow = body.get("allow")
        if not isinstance(allow, bool):
            raise QuestionError("allow must be true or false")
        if broker not in {each.name for each in self._source.picture().snapshot.brokers}:
            raise QuestionError(f"unknown broker {broker!r}", not_there=True)
        change = self._admin.add_write_perm_of_broker if allow else self._admin.wipe_write_perm_of_broker
        topics = [asked(partial(change, address, broker))
                  for address in asked(self._admin.get_name_server_address_list)]
        return self._done(f"write permission of {broker}: {allow}", topics=max(topics, default=0))

    def _done(self, what: str, **more: object) -> Json:
        log.info("console: %s %s", what, more)
        self._source.questions.answers.forget()
        return {"done": what, **more}


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

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

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
        response = JSONResponse({"error": refusal.message}, refusal.status)
        if refusal.status == 401:
            response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send_safely)


PAGES = ("/", "/topics", "/topics/{name}", "/groups", "/groups/{name}", "/messages", "/store")
MAX_BODY_BYTES = 64 * 1024
# requests answered at the same time; each may send several requests to brokers
_AT_ONCE = 4
_WAIT_S = 10.0
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def create_app(source: Source, access: Access) -> Guard:
    """Return the guarded application. `source` must be open while it is served."""
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
    """Limits how many requests query the brokers at the same time, and turns results into responses."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def reading(self, read: Callable[[Request], Json]) -> Callable[[Request], Response]:
        """Return an endpoint for reading; it runs on the library's threads."""
        def endpoint(request: Request) -> Response:
            return self._answer(lambda: read(request))
        return endpoint

    def writing(self, write: Callable[[Request, Any], Json]) -> Callable[[Request], Any]:
        """Return an endpoint for a change, whose request has a JSON object as its body."""
        async def endpoint(request: Request) -> Response:
            data = b""
            try:
                async for chunk in request.stream():
                    data += chunk
                    if len(data) > MAX_BODY_BYTES:
                        return _error(413, f"the body has more than {MAX_BODY_BYTES} bytes")
            except ClientDisconnect:
                return _error(408, "the body did not arrive")
            try:
                body = parse_json(data, "the body")
                json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            except UnicodeEncodeError:
                return _error(400, "the body contains half of a surrogate pair, which is not a valid character")
            except JsonTextError as error:
                return _error(400, str(error))
            except RecursionError:
                return _error(400, "the body is too deeply nested")
            if not isinstance(body, dict):
                return _error(400, "the body is not a JSON object")
            return await run_in_threadpool(self._answer, lambda: write(request, body))
        return endpoint

    def _answer(self, work: Callable[[], Json]) -> Response:
        if not self._free.acquire(timeout=_WAIT_S):
            return _error(503, "too many requests at once: try again later")
        try:
            return json_answer(work())
        except UnreadableAnswerError as error:
            return _error(502, error.message)
        except QuestionError as error:
            return _error(404 if error.not_there else 400, error.message)
        except CannotAnswerError as error:
            return _error(502, error.message)
        finally:
            self._free.release()


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
