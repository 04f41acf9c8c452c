"""Fetches the list of name servers from an HTTP address server."""
import logging

from rmqha.common import mix_all

log = logging.getLogger("RocketmqCommon")

_MAX_ANSWER = 64 * 1024


class TopAddressing:
    """A client of an address server; `unit_name` selects that unit's list.

    Java: org.apache.rocketmq.common.namesrv.TopAddressing (4.9.8)
    """

    def __init__(self, ws_addr: str | None = None, unit_name: str | None = None) -> None:
        self.ws_addr = ws_addr or mix_all.get_ws_addr()
        self.unit_name = unit_name
        self.ns_addr: str | None = None

    def fetch_ns_addr(self, verbose: bool = True, timeout_ms: int = 3000) -> str | None:
        """Return the first line of the answer, addresses separated by `;`. None when the request fails; that is logged.
        """
        # Imported late: few clusters have an address server, and name servers start faster without it
        import urllib.request
        from http.client import HTTPException

        url = self.ws_addr
        if self.unit_name and self.unit_name.strip():
            url = f"{url}-{self.unit_name}?nofix=1"
        try:
            with urllib.request.urlopen(url, timeout=timeout_ms / 1000) as answer:
                return clear_new_line(answer.read(_MAX_ANSWER).decode("utf-8", "replace"))
        # URLError and HTTPError are OSErrors.
        except (OSError, ValueError, HTTPException) as failure:
            if verbose:
                log.error("fetch name server address exception: %s", failure)
                log.warning("connect to %s failed, maybe the domain name %s not bind in /etc/hosts", url, self.ws_addr)
            return None


def clear_new_line(text: str) -> str:
    """Return the first line, without surrounding white space."""
    stripped = text.strip()
    return stripped.splitlines()[0] if stripped else ""
