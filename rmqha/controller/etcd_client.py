"""What is asked of an etcd cluster, by etcd3gw (the extra `etcd`): of one member after the other.

    EtcdStore, EtcdLeadership  -->  EtcdClient  -->  the member that answered last, or else the next one

The first is not waited for as long as the others, which may well answer at once when it hangs, and is asked again when
none of them has answered.
"""
from __future__ import annotations

import base64
import binascii
import logging
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rmqha.common.filesystem import how_to_install
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.texts import Secret, parse_json

if TYPE_CHECKING:
    from etcd3gw import Etcd3Client
    from requests import Response


log = logging.getLogger("RocketmqController")

HOW_TO_INSTALL = f"controllerStore=etcd needs etcd3gw: {how_to_install('etcd')}"
_ENDPOINT = re.compile(r"(?:(https?)://)?(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+)):(\d{1,5})/?")
_API = "/v3/"  # of etcd 3.4 and later
_POOLED_CONNECTIONS = 32  # a member's, kept open for as many threads
_AUTHENTICATE = "/auth/authenticate"
_AUTHENTICATE_S = 5.0  # for a password, which is made slow to try
_QUICK_SHARE = 5  # of the time-out: how long the first member is waited for, while there are others
# codes of gRPC, as etcd's answers carry them
_INVALID_ARGUMENT, _NOT_FOUND, _PERMISSION_DENIED, _UNIMPLEMENTED, _UNAUTHENTICATED = 3, 5, 7, 12, 16
_FINAL = {_INVALID_ARGUMENT, _NOT_FOUND, _PERMISSION_DENIED, _UNIMPLEMENTED, _UNAUTHENTICATED}
_NEEDS_TOKEN = ("user name is empty", "revision of auth store is old", "invalid auth token")


class EtcdError(Exception):
    """etcd has not done what was asked, as far as is known. `sure`: none of the members can have done it."""

    sure = False


class EtcdUnavailableError(EtcdError):
    """No member has answered in time."""


class EtcdRefusedError(EtcdError):
    """A member says no, and the others would say the same: user, password, rights, or a request that it can't serve."""


@dataclass(frozen=True)
class EtcdSettings:
    """Where the members are, and as whom and how they are asked; times in seconds."""

    endpoints: tuple[tuple[str, str, int], ...]  # "http" or "https", host, port
    timeout_s: float
    user: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class KeyValue:
    """A key, and the revisions of the cluster that made it and wrote it last."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True)
class TxnAnswer:
    """How a transaction ended: what each range of the branch that was taken has found, and the cluster's revision.

    `sure` is False when another member may have done the same before, without its answer being heard.
    """

    succeeded: bool
    revision: int
    ranges: tuple[tuple[KeyValue, ...], ...]
    sure: bool = True


def parse_endpoints(text: str, default_scheme: str = "http") -> tuple[tuple[str, str, int], ...]:
    """(scheme, host, port) of each member in `host:port;https://host:port`. ValueError."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = _ENDPOINT.fullmatch(part)
        if match is None or not 0 < int(match[4]) <= 0xFFFF:
            raise ValueError("etcdEndpoints: expected host:port or https://host:port, joined by `;`, "
                             f"not {part[:80]!r}")
        found.append((match[1] or default_scheme, match[2] or match[3], int(match[4])))
    if not found:
        raise ValueError("etcdEndpoints is empty: controllerStore=etcd needs the members of an etcd cluster")
    return tuple(found)


# ---- the parts of a transaction


def created_at(key: bytes, revision: int) -> dict[str, object]:
    """Compares: the key was made at this revision; 0: there is none."""
    return {"key": _text(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision}


def written_at(key: bytes, revision: int) -> dict[str, object]:
    """Compares: the key was last written at this revision; 0: there is none."""
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision}


def put_of(key: bytes, value: bytes, lease_id: int = 0) -> dict[str, object]:
    """Writes a key, which goes with its lease."""
    put: dict[str, object] = {"key": _text(key), "value": _text(value)}
    if lease_id:
        put["lease"] = lease_id
    return {"request_put": put}


def range_of(key: bytes, end: bytes = b"") -> dict[str, object]:
    """Reads a key, or all from it to `end`, as most members have them."""
    asked = {"key": _text(key)}
    if end:
        asked["range_end"] = _text(end)
    return {"request_range": asked}


def deletion_of(key: bytes) -> dict[str, object]:
    """Deletes a key."""
    return {"request_delete_range": {"key": _text(key)}}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def parse_txn(answer: object) -> TxnAnswer:
    """A transaction's answer, parsed. ValueError when it is none."""
    try:
        if not isinstance(answer, dict):
            raise TypeError("no object")
        ranges = tuple(tuple(map(_key_value, response["response_range"].get("kvs", ())))
                       for response in answer.get("responses", ()) if "response_range" in response)
        return TxnAnswer(answer.get("succeeded") is True, _whole(answer["header"]["revision"]), ranges)
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"{str(answer)[:80]!r} is no answer to a transaction: {error!r}") from error


