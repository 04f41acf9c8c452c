"""The web console as an ASGI application: pages, a read API and a few changes, guarded by host name and token.

- `Source`: the poller's pictures and the queries that are made on demand; the data of all pages.
- `Api`: the read API, one function per path, from a query to JSON. docs/console.md lists the paths.
- `Writes`: the changes, if allowed: a topic, a group's offsets, a broker's write permission.
- `Guard`: refuses what `Access` refuses, and adds the security headers to each response.
- `Access`: decides on a request by its headers alone:

    Host     an IP address, localhost, or a name that was allowed: a page of another site whose name resolves to this
             host (DNS rebinding) sends its own name
    GET      reads; needs the token when the console listens elsewhere than on a loopback address
    POST     writes; needs --allow-writes, the token, and a header that no form and no other site's page can send
"""
import hmac
import ipaddress
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
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
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
    """Which cluster, and how it is asked."""

    namesrv: str
    cluster: str | None = None
    broker: str | None = None
    interval_s: float = 2.0
    timeout_s: float = 2.0
    rpc_hook: RPCHook | None = None


class Source:
    """A context manager: looks at the cluster while it is open."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        timeout_ms = round(wanted.timeout_s * 1000)
        self._collector = Collector(wanted.namesrv, timeout_ms, wanted.cluster, wanted.broker, wanted.rpc_hook)
        self.history = History()
        self.poller = ViewPoller(self._collector, self.history, wanted.interval_s)
        self._admin = DefaultMQAdminExt(wanted.namesrv, wanted.rpc_hook, timeout_ms)
        self.questions = Questions(self._admin)
        self.messages = Messages(self.questions)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._collector)
            stack.callback(self._admin.shutdown)
            assert self._admin.instance  # starts it, before several threads ask it
            stack.callback(self.poller.shutdown)
            self.poller.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def picture(self) -> Picture:
        """The latest; QuestionError when the cluster has never been seen."""
        latest = self.poller.latest or self.poller.wait_for_picture(_FIRST_PICTURE_S)
        if latest is None:
            raise QuestionError(self.poller.error or "the cluster has not answered yet")
        return latest


WRITE_HEADER = "x-rmqha-console"
READS = ("GET", "HEAD")
MIN_TOKEN = 16


@dataclass(frozen=True)
class Refusal:
    """Why a request is not served: the HTTP status, and for people."""

    status: int
    message: str


@dataclass(frozen=True)
class Access:
    """What the console allows. `hosts`: names in lower case by which it may be asked beside addresses."""

    token: str
    token_for_reading: bool
    writes: bool
    hosts: frozenset[str] = frozenset()

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """None for a request that may be served. The names of headers are in lower case."""
        host = headers.get("host", "")
        if not self.is_own_host(host):
            return Refusal(421, f"this console is not {host[:100]!r}: ask it by an IP address or localhost, or start "
                           "it with --allow-host NAME")
        if method == "POST":
            return self._write_refusal(path, headers, host)
        if method not in READS:
            return Refusal(405, f"{method} is not served")
        if self.token_for_reading and path.startswith("/api/") and path != "/api/session":
            return self._token_refusal(headers)
        return None

    def is_own_host(self, header: str) -> bool:
        """Whether a Host header names this console."""
        name = host_name(header)
        return name is not None and (name == "localhost" or name in self.hosts or _is_address(name))

    def _write_refusal(self, path: str, headers: Mapping[str, str], host: str) -> Refusal | None:
        if not path.startswith("/api/"):
            return Refusal(405, "POST is not served here")
        if not self.writes:
            return Refusal(403, "this console only shows: start it with --allow-writes")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return Refusal(403, "a page of another site may change nothing")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "a page of another site may change nothing")
        if headers.get(WRITE_HEADER) != "1":
            return Refusal(403, "a change needs the header X-Rmqha-Console: 1")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return Refusal(415, "a change is application/json")
        return self._token_refusal(headers)

    def _token_refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return None
        return Refusal(401, "the token is missing or wrong: the console has printed it when it started")


def host_name(header: str) -> str | None:
    """The name or address in a Host header, in lower case and without port; None for something else."""
    text = header.strip().lower()
    if text.startswith("["):
        name, closed, rest = text[1:].partition("]")
        return name if closed and (not rest or _is_port(rest)) else None
    name, colon, port = text.partition(":")
    return name.rstrip(".") if name and (not colon or port.isdigit()) else None


def _is_port(rest: str) -> bool:
    return rest.startswith(":") and rest[1:].isdigit()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether nobody on another host reaches an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


SPARK_POINTS = 60  # of the lines that stand in tables
Query = Mapping[str, str]


class Api:
    """What the pages ask. QuestionError: it can't be answered, or there is no such thing."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source = source
        self._access = access

    def session(self) -> Json:
        """What this console is and allows; told without a token."""
        wanted = self._source.wanted
        return {"version": __version__, "writes": self._access.writes,
                "token_for_reading": self._access.token_for_reading, "interval_s": self._source.poller.interval_s,
                "namesrv": None if self._access.token_for_reading else wanted.namesrv}

    def cluster(self) -> Json:
        """Brokers, replication and sums, each with its last values."""
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
        """All groups, those furthest behind first."""
        picture = self._source.picture()
        rows = [{**texts.group_json(picture, group),
                 "line": self._source.history.values(BEHIND, group.name, SPARK_POINTS)}
                for group in picture.snapshot.groups]
        return {"at_ms": picture.snapshot.at_ms, "errors": list(picture.snapshot.groups_errors),
                "groups": sorted(rows, key=lambda row: (-row["behind"], row["name"]))}

    def group(self, name: str) -> Json:
        """A group's queues, clients and backlog over time."""
        picture = self._source.picture()
        group = picture.snapshot.group(name)
        if group is None:
            raise QuestionError(f"no broker knows the group {name!r}", not_there=True)
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
        """All topics of the masters that answer."""
        return {"topics": [asdict(row) for row in self._source.questions.topics(self._source.picture().snapshot)]}

    def topic(self, name: str) -> Json:
        """A topic's queues, and its groups with what they are behind in it."""
        picture = self._source.picture()
        detail = self._source.questions.topic(name)
        groups = []
        for each in detail.groups:
            group = picture.snapshot.group(each)
            places = [place for place in group.places if place.topic == name] if group is not None else []
            groups.append({"name": each, "behind": sum(place.behind for place in places) if places else None})
        return {"name": detail.name, "queues": [asdict(queue) for queue in detail.queues], "groups": groups}

    def store(self) -> Json:
        """Each broker's files and disk, as its runtime table tells them."""
        picture = self._source.picture()
        return {"at_ms": picture.snapshot.at_ms,
                "brokers": [texts.broker_json(picture, broker) for broker in picture.snapshot.brokers]}

    def history(self, query: Query) -> Json:
        """One series: [ms, value] oldest first."""
        kind = query.get("kind", "")
        if kind not in KINDS:
            raise QuestionError(f"kind: one of {', '.join(KINDS)}")
        name = query.get("name", CLUSTER)
        return {"kind": kind, "name": name, "points": self._source.history.line(kind, name)}

    def messages(self, query: Query) -> Json:
        """Messages by topic and key, or by id; of several the bodies' beginnings only."""
        topic, msg_id, key = (query.get(name, "").strip() for name in ("topic", "id", "key"))
        if msg_id:
            found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        elif topic and key:
            found = self._source.messages.by_key(topic, key)
        else:
            raise QuestionError("give a message's id (and its topic, if it is a producer's id), or topic and key")
        cut = {} if len(found) == 1 else {"max_body_bytes": MAX_LISTED_BYTES}
        return {"messages": [message_json(msg, **cut) for msg in found]}

    def trace(self, query: Query) -> Json:
        """What became of a message: events that its clients have noted, and each group's offset."""
        topic, msg_id, trace_topic = (query.get(name, "").strip() for name in ("topic", "id", "trace_topic"))
        if not msg_id:
            raise QuestionError("give a message's id")
        found = self._source.messages.by_id(self._source.picture().snapshot, topic or None, msg_id)
        if not found:
            raise QuestionError(f"no message {msg_id!r}", not_there=True)
        events, errors = self._source.messages.trace(found[0].msg_id or msg_id, *([trace_topic] if trace_topic else []))
        return {"events": [trace_json(view) for view in events], "errors": errors,
                "tracks": self._source.messages.tracks(found[0])}


