"""What a producer is made of: its queues, its hooks, and the search for another broker.

A send was refused, or nobody was there to take it: another broker may be the master by now.

The queues that a topic can be sent to.

What a client instance needs of a producer.

The hooks of a producer.

From a route to the queues that can be sent to, and those that can be pulled.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

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
from rmqha.client.life import CauseLog, ThreadLocalIndex
from rmqha.client.results import CommunicationMode, SendCallback, SendResult
from rmqha.common import mix_all, sys_flags
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue, MessageType
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader
from rmqha.common.protocol.topic_route_data import QueueData, TopicRouteData
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingException,
    RemotingSendRequestException,
    RemotingTimeoutException,
)

if TYPE_CHECKING:
    from rmqha.client.impl.default_mq_producer_impl import DefaultMQProducerImpl
    from rmqha.client.impl.mq_client_instance import MQClientInstance
    from rmqha.client.producer.default_mq_producer import DefaultMQProducer


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


@dataclass
class TopicPublishInfo:
    """A topic's writable queues, taken in turns. Replaced as a whole when the route changes.

    Java: org.apache.rocketmq.client.impl.producer.TopicPublishInfo (4.9.8)
    """

    order_topic: bool = False
    have_topic_router_info: bool = False
    message_queue_list: list[MessageQueue] = field(default_factory=list)
    send_which_queue: ThreadLocalIndex = field(default_factory=ThreadLocalIndex)
    topic_route_data: TopicRouteData | None = None

    def ok(self) -> bool:
        """True when there is a queue to send to."""
        return bool(self.message_queue_list)

    def select_one_message_queue(self, last_broker_name: str | None = None) -> MessageQueue:
        """The next queue of this thread's turn, on another broker than `last_broker_name` when there is one."""
        queues = self.message_queue_list
        if last_broker_name is not None:
            for _ in queues:
                queue = queues[self.send_which_queue.increment_and_get() % len(queues)]
                if queue.brokerName != last_broker_name:
                    return queue
        return queues[self.send_which_queue.increment_and_get() % len(queues)]

    def get_queue_id_by_broker(self, broker_name: str) -> int:
        """How many queues of the topic `broker_name` takes messages for; -1 when none."""
        for data in self.topic_route_data.queueDatas if self.topic_route_data else ():
            if sys_flags.is_writeable(data.perm) and data.brokerName == broker_name:
                return data.writeQueueNums
        return -1


class MQProducerInner(Protocol):
    """A producer as the instance sees it: for heartbeats and routes.

    Java: org.apache.rocketmq.client.impl.producer.MQProducerInner (4.9.8)
    """

    def get_publish_topic_list(self) -> set[str]:
        """Topics whose routes are kept fresh."""

    def is_publish_topic_need_update(self, topic: str) -> bool:
        """True when nothing is known about where `topic` can be sent."""

    def check_transaction_state(
        self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader
    ) -> None:
        """A broker asks what became of a half message."""

    def update_topic_publish_info(self, topic: str, info: TopicPublishInfo) -> None:
        """Take over a new route."""


class ProducerHooks:
    """What users hung into a producer. Hooks are registered before `start`; then the lists are only read.

    Java: org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#executeSendMessageHookBefore (4.9.8)
    """

    def __init__(self, producer_impl: DefaultMQProducerImpl, producer: DefaultMQProducer) -> None:
        self._producer_impl = producer_impl
        self._producer = producer
        self.send_message_hook_list: list[SendMessageHook] = []
        self.end_transaction_hook_list: list[EndTransactionHook] = []
        self.check_forbidden_hook_list: list[CheckForbiddenHook] = []
        self.causes = CauseLog(log)  # what the user's code did wrong: hooks, callbacks, selectors, listeners

    def _call(self, hook: Any, context: Any) -> None:
        try:
            hook(context)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "failed to execute %s", getattr(hook, "__qualname__", hook))

    def check_forbidden(self, msg: Message, mq: MessageQueue, addr: str, mode: CommunicationMode) -> None:
        """MQClientException when a hook forbids the send."""
        if not self.check_forbidden_hook_list:
            return
        context = CheckForbiddenContext(self._producer.get_namesrv_addr(), self._producer.producer_group, msg, mq, addr,
                                        mode, self._producer.unit_mode)
        for hook in self.check_forbidden_hook_list:
            hook.check_forbidden(context)

    def before_send(
        self, msg: Message, mq: MessageQueue, addr: str, mode: CommunicationMode
    ) -> SendMessageContext | None:
        """Tell the hooks of a try; None when there are none."""
        if not self.send_message_hook_list:
            return None
        context = SendMessageContext(
            self._producer.producer_group, msg, mq, addr, self._producer.client_ip, mode, self._producer_impl,
            _message_type(msg), self._producer.get_namespace())
        for hook in self.send_message_hook_list:
            self._call(hook.send_message_before, context)
        return context

    def after_send(
        self, context: SendMessageContext | None, result: SendResult | None, error: Exception | None = None
    ) -> None:
        """Tell the hooks how the try ended."""
        if context is None:
            return
        context.send_result, context.exception = result, error
        for hook in self.send_message_hook_list:
            self._call(hook.send_message_after, context)

    def around(self, context: SendMessageContext | None, send_callback: SendCallback) -> SendCallback:
        """The callback, which tells the hooks first."""
        # Differs: the hooks of an asynchronous send are told once, at its end; 4.9.8 tells them at its begin too
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
        """Tell the hooks which end of a transaction goes to the broker next."""
        if not self.end_transaction_hook_list:
            return
        context = EndTransactionContext(self._producer.producer_group, msg, addr, msg_id, msg.transaction_id, state,
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


def topic_route_data2_topic_publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """The queues that can be sent to: write permission, and a master that is there.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicPublishInfo (4.9.8)
    """
    info = TopicPublishInfo(topic_route_data=route)
    if route.orderTopicConf:
        info.order_topic = True
        info.message_queue_list = _ordered_queues(topic, route.orderTopicConf)
        return info
    with_master = {broker.brokerName for broker in route.brokerDatas if mix_all.MASTER_ID in broker.brokerAddrs}
    for data in sorted(route.queueDatas, key=_broker_name):
        if sys_flags.is_writeable(data.perm) and data.brokerName in with_master:
            info.message_queue_list.extend(
                MessageQueue(topic, data.brokerName, queue_id) for queue_id in range(data.writeQueueNums))
    return info


def topic_route_data2_topic_subscribe_info(topic: str, route: TopicRouteData) -> set[MessageQueue]:
    """The queues that can be pulled: read permission; a slave alone will do.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicSubscribeInfo (4.9.8)
    """
    return {
        MessageQueue(topic, data.brokerName, queue_id)
        for data in route.queueDatas if sys_flags.is_readable(data.perm)
        for queue_id in range(data.readQueueNums)
    }


def topic_route_data_is_change(old: TopicRouteData | None, now: TopicRouteData) -> bool:
    """True unless both say the same, in whatever order.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteDataIsChange (4.9.8)
    """
    return old is None or _comparable(old) != _comparable(now)


def _comparable(route: TopicRouteData) -> tuple[object, ...]:
    queues = sorted(route.queueDatas, key=_broker_name)
    brokers = sorted(route.brokerDatas, key=lambda broker: broker.brokerName)
    return route.orderTopicConf, queues, brokers, route.filterServerTable


def _broker_name(data: QueueData) -> str:
    return data.brokerName


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for broker in order_topic_conf.split(";"):
        if broker:
            name, count = broker.split(":")
            queues.extend(MessageQueue(topic, name, queue_id) for queue_id in range(int(count)))
    return queues
