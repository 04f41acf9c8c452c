"""Requests to an etcd cluster, by etcd3gw (the extra `etcd`), sent to one member after the other.

    EtcdStore, EtcdLeadership  -->  EtcdClient  -->  the member that answered last, or else the next one

The first member gets only a part of the timeout: if it hangs, another one may answer at once. If no other one answers
either, it is asked again.
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
# Of etcd 3.4 and later.
_API = "/v3/"
# Kept open per member, for as many threads.
_POOLED_CONNECTIONS = 32
_AUTHENTICATE = "/auth/authenticate"
# For a password check, which is slow on purpose.
_AUTHENTICATE_S = 5.0
# Of the timeout: how long to wait for the first member while there are others.
_QUICK_SHARE = 5
# gRPC codes in etcd's answers.
_INVALID_ARGUMENT, _NOT_FOUND, _PERMISSION_DENIED, _UNIMPLEMENTED, _UNAUTHENTICATED = 3, 5, 7, 12, 16
_FINAL = {_INVALID_ARGUMENT, _NOT_FOUND, _PERMISSION_DENIED, _UNIMPLEMENTED, _UNAUTHENTICATED}
_NEEDS_TOKEN = ("user name is empty", "revision of auth store is old", "invalid auth token")


class EtcdError(Exception):
    """etcd has not done what was requested, as far as is known. `sure`: no member can have done it."""

    sure = False


class EtcdUnavailableError(EtcdError):
    """No member has answered in time."""


class EtcdRefusedError(EtcdError):
    """A member refuses, as all others would: user, password, permissions, or a request that it can't serve."""


@dataclass(frozen=True)
class EtcdSettings:
    """The members' addresses, and the credentials and timeout of requests; times in seconds."""

    # "http" or "https", host, port.
    endpoints: tuple[tuple[str, str, int], ...]
    timeout_s: float
    user: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True)
class KeyValue:
    """A key, and the revisions of the cluster that created it and last wrote it."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int


@dataclass(frozen=True)
class TxnAnswer:
    """The result of a transaction: what each range of the executed branch found, and the cluster's revision.

    `sure` is False if another member may have executed the transaction before, without its answer arriving.
    """

    succeeded: bool
    revision: int
    ranges: tuple[tuple[KeyValue, ...], ...]
    sure: bool = True


def parse_endpoints(text: str, default_scheme: str = "http") -> tuple[tuple[str, str, int], ...]:
    """Return (scheme, host, port) of each member in `host:port;https://host:port`. ValueError."""
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
    """Return the comparison that the key was created at this revision; 0: it does not exist."""
    return {"key": _text(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision}


def written_at(key: bytes, revision: int) -> dict[str, object]:
    """Return the comparison that the key was last written at this revision; 0: it does not exist."""
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision}


def put_of(key: bytes, value: bytes, lease_id: int = 0) -> dict[str, object]:
    """Return the operation that writes a key, which is deleted with its lease."""
    put: dict[str, object] = {"key": _text(key), "value": _text(value)}
    if lease_id:
        put["lease"] = lease_id
    return {"request_put": put}


def range_of(key: bytes, end: bytes = b"") -> dict[str, object]:
    """Return the operation that reads a key, or all keys from it to `end`, as a majority has them."""
    asked = {"key": _text(key)}
    if end:
        asked["range_end"] = _text(end)
    return {"request_range": asked}


def deletion_of(key: bytes) -> dict[str, object]:
    """Return the operation that deletes a key."""
    return {"request_delete_range": {"key": _text(key)}}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def parse_txn(answer: object) -> TxnAnswer:
    """Return a transaction's answer, parsed. ValueError if it is not one."""
    try:
        if not isinstance(answer, dict):
            raise TypeError("not an object")
        ranges = tuple(tuple(map(_key_value, response["response_range"].get("kvs", ())))
                       for response in answer.get("responses", ()) if "response_range" in response)
        return TxnAnswer(answer.get("succeeded") is True, _whole(answer["header"]["revision"]), ranges)
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"{str(answer)[:80]!r} is not an answer to a transaction: {error!r}") from error


def _key_value(kv: Mapping[str, str]) -> KeyValue:
    return KeyValue(base64.b64decode(kv["key"], validate=True), base64.b64decode(kv.get("value", ""), validate=True),
                    _whole(kv["create_revision"]), _whole(kv["mod_revision"]))


# proto3's JSON has 64-bit numbers as text.
def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int) or isinstance(value, str) and len(value) > 20:
        raise TypeError(f"{value!r} is not a number")
    return int(value)


