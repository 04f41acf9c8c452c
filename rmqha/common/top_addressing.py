"""Asking an HTTP address server for the name servers."""
import logging
import urllib.request
from http.client import HTTPException

from rmqha.common import mix_all

log = logging.getLogger("RocketmqCommon")

_MAX_ANSWER = 64 * 1024


class TopAddressing:
    """The name server list that an address server tells; `unit_name` asks for that unit's.

    Java: org.apache.rocketmq.common.namesrv.TopAddressing (4.9.8)
    """

    def __init__(self, ws_addr: str | None = None, unit_name: str | None = None) -> None:
        self.ws_addr = ws_addr or mix_all.get_ws_addr()
        self.unit_name = unit_name
        self.ns_addr: str | None = None

    def fetch_ns_addr(self, verbose: bool = True, timeout_ms: int = 3000) -> str | None:
        """The first line of the answer, `;` separated addresses; None, with a line in the log, without a good one."""
        url = self.ws_addr
        if self.unit_name and self.unit_name.strip():
            url = f"{url}-{self.unit_name}?nofix=1"
        try:
            with urllib.request.urlopen(url, timeout=timeout_ms / 1000) as answer:
                return clear_new_line(answer.read(_MAX_ANSWER).decode("utf-8", "replace"))
        except (OSError, ValueError, HTTPException) as failure:  # URLError and HTTPError are OSErrors
            if verbose:
                log.error("fetch name server address exception: %s", failure)
                log.warning("connect to %s failed, maybe the domain name %s not bind in /etc/hosts", url, self.ws_addr)
            return None


def clear_new_line(text: str) -> str:
    """The first line, without white space around it."""
    stripped = text.strip()
    return stripped.splitlines()[0] if stripped else ""
