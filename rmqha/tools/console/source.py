"""`Source`: the data of all pages of the console, from the poller's pictures and from queries made on demand."""
import glob
import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.connection import NO_ACCOUNT, Account
from rmqha.tools.manage.dead_letters import DeadLetterCount, list_dead_letters
from rmqha.tools.manage.masters import Outcomes, brokers_of, masters
from rmqha.tools.messages.produce import PRODUCER_GROUP
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view.browse import Browser
from rmqha.tools.view.questions import Messages, QuestionError, Questions, ViewPoller
from rmqha.tools.view.snapshot import Collector, History, Picture

log = logging.getLogger("RocketmqTools")

_FIRST_PICTURE_S = 5.0
# How often these are requested although no page shows them, so that the first viewer need not wait. Counting
# dead letters takes some requests for each group that has any.
_TOPICS_EVERY_S, _DEAD_LETTERS_EVERY_S = 20.0, 300.0
_DEAD_LETTERS_TTL_S, _DEAD_LETTERS_STALE_S = 10.0, 600.0


@dataclass(frozen=True)
class Wanted:
    """The cluster to show, and how to query it."""

    namesrv: str
    cluster: str | None = None
    broker: str | None = None
    interval_s: float = 2.0
    timeout_s: float = 2.0
    account: Account = NO_ACCOUNT


class Source:
    """The data of all pages; a context manager that polls the cluster while it is open.

    `admin`: for the operations of rmqha.tools.manage. `producer`: publishes messages.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        timeout_ms = round(wanted.timeout_s * 1000)
        who = wanted.account
        self._collector = Collector(wanted.namesrv, timeout_ms, wanted.cluster, wanted.broker, who)
        self.history = History()
        self.poller = ViewPoller(self._collector, self.history, wanted.interval_s, self._prepare)
        self._collector.group_poll.on_late = self.poller.wakeup
        # Monotonic: when they were prepared; of the poller's thread.
        self._topics_s, self._dead_letters_s = -_TOPICS_EVERY_S, -_DEAD_LETTERS_EVERY_S
        self._admin = DefaultMQAdminExt(wanted.namesrv, who.rpc_hook, timeout_ms, tls=who.tls)
        self.admin = ClusterAdmin(wanted.namesrv, timeout_ms, who.rpc_hook, who.tls)
        self.producer = DefaultMQProducer(PRODUCER_GROUP, wanted.namesrv, who.rpc_hook)
        self.producer.send_msg_timeout = max(1_000, timeout_ms)
        if who.tls is not None:
            self.producer.use_tls, self.producer.tls = True, who.tls
        self._tables_admin = ClusterAdmin(wanted.namesrv, timeout_ms, who.rpc_hook, who.tls)
        self.questions = Questions(self._admin, self._tables_admin)
        self.messages = Messages(self.questions)
        self.browser = Browser(self._admin)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._collector)
            stack.callback(self._admin.shutdown)
            # starts the client before several threads use it
            assert self._admin.instance
            stack.enter_context(self.admin)
            stack.enter_context(self._tables_admin)
            stack.callback(self.questions.shutdown)
            stack.enter_context(self.producer)
            stack.callback(self.poller.shutdown)
            self.poller.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def _prepare(self, picture: Picture) -> None:
        now_s = time.monotonic()
        if now_s - self._topics_s >= _TOPICS_EVERY_S:
            self._topics_s = now_s
            self.questions.prepare(picture.snapshot)
        if now_s - self._dead_letters_s >= _DEAD_LETTERS_EVERY_S:
            self._dead_letters_s = now_s
            self.questions.answers.later(self._prepare_dead_letters)

    def _prepare_dead_letters(self) -> None:
        try:
            self.dead_letter_counts()
        except CannotAnswerError as error:  # the viewer who wants them will see it
            log.info("the dead letters are not known: %s", error.message)

    def dead_letter_counts(self) -> tuple[list[DeadLetterCount], Outcomes[Any]]:
        """Return the groups with dead letters, as `list_dead_letters` does. CannotAnswerError."""
        return self.questions.answers.get("dead letters", _DEAD_LETTERS_TTL_S, lambda: list_dead_letters(
            self.admin, self.masters(), None, self.questions.topics_of), _DEAD_LETTERS_STALE_S)

    def dead_letter_count(self, group: str) -> tuple[DeadLetterCount | None, Outcomes[Any]]:
        """Return how many dead letters a group has, as `list_dead_letters` does; None without any topic for them."""
        def ask() -> tuple[DeadLetterCount | None, Outcomes[Any]]:
            rows, outcomes = list_dead_letters(self.admin, self.masters(), glob.escape(group), self.questions.topics_of)
            return next(iter(rows), None), outcomes
        return self.questions.answers.get(("dead letters", group), _DEAD_LETTERS_TTL_S, ask)

    def picture(self) -> Picture:
        """Return the latest picture; raise QuestionError when the cluster has never answered."""
        latest = self.poller.latest or self.poller.wait_for_picture(_FIRST_PICTURE_S)
        if latest is None:
            raise QuestionError(self.poller.error or "the cluster has not answered yet")
        return latest

    def picture_with_groups(self) -> Picture:
        """Return the latest picture once the groups are known; raise QuestionError when they are not after a while."""
        latest = self.picture()
        if not latest.snapshot.groups_known:
            latest = self.poller.wait_until(self._groups_are_known, _FIRST_PICTURE_S) or latest
        if not latest.snapshot.groups_known:
            raise QuestionError("the groups are not known yet: the brokers have not reported them so far. Try again in "
                                "a few seconds")
        return latest

    def _groups_are_known(self) -> bool:
        return self.poller.latest is not None and self.poller.latest.snapshot.groups_known

    def masters(self) -> list[Broker]:
        """Return the masters of the shown cluster. CannotAnswerError without any."""
        return masters(self.admin, self.wanted.cluster, self.wanted.broker)

    def brokers(self, name: str | None = None) -> list[Broker]:
        """Return all brokers of the shown cluster, or those with a broker name. CannotAnswerError without any."""
        return brokers_of(self.admin, self.wanted.cluster, name or self.wanted.broker)
