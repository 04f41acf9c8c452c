"""Who may do what at the console: pure functions on a request's headers.

    Host     an IP address, localhost, or a name that was allowed: a page of another site that has its name lead here
             (DNS rebinding) sends its own
    GET      reads; needs the token when the console listens elsewhere than on a loopback address
    POST     writes; needs --allow-writes, the token, and a header that no form and no other site's page can send
"""
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

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
