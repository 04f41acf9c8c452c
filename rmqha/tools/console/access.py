"""The access rules of the web console. They need no library of the extra `console`.

    Host     must be an IP address, localhost, or an allowed name. A page of another site whose name resolves to this
             host (DNS rebinding) sends its own name, and is refused
    GET      reads; needs the role `see`, unless everybody on this host may read
    POST     writes; needs its role, and a header that no form and no other site's page can send

- `Role`: see < publish < administer. `Person`: the sender of a request, by a token or an account.
- `SignIn`: accounts of a plain_acl.yml as people, and the sessions of those that have signed in.
- `Access`: decides on a request by its method, path and headers.
"""
import hmac
import ipaddress
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rmqha.acl.acl_files import AclFile
from rmqha.acl.common import AclException
from rmqha.tools.manage.access_check import PUB, SUB, Rules, Use, verdict
from rmqha.tools.terminal import CannotAnswerError

WRITE_HEADER = "x-rmqha-console"
READS = ("GET", "HEAD")
MIN_TOKEN = 16
SESSION_PATH = "/api/session"
IDLE_S = 12 * 3600.0
MAX_SESSIONS = 1000
# Failed attempts to sign in, of one account and of all, within the time; then all attempts have to wait.
_MOST_FAILURES, _MOST_FAILURES_OF_ALL, _FAILURES_S = 5, 100, 60.0


