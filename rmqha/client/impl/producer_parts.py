"""Parts of a producer: the search for a new master after a failed send, and the hooks.

- `MasterSearch`: used if a send was refused or reached no broker, because another broker may be the master by now.
- `ProducerHooks`: the hooks of a producer.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.hooks import (
    CheckForbiddenContext,
    CheckForbiddenHook,
    EndTransactionContext,
    EndTransactionHook,
    LocalTransactionState,
    SendMessageContext,
    SendMessageHook,
)
from rmqha.client.impl.client_routes import ClientRoutes, MQProducerInner
from rmqha.client.life import CauseLog
from rmqha.client.producer.producer_config import ProducerConfig
from rmqha.client.results import CommunicationMode, SendCallback, SendResult
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageQueue, MessageType
from rmqha.common.protocol import response_code
from rmqha.common.protocol.topic_route_data import TopicRouteData
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingException,
    RemotingSendRequestException,
    RemotingTimeoutException,
)

log = logging.getLogger("RocketmqClient")

_WAIT_MS = 500  # for all tries of a send together
_PAUSE_MS = 20


def has_slaves_only(route: TopicRouteData | None) -> bool:
    """Return True if a broker of the topic has replicas but no master at the moment."""
    return route is not None and any(
        broker.brokerAddrs and mix_all.MASTER_ID not in broker.brokerAddrs for broker in route.brokerDatas)


def is_refusal(error: Exception) -> bool:
    """Return True if the broker did not accept the message: it is down, not the master, or has too few replicas."""
    return isinstance(error, RemotingConnectException | RemotingSendRequestException) \
        or isinstance(error, MQBrokerException) and (
            error.response_code == response_code.SERVICE_NOT_AVAILABLE or _has_too_few_replicas(error))


def is_soon_over(error: Exception) -> bool:
    """Return True if the broker is running and may accept the message shortly, or another broker may.

    For example, a new master refuses messages until a slave of the old master has connected to it.
    """
    return isinstance(error, MQBrokerException) and is_refusal(error) and (
        mix_all.SOON_OVER in (error.error_message or "") or _has_too_few_replicas(error))


def _has_too_few_replicas(error: MQBrokerException) -> bool:
    return error.response_code == response_code.SYSTEM_ERROR and error.error_message == mix_all.TOO_FEW_IN_SYNC


def makes_route_doubtful(error: Exception) -> bool:
    """Return True if the next send should not use the cached route."""
    return is_refusal(error) or isinstance(error, RemotingTimeoutException)


class MasterSearch:
    """A search for the current master during one send: it asks for the route again, for half a second at most.

    Differs: a send that finds no master asks for the route again. A client of 4.9 uses its cached route until the next
    update, up to 30 s later. It uses up its tries at once if a new master has no slave in sync yet.
    """

    def __init__(self, routes: ClientRoutes, topic: str, deadline_ns: int) -> None:
        self._routes = routes
        self._topic = topic
        self._deadline_ns = min(deadline_ns, time.monotonic_ns() + _WAIT_MS * 1_000_000)

    def ask(self) -> None:
        """Ask for the route once."""
        try:
            self._routes.update_topic_route_info_from_name_server(self._topic)
        except (RemotingException, MQClientException) as error:
            log.warning("failed to get a new route of topic %s: %s", self._topic, error)

    def wait_for_another(self, broker_name: str, refused: str | None) -> None:
        """Ask repeatedly until a broker other than `refused` is the master of `broker_name`, or time is up.

        If `refused` is the master and has no slaves, ask only once: no other broker can become the master.
        """
        self.ask()
        while self._may_change(broker_name, refused) and time.monotonic_ns() < self._deadline_ns:
            time.sleep(_PAUSE_MS / 1000)
            self.ask()

    def may_try_again(self, broker_name: str, refused: str | None, error: Exception) -> bool:
        """Return True if a send that failed with `error` may be tried again beyond its tries, until time is up.

        It may if the broker says that it may soon accept messages, or if the connection to a master that has slaves was
        refused or lost: `refused` may be an address that moves with the master (see masterAddress). Ask for the route
        until it has a master; pause if that is still `refused`.
        """
        replicas = self._routes.broker_addr_table.get(broker_name, {})
        is_lost = isinstance(error, RemotingConnectException | RemotingSendRequestException)
        if not is_soon_over(error) and not (is_lost and len(replicas) > 1):
            return False
        while time.monotonic_ns() < self._deadline_ns:
            self.ask()
            master = self._routes.find_broker_address_in_publish(broker_name)
            if master not in (None, refused) or not self._routes.broker_addr_table.get(broker_name):
                return True
            time.sleep(_PAUSE_MS / 1000)
            if master is not None:
                return True
        return False

    def _may_change(self, broker_name: str, refused: str | None) -> bool:
        addresses = self._routes.broker_addr_table.get(broker_name, {})
        master = self._routes.find_broker_address_in_publish(broker_name)
        return bool(addresses) if master is None else len(addresses) > 1 and master == refused

    def wait_for_any(self, is_there: Callable[[], bool]) -> None:
        """Ask repeatedly until the topic has a master again, or time is up."""
        while not is_there() and time.monotonic_ns() < self._deadline_ns:
            time.sleep(_PAUSE_MS / 1000)
            self.ask()


class ProducerHooks:
    """The hooks of a producer. They are registered before `start`; after that the lists are only read.

    Java: org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#executeSendMessageHookBefore (4.9.8)
    """

    def __init__(self, producer: MQProducerInner, config: ProducerConfig) -> None:
        self._producer = producer
        self._config = config
        self.send_message_hook_list: list[SendMessageHook] = []
        self.end_transaction_hook_list: list[EndTransactionHook] = []
        self.check_forbidden_hook_list: list[CheckForbiddenHook] = []
        # Errors of the user's hooks, callbacks, selectors and listeners
        self.causes = CauseLog(log)

    def _call(self, hook: Any, context: Any) -> None:
        try:
            hook(context)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "failed to execute %s", getattr(hook, "__qualname__", hook))

    def check_forbidden(self, msg: Message, mq: MessageQueue, addr: str, mode: CommunicationMode) -> None:
        """Raise MQClientException if a hook forbids the send."""
        if not self.check_forbidden_hook_list:
            return
        context = CheckForbiddenContext(self._config.get_namesrv_addr(), self._config.producer_group, msg, mq, addr,
                                        mode, self._config.unit_mode)
        for hook in self.check_forbidden_hook_list:
            hook.check_forbidden(context)

    def before_send(
        self, msg: Message, mq: MessageQueue, addr: str, mode: CommunicationMode
    ) -> SendMessageContext | None:
        """Call the hooks before a try; return None if no hooks are registered."""
        if not self.send_message_hook_list:
            return None
        context = SendMessageContext(
            self._config.producer_group, msg, mq, addr, self._config.client_ip, mode, self._producer,
            _message_type(msg), self._config.get_namespace())
        for hook in self.send_message_hook_list:
            self._call(hook.send_message_before, context)
        return context

    def after_send(
        self, context: SendMessageContext | None, result: SendResult | None, error: Exception | None = None
    ) -> None:
        """Call the hooks after a try."""
        if context is None:
            return
        context.send_result, context.exception = result, error
        for hook in self.send_message_hook_list:
            self._call(hook.send_message_after, context)

    def around(self, context: SendMessageContext | None, send_callback: SendCallback) -> SendCallback:
        """Return a callback that calls the hooks first, then `send_callback`."""
        # Differs: the hooks after an asynchronous send are called once, at its end; 4.9.8 calls them at its start too
        if context is None:
            return send_callback

        def on_success(result: SendResult) -> None:
            self.after_send(context, result)
            send_callback.on_success(result)

        def on_exception(error: Exception) -> None:
            self.after_send(context, None, error)
            send_callback.on_exception(error)

        return SendCallback(on_success, on_exception)

    def end_transaction(
        self, msg: Message, msg_id: str | None, addr: str, state: LocalTransactionState, from_transaction_check: bool
    ) -> None:
        """Call the hooks before the outcome of a transaction is sent to the broker."""
        if not self.end_transaction_hook_list:
            return
        context = EndTransactionContext(self._config.producer_group, msg, addr, msg_id, msg.transaction_id, state,
                                        from_transaction_check)
        for hook in self.end_transaction_hook_list:
            self._call(hook.end_transaction, context)


def _message_type(msg: Message) -> MessageType:
    if msg.get_property("__STARTDELIVERTIME") is not None \
            or msg.get_property(message_const.PROPERTY_DELAY_TIME_LEVEL) is not None:
        return MessageType.Delay_Msg
    if msg.get_property(message_const.PROPERTY_TRANSACTION_PREPARED) == "true":
        return MessageType.Trans_Msg_Half
    return MessageType.Normal_Msg