class EtcdClient:
    """The members of one cluster. Any thread may call it; one at a time may wait in `wait_for_change`.

    HTTP proxies of the environment and netrc are ignored.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        """Does not connect yet. OSError, ValueError: etcd3gw is not installed, or a TLS file can't be used."""
        _check_files(settings)
        self._settings = settings
        self._members = [_Member(settings, *endpoint) for endpoint in settings.endpoints]
        # The member to ask first; a thread that finds it unusable sets the next one.
        self._current = 0
        # Guards both below.
        self._watching = threading.Lock()
        self._watch: Response | None = None
        # Set before there was a watch to interrupt.
        self._interrupted = False

    def transaction(self, compare: list[dict[str, object]], success: list[dict[str, object]],
                    failure: list[dict[str, object]] | None = None) -> TxnAnswer:
        """Run one transaction. It may be sent to several members, so a repetition must have no effect.

        A read-only transaction must have a range: one without is answered by a member that may be behind. EtcdError.
        """
        answer, sure = self._ask("/kv/txn", {"compare": compare, "success": success, "failure": failure or []},
                                 parse_txn)
        return TxnAnswer(answer.succeeded, answer.revision, answer.ranges, sure)

    def grant_lease(self, seconds: int) -> int:
        """Return a new lease's id. It ends on its own unless it is kept alive. EtcdError."""
        granted: int = self._ask("/lease/grant", {"TTL": seconds, "ID": 0}, lambda answer: _whole(answer["ID"]))[0]
        return granted

    def keep_alive(self, lease_id: int) -> bool:
        """Renew a lease; return False if it has ended. EtcdError."""
        lives: bool = self._ask("/lease/keepalive", {"ID": lease_id},
                                lambda answer: _whole(answer["result"].get("TTL", 0)) > 0)[0]
        return lives

    def revoke_lease(self, lease_id: int) -> None:
        """End a lease, which deletes its keys. EtcdError."""
        self._ask("/lease/revoke", {"ID": lease_id}, lambda answer: None)

    def _ask(self, path: str, body: dict[str, object], parse: Callable[[Any], Any]) -> tuple[Any, bool]:
        """Return the answer of the first member that answers, and whether it was the first that was asked."""
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
        """Wait until a key is written or deleted after a revision, or for `interrupt`; then return True.

        False: nothing happened for `timeout_s`, or it is not possible to wait.
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
        # The errors of requests are OSErrors; usually the time is over.
        except (OSError, ValueError, AttributeError) as error:
            log.debug("watch at %s ended: %r", member.name, error)
            return self._interrupted
        finally:
            with self._watching:
                self._interrupted = False

    def interrupt(self) -> None:
        """Make the present, or else the next `wait_for_change` return."""
        with self._watching:
            self._interrupted = True
            if self._watch is not None:
                try:
                    self._watch.raw.shutdown()
                except (OSError, RuntimeError, ValueError) as error:
                    log.debug("watch has ended already: %r", error)

    def close(self) -> None:
        """Close the connections."""
        for member in self._members:
            member.close()


def _has_event(response: Response) -> bool:
    """Read until an event arrives, and return True; False if the watch ends on its own."""
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
        raise ValueError("etcdCertFile and etcdKeyFile must be set together: one of them is missing")
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
    """One member of the cluster, and the token that it issued for user and password."""

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
        # One thread asks for a token, and those that wait use it.
        self._login = threading.Lock()
        # Written under _login.
        self._token: str | None = None

    def post(self, path: str, body: dict[str, object], quick: bool = False) -> Any:
        """Return the answer to one request, which is waited for only briefly if `quick`. EtcdUnavailableError,
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
        """Request a new token in place of one that was refused."""
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
        """Sign a request; called by requests. With an expired token etcd would not even check a password."""
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
        # Errors of requests that etcd3gw lets through, and answers without JSON.
        except (OSError, ValueError) as error:
            raise EtcdUnavailableError(repr(error)) from error

    def open_watch(self, asked: dict[str, object], timeout_s: float) -> Response:
        """Return the stream of a watch, which ends if nothing arrives for `timeout_s`. OSError."""
        # etcd3gw's Watcher waits forever for a member that hangs.
        return self._session.post(self._client.get_url("/watch"), json={"create_request": asked}, stream=True,
                                  timeout=(self._settings.timeout_s, timeout_s))

    def close(self) -> None:
        self._session.close()


def _told(error: Any) -> tuple[int | None, str]:
    """Return the gRPC code and the message of an error of etcd3gw."""
    detail = getattr(error, "detail_text", None) or str(error)
    try:
        document = parse_json(detail, "etcd's error")
        return document.get("code"), str(document.get("error") or document.get("message"))
    except (ValueError, AttributeError):
        return None, str(detail)[:200]
