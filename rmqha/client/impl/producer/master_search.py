"""A send was refused, or nobody was there to take it: another broker may be the master by now."""
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all
from rmqha.common.protocol import response_code
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingException,
    RemotingSendRequestException,
    RemotingTimeoutException,
)

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

_WAIT_MS = 500  # of one send, all tries together
_PAUSE_MS = 20


def has_slaves_only(route: TopicRouteData | None) -> bool:
    """Whether nobody is the master of a broker of a topic just now, while others of its replicas are there."""
    return route is not None and any(
        broker.brokerAddrs and mix_all.MASTER_ID not in broker.brokerAddrs for broker in route.brokerDatas)


def is_refusal(error: Exception) -> bool:
    """Whether the broker did not take the message: it is gone, not the master, or too few replicas follow it."""
    return isinstance(error, RemotingConnectException | RemotingSendRequestException) \
        or isinstance(error, MQBrokerException) and (
            error.response_code == response_code.SERVICE_NOT_AVAILABLE or _has_too_few_replicas(error))


def is_soon_over(error: Exception) -> bool:
    """Whether the broker, which lives, may take the message within moments, or another one may.

    A new master refuses until a slave of the old one has connected to it.
    """
    return isinstance(error, MQBrokerException) and is_refusal(error) and (
        mix_all.SOON_OVER in (error.error_message or "") or _has_too_few_replicas(error))


def _has_too_few_replicas(error: MQBrokerException) -> bool:
    return error.response_code == response_code.SYSTEM_ERROR and error.error_message == mix_all.TOO_FEW_IN_SYNC


def makes_route_doubtful(error: Exception) -> bool:
    """Whether the next send should not go by the route that is known."""
    return is_refusal(error) or isinstance(error, RemotingTimeoutException)


class MasterSearch:
    """Asks for the route for one send.

    Differs: a client of 4.9 goes by the route that it knows until it asks again, up to 30 s later, and uses up its
    tries at once at a new master that has no slave in sync yet.
    """

    def __init__(self, factory: MQClientInstance, topic: str, deadline_ns: int) -> None:
        self._factory = factory
        self._topic = topic
        self._deadline_ns = min(deadline_ns, time.monotonic_ns() + _WAIT_MS * 1_000_000)

    def ask(self) -> None:
        """Ask for the route once."""
        try:
            self._factory.update_topic_route_info_from_name_server(self._topic)
        except (RemotingException, MQClientException) as error:
            log.warning("no new route of topic %s: %s", self._topic, error)

    def wait_for_another(self, broker_name: str, refused: str | None) -> None:
        """Ask for a while, until another one than who has refused is the master of `broker_name`, if it has slaves."""
        self.ask()
        while self._may_change(broker_name, refused) and time.monotonic_ns() < self._deadline_ns:
            time.sleep(_PAUSE_MS / 1000)
            self.ask()

    def may_ask_again(self, broker_name: str, refused: str | None) -> bool:
        """Whether there is time for one more try, by a new route, after a pause if that leads to who has refused."""
        if time.monotonic_ns() >= self._deadline_ns:
            return False
        self.ask()
        if self._factory.find_broker_address_in_publish(broker_name) == refused:
            time.sleep(_PAUSE_MS / 1000)
        return True

    def _may_change(self, broker_name: str, refused: str | None) -> bool:
        addresses = self._factory.broker_addr_table.get(broker_name, {})
        master = self._factory.find_broker_address_in_publish(broker_name)
        return bool(addresses) if master is None else len(addresses) > 1 and master == refused

    def wait_for_any(self, is_there: Callable[[], bool]) -> None:
        """Ask for a while, until the topic has a master again."""
        while not is_there() and time.monotonic_ns() < self._deadline_ns:
            time.sleep(_PAUSE_MS / 1000)
            self.ask()