def _key_value(kv: Mapping[str, str]) -> KeyValue:
    return KeyValue(base64.b64decode(kv["key"], validate=True), base64.b64decode(kv.get("value", ""), validate=True),
                    _whole(kv["create_revision"]), _whole(kv["mod_revision"]))


def _whole(value: object) -> int:  # proto3's JSON has 64 bit numbers as text
    if isinstance(value, bool) or not isinstance(value, str | int) or isinstance(value, str) and len(value) > 20:
        raise TypeError(f"{value!r} is no number")
    return int(value)


class EtcdClient:
    """The members of one cluster. Any thread may call it; one at a time may wait in `wait_for_change`.

    Where HTTP proxies are, and what netrc says, is not asked.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        """Connects to nobody yet. OSError, ValueError: etcd3gw is not installed, or a file of TLS is of no use."""
        _check_files(settings)
        self._settings = settings
        self._members = [_Member(settings, *endpoint) for endpoint in settings.endpoints]
        self._current = 0  # the member that is asked first; whoever finds it of no use names the next one
        self._watching = threading.Lock()  # guards both below
        self._watch: Response | None = None
        self._interrupted = False  # before there was a watch to interrupt

    def transaction(self, compare: list[dict[str, object]], success: list[dict[str, object]],
                    failure: list[dict[str, object]] | None = None) -> TxnAnswer:
        """One transaction, which may be asked of several members: it has to do nothing when it was done before.

        A transaction that reads alone has to have a range: one without is answered by a member that may be behind.
        EtcdError.
        """
        answer, sure = self._ask("/kv/txn", {"compare": compare, "success": success, "failure": failure or []},
                                 parse_txn)
        return TxnAnswer(answer.succeeded, answer.revision, answer.ranges, sure)

    def grant_lease(self, seconds: int) -> int:
        """A new lease's id. It ends on its own when nobody keeps it alive. EtcdError."""
        granted: int = self._ask("/lease/grant", {"TTL": seconds, "ID": 0}, lambda answer: _whole(answer["ID"]))[0]
        return granted

    def keep_alive(self, lease_id: int) -> bool:
        """Let a lease begin anew; False when it has ended. EtcdError."""
        lives: bool = self._ask("/lease/keepalive", {"ID": lease_id},
                                lambda answer: _whole(answer["result"].get("TTL", 0)) > 0)[0]
        return lives

    def revoke_lease(self, lease_id: int) -> None:
        """End a lease, and with it its keys. EtcdError."""
        self._ask("/lease/revoke", {"ID": lease_id}, lambda answer: None)

    def _ask(self, path: str, body: dict[str, object], parse: Callable[[Any], Any]) -> tuple[Any, bool]:
        """What the first member that answers says, and whether it was the first that was asked."""
        first, count = self._current, len(self._members)
        problems: list[str] = []
        for number in range(count + 1 if count > 1 else 1):
            index = (first + number) % count
            member = self._members[index]
            try:
                return parse(member.post(path, body, quick=number == 0 and count > 1)), not problems
            except EtcdRefusedError as error:
                error.sure = not problems
                raise
            except (EtcdUnavailableError, KeyError, TypeError, ValueError, AttributeError) as error:
                problems.append(f"{member.name}: {error}")
                if self._current == index:
                    self._current = (index + 1) % count
        raise EtcdUnavailableError("; ".join(problems))

    def wait_for_change(self, key: bytes, revision: int, timeout_s: float) -> bool:
        """Wait until a key is written or deleted after a revision, or for `interrupt`: True.

        False: nothing came for `timeout_s`, or it can't be waited for.
        """
        member = self._members[self._current]
        try:
            with member.open_watch({"key": _text(key), "start_revision": revision + 1}, timeout_s) as response:
                try:
                    with self._watching:
                        self._watch = response
                    return not self._interrupted and _has_event(response) or self._interrupted
                finally:
                    with self._watching:
                        self._watch = None
        except (OSError, ValueError, AttributeError) as error:  # requests' errors are OSErrors; mostly time is over
            log.debug("watch at %s ended: %r", member.name, error)
            return self._interrupted
        finally:
            with self._watching:
                self._interrupted = False

    def interrupt(self) -> None:
        """Let the present, or else the next `wait_for_change` return."""
        with self._watching:
            self._interrupted = True
            if self._watch is not None:
                try:
                    self._watch.raw.shutdown()
                except (OSError, RuntimeError, ValueError) as error:
                    log.debug("watch has ended already: %r", error)

    def close(self) -> None:
        """Close what is connected."""
        for member in self._members:
            member.close()


def _has_event(response: Response) -> bool:
    """Read until something has happened: True; False when the watch ends by itself."""
    for line in response.iter_lines():
        result = parse_json(line, "what etcd's watch has sent").get("result", {}) if line.strip() else {}
        if result.get("events"):
            return True
        if result.get("canceled"):
            return False
    return False


