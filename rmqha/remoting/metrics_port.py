"""The port of a server's metrics, if it is to have one."""
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.common import metrics

if TYPE_CHECKING:
    from rmqha.common.metrics import Pages, Subject
    from rmqha.remoting.http_port import HttpPort


class MetricsPort:
    """/metrics, /healthz and /readyz at host:port. Port None: none; 0: a free one, see `local_port`.

    `new_subject` makes what they tell of; it is called by `start` alone, since many servers have no such port.
    """

    def __init__(self, host: str, port: int | None, new_subject: "Callable[[], Subject]") -> None:
        self._host, self._port, self._new_subject = host, port, new_subject
        self._pages: Pages | None = None  # from the first start on
        self._http_port: HttpPort | None = None  # from start to shutdown

    @property
    def local_port(self) -> int:
        """The bound port, once started; 0 without one."""
        return self._http_port.local_port if self._http_port is not None else 0

    @property
    def is_alive(self) -> bool:
        """Whether it serves."""
        return self._http_port is not None and self._http_port.is_alive()

    def start(self) -> None:
        """Open the port. PortError when that can't be, RuntimeError without prometheus-client."""
        if self._port is None or self._http_port is not None:
            return
        if not metrics.is_available():
            raise RuntimeError(f"{metrics.CONFIG_KEY}={self._port}: {metrics.HOW_TO_INSTALL}")
        from rmqha.common.metrics import HEALTH_PATHS, Pages
        from rmqha.remoting.http_port import HttpPort  # heavy, and many servers have none

        pages = self._pages = self._pages or Pages(self._new_subject())
        http_port = HttpPort(self._host, self._port, metrics.CONFIG_KEY, pages.page, HEALTH_PATHS)
        http_port.start()
        self._http_port, pages.is_stopped = http_port, False

    def shutdown(self) -> None:
        """Close it; answers that are being made end early. Idempotent."""
        if self._pages is not None:
            self._pages.is_stopped = True
        http_port, self._http_port = self._http_port, None
        if http_port is not None:
            http_port.shutdown()
