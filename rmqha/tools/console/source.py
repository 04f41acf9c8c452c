"""What the console's pages are about: the poller's pictures, and the questions behind them."""
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.view.change import Picture
from rmqha.tools.view.collector import Collector
from rmqha.tools.view.history import History
from rmqha.tools.view.messages import Messages
from rmqha.tools.view.poller import ViewPoller
from rmqha.tools.view.questions import QuestionError, Questions

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