def _check_files(settings: EtcdSettings) -> None:
    if settings.password and not settings.user:
        raise ValueError("etcdPassword without etcdUser")
    if bool(settings.cert_file) != bool(settings.key_file):
        raise ValueError("etcdCertFile and etcdKeyFile belong together: one of them is missing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        key = f"etcdCaFile={settings.ca_file}"
        if settings.ca_file:
            context.load_verify_locations(settings.ca_file)
        key = f"etcdCertFile={settings.cert_file}, etcdKeyFile={settings.key_file}"
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from error


class _Member:
    """One member of the cluster, and the token that it takes for user and password."""

    def __init__(self, settings: EtcdSettings, scheme: str, host: str, port: int) -> None:
        try:
            from etcd3gw import Etcd3Client, exceptions
            from requests import Session
            from requests.adapters import HTTPAdapter
        except ImportError as error:
            raise OSError(f"{HOW_TO_INSTALL} ({error})") from error
        self.name = f"{host}:{port}"
        self._settings = settings
        self._etcd_error, self._unavailable = exceptions.Etcd3Exception, (
            exceptions.InternalServerError, exceptions.ConnectionFailedError, exceptions.ConnectionTimeoutError)
        session = Session()
        session.trust_env = False
        session.mount(f"{scheme}://", HTTPAdapter(pool_maxsize=_POOLED_CONNECTIONS))
        session.auth = self._sign
        session.verify = settings.ca_file or True
        if settings.cert_file and settings.key_file:
            session.cert = (settings.cert_file, settings.key_file)
        self._session = session

        def client(timeout_s: float) -> Etcd3Client:
            return Etcd3Client(host, port, scheme, timeout=timeout_s, api_path=_API, session=session)
        self._client, self._patient = client(settings.timeout_s), client(_AUTHENTICATE_S)
        self._quick = client(settings.timeout_s / _QUICK_SHARE)
        self._login = threading.Lock()  # one thread asks for a token, and those that wait use it
        self._token: str | None = None  # written under _login

    def post(self, path: str, body: dict[str, object], quick: bool = False) -> Any:
        """The answer to one request, for which a `quick` one does not wait long. EtcdUnavailableError,
        EtcdRefusedError.
        """
        token, client = self._token, self._quick if quick else self._client
        if self._settings.user and token is None:
            token = self._log_in(None)
        try:
            return self._post(client, path, body)
        except EtcdRefusedError as error:
            if not self._settings.user or not any(words in str(error) for words in _NEEDS_TOKEN):
                raise
            self._log_in(token)
            return self._post(client, path, body)

    def _log_in(self, refused: str | None) -> str | None:
        """Ask for a token in the place of one that is refused."""
        with self._login:
            if self._token == refused:
                answer = self._post(self._patient, _AUTHENTICATE,
                                    {"name": self._settings.user, "password": self._password()})
                try:
                    self._token = str(answer["token"])
                except (KeyError, TypeError) as error:
                    raise EtcdUnavailableError(f"no token in {answer!r}") from error
            return self._token

    def _password(self) -> str:
        return self._settings.password.reveal() if self._settings.password is not None else ""

    def _sign(self, request: Any) -> Any:
        """Called by requests. With a token that is not known any more etcd would not even look at a password."""
        if self._token is not None and not request.url.endswith(_AUTHENTICATE):
            request.headers["Authorization"] = self._token
        return request

    def _post(self, client: Etcd3Client, path: str, body: dict[str, object]) -> Any:
        try:
            return client.post(client.get_url(path), json=body)
        except self._unavailable as error:
            raise EtcdUnavailableError(_told(error)[1]) from error
        except self._etcd_error as error:
            code, words = _told(error)
            raise (EtcdRefusedError if code in _FINAL else EtcdUnavailableError)(words) from error
        except (OSError, ValueError) as error:  # errors of requests that etcd3gw lets through, answers without JSON
            raise EtcdUnavailableError(repr(error)) from error

    def open_watch(self, asked: dict[str, object], timeout_s: float) -> Response:
        """The stream of a watch, which ends when nothing came for `timeout_s`. OSError."""
        # etcd3gw's Watcher waits for ever for a member that hangs
        return self._session.post(self._client.get_url("/watch"), json={"create_request": asked}, stream=True,
                                  timeout=(self._settings.timeout_s, timeout_s))

    def close(self) -> None:
        self._session.close()


def _told(error: Any) -> tuple[int | None, str]:
    """gRPC's code, and the words, of an error of etcd3gw's."""
    detail = getattr(error, "detail_text", None) or str(error)
    try:
        document = parse_json(detail, "etcd's error")
        return document.get("code"), str(document.get("error") or document.get("message"))
    except (ValueError, AttributeError):
        return None, str(detail)[:200]
