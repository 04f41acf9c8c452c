"""`Access`: decides on a request to the web console by its headers alone. It needs no library of the extra `console`.

    Host     must be an IP address, localhost, or an allowed name. A page of another site whose name resolves to this
             host (DNS rebinding) sends its own name, and is refused
    GET      reads; needs the token unless the console listens on a loopback address
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
    """The reason why a request is refused: an HTTP status and a text."""

    status: int
    message: str


@dataclass(frozen=True)
class Access:
    """The console's access rules. `hosts`: allowed host names in lower case, in addition to addresses."""

    token: str
    token_for_reading: bool
    writes: bool
    hosts: frozenset[str] = frozenset()

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
        if self.token_for_reading and path.startswith("/api/") and path != "/api/session":
            return self._token_refusal(headers)
        return None

    def is_own_host(self, header: str) -> bool:
        """Return whether a Host header names this console."""
        name = host_name(header)
        return name is not None and (name == "localhost" or name in self.hosts or _is_address(name))

    def _write_refusal(self, path: str, headers: Mapping[str, str], host: str) -> Refusal | None:
        if not path.startswith("/api/"):
            return Refusal(405, "POST is not supported on this path")
        if not self.writes:
            return Refusal(403, "this console is read-only: start it with --allow-writes")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return Refusal(403, "pages of other sites may not change anything")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "pages of other sites may not change anything")
        if headers.get(WRITE_HEADER) != "1":
            return Refusal(403, "a change needs the header X-Rmqha-Console: 1")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return Refusal(415, "a change must have the content type application/json")
        return self._token_refusal(headers)

    def _token_refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return None
        return Refusal(401, "the token is missing or wrong: the console printed it when it started")


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