class Role(IntEnum):
    """The roles of people; each one may do what those before it may."""

    SEE = 1
    PUBLISH = 2
    ADMINISTER = 3

    @property
    def word(self) -> str:
        """The role's name for people."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> "Role":
        """Return the role with this name."""
        return cls[word.upper()]


@dataclass(frozen=True)
class Refusal:
    """The reason why a request is refused: an HTTP status and a text."""

    status: int
    message: str


@dataclass(frozen=True)
class Person:
    """The sender of a request. `name`: None without a sign-in, which this host does not need.

    `rules` are those of an account without admin rights: it may read and send only what they allow. `address`: where
    the request comes from, for the log. `has_session`: signed in by account, not by token.
    """

    name: str | None
    role: Role
    rules: Rules | None = field(default=None, repr=False)
    address: str = ""
    has_session: bool = False

    def refusal_to_read(self, topic: str) -> str | None:
        """Return why the messages of a topic may not be read; None if they may."""
        return self._refusal(SUB, topic)

    def refusal_to_send(self, topic: str) -> str | None:
        """Return why no message may be sent to a topic; None if it may."""
        return self._refusal(PUB, topic)

    def _refusal(self, perm: str, topic: str) -> str | None:
        if self.rules is None or self.name is None:
            return None
        found = verdict(self.rules, self.name, Use(perm, topic))
        return None if found.is_allowed else f"the account {self.name} may not do this: {found.reason}"


@dataclass
class _Session:
    access_key: str
    secret: bytes
    used_s: float


class TooManyAttemptsError(Exception):
    """Too many attempts to sign in have failed; the text says how long to wait."""


class SignIn:
    """The accounts of a file as people, and their sessions. Thread-safe.

    The file is read again when it has changed; a session ends when its account is gone or has another secret.
    """

    def __init__(self, path: str) -> None:
        """Read the file. AclException when it is missing or invalid."""
        self._path = path
        self._lock = threading.Lock()  # guards everything below
        self._stamp: tuple[int, int] | None = None
        self._persons: dict[str, tuple[bytes, Person]] = {}
        self._sessions: dict[str, _Session] = {}  # by token, the one that was used last at the end
        self._failures: dict[str, list[float]] = {}
        with self._lock:
            self._read()
        if not self._persons:
            raise AclException(f"{path}: the file has no account")

    def _read(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = found.st_mtime_ns, found.st_size
        except OSError as error:
            raise AclException(f"{self._path}: {error.strerror}") from error
        if stamp == self._stamp:
            return
        content = AclFile.read(self._path)
        try:
            rules = Rules.of_files([self._path])
        except CannotAnswerError as error:
            raise AclException(error.message) from error
        self._persons = {}
        for account in content.accounts if content is not None else ():
            if account.accessKey and account.secretKey and account.accessKey not in self._persons:
                person = Person(account.accessKey, Role.ADMINISTER, has_session=True) if account.admin else (
                    Person(account.accessKey, _role_of(rules, account.accessKey), rules, has_session=True))
                self._persons[account.accessKey] = account.secretKey.encode("utf-8", "surrogatepass"), person
        self._stamp = stamp

    def open(self, access_key: str, secret_key: str) -> tuple[str, Person] | None:
        """Begin a session; return its token, or None for a wrong key or secret. TooManyAttemptsError."""
        now = time.monotonic()
        given = secret_key.encode("utf-8", "surrogatepass")
        with self._lock:
            self._check_attempts(access_key, now)
            self._reread()
            secret, person = self._persons.get(access_key, (b"", None))
            if not hmac.compare_digest(secret, given) or person is None:
                self._failures.setdefault(access_key[:100], []).append(now)
                return None
            token = secrets.token_urlsafe(24)
            self._sessions[token] = _Session(access_key, secret, now)
            while len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            return token, person

    def _check_attempts(self, access_key: str, now: float) -> None:
        recent = {key: kept for key, times in self._failures.items()
                  if (kept := [each for each in times if now - each < _FAILURES_S])}
        self._failures = recent
        own = recent.get(access_key[:100], [])
        if len(own) >= _MOST_FAILURES or sum(map(len, recent.values())) >= _MOST_FAILURES_OF_ALL:
            raise TooManyAttemptsError(f"too many failed attempts: wait {_FAILURES_S:g} s")

    def _reread(self) -> None:
        try:
            self._read()
        except AclException:
            # An editor may be writing it: the accounts that it had before stay, as at a broker.
            self._stamp = None

    def person(self, token: str) -> Person | None:
        """Return whose session this is; None if it has ended."""
        now = time.monotonic()
        with self._lock:
            session = self._sessions.pop(token, None)
            if session is None or now - session.used_s > IDLE_S:
                return None
            self._reread()
            secret, person = self._persons.get(session.access_key, (b"", None))
            if person is None or not hmac.compare_digest(secret, session.secret):
                return None
            session.used_s = now
            self._sessions[token] = session
            return person

    def knows(self, access_key: str) -> bool:
        """Return whether an account has this access key."""
        with self._lock:
            return access_key in self._persons

    def close(self, token: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(token, None)


def _role_of(rules: Rules, access_key: str) -> Role:
    account = rules.accounts[access_key]
    entries = [account.default_topic_perm, *(entry.rpartition("=")[2] for entry in account.topic_perms)]
    return Role.PUBLISH if any("PUB" in entry.upper().split("|") for entry in entries) else Role.SEE


@dataclass(frozen=True)
class Access:
    """The console's access rules. `role` is that of the token; without `token_for_reading`, everybody who reaches the
    console may see. `hosts`: allowed host names in lower case, in addition to addresses."""

    token: str
    token_for_reading: bool
    role: Role = Role.SEE
    hosts: frozenset[str] = frozenset()
    sign_in: SignIn | None = None

    @property
    def needs_sign_in(self) -> bool:
        """True if nothing is shown to someone who has not signed in."""
        return self.token_for_reading or self.sign_in is not None

    def person(self, headers: Mapping[str, str]) -> Person | None:
        """Return the sender of a request with these headers; None if reading needs a sign-in."""
        token = bearer(headers)
        if token and hmac.compare_digest(token.encode(), self.token.encode()):
            return Person("token", self.role)
        person = self.sign_in.person(token) if self.sign_in is not None and token else None
        if person is None and not self.needs_sign_in and not token:
            return Person(None, Role.SEE)
        return person

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused, or None if it may be served. Header names are in lower case."""
        host = headers.get("host", "")
        if not self.is_own_host(host):
            return Refusal(421, f"the host name {host[:100]!r} is not allowed: use an IP address or localhost, or "
                           "start the console with --allow-host NAME")
        if method == "POST":
            return self._write_refusal(path, headers, host)
        if method not in READS:
            return Refusal(405, f"the method {method} is not supported")
        if path.startswith("/api/") and path != SESSION_PATH:
            return self._role_refusal(Role.SEE, headers)
        return None

    def is_own_host(self, header: str) -> bool:
        """Return whether a Host header names this console."""
        name = host_name(header)
        return name is not None and (name == "localhost" or name in self.hosts or _is_address(name))

    def _write_refusal(self, path: str, headers: Mapping[str, str], host: str) -> Refusal | None:
        if not path.startswith("/api/"):
            return Refusal(405, "POST is not supported on this path")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return Refusal(403, "pages of other sites may not change anything")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "pages of other sites may not change anything")
        if headers.get(WRITE_HEADER) != "1":
            return Refusal(403, "a change needs the header X-Rmqha-Console: 1")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return Refusal(415, "a change must have the content type application/json")
        if path.startswith(SESSION_PATH):
            return None
        return self._role_refusal(Role.PUBLISH if path.endswith("/publish") else Role.ADMINISTER, headers)

    def _role_refusal(self, needed: Role, headers: Mapping[str, str]) -> Refusal | None:
        person = self.person(headers)
        if person is None or person.name is None and needed > Role.SEE:
            if needed > self.role and self.sign_in is None:
                return Refusal(403, f"this needs the role {needed.word}: start the console with --role {needed.word}")
            return Refusal(401, "sign in: the token is missing or wrong (the console printed it when it started), or "
                                "the session has ended")
        if person.role < needed:
            return Refusal(403, f"this needs the role {needed.word}; {person.name} has the role {person.role.word}")
        return None


def bearer(headers: Mapping[str, str]) -> str:
    """Return the token of the Authorization header, "" without one."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def host_name(header: str) -> str | None:
    """Return the name or address in a Host header, in lower case and without the port; None if it is invalid."""
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
    """Return whether an address to listen on can't be reached from other hosts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