log = logging.getLogger("RocketmqTools")

MAX_QUEUES = 1024
EARLIEST, LATEST = "earliest", "latest"
_END = -1  # as a time: the end of each queue
_LAST_MS = 253_402_300_799_999  # 9999-12-31
_TIMES = {EARLIEST: 0, LATEST: _END}
Body = Mapping[str, Any]


class Writes:
    """Each gives what it has done; QuestionError for what is wrong or was refused."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._admin = source.questions.admin

    def topic(self, body: Body) -> Json:
        """Make a topic, or change it, on all masters that answer: {"topic", "queues"}."""
        name, queues = body.get("topic"), body.get("queues", 8)
        reason = topic_validator.check_topic(name) if isinstance(name, str) else "topic: a name"
        if reason is not None or not isinstance(name, str):
            raise QuestionError(reason or "topic: a name")
        if not isinstance(queues, int) or isinstance(queues, bool) or not 1 <= queues <= MAX_QUEUES:
            raise QuestionError(f"queues: 1 to {MAX_QUEUES} on each broker")
        config = TopicConfig(name, queues, queues, sys_flags.PERM_READ | sys_flags.PERM_WRITE)
        masters = [broker for broker in self._source.picture().snapshot.brokers if broker.is_master]
        for broker in masters:
            asked(partial(self._admin.create_and_update_topic_config, broker.address, config))
        return self._done(f"topic {name} with {queues} queues", brokers=[broker.name for broker in masters])

    def offsets(self, group: str, body: Body) -> Json:
        """Let a group go to a time in a topic: {"topic", "to": ms, "earliest" or "latest"}, whether it runs or not."""
        topic, to = body.get("topic"), body.get("to")
        if not isinstance(topic, str) or not topic:
            raise QuestionError("topic: a name")
        at_ms = _TIMES.get(to) if isinstance(to, str) else to
        if not isinstance(at_ms, int) or isinstance(at_ms, bool) or not _END <= at_ms <= _LAST_MS:
            raise QuestionError('to: a time in ms, "earliest" or "latest"')
        moved = asked(lambda: self._reset(topic, group, at_ms))
        return self._done(f"offsets of {group} in {topic} to {to}", queues=moved)

    def _reset(self, topic: str, group: str, at_ms: int) -> int:
        """How many queues; the brokers tell a group's clients, and for one without clients just set its offsets."""
        now = self._source.picture().snapshot
        if self._source.questions.clients(now, group).clients:
            return len(self._admin.reset_offset_by_timestamp(topic, group, at_ms, True))
        return len(self._admin.reset_offset_by_timestamp_old(group, topic, at_ms, True))

    def write_permission(self, broker: str, body: Body) -> Json:
        """Let nobody send to the brokers of a name, or all again, at each name server: {"allow": true or false}."""
        allow = body.get("allow")
        if not isinstance(allow, bool):
            raise QuestionError("allow: true or false")
        if broker not in {each.name for each in self._source.picture().snapshot.brokers}:
            raise QuestionError(f"no broker {broker!r}", not_there=True)
        change = self._admin.add_write_perm_of_broker if allow else self._admin.wipe_write_perm_of_broker
        topics = [asked(partial(change, address, broker))
                  for address in asked(self._admin.get_name_server_address_list)]
        return self._done(f"write permission of {broker}: {allow}", topics=max(topics, default=0))

    def _done(self, what: str, **more: object) -> Json:
        log.info("console: %s %s", what, more)
        self._source.questions.answers.forget()
        return {"done": what, **more}


# Nothing but the console's own files: no inline script or style, no other site, not within a frame.
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
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse."""
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
        except CannotAnswerError as error:
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
